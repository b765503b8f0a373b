"""Right answers for unusual traces: old versions, damage, merged ranks, other accelerators."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.outcome import Outcome
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

FIELD = DATA / "field" / "nsys"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def _steps(store: Store, report: str) -> list[tuple[Any, ...]]:
    """Return per GPU: kernels, steps, their median in us, compute and launch overhead in percent."""
    with Session.open(store, [report]) as con:
        return con.execute(
            "SELECT device, (SELECT count(*) FROM kernels AS k WHERE k.device = s.device),"
            " steps, round(p50_ns / 1000)::INT,"
            " (SELECT round(share_pct)::INT FROM gpu_time_budget AS b WHERE b.device = s.device"
            "  AND category = 'compute'),"
            " (SELECT round(sum(share_pct), 1) FROM gpu_time_budget AS b WHERE b.device = s.device"
            "  AND category IN ('launch_gap', 'launch_api', 'queued'))"
            " FROM step_summary AS s ORDER BY device"
        ).fetchall()


#: Files with one damaged or unusual thing each, and the warning about it.
EIGHT_STEPS = {
    "02_inf": "1 of 489 rows of traceEvents are not valid JSON; they were repaired",
    "03_utf8": "2 bytes of the trace are not UTF-8; they are shown as '?'",
    "03b_ctrl": "1 of 488 rows of traceEvents are not valid JSON; they were repaired",
    "03c_quote": "1 of 488 rows of traceEvents are not valid JSON; they were repaired",
    "03d_bslash": "1 of 488 rows of traceEvents are not valid JSON; they were repaired",
    "07_old18": "",
    "16_xpu": "",
}


@pytest.mark.parametrize("name", EIGHT_STEPS)
def test_unusual_traces_are_read_like_usual_ones(name: str, store: Store) -> None:
    made = ingest(FIELD / f"{name}.json.gz", store)
    assert _steps(store, made.report_id) == [(0, 160, 8, 10_000, 80, 19.7)]
    warning = EIGHT_STEPS[name]
    assert warning in made.warnings if warning else made.warnings == ()


def test_a_time_of_zero_is_no_time(store: Store) -> None:
    made = ingest(FIELD / "01b_ts0_epoch.json.gz", store)
    assert _steps(store, made.report_id) == [(0, 159, 8, 10_000, 80, 20.2)]
    assert any("1 of 488 rows of traceEvents have the time 0" in text for text in made.warnings)
    with Session.open(store, [made.report_id], window="whole") as con:
        assert con.execute(
            "SELECT round(any_value(window_end_ns - window_start_ns) / 1e6) FROM gpu_time_budget"
        ).fetchall() == [(80.0,)]


def test_a_shifted_trace_may_begin_at_zero(store: Store, tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((FIELD / "26_decimals.json.gz").read_bytes()))
    first = min(event["ts"] for event in trace["traceEvents"])
    for event in trace["traceEvents"]:
        event["ts"] -= first
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    assert ingest(path, store).warnings == ()


@pytest.mark.parametrize("name", ["11b_exp", "26_decimals"])
def test_times_with_an_exponent_or_many_decimals_are_read(name: str, store: Store) -> None:
    made = ingest(FIELD / f"{name}.json.gz", store)
    content = gzip.decompress((FIELD / f"{name}.json.gz").read_bytes())
    trace = json.loads(content, parse_float=Decimal)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    zero = min(round(event["ts"] * 1000) for event in events)
    kernels = [event for event in events if event["cat"] == "kernel"]
    with Session.open(store, [made.report_id]) as con:
        rows = con.execute("SELECT start_ns, dur_ns FROM nsys_kernels ORDER BY ALL").fetchall()
    assert rows == sorted(
        (round(event["ts"] * 1000) - zero, round(event["dur"] * 1000)) for event in kernels
    )


def test_merged_ranks_have_their_own_processes_and_gpus(store: Store) -> None:
    made = ingest(FIELD / "08_merged_text.json.gz", store)
    assert _steps(store, made.report_id) == [
        (0, 160, 8, 10_000, 80, 19.7),
        (1, 160, 8, 10_000, 80, 19.7),
    ]
    with Session.open(store, [made.report_id]) as con:
        pairs = con.execute("SELECT DISTINCT pid, device FROM launches ORDER BY ALL").fetchall()
        unlinked = con.execute("SELECT count(*) FROM launches WHERE call_id IS NULL").fetchall()
    assert pairs == [(1001, 0), (1002, 1)]
    assert unlinked == [(0,)]


def test_merged_ranks_that_each_see_one_gpu_are_different_gpus(
    store: Store, tmp_path: Path
) -> None:
    trace = json.loads(gzip.decompress((FIELD / "08_merged_text.json.gz").read_bytes()))
    trace["deviceProperties"] = trace["deviceProperties"][:1] * 2
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel":
            event["args"]["device"] = 0
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(trace))
    made = ingest(path, store)
    assert _steps(store, made.report_id) == [
        (0, 160, 8, 10_000, 80, 19.7),
        (1, 160, 8, 10_000, 80, 19.7),
    ]
    with Session.open(store, [made.report_id]) as con:
        gpus = con.execute("SELECT gpu, sm_count FROM nsys_gpus ORDER BY gpu").fetchall()
    assert gpus == [(0, 108), (1, 108)]


def test_a_cut_trace_is_read_up_to_the_cut_if_forced(store: Store) -> None:
    path = FIELD / "04_cut.json.gz"
    with pytest.raises(InputError, match=r"it ends after 390 complete events \(--force"):
        ingest(path, store)
    assert store.report_ids() == []
    made = ingest(path, store, force=True)
    assert any("ends after 390 complete events" in text for text in made.warnings)
    with Session.open(store, [made.report_id]) as con:
        assert con.execute("SELECT count(*) FROM nsys_kernels").fetchall() == [(127,)]


def _refusal(path: Path, document: object) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(InputError) as caught:
        ingest(path, Store(path.parent / "store"))
    return str(caught.value)


_RANGE = {"ph": "X", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 2}


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        (
            [_RANGE | {"cat": "cpu_op"}, _RANGE | {"cat": "mtia_ccp_events"}],
            "a torch.profiler trace of an MTIA accelerator",
        ),
        ([_RANGE | {"cat": "hpu_op"}], "a torch.profiler trace of a Gaudi accelerator"),
        (
            [_RANGE, {"ph": "M", "name": "process_name", "args": {"name": "/device:GPU:0"}}],
            "a profile of JAX (XLA) or TensorFlow, which perfpipe does not read; profile the program",
        ),
        ([_RANGE | {"pid": "CPU functions"}], "an export of torch.autograd.profiler"),
        (
            [_RANGE, {"ph": "M", "name": "process_name", "args": {"name": "/job:localhost/cpu:0"}}],
            "a profile of JAX (XLA) or TensorFlow",
        ),
        (
            [_RANGE, {"ph": "M", "name": "process_name", "args": {"name": "CPU HIP API"}}],
            "a trace of AMD's rocprof",
        ),
        (
            [_RANGE | {"cat": "gaming"}],
            "a trace in Chrome's format without events of PyTorch or CUDA (its categories include "
            "'gaming'); give a trace of torch.profiler",
        ),
    ],
)
def test_traces_of_other_programs_are_refused_by_name(
    events: list[object], sentence: str, tmp_path: Path
) -> None:
    assert sentence in _refusal(tmp_path / "trace.json", {"traceEvents": events})


def test_a_jax_profile_is_refused_by_name(store: Store) -> None:
    with pytest.raises(InputError, match="a profile of JAX"):
        ingest(FIELD / "09_jax.json.gz", store)


@pytest.mark.parametrize("category", ["hip_runtime", "xpu_runtime", "cuda_runtime"])
def test_calls_of_every_runtime_are_read(category: str, tmp_path: Path) -> None:
    call = _RANGE | {"cat": category, "name": "hipLaunchKernel", "args": {"correlation": 3}}
    kernel = _RANGE | {"cat": "kernel", "ts": 9, "args": {"correlation": 3, "device": 0}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [kernel, call]}))
    store = Store(tmp_path / "store")
    made: Outcome = ingest(path, store)
    with Session.open(store, [made.report_id]) as con:
        assert con.execute("SELECT api_name, api FROM launches, nsys_api_calls").fetchall() == [
            ("hipLaunchKernel", "runtime")
        ]


def test_a_damaged_trace_is_scrubbed_as_it_is_read(cli: Cli, tmp_path: Path) -> None:
    assert cli("scrub", FIELD / "03d_bslash.json.gz", "--to", tmp_path / "scrubbed.json") == 0, (
        cli.err
    )
    store = Store(tmp_path / "store")
    made = ingest(tmp_path / "scrubbed.json", store)
    assert _steps(store, made.report_id) == [(0, 160, 8, 10_000, 80, 19.7)]
    assert made.warnings == ()


def _made(tmp_path: Path, events: list[dict[str, Any]]) -> tuple[Store, Outcome]:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    store = Store(tmp_path / "store")
    return store, ingest(path, store)


@pytest.mark.parametrize("tid", [-413_137_216, 140_737_353_824_064])
def test_thread_ids_of_any_size_are_read(tid: int, tmp_path: Path) -> None:
    call = _RANGE | {"cat": "cuda_runtime", "tid": tid, "args": {"correlation": 3}}
    store, made = _made(tmp_path, [call])
    with Session.open(store, [made.report_id]) as con:
        assert con.execute("SELECT tid FROM api_calls").fetchall() == [(tid & 0xFFFF_FFFF,)]


def test_a_trace_with_calls_but_no_kernels_does_not_advise_to_trace_calls(tmp_path: Path) -> None:
    _, made = _made(tmp_path, [_RANGE | {"cat": "cuda_runtime", "name": "cudaEventQuery"}])
    assert made.warnings == (
        "the trace has no kernels, although it has calls of the GPU's runtime",
    )


def test_an_event_at_zero_alone_has_a_time(tmp_path: Path) -> None:
    _, made = _made(tmp_path, [_RANGE | {"cat": "cpu_op", "ts": 0}])
    assert made.rows == 1


def test_operators_are_not_steps(tmp_path: Path) -> None:
    events = []
    for number in range(16):
        at = {"ts": 1000 * number, "args": {"correlation": number + 1, "device": 0}}
        events += [
            _RANGE | at | {"cat": "cpu_op", "name": "aten::_to_copy", "dur": 900},
            _RANGE | at | {"cat": "cuda_runtime", "name": "cudaLaunchKernel"},
            _RANGE | at | {"cat": "kernel", "name": f"kernel_{number}", "dur": 800},
        ]
    store, made = _made(tmp_path, events)
    with Session.open(store, [made.report_id]) as con:
        assert con.execute("SELECT count(*) FROM steps WHERE step IS NOT NULL").fetchall() == [(0,)]


def test_communication_without_nccl_is_communication(store: Store) -> None:
    """The names of other kernels are the last ones of the trace."""
    path = FIELD / "25_comm.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    names = list(dict.fromkeys(event["name"] for event in kernels))
    communicating = names[: names.index("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE")]
    made = ingest(path, store)
    with Session.open(store, [made.report_id], window="whole") as con:
        categories = dict(con.execute("SELECT demangled, category FROM kernel_names").fetchall())
        overlap = con.execute(
            "SELECT communication_ns, compute_ns, overlapped_ns FROM comm_overlap"
        ).fetchall()
        budget = con.execute(
            "SELECT category, time_ns FROM gpu_time_budget"
            " WHERE category IN ('compute', 'communication') ORDER BY category DESC"
        ).fetchall()
        bounds = con.execute("SELECT bound FROM timeline_bottleneck").fetchall()
        operations = con.execute(
            "SELECT collective, count FROM nccl_collectives"
            " WHERE operation IN ('multimem_all_reduce_kernel', 'cross_device_reduce_1stage')"
        ).fetchall()
    assert len(communicating) == 19
    assert [name for name in names if categories[name] == "communication"] == communicating
    assert {categories[name] for name in names if name.startswith("Cijk")} == {"gemm"}
    times = [
        round(1000 * sum(e["dur"] for e in kernels if (e["name"] in communicating) == both))
        for both in (True, False)
    ]
    assert overlap == [(*times, 0)]
    assert budget == [("compute", times[1]), ("communication", times[0])]
    assert bounds == [("communication",)]
    assert operations == [("AllReduce", 6), ("AllReduce", 6)]
