"""The run record: what is written is read again, whatever is damaged is one sentence."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.ranrecord import Git, Ran
from perfpipe.runrecord import (
    RUN_COLUMNS,
    TASK_COLUMNS,
    GpuState,
    Kernel,
    OneGpu,
    Recorded,
    RunRecord,
    Spread,
    TaskResult,
    Validation,
    run_row,
    task_row,
)
from perfpipe.store import Store
from perfpipe.verify import verify

INTEGERS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = INTEGERS | st.floats(allow_nan=False)
#: Other times are not kept.
FINITE = INTEGERS | st.floats(allow_nan=False, allow_infinity=False)
#: Texts that UTF-8 can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


def _stated(kind: Any) -> st.SearchStrategy[Any]:
    """What a program states, as `of` keeps it: anything at all by any name."""
    names = st.sampled_from([item.name for item in fields(kind)]) | TEXTS
    return st.dictionaries(names, st.none() | NUMBERS | TEXTS | st.lists(TEXTS)).map(kind.of)


SPREADS = st.none() | st.builds(Spread, NUMBERS, NUMBERS, NUMBERS)
COUNTS = st.integers(0, 2**31)
PAIRS = st.dictionaries(TEXTS, TEXTS, max_size=3)
GPUS = st.builds(OneGpu, COUNTS, COUNTS, SPREADS, SPREADS, SPREADS, SPREADS, SPREADS,
                 st.lists(TEXTS).map(tuple))  # fmt: skip
STATES = st.builds(GpuState, COUNTS, st.lists(GPUS, max_size=2).map(tuple), st.none() | TEXTS)
TIMES = st.lists(FINITE, max_size=4).map(tuple)
GITS = st.builds(Git, TEXTS, st.none() | TEXTS, st.booleans())
RAN = st.builds(Ran, TEXTS, TEXTS, NUMBERS, machine=st.none() | TEXTS, git=st.none() | GITS)
RESULTS = st.builds(
    TaskResult,
    index=COUNTS,
    label=TEXTS,
    params=st.dictionaries(TEXTS, st.booleans() | NUMBERS | TEXTS, max_size=3),
    status=TEXTS,
    error=st.none() | TEXTS,
    flops=st.none() | NUMBERS,
    generation=st.none() | COUNTS,
    times_ms=TIMES,
    launches_ms=st.lists(TIMES, max_size=2).map(tuple),
    reports=st.lists(TEXTS, max_size=2).map(tuple),
    kernel=st.none() | _stated(Kernel),
    validation=st.none() | _stated(Validation),
    gpu_state=st.none() | STATES,
    software=st.none() | PAIRS,
    seconds=TIMES,
    profiler_s=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    command=st.lists(TEXTS, max_size=2).map(tuple),
    variant=st.lists(TEXTS, max_size=2).map(tuple),
    ran=st.none() | RAN,
)
RECORDS = st.builds(
    RunRecord,
    run_id=st.just("r"),
    workload=TEXTS,
    collector=TEXTS,
    started_at=TEXTS,
    tasks=st.lists(RESULTS, max_size=3).map(tuple),
    ended_at=st.none() | TEXTS,
    recording=st.none() | st.builds(Recorded, TEXTS, TEXTS, PAIRS),
    provenance=PAIRS,
)

TASK = TaskResult(
    3, "m=1 n=2", {"m": 1, "n": 2}, times_ms=(3, 1.0, 2), flops=2**60 + 1, reports=("a",),
    kernel=Kernel(registers=40),
    gpu_state=GpuState(9, (OneGpu(0, sm_mhz=Spread(1, 1980, 3), throttled_by=("power cap",)),)),
)  # fmt: skip
RUN = RunRecord("r", "w", "all", "2026-01-01T00:00:00Z", reports=("a",), tasks=(TASK,))


@given(RECORDS)
def test_what_is_written_is_read_again(record: RunRecord) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / record.run_id / "run.json"
        path.parent.mkdir()
        record.write(path)
        assert RunRecord.read(path) == record
    rows = [task_row(record, task) for task in record.tasks]
    assert all(len(row) == len(TASK_COLUMNS) for row in rows)
    assert len(run_row(record)) == len(RUN_COLUMNS)


def test_a_file_of_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write_run(RUN) / "run.json"
    assert store.run("r") == RUN
    document = json.loads(path.read_text())
    document["invented"] = document["tasks"][0]["invented"] = [{"a": 1}]
    path.write_text(json.dumps(document))
    assert store.run("r") == RUN, "unknown keys are passed over"


def test_an_older_record_is_read(tmp_path: Path) -> None:
    """As 0.1.0 wrote its first runs: no failure, generation, method, kernel or state of the GPU."""
    task = {"index": 0, "label": "a=1", "params": {"a": 1}, "key": "k", "status": "done",
            "error": None, "flops": None, "bytes": None, "dtype": None, "times_ms": [1.0],
            "validation": {"ok": True, "max_abs_error": 0.5, "cosine": 1.0}, "reports": ["x"],
            "files": []}  # fmt: skip
    path = tmp_path / "runs" / "old" / "run.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({
        "schema_version": 1, "run_id": "old", "workload": "w", "workload_file": "w.yaml",
        "collector": "replay", "started_at": "2026-01-01T00:00:00Z", "status": "done",
        "reports": ["x"], "tasks": [task], "recording": None, "provenance": {}}))  # fmt: skip
    (run,) = Store(tmp_path).runs()
    (result,) = run.tasks
    assert (run.replayed, result.done, result.median_ms, result.gpu_state) == (True, True, 1, None)
    assert (result.wall_s, result.profiler_s) == (None, {})
    assert result.validation == Validation(ok=True, max_abs_error=0.5, more={"cosine": 1.0})


def test_what_a_program_states_is_kept_but_never_believed() -> None:
    said = {
        "registers": "many",
        "spills": True,
        "warps": 10**400,
        "stages": 3,
        "tile": 64,
        "x": [1],
    }
    kernel = Kernel(stages=3, more={"registers": "many", "spills": True, "tile": 64})
    assert Kernel.of(said) == kernel
    assert Kernel.of(vars(kernel)) == kernel
    assert decode(float, 2**70) == 2**70
    for kind, value in ((float, 10**400), (int, 2**63), (int, True), (float, False), (int, 1.0)):
        with pytest.raises(ValueError, match="the value is"):
            decode(kind, value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"schema_version": 2},
            "schema version 2, but this perfpipe reads 1; use the perfpipe version that",
        ),
        ({"schema_version": None}, "schema version None"),
        ({"tasks": [{}]}, "not a complete run record (tasks[0].index is missing)"),
        ({"tasks": None}, "not a complete run record (tasks is None)"),
        ({"workload": 3}, "not a complete run record (workload is 3)"),
        ({"reports": [["a"]]}, "not a complete run record (reports[0] is ['a'])"),
        ({"recording": {"gpu": "H200"}}, "(recording.captured_at is missing)"),
        ({"run_id": "../../x"}, "the run id '../../x' is not a plain file name"),
        ({"run_id": ".."}, "not a plain file name"),
        ({"run_id": "a\\b"}, "not a plain file name"),
        ({"run_id": ""}, "not a plain file name"),
    ],
)
def test_damage_is_one_sentence(
    change: dict[str, Any],
    sentence: str,
    cli: Cli,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A damaged run, or one of another version, is left out with a warning."""
    path = Store(tmp_path / "store").write_run(RUN) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for words in (("report", "--tuning"), ("report", "--index", tmp_path / "pages")):
        caplog.clear()
        assert cli(*words) == 2
        assert sentence in caplog.text
        assert len(cli.err.splitlines()) == 1
    assert cli("report", "r") == 2
    assert sentence in cli.err, "the reason, where the run is named"
    assert not (tmp_path / "pages").exists()
    ((name, fault),) = verify(Store(tmp_path / "store"))
    assert name == "r"
    assert sentence in str(fault)


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 1', "[" * 100_000, "\0"])
def test_what_is_no_record(text: str, tmp_path: Path) -> None:
    path = Store(tmp_path).write_run(RUN) / "run.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="cannot read the run record"):
        Store(tmp_path).run("r")
    assert Store(tmp_path).runs() == [], "it does not keep others from being read"


