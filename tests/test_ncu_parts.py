"""Launches of an .ncu-rep that several processes read: the same tables, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import parting
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kills import heed_signals

from perfpipe.errors import InputError
from perfpipe.ingest import workers
from perfpipe.ingest.ncu import rep
from perfpipe.ingest.ncu.container import KERNELS, read_container
from perfpipe.ingest.ncu.lean import LeanCopies, Result
from perfpipe.ingest.ncu.parts import PartRead, split
from perfpipe.ingest.outcome import Outcome
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.workers import Workers
from perfpipe.pipelines.ingesting import Failure, _ingest, _Task, ingest_many
from perfpipe.pipelines.workers import end_idle_workers
from perfpipe.store import Store

Expand = Callable[[str], Path]
Ingested = Callable[[str], str]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Any work is worth a process."""
    monkeypatch.setattr(workers, "_WORTH_S", 0)
    monkeypatch.setattr(workers, "_SHARE_S", 1e-9)
    yield
    end_idle_workers()


def _tables(store: Store, report_id: str) -> dict[str, bytes]:
    names = store.manifest(report_id).tables
    return {name: store.table_path(report_id, name).read_bytes() for name in names}


def _task(path: Path, store: Store, jobs: int = 2) -> _Task:
    return _Task(path, store, False, jobs, 120, None)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["visible", "multi", "range", "pm"])
def test_parts_give_the_same_bytes_as_the_whole(
    name: str, captures: Store, ingested: Ingested, expand: Expand, store: Store
) -> None:
    report = ingested(f"ncu/{name}.ncu-rep")
    ingest(expand(f"ncu/{name}.ncu-rep"), store, workers=Workers(4, map))
    assert _tables(store, report) == _tables(captures, report)


@pytest.mark.usefixtures("eager")
def test_processes_give_the_same_bytes_as_one(
    captures: Store, ingested: Ingested, expand: Expand, store: Store, monkeypatch: Any
) -> None:
    report = ingested("ncu/multi.ncu-rep")
    readers: set[int] = set()

    def told(self: PartRead) -> Iterator[Any]:
        readers.add(int(self.path.with_suffix(".pid").read_text()))
        return launches(self)

    launches = PartRead.launches
    monkeypatch.setattr(PartRead, "launches", told)
    monkeypatch.setattr(rep, "read_part", parting.read_and_tell)
    outcome = _ingest(_task(expand("ncu/multi.ncu-rep"), store))
    assert isinstance(outcome, Outcome)
    assert _tables(store, report) == _tables(captures, report)
    assert len(readers - {os.getpid()}) == 2


