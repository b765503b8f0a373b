from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.slurm.limits import parse_limits, parse_partitions, time_s
from perfpipe.pipelines.slurm.render import compact_array
from perfpipe.pipelines.slurm.states import JobState, State, indices, parse_sacct, parse_squeue

#: squeue -r -O with SQUEUE_FIELDS, as Slurm 22.05 printed it.
SQUEUE = """\
slurm_load_jobs: a site's message of the day
2|2|PENDING|0|N/A|N/A||JobArrayTaskLimit|
1|1|RUNNING|0|1795358736|1795359036|n1|None|
1|5|FAILED|768|1795358742|1795358745|n1|NonZeroExitCode|
19|24,26,28,30%3|PENDING|0|N/A|N/A||Resources|
19|22|CANCELLED|15|1795358760|1795358761|n2|None|
7|N/A|COMPLETED|0|1795358700|1795358701|n[1-2]|None|
"""

#: sacct -X -P -n, of an array that was canceled and whose rows had not all arrived.
SACCT = """\
19_[22,24,26,28,30%3]|PENDING|0:0|Unknown|Unknown|None assigned|JobArrayTaskLimit
19_[22,24,26,28,30%3]|CANCELLED by 0|0:0|None|1795358761|None assigned|JobArrayTaskLimit
19_22|FAILED|0:11|1795358760|1795358761|n1|None
19_22.batch|COMPLETED|0:0|1795358760|1795358761|n1|
1_5|FAILED|3:0|1795358742|1795358745|n1|JobArrayTaskLimit
"""


def test_rows_of_squeue() -> None:
    states = {row.element: row for row in parse_squeue(SQUEUE)}
    assert states["1", 5] == JobState(
        "1", 5, State.FAILED, 3, None, "NonZeroExitCode", "n1", 1795358742, 1795358745
    )
    # The end that is printed of a running job is its time limit.
    assert states["1", 1] == JobState("1", 1, State.RUNNING, node="n1", started=1795358736)
    assert states["2", 2] == JobState("2", 2, State.PENDING, reason="JobArrayTaskLimit")
    assert states["19", 22].signal == 15
    assert [states["19", i].state for i in (24, 26, 28, 30)] == [State.PENDING] * 4
    assert states["7", None].node == "n[1-2]"
    assert len(states) == 9


def test_own_rows_and_ends_count_more_than_a_range() -> None:
    rows = parse_sacct(SACCT)
    assert {row.array_index: row.state for row in rows if row.job == "19"} == {
        22: State.FAILED, 24: State.CANCELLED, 26: State.CANCELLED,
        28: State.CANCELLED, 30: State.CANCELLED,
    }  # fmt: skip
    assert {row.element: row for row in rows}["19", 22].signal == 11
    backward = parse_sacct("\n".join(reversed(SACCT.splitlines())))
    assert sorted(map(repr, backward)) == sorted(map(repr, rows))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", State.CANCELLED),
        ("CANCELLED+", State.CANCELLED),
        ("NODE_FAIL", State.NODE_FAIL),
        ("BOOT_FAIL", State.NODE_FAIL),
        ("PREEMPTED", State.PREEMPTED),
        ("OUT_OF_MEMORY", State.OUT_OF_MEMORY),
        ("DEADLINE", State.TIMEOUT),
        ("TIMEOUT", State.TIMEOUT),
        ("COMPLETING", State.RUNNING),
        ("REQUEUED", State.PENDING),
        ("NEW_WORD", State.UNKNOWN),
        ("", State.UNKNOWN),
    ],
)
def test_states_by_their_first_word(text: str, state: State) -> None:
    (row,) = parse_sacct(f"12_3|{text}|0:9|1795358742|1795358745|n1|None")
    assert row.state is state
    assert row.signal == (9 if state.final else None)
    assert (row.reason == f"unknown Slurm state {text!r}") is (state is State.UNKNOWN)


@pytest.mark.parametrize("job", ["12", "12;alpha", "12+0"])
def test_ids_of_federations_and_of_several_components(job: str) -> None:
    (row,) = parse_sacct(f"{job}|COMPLETED|0:0|Unknown|1795358745|n1|")
    assert row.element == ("12", None)
    assert (row.started, row.ended, row.reason) == (None, 1795358745, None)


@given(st.sets(st.integers(0, 60)), st.sampled_from(["", "%1", "%16"]))
def test_indices_survive_slurms_notation(wanted: set[int], limit: str) -> None:
    text = compact_array(wanted)
    assert indices(text + limit) == sorted(wanted)
    # No shorter list of ranges says the same.
    starts = [i for i in wanted if i - 1 not in wanted]
    assert len([part for part in text.split(",") if part]) == len(starts)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 4))))
def test_ranges_with_steps(parts: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{a}-{a + n}:{step}" for a, n, step in parts)
    assert indices(text) == [i for a, n, step in parts for i in range(a, a + n + 1, step)]


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert parse_squeue(text) == [] or "|" in text
    assert parse_sacct(text) == [] or "|" in text


CONFIG = """\
Configuration data as of 2026-11-22T14:50:00
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = alpha
MaxArraySize            = 1001
MaxJobCount             = 10000
SLURM_VERSION           = 22.05.8
"""
SINFO = """\
gpu*|up|1-00:00:00|30:00|2/4/1/7|128|1031000+|gpu:h100:8(S:0-1),gpu:a100:4|nvlink,ib
gpu*|up|1-00:00:00|30:00|0/1/0/1|64|515000|gpu:a100:4|nvlink
cpu|down|infinite|n/a|0/10/0/10|128+|257000|(null)|(null)
"""


def test_limits_of_a_cluster() -> None:
    limits = parse_limits(CONFIG, SINFO, "300|1000\n200|\n")
    assert (limits.cluster, limits.version, limits.accounting) == ("alpha", "22.05.8", True)
    assert (limits.max_array_size, limits.max_jobs, limits.max_submit) == (1001, 10000, 200)
    gpu, cpu = limits.partitions
    assert limits.partition(None) == gpu
    assert limits.partition("cpu") == cpu
    assert limits.partition("nix") is None
    assert (gpu.name, gpu.default, gpu.up, gpu.nodes, gpu.idle) == ("gpu", True, True, 8, 5)
    assert (gpu.gpus, gpu.gpu_types, gpu.features) == (12, ("h100", "a100"), ("nvlink", "ib"))
    assert (gpu.max_time_s, gpu.default_time_s, gpu.memory_mb) == (86400, 1800, 1031000)
    assert (cpu.gpus, cpu.up, cpu.max_time_s, cpu.cpus, cpu.features) == (0, False, None, 128, ())


def test_limits_that_are_not_told_are_absent() -> None:
    limits = parse_limits("AccountingStorageType = accounting_storage/none\n", "", "")
    assert (limits.accounting, limits.max_array_size, limits.max_submit) == (False, None, None)
    assert parse_partitions("sinfo: something else\n") == ()


@given(st.integers(0, 40), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_times_of_partitions(d: int, h: int, m: int, s: int) -> None:
    total = ((d * 24 + h) * 60 + m) * 60 + s
    forms = [f"{d}-{h:02}:{m:02}:{s:02}"]
    forms += [f"{h}:{m:02}:{s:02}"] if not d else []
    forms += [f"{m}:{s:02}"] if not d and not h else []
    assert {time_s(form) for form in forms} == {total}
