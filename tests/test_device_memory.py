"""Memory of GPUs over time: against dictionaries of what is allocated, from both profilers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Edited = Callable[..., Path]

#: Event: process, address, bytes (0 releases), whether from a pool.  The index is the time.
events = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from((0, 0, 8, 16, 64)), st.booleans()),
    min_size=1,
    max_size=14,
)  # fmt: skip


def _rows(told: list[tuple[int, int, int, bool]]) -> list[dict[str, Any]]:
    return [
        {
            "timestamp_ns": 10 * at, "pid": pid, "device": 0, "correlation_id": at,
            "operation": "Allocation" if size else "Deallocation", "kind": "Device",
            "address": 256 * address + pooled, "bytes": size or 8,
            "pool_address": 7 if pooled else None, "pool_bytes": 100 if pooled else None,
        }
        for at, (pid, address, size, pooled) in enumerate(told)
    ]  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(st.lists(events, min_size=6, max_size=6))
def test_memory_in_use_against_dictionaries(
    together: list[list[tuple[int, int, int, bool]]],
) -> None:
    """Lost releases, releases of memory never seen, and pools are among them."""
    db = Tiny()
    for number, told in enumerate(together):
        db.add_report(f"r{number}", {"nsys_memory_usage": _rows(told)})
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for report, time, total, held in db.rows(
        "SELECT report_id, time_ns, total_bytes, reserved_bytes FROM device_memory"
    ):
        found.setdefault(report, {})[time] = (total, held)
    peaks = {
        report: rest
        for report, *rest in db.rows(
            "SELECT report_id, peak_bytes, peak_ns, reserved_bytes, last_bytes FROM device_memory_peak"
        )
    }
    for number, told in enumerate(together):
        live: dict[tuple[int, int, bool], int] = {}
        pools: set[int] = set()
        expected, history = {}, []
        for at, (pid, address, size, pooled) in enumerate(told):
            before = (sum(live.values()), len(pools))
            live[pid, address, pooled] = size
            if pooled:
                pools.add(pid)
            used = sum(live.values())
            held = sum(v for (*_, own), v in live.items() if not own) + 100 * len(pools)
            history.append((used, held))
            if (used, len(pools)) != before:
                expected[10 * at] = (used, held)
        mine = found.get(f"r{number}", {})
        assert expected.items() <= mine.items()
        assert all(history[time // 10] == value for time, value in mine.items())
        if expected:
            peak = max(used for used, _ in expected.values())
            assert peaks[f"r{number}"] == [
                peak,
                min(time for time, (used, _) in expected.items() if used == peak),
                max(held for _, held in expected.values()),
                history[-1][0],
            ]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 50)), min_size=1, max_size=30,
                unique_by=lambda one: one[0]))  # fmt: skip
def test_parts_of_the_course_against_each_change(told: list[tuple[int, int]]) -> None:
    db = Tiny()
    told.sort()
    for at, (time, total) in enumerate(told):
        db.add("torch_memory", {"event": at, "timestamp_ns": time, "pid": 1, "tid": 1, "device": 0,
                                "device_type": "CUDA", "bytes": 1, "allocated_bytes": total})  # fmt: skip
    ((start, end, most, parts),) = db.rows(
        "SELECT start_ns, end_ns, max_bytes, parts_bytes FROM device_memory_course WHERE kind = 'in use'"
    )
    assert (start, end, most) == (told[0][0], told[-1][0] + 1, max(total for _, total in told))
    carried, expected = 0, []
    for part in range(240):
        inside = [total for time, total in told if (time - start) * 240 // (end - start) == part]
        expected.append(max(carried, *inside, 0))
        carried = [carried, *inside][-1]
    assert parts == expected


def test_kinds_and_gpus_of_processes_are_kept_apart() -> None:
    db = Tiny()
    at = {"correlation_id": 1, "operation": "Allocation", "timestamp_ns": 1}
    for number, (pid, kind, size) in enumerate(
        ((1, "Device", 5), (2, "Managed", 7), (1, "Device Static", 9), (1, "Pinned", 100))
    ):
        row = {**at, "pid": pid, "device": 0, "kind": kind, "address": number, "bytes": size}
        db.add("nsys_memory_usage", row)
    # Device 0 of process 2 is GPU 3; what another process allocated counts there.
    db.add(
        "nsys_cuda_devices", {"pid": 1, "device": 0, "gpu": 0}, {"pid": 2, "device": 0, "gpu": 3}
    )
    db.add("nsys_memory_usage", {**at, "pid": 2, "device": 0, "kind": "Device", "address": 9,
                                 "bytes": 50, "imported_pool": 4})  # fmt: skip
    db.add("nsys_gpus", {"gpu": 0, "memory_bytes": 140})
    assert db.rows("SELECT device, kind, bytes, total_bytes FROM device_memory") == [
        (0, "device", 5, 14),
        (0, "static", 9, 14),
        (3, "managed", 7, 7),
    ]
    assert db.rows("SELECT device, peak_bytes, peak_pct FROM device_memory_peak") == [
        (0, 14, pytest.approx(10)),
        (3, 7, None),
    ]


def test_ranges_of_the_profiler_are_not_in_the_path_at_the_peak() -> None:
    db = Tiny()
    thread = {"pid": 1, "tid": 1, "style": "PushPop"}
    db.add("nsys_memory_usage", {"pid": 1, "device": 0, "kind": "Device", "address": 1, "bytes": 5,
                                 "correlation_id": 1, "operation": "Allocation",
                                 "timestamp_ns": 50})  # fmt: skip
    db.add(
        "nsys_nvtx_ranges",
        {**thread, "range_id": 0, "name": "load", "start_ns": 10, "end_ns": 90},
        {**thread, "range_id": 1, "name": "Holding GIL", "domain": "GIL Trace", "start_ns": 20,
         "end_ns": 80},
    )  # fmt: skip
    assert db.rows("SELECT nvtx_path FROM device_memory_peak") == [("load",)]


def test_of_a_real_capture(captures: Store, ingested: Callable[[str], str]) -> None:
    report = ingested("nsys/memcpy.sqlite")
    with Session.open(captures, [report]) as con:
        kinds = con.execute(
            "SELECT kind, count(*), max(bytes) FROM device_memory GROUP BY kind ORDER BY kind"
        ).fetchall()
        peak = con.execute(
            "SELECT peak_bytes, step, nvtx_path, memory_bytes, peak_pct, allocations FROM device_memory_peak"
        ).fetchall()
    # One tensor of 256 MiB; the other one is pinned memory of the host.
    assert kinds == [("device", 1, 2**28), ("static", 105, 807)]
    memory = 150109880320
    share = pytest.approx(100 * (2**28 + 807) / memory)
    assert peak == [(2**28 + 807, "step 0", "step 0", memory, share, 106)]


def test_a_memory_pool_is_as_nsys_says(captures: Store, ingested: Callable[[str], str]) -> None:
    """PyTorch with backend:cudaMallocAsync: the pool states how much of it is in use."""
    report = ingested("nsys/memory_pool.sqlite")
    with Session.open(captures, [report]) as con:
        events = con.execute(
            "SELECT timestamp_ns, bytes * if(operation = 'Allocation', 1, -1), pool_bytes, pool_used_bytes "
            "FROM nsys_memory_usage WHERE kind = 'Device' ORDER BY ALL"
        ).fetchall()
        course = dict(
            con.execute("SELECT time_ns, bytes FROM device_memory WHERE kind = 'device'").fetchall()
        )
        held, step, path = con.execute(
            "SELECT reserved_bytes, step, nvtx_path FROM device_memory_peak"
        ).fetchall()[0]
        (static,) = con.execute("SELECT sum(bytes) FROM nsys_memory_usage WHERE kind LIKE '%Static'"
        ).fetchall()[0]  # fmt: skip
    outside = 0
    for time, change, pool, used in events:
        outside += change if pool is None else 0
        # A release states what was in use before it.
        assert used is None or course[time] == used + min(change, 0) + outside
    assert held == max(pool or 0 for _, _, pool, _ in events) + outside + static
    assert (step, path) == ("step 1", "step 1 > backward")


def test_the_peak_is_what_pytorch_says(captures: Store) -> None:
    """The program printed torch.cuda.max_memory_allocated and max_memory_reserved."""
    report = ingest(DATA / "torch" / "memory.kineto.json.gz", captures).report_id
    with Session.open(captures, [report]) as con:
        (peak,) = con.execute(
            "SELECT peak_bytes, reserved_bytes, memory_bytes, step FROM device_memory_peak"
        ).fetchall()
        # An event states what it adds, and the total.
        (steady,) = con.execute(
            "SELECT bool_and(bytes = delta) FROM (SELECT bytes, allocated_bytes - lag(allocated_bytes) "
            "OVER (ORDER BY event) AS delta FROM torch_memory WHERE device_type = 'CUDA') "
            "WHERE delta IS NOT NULL"
        ).fetchall()[0]
    assert peak == (907215872, 1075838976, 150109880320, "ProfilerStep#1")
    assert steady


def test_releases_lower_what_is_in_use(edited: Edited, store: Store) -> None:
    """Rows of the export itself: a release by its address, in any order of the file."""
    path = edited(
        "memcpy",
        "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS SELECT 90000000, globalPid, deviceId, contextId, "
        "address, pc, bytes, memKind, 1, name, 99, NULL, NULL, NULL, NULL, NULL, NULL, NULL "
        "FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memKind = 2",
    )
    with Session.open(store, [ingest(path, store).report_id]) as con:
        found = con.execute(
            "SELECT time_ns, bytes FROM device_memory WHERE kind = 'device' ORDER BY time_ns"
        ).fetchall()
    assert found == [(0, 2**28), (90000000, 0)]


def _trace(tmp_path: Path, *memory: dict[str, Any]) -> Path:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 30, "dur": 9,
              "args": {"device": 0, "stream": 7, "correlation": 1}}  # fmt: skip
    ranges = [
        {"ph": "X", "cat": kind, "name": name, "pid": 5, "tid": 5, "ts": ts, "dur": dur}
        for kind, name, ts, dur in (
            ("user_annotation", "forward", 10, 30),
            ("cpu_op", "aten::mm", 15, 10),
        )
    ]
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5,
            "ts": 20, "dur": 1, "args": {"correlation": 1}}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": [kernel, *ranges, call, *memory]})
    )
    return path


def _memory(ts: float, total: int, **args: object) -> dict[str, Any]:
    stated = {"Total Reserved": 4096, "Total Allocated": total, "Bytes": 512, "Addr": 139,
              "Device Id": 0, "Device Type": 1, "Ev Idx": 1}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 5, "tid": 5,
            "ts": ts, "args": {**stated, **args}}  # fmt: skip


def test_allocations_of_pytorch(tmp_path: Path, store: Store) -> None:
    on_cpu = _memory(17, 99, **{"Device Type": 0, "Device Id": -1, "Total Reserved": -1})
    path = _trace(tmp_path, _memory(35, 512), _memory(16.5, 1536), on_cpu)
    with Session.open(store, [ingest(path, store).report_id]) as con:
        rows = con.execute("SELECT * EXCLUDE report_id FROM torch_memory").fetchall()
        course = con.execute(
            "SELECT time_ns, total_bytes, reserved_bytes FROM device_memory"
        ).fetchall()
        peak = con.execute(
            "SELECT peak_bytes, peak_ns, nvtx_path FROM device_memory_peak"
        ).fetchall()
    assert rows == [
        (0, 6500, 5, 5, "CUDA", 0, 139, 512, 1536, 4096),
        (1, 7000, 5, 5, "CPU", None, 139, 512, 99, None),
        (2, 25000, 5, 5, "CUDA", 0, 139, 512, 512, 4096),
    ]
    assert course == [(6500, 1536, 4096), (25000, 512, 4096)]
    assert peak == [(1536, 6500, "forward > aten::mm")]


def test_damaged_memory_events_are_counted(tmp_path: Path, store: Store) -> None:
    whole = [_memory(11 + at, 512) for at in range(9)]
    path = _trace(tmp_path, *whole, _memory(21, 512, Bytes="many"))
    manifest = store.manifest(ingest(path, store).report_id)
    assert manifest.tables["torch_memory"].rows == 9
    assert (
        "1 of 10 rows of [memory] events have no valid size; they were skipped" in manifest.warnings
    )
    with pytest.raises(InputError, match="this is over 20 %"):
        ingest(_trace(tmp_path, _memory(11, 512), _memory(21, 512, **{"Device Type": None})), store)


@pytest.mark.parametrize(("name", "table", "hint"), [
    ("nsys/compute.sqlite", "nsys_memory_usage", "--cuda-memory-usage=true"),
    ("kineto", "torch_memory", "profile_memory=True"),
])  # fmt: skip
def test_what_to_collect_is_said(
    store: Store, expand: Callable[[str], Path], tmp_path: Path, name: str, table: str, hint: str
) -> None:
    path = _trace(tmp_path) if name == "kineto" else expand(name)
    missing = {
        gap.table: gap.reason for gap in store.manifest(ingest(path, store).report_id).missing
    }
    assert hint in missing[table]