@pytest.mark.usefixtures("eager")
def test_a_crash_in_a_part_fails_the_input(expand: Expand, store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(rep, "read_part", parting.crash)
    path = expand("ncu/multi.ncu-rep")
    failure = _ingest(_task(path, store))
    assert isinstance(failure, Failure)
    assert str(failure.error) == f"{path}: the reader crashed (exit code 3); nothing was stored"
    assert store.report_ids() == []
    assert store.leftovers() == []


@pytest.mark.usefixtures("eager")
def test_damage_in_a_part_is_told_as_in_the_whole(
    expand: Expand, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "damaged.ncu-rep"
    content = bytearray(expand("ncu/multi.ncu-rep").read_bytes())
    result = LeanCopies(read_container(expand("ncu/multi.ncu-rep"))).results[-1]
    # The tag of the name, behind the length of the message.
    content[result.place + 4 + int(result.metrics[3, 0])] = 7
    path.write_bytes(content)
    with pytest.raises(InputError, match="the report is damaged") as alone:
        ingest(path, store)
    failure = _ingest(_task(path, store))
    assert isinstance(failure, Failure)
    assert str(failure.error) == str(alone.value)
    assert store.leftovers() == []


def test_a_large_report_is_read_by_a_worker_with_workers(
    expand: Expand, store: Store, tmp_path: Path, captures: Store, ingested: Ingested
) -> None:
    """Many small launches: what `ingest_many` starts for it starts others."""
    path = tmp_path / "many.ncu-rep"
    content = expand("ncu/pm.ncu-rep").read_bytes()
    container = read_container(expand("ncu/pm.ncu-rep"))
    results = b"".join(
        content[block.start - 4 - len(block.header) : block.end]
        for block in container.blocks
        if block.contents and None not in block.contents
    )
    path.write_bytes(content + results * 299)
    assert len(split(LeanCopies(read_container(path)), tmp_path, Workers(2))) == 2
    (outcome,) = ingest_many([path], store, jobs=2)
    assert isinstance(outcome, Outcome), outcome.error
    once = captures.manifest(ingested("ncu/pm.ncu-rep")).tables
    again = store.manifest(outcome.report_id).tables
    assert {name: table.rows for name, table in again.items()} == {
        name: 300 * table.rows for name, table in once.items()
    }


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 10**8)), max_size=40),
    st.integers(1, 6),
)
def test_launches_are_split_evenly(launches: list[tuple[int, int, int]], jobs: int) -> None:
    """Each is in one part, in order; few functions are in two; no part has much more work."""
    results = [
        Result(KERNELS, 0, np.array([[0, size]]), b"", bytes([module]), (), 10 * module + function)
        for module, function, size in launches
    ]
    copies: Any = SimpleNamespace(results=results)
    parts = split(copies, Path("parts"), Workers(jobs))
    told = [launch for part in parts for launch in part.launches]
    assert sorted(told) == list(range(len(launches)))
    assert all(list(part.launches) == sorted(part.launches) for part in parts)
    assert len({part.target for part in parts}) == len(parts) <= max(jobs, 1)
    functions = [{results[launch].function for launch in part.launches} for part in parts]
    every = set[int]().union(*functions)
    assert sum(map(len, functions)) <= len(every) + max(0, len(parts) - 1)
    if parts and jobs > 1:
        size = [sum(launches[launch][2] for launch in part.launches) for part in parts]
        work = 1e-8 * sum(size) + 0.006 * len(launches) + 0.03 * len(every)
        most = 1 if work < 3 else max(1, min(jobs, int(work)))
        largest = 1e-8 * max((size for *_, size in launches), default=0) + 0.036
        assert max(size) * 1e-8 <= work / most + largest


#: What a worker does that has workers, which tell that they are there and wait for ever.
NESTED = """
import os, signal, time
from pathlib import Path
from perfpipe.pipelines.workers import spread

def nest(told):
    list(spread(wait, [f"{told}.1", f"{told}.2"], jobs=2, limit_s=600))

def wait(told):
    def end(*_):
        time.sleep(0.5)
        Path(told + ".ended").touch()
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    Path(told).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
"""

#: The process that has that worker.
PROGRAM = """
import sys
from nested import nest
from perfpipe.pipelines.workers import spread
if __name__ == "__main__":
    list(spread(nest, [sys.argv[1]], jobs=1, limit_s=600))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_of_workers_end_with_the_process(number: signal.Signals, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "nested.py").write_text(NESTED)
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "told")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        preexec_fn=heed_signals,
    )
    paths = [tmp_path / f"told.{index}" for index in (1, 2)]
    _until(lambda: all(path.exists() and path.read_text() for path in paths))
    readers = [int(path.read_text()) for path in paths]
    assert all(map(_alive, readers))
    process.send_signal(number)
    process.wait(60)
    if number == signal.SIGINT:
        assert not any(map(_alive, readers)), "nothing is left when it returns"
        assert all(path.with_suffix(f"{path.suffix}.ended").exists() for path in paths)
    _until(lambda: not any(map(_alive, readers)))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_launch_without_a_name_is_damage() -> None:
    """NVIDIA's reader returns None where the text is not in the report."""
    with pytest.raises(ValueError, match="a launch has no name"):
        rep._name(SimpleNamespace(name=lambda _: None), 0)