def test_a_run_id_names_no_other_place(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a plain file name"):
        Store(tmp_path / "a" / "b").write_run(replace(RUN, run_id="../../x"))
    assert not list(tmp_path.iterdir())


def test_rows_are_those_of_the_record() -> None:
    row = dict(zip([name for name, *_ in TASK_COLUMNS], task_row(RUN, TASK), strict=True))
    assert row["run_id"] == "r"
    assert row["task_index"] == 3
    assert (row["median_ms"], row["registers"], row["spills"]) == (2.0, 40, None)
    assert (row["sm_mhz"], row["power_w"], row["throttled_by"]) == (1980.0, None, ["power cap"])
    assert row["params"] == '{"m": 1, "n": 2}'
    assert row["short_label"] == "m=1 n=2", "none differs within the run"
    other = replace(TASK, index=4, params={"m": 1, "n": 5}, gpu_state=None)
    two = replace(RUN, tasks=(TASK, other))
    assert [task_row(two, task)[-1] for task in two.tasks] == ["n=2", "n=5"]
    with duckdb.connect() as con:
        for name, columns, rows in (
            ("runs", RUN_COLUMNS, [run_row(two)]),
            ("run_tasks", TASK_COLUMNS, [task_row(two, task) for task in two.tasks]),
        ):
            con.execute(
                f"CREATE TABLE {name} ({', '.join(f'{n} {kind}' for n, kind, _ in columns)})"
            )
            con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
        assert con.execute("SELECT flops, throttled_by FROM run_tasks").fetchall() == [
            (float(2**60), ["power cap"]),
            (float(2**60), None),
        ]
