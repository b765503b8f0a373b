from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perfpipe.pipelines.slurm.options import Slurm, clock, merged, seconds, shape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", "0-00:30:00"),
        ("1h30m", "0-01:30:00"),
        ("90m", "0-01:30:00"),
        ("2d", "2-00:00:00"),
        ("90s", "0-00:01:30"),
        ("2:00:00", "0-02:00:00"),
        ("48:00:00", "2-00:00:00"),
        ("1-12:00:00", "1-12:00:00"),
    ],
)
def test_times_come_out_as_slurm_reads_them(text: str, expected: str) -> None:
    assert Slurm(time=text).time == expected


@pytest.mark.parametrize(
    "text", ["30", 30, 5400, 1.5, "90:00", "1:30", "1-12", "", "0m", "0:00:00", "1-30:00:00",
             "1:75:00", "m", "h30", "30m1h", "-5m", "infinite", None, True]
)  # fmt: skip
def test_times_that_could_be_misread_are_refused(text: object) -> None:
    with pytest.raises(ValidationError, match=r"write 30m, 1h30m, 2:00:00 or 1-12:00:00"):
        Slurm.model_validate({"time": str(text) if text is None else text})


@given(st.integers(1, 10**7))
def test_a_written_time_reads_back(total: int) -> None:
    assert seconds(clock(total)) == total
    assert seconds(f"{total}s") == total
    assert seconds(f"{total // 60}m{total % 60}s") == total


@given(st.text("0123456789dhms:-", max_size=12))
def test_a_time_is_refused_or_read_as_slurm_would(text: str) -> None:
    try:
        total = seconds(text)
    except ValueError:
        return
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    if ":" in text:
        days, _, of_day = text.rpartition("-")
        h, m, s = (int(part) for part in of_day.split(":"))
        assert total == int(days or 0) * 86400 + h * 3600 + m * 60 + s
    else:
        number, expected = "", 0
        for letter in text:
            if letter in units:
                expected += int(number) * units[letter]
                number = ""
            else:
                number += letter
        assert (total, number) == (expected, "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mem": 64}, "64 is not an amount of memory; write 64G"),
        ({"mem": "64"}, "write 64G"),
        ({"mem": "64GB"}, "write 64G"),
        ({"gpus": -1}, "greater than or equal to 0"),
        ({"extra": ["--array=0-3"]}, "--array is set by perfpipe"),
        ({"extra": ["-o", "x"]}, "-o is set by perfpipe"),
        ({"extra": ["qos=x"]}, "not an sbatch option"),
        ({"extra": ["--qos=x\n#SBATCH --uid=0"]}, "contains a line break"),
        ({"partition": 'a" --uid="0'}, "a quote"),
        ({"partition": ""}, "is empty"),
        ({"nodez": 2}, "nodez"),
    ],
)
def test_what_slurm_would_misread_is_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Slurm.model_validate(options)


def test_all_memory_of_a_node_is_zero() -> None:
    assert Slurm.model_validate({"mem": 0}).mem == "0"


def test_later_layers_replace_what_they_state() -> None:
    site = Slurm.model_validate(
        {
            "partition": "gpu",
            "setup": ["module load cuda"],
            "container": {"runtime": "pyxis", "mounts": ["/data"]},
        }
    )
    workload = Slurm.model_validate(
        {"gpus": 4, "setup": [], "container": {"image": "x.sqsh"}, "time": "1h"}
    )
    both = merged(site, None, workload, Slurm(gpus=2))
    assert (both.partition, both.gpus, both.setup, both.limit_s) == ("gpu", 2, [], 3600)
    assert both.container.model_dump() == {
        "image": "x.sqsh", "runtime": "pyxis", "mounts": ["/data"], "options": []
    }  # fmt: skip
    assert merged() == Slurm()


def test_a_shape_is_all_that_a_job_asks_for() -> None:
    one = Slurm(gpus=2, time="60m")
    assert shape(one) == shape(Slurm(gpus=2, time="1h", array_parallelism=3, tasks_per_job=9))
    assert len({shape(one), shape(Slurm(gpus=4, time="1h")), shape(Slurm(gpus=2))}) == 3
