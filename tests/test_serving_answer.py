"""The report of a server: where TTFT goes in a sentence, tables and figures of the engine."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from conftest import Tiny
from engine import MS, Engine, plant, vllm, words

from perfpipe.analysis.report import serving, ttft
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.sections.serving import CLASSES, SECTION, SLOWEST
from perfpipe.templates.gallery import FIGURES
from perfpipe.templates.serving_figures import latencies_figure
from perfpipe.viewmodel import Column, Source, Table

DECLARED: dict[str, Any] = {
    "weights_bytes": 4e9,
    "kv_bytes_per_token": 1e5,
    "flops_per_token": 4e9,
    "dtype": "bf16",
}


def _scope(db: Tiny) -> Scope:
    db.session.use(*SECTION.views, *ttft.VIEWS)
    return Scope(db.con, ("t", "s"), {"nsys": 1, "serving": 1})


def _ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"us": 1e3, "ms": 1e6, "s": 1e9}[unit]


@pytest.mark.parametrize(("requests", "which"), [
    (90, r"the 5 requests around the p95 \(mean; \d\d in all\)"),
    (20, r"the 5 requests around the p50 \(mean; \d\d in all\)"),
    (4, r"the slowest of 3 requests"),
])  # fmt: skip
def test_the_sentence_names_real_requests_and_its_parts_add_up(requests: int, which: str) -> None:
    db = plant(Engine(13, requests=requests, rate=40.0), words, **DECLARED)
    said = ttft.parts_of(_scope(db), 40.0)
    match = re.fullmatch(
        rf"In the captured window, the TTFT of {which} is ([\d.]+ \w+): (.*)\.", said
    )
    assert match, said
    parts = re.findall(r"[\d.]+ [mu]?s", match[2])
    assert sum(map(_ns, parts)) == pytest.approx(_ns(match[1]), rel=0.02)
    assert re.search(r"ms prefill \(\d+ % of tensor peak\)", said)
    assert said.endswith("on the host.")


def test_a_roof_that_is_not_declared_is_not_named() -> None:
    db = plant(Engine(13), words)
    scope = _scope(db)
    said = ttft.parts_of(scope, 20.0)
    assert "ms prefill" in said and "%" not in said
    assert ttft.parts_of(scope, 7.0) == "", "another load"
    other = plant(Engine(13), None, streamed=False)
    assert ttft.parts_of(_scope(other), 20.0) == ""


def test_tables_and_figures_of_the_engine() -> None:
    db = plant(Engine(13, requests=30), vllm, **DECLARED)
    scope = _scope(db)
    (classes,), (slowest,) = CLASSES.tables(scope), SLOWEST.tables(scope)
    kinds = [row[[c.name for c in classes.columns].index("class")] for row in classes.rows]
    assert kinds == ["prefill", "decode", "between", "empty"]
    for table, marks in (
        (classes, ["20 requests/s", "decode"]),
        (slowest, ["own prefill", "queue"]),
    ):
        drawing = FIGURES[table.figure].draw(table)
        svg = drawing.svg("figure") if drawing else ""
        for mark in marks:
            assert mark in svg
    names = [column.name for column in slowest.columns]
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in slowest.rows]
    request = [row for row in rows if row["lane"] == "request"]
    assert [row["part"] for row in request] == ["client", "queue", "prefill", "response"]
    ((total,),) = db.rows("SELECT max(ttft_ms) FROM ttft_parts")
    assert sum(row["time_ms"] for row in request) == pytest.approx(total)
    for row, after in pairwise(request):
        assert row["from_ms"] + row["time_ms"] == pytest.approx(after["from_ms"])
    engine = [row for row in rows if row["lane"] == "engine"]
    assert [row["part"] for row in engine].count("own") == 1
    assert all(
        row["from_ms"] >= 0 and row["from_ms"] + row["time_ms"] <= total + 1e-9 for row in engine
    )


def test_latency_over_rate_is_without_a_profiler() -> None:
    names = ("rate", "phase", "ttft_p50_ms", "ttft_p95_ms", "e2e_p50_ms", "e2e_p95_ms")
    columns = tuple(Column(name, name, "number") for name in names)

    def drawn(*rows: tuple[Any, ...]) -> Any:
        return latencies_figure(
            Table("t", "", columns, rows, len(rows), Source("serving_rates", ()))
        )

    rows = [
        (1.0, None, 3.0, None, 9.0, None),
        (4.0, None, 5.0, 8.0, 10.0, 20.0),
        (4.0, "nsys", 7.0, 7.0, 7.0, 7.0),
    ]
    svg = drawn(*rows).svg("x")
    assert "TTFT p50 at 1 request/s: 3 ms" in svg and "TTFT p95 at 4 requests/s: 8 ms" in svg
    assert "7 ms" not in svg and "p95 at 1" not in svg
    assert drawn(rows[1], rows[2]) is None, "one rate without a profiler"


def test_saturating_loads_are_one_sentence_before_the_parts() -> None:
    db = Tiny()
    db.add("reports", {"report_id": "s", "kind": "serving"})
    number = 0
    for load_id, growth in enumerate((0.0, 0.5, 0.25)):
        db.add("request_loads", {"report_id": "s", "load_id": load_id, "phase": "plain",
                                 "rate": 4.0**load_id, "clock": "utc", "started_ns": 0,
                                 "ended_ns": 100 * MS * 1000})  # fmt: skip
        for at in range(100):
            sent = at * MS * 1000
            end = sent + round((1 + growth * at) * 1000 * MS)
            db.add("requests", {"report_id": "s", "load_id": load_id, "request_id": number,
                                "planned_ns": sent, "sent_ns": sent, "first_token_ns": end,
                                "end_ns": end})  # fmt: skip
            number += 1
    db.session.use(*serving.VIEWS)
    said = [*serving.sentences(Scope(db.con, ("s",), {"serving": 1}))]
    assert said[1:] == [
        "The server is saturated at 4 requests/s (latency grows by 0.5 s per s) "
        "and at 16 requests/s (latency grows by 0.25 s per s)."
    ]
