"""Backtraces of native code in nsys exports, and stacks in scrubbed exports."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Opened
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.ingest.host_stacks import HostStacks
from perfpipe.ingest.nsys.export import Export
from perfpipe.ingest.nsys.native_stacks import add_native_stacks
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.store import Store

CPP, PYTHON = "stacks/backtraces_cpp.sqlite", "stacks/backtraces_python.sqlite"

STACKS = """
    SELECT s.source, s.correlation_id, s.time_ns, s.start_ns, s.end_ns,
        list(f.function ORDER BY k.depth), list(f.kind ORDER BY k.depth),
        list(f.package ORDER BY k.depth)
    FROM host_samples AS s
    JOIN host_stacks AS k USING (report_id, stack_id)
    JOIN host_frames AS f USING (report_id, frame_id)
    GROUP BY ALL ORDER BY ALL
"""


def _rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    con = sqlite3.connect(path)
    found = con.execute(sql).fetchall()
    con.close()
    return found


def _stacks(path: Path, store: Store) -> list[tuple[Any, ...]]:
    with Session.open(store, [ingest(path, store).report_id]) as session:
        return session.execute(STACKS).fetchall()


def test_a_launch_of_a_cpp_program(opened: Opened) -> None:
    """The launching stub has the name of the kernel, and frames of the profiler come first."""
    with opened(CPP) as session:
        rows = session.execute(STACKS).fetchall()
    found = {
        (*row[5:7],)
        for row in ((*r[:5], tuple(r[5]), tuple(r[6])) for r in rows)
        if row[0] == "cuda backtrace" and "cudaLaunchKernel" in row[5]
    }
    ((functions, kinds),) = found
    assert functions == (
        "[unresolved] libcuda.so", "cudaLaunchKernel",
        "step(float*, int, std::vector<double, std::allocator<double> >&)", "main",
        "[unresolved] libc.so", "__libc_start_main", "_start",
    )  # fmt: skip
    assert kinds == ("native", "native", "user", "user", "native", "native", "user")


def test_each_call_with_a_backtrace_has_one_stack(
    opened: Opened, expand: Callable[[str], Path]
) -> None:
    """0 is the id of a backtrace."""
    calls = _rows(
        expand(CPP),
        "SELECT DISTINCT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        " WHERE callchainId IN (SELECT id FROM CUDA_CALLCHAINS)",
    )
    with opened(CPP) as session:
        found = session.execute(
            "SELECT correlation_id, count(start_ns), count(end_ns) FROM host_samples"
            " WHERE source = 'cuda backtrace' GROUP BY ALL"
        ).fetchall()
    assert (0,) in _rows(expand(CPP), "SELECT id FROM CUDA_CALLCHAINS")
    assert sorted(found) == sorted((call, 0, 0) for (call,) in calls)


def test_calls_of_the_system_have_their_own_times(
    opened: Opened, expand: Callable[[str], Path]
) -> None:
    calls = _rows(
        expand(CPP), 'SELECT start, "end", globalTid & 16777215 FROM OSRT_API WHERE callchainId > 0'
    )
    with opened(CPP) as session:
        found = session.execute(
            "SELECT start_ns, end_ns, tid FROM host_samples WHERE source = 'os backtrace'"
        ).fetchall()
    assert sorted(found) == sorted(calls)


def test_samples_without_backtrace_are_left_out(
    opened: Opened, expand: Callable[[str], Path]
) -> None:
    """nsys unwinds each fourth sample: without the others, the period is four times as long."""
    chains = "SELECT id FROM SAMPLING_CALLCHAINS GROUP BY id HAVING count(*) > 1"
    times = _rows(expand(CPP), f"SELECT start FROM COMPOSITE_EVENTS WHERE id IN ({chains})")
    with opened(CPP) as session:
        found = session.execute(
            "SELECT time_ns FROM host_samples WHERE source = 'cpu sampling'"
        ).fetchall()
    assert 0 < len(times) < _rows(expand(CPP), "SELECT count(*) FROM COMPOSITE_EVENTS")[0][0]
    assert sorted(found) == sorted(times)


def test_samples_that_are_only_addresses_are_kept(
    edited: Callable[..., Path], store: Store
) -> None:
    """Without any backtrace, the library that was executed is known."""
    path = edited(
        "backtraces_cpp",
        "DELETE FROM SAMPLING_CALLCHAINS WHERE id IN"
        " (SELECT id FROM SAMPLING_CALLCHAINS WHERE stackDepth > 0)",
        folder="stacks",
    )
    (samples,) = _rows(path, "SELECT count(DISTINCT id) FROM SAMPLING_CALLCHAINS")[0]
    found = [row for row in _stacks(path, store) if row[0] == "cpu sampling"]
    assert len(found) == samples
    assert {len(row[5]) for row in found} == {1}


def test_python_stacks_win(opened: Opened, expand: Callable[[str], Path]) -> None:
    with opened(PYTHON) as session:
        found = session.execute(
            "SELECT DISTINCT f.kind FROM host_samples AS s JOIN host_stacks USING (stack_id)"
            " JOIN host_frames AS f USING (frame_id) WHERE source = 'cuda backtrace'"
        ).fetchall()
        (calls,) = session.execute(
            "SELECT count(*), count(DISTINCT correlation_id) FROM host_samples"
            " WHERE source = 'cuda backtrace'"
        ).fetchall()
    assert set(found) == {("user",), ("library",)}
    assert calls[0] == calls[1] > 0


def test_calls_without_a_python_stack_keep_the_native_one(
    edited: Callable[..., Path], store: Store
) -> None:
    path = edited("backtraces_python", "UPDATE NVTX_EVENTS SET binaryData = NULL", folder="stacks")
    found = [row for row in _stacks(path, store) if row[0] == "cuda backtrace"]
    assert found
    assert all(row[5][-1] == "_start" and row[6][-1] == "python" for row in found)


def test_zero_without_a_backtrace(edited: Callable[..., Path], store: Store) -> None:
    """If several calls refer to 0, it means that they have none."""
    path = edited(
        "backtraces_cpp",
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = 0 WHERE callchainId IS NULL",
        folder="stacks",
    )
    (calls,) = _rows(path, "SELECT count(DISTINCT id) - 1 FROM CUDA_CALLCHAINS")[0]
    assert sum(row[0] == "cuda backtrace" for row in _stacks(path, store)) == calls


def test_frames_in_any_order_give_the_same_stacks(
    edited: Callable[..., Path], expand: Callable[[str], Path], store: Store
) -> None:
    tables = ("CUDA_CALLCHAINS", "SAMPLING_CALLCHAINS", "OSRT_CALLCHAINS")
    statements = [
        statement
        for table in tables
        for statement in (
            f"CREATE TABLE shuffled AS SELECT * FROM {table} ORDER BY stackDepth DESC, id",
            f"DROP TABLE {table}",
            f"ALTER TABLE shuffled RENAME TO {table}",
        )
    ]
    path = edited("backtraces_cpp", *statements, folder="stacks")
    assert _stacks(path, store) == _stacks(expand(CPP), store)


def test_an_export_without_modules_has_no_stacks(edited: Callable[..., Path], store: Store) -> None:
    path = edited(
        "backtraces_cpp", "ALTER TABLE CUDA_CALLCHAINS DROP COLUMN module", folder="stacks"
    )
    assert {row[0] for row in _stacks(path, store)} == {"cpu sampling", "os backtrace"}


def test_calls_of_the_system_alone_are_not_enough(
    edited: Callable[..., Path], store: Store
) -> None:
    path = edited(
        "backtraces_cpp",
        "DELETE FROM CUDA_CALLCHAINS",
        "DELETE FROM SAMPLING_CALLCHAINS",
        folder="stacks",
    )
    report = ingest(path, store).report_id
    gaps = [gap for gap in store.manifest(report).missing if gap.table == "host_samples"]
    assert "--sample=process-tree" in gaps[0].reason
    with Session.open(store, [report]) as session:
        found = session.execute("SELECT function, reason FROM launch_code").fetchall()
    assert found == [(None, "no stacks of the process were recorded")]


class _Batches(Export):
    """An export of calls with backtraces, in batches of a few rows."""

    def __init__(self, chains: list[list[int]], size: int) -> None:
        super().__init__(Path("made"))
        frames = [(at, depth, s) for at, c in enumerate(chains) for depth, s in enumerate(c)]
        ids = range(len(chains))
        self._size = size
        self._tables = {
            "CUDA_CALLCHAINS": pa.table({
                "id": [at for at, _, _ in frames],
                "stackDepth": [depth for _, depth, _ in frames],
                "symbol": [symbol for _, _, symbol in frames],
                "module": [100] * len(frames),
                "unresolved": [int(symbol < 3) for _, _, symbol in frames],
            }),
            "CUPTI_ACTIVITY_KIND_RUNTIME": pa.table({
                "start": [*ids], "globalTid": [1] * len(chains), "correlationId": [*ids],
                "callchainId": [*ids],
            }),
        }  # fmt: skip

    def tables(self) -> frozenset[str]:
        return frozenset(self._tables)

    def has_rows(self, table: str) -> bool:
        return table in self._tables

    def check(self) -> None:
        pass

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._tables[table].column_names if table in self._tables else ())

    def scan(
        self, table: str, columns: Sequence[str], order: Sequence[str] = (), part: object = None
    ) -> Iterator[pa.RecordBatch]:
        yield from self._tables[table].select(columns).to_batches(max_chunksize=self._size)


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_backtraces_do_not_depend_on_batches(chains: list[list[int]], size: int) -> None:
    """Symbols below 3 are unresolved addresses: neighbors are one frame."""
    strings = {number: f"f{number}" for number in range(7)} | {100: "/v/libx.so.1"}
    stacks = HostStacks()
    add_native_stacks(stacks, _Batches(chains, size), strings, (), ())
    (samples,) = stacks.samples
    by_number = {number: stack for stack, number in stacks.stacks.items()}
    found = [[frame.function for frame in by_number[number]] for number in samples.stack]
    expected = []
    for chain in chains:
        names = ["[unresolved] libx.so" if symbol < 3 else f"f{symbol}" for symbol in chain]
        expected.append([
            name
            for at, name in enumerate(names)
            if not at or name != names[at - 1] or not name.startswith("[")
        ])  # fmt: skip
    assert found == expected


#: Where the files of the captures could have been.
PLACES = (
    "UPDATE StringIds SET value = '/home/ada/v/lib/python3.12/' || value"
    " WHERE value LIKE 'site-packages/%'",
    "UPDATE StringIds SET value = '/home/ada/run/' || value"
    " WHERE value IN ('item_helper.py', 'common.py', 'cpp')",
    "UPDATE StringIds SET value = '/usr/lib/x86_64-linux-gnu/' || value"
    " WHERE value GLOB 'lib*.so*'",
    "UPDATE StringIds SET value = '/usr/bin/' || value WHERE value = 'python3.12'",
)


@pytest.mark.parametrize("name", ["backtraces_cpp", "backtraces_python"])
def test_scrubbing_keeps_stacks_and_owners(
    name: str, edited: Callable[..., Path], store: Store, tmp_path: Path
) -> None:
    path, target = edited(name, *PLACES, folder="stacks"), tmp_path / "scrubbed.sqlite"
    assert any("/home/ada" in value for (value,) in _rows(path, "SELECT value FROM StringIds"))
    scrub_file(path, target)
    assert b"ada" not in target.read_bytes()
    assert _stacks(target, store) == _stacks(path, store)


def test_launching_stubs_are_not_frames() -> None:
    """The stub of a kernel is spelled differently from the kernel; a host function is no stub."""
    strings = {
        3: "cudaLaunchKernel", 4: "void scale<1, 128>(int const*)", 5: "solve()",
        6: "scale(Problem&)", 100: "/home/ada/build/solver",
    }  # fmt: skip
    stacks = HostStacks()
    add_native_stacks(stacks, _Batches([[3, 4, 5, 6]], 9), strings, {"scale"}, ())
    ((*frames,),) = stacks.stacks
    assert [frame.function for frame in frames] == [
        "cudaLaunchKernel",
        "solve()",
        "scale(Problem&)",
    ]


@pytest.mark.parametrize("name", [CPP, PYTHON])
def test_a_call_within_a_call_is_no_lost_launch(name: str, opened: Opened) -> None:
    """With backtraces, nsys records a launch twice, with one correlation id."""
    with opened(name) as con:
        ((warnings,),) = con.execute("SELECT warnings FROM reports").fetchall()
    assert not [text for text in warnings if "not recorded" in text]
