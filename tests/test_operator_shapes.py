"""Operators with shapes and matrix products, against a plain count of the trace; layers of graph nodes."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from math import prod
from typing import Any

import pytest
from conftest import DATA, Tiny

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

TRACE = DATA / "torch" / "train_step.kineto.json.gz"


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(TRACE.read_bytes()), parse_float=Decimal)
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


@pytest.fixture(scope="module")
def report(captures: Store) -> str:
    return ingest(TRACE, captures).report_id


def _times(events: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return calls and GPU time by operator and shapes, by Kineto's own link from kernel to operator."""
    operators = {
        event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"
    }
    times: dict[int, int] = defaultdict(int)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            times[event["args"].get("External id")] += int(event["dur"] * 1000)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for number, time in times.items():
        operator = operators.get(number)
        if operator and operator["args"].get("Input Dims"):
            shapes = json.dumps(operator["args"]["Input Dims"], separators=(",", ":"))
            calls, sum_ = found.get((operator["name"], shapes), (0, 0))
            found[operator["name"], shapes] = calls + 1, sum_ + time
    return found


def test_times_of_operators_are_those_that_kineto_links(
    captures: Store, report: str, events: list[dict[str, Any]]
) -> None:
    wanted = _times(events)
    with Session.open(captures, [report], window="whole") as con:
        rows = con.execute(
            "SELECT operator, shapes, sum(calls)::INT, sum(time_ns)::BIGINT "
            "FROM operator_shapes GROUP BY ALL"
        ).fetchall()
        ((ranks, share),) = con.execute(
            "SELECT count(DISTINCT rank) = count(*), sum(share_pct) FROM operator_shapes"
        ).fetchall()
    assert len(rows) > 20
    assert {(operator, shapes): (calls, time) for operator, shapes, calls, time in rows} == wanted
    assert ranks and 50 < share <= 100.0001


def test_rates_of_products_follow_from_their_shapes(
    captures: Store, report: str, events: list[dict[str, Any]]
) -> None:
    first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
    wanted: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for (operator, text), (calls, time) in _times(events).items():
        if operator in first:
            a, b = json.loads(text)[first[operator] :][:2]
            *batch, m, k = a
            key = (operator, prod(batch), m, b[-1], k)
            wanted[key].append(2 * prod(batch) * m * b[-1] * k * calls / time * 1e9)
    with Session.open(captures, [report], window="whole") as con:
        rows = con.execute(
            "SELECT operator, batch, m, n, k, flop_per_s, dtype, pct_of_peak FROM operator_gemms"
        ).fetchall()
        peaks = dict(con.execute("SELECT dtype, flop_per_s FROM gpu_peaks").fetchall())
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        found[row[:5]].append(row[5])
    assert {"aten::mm", "aten::addmm"} <= {key[0] for key in found}
    for key, rates in wanted.items():
        if len(rates) == len(found[key]):
            assert sorted(found[key]) == pytest.approx(sorted(rates), rel=1e-9)
    assert found.keys() == wanted.keys()
    for *_, rate, dtype, pct in rows:
        if dtype in peaks:
            assert pct == pytest.approx(100 * rate / peaks[dtype])
            assert 0 < pct < 100
    assert any(dtype in peaks for *_, dtype, _ in rows)


@pytest.mark.parametrize(("length", "products"), [(1 << 63, 0), (1 << 62, 1)])
def test_impossible_lengths_are_no_error(
    length: int, products: int, events: list[dict[str, Any]], tmp_path: Any, store: Store
) -> None:
    own = [event for event in events if event.get("name") != "aten::mm"]
    one = next(event for event in events if event.get("name") == "aten::mm")
    one = {**one, "args": {**one["args"], "Input Dims": [[length, length], [length, length]]}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*own, one]}, default=float))
    report = ingest(path, store).report_id
    with Session.open(store, [report], window="whole") as con:
        sql = "SELECT count(flop_per_s) FROM operator_gemms WHERE operator = 'aten::mm'"
        assert con.execute(sql).fetchone() == (products,)


def test_a_trace_without_shapes_says_how_to_get_them(tmp_path: Any, store: Store) -> None:
    path = tmp_path / "trace.json"
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    path.write_text(json.dumps({"traceEvents": [op]}))
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        gaps = dict(con.execute("SELECT table_name, reason FROM collection_gaps").fetchall())
        assert con.execute("SELECT count(*) FROM operator_shapes").fetchone() == (0,)
    assert "record_shapes=True" in gaps["torch_operators"]


def test_kernels_in_graphs_have_the_range_that_captured_them() -> None:
    """A node in two ranges, one that was cloned twice, one outside of ranges, one from before."""
    db = Tiny()
    db.add(
        "nsys_nvtx_ranges",
        *(
            {"range_id": number, "name": name, "pid": 1, "tid": 1, "level": level, "start_ns": start,
             "end_ns": end, "style": "PushPop", "domain": domain}
            for number, (domain, name, level, start, end) in enumerate(
                [
                    (None, "capture", 0, 0, 100),
                    ("GIL Trace", "Holding GIL", None, 5, 190),
                    (None, "layer 7", 1, 10, 50),
                    (None, "replay", 0, 200, 300),
                ]
            )
        ),
    )  # fmt: skip
    node = {"pid": 1, "tid": 1, "name": "cudaGraphAddNode"}
    db.add(
        "nsys_graph_nodes",
        {**node, "graph_node_id": 1, "start_ns": 20, "original_graph_node_id": None},
        {**node, "graph_node_id": 2, "start_ns": 60, "original_graph_node_id": None},
        {**node, "graph_node_id": 12, "start_ns": 210, "original_graph_node_id": 2},
        {**node, "graph_node_id": 22, "start_ns": 220, "original_graph_node_id": 12},
        {**node, "graph_node_id": 3, "start_ns": 150, "original_graph_node_id": None},
    )
    for at, graph_node in enumerate((1, 22, 3, 4, 1)):
        times = {"start_ns": 1000 + 100 * at, "end_ns": 1010 + 110 * at}
        kernel = {"name": f"k{graph_node}", "demangled": f"k{graph_node}", "graph_node_id": graph_node,
                  "device": 0, "pid": 1, "stream": 7, **times}  # fmt: skip
        db.add("nsys_kernels", {**kernel, "dur_ns": times["end_ns"] - times["start_ns"]})
        db.add("launches", {**kernel, "kind": "kernel", "tid": 1})
    assert db.rows(
        "SELECT path, reason, nodes, launches, time_ns, longest FROM graph_ranges ORDER BY time_ns DESC"
    ) == [
        (":capture > :layer *", None, 1, 2, 10 + 50, "k1"),
        (None, "no_creation", 1, 1, 40, "k4"),
        (None, "no_range", 1, 1, 30, "k3"),
        (":capture", None, 1, 1, 20, "k22"),
    ]
