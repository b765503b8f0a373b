"""The page of a batch, from simulated tasks."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from batches import FAILURES, simulated
from rich.console import Console

from perfpipe.analysis.batch.items import FAILED, OPEN, ORDER, Item
from perfpipe.analysis.batch.page import batch_report
from perfpipe.batchrecord import State
from perfpipe.pipelines.reporting import to_json
from perfpipe.runrecord import Recorded
from perfpipe.templates.cells import local_url
from perfpipe.templates.formats import format_value
from perfpipe.templates.renderers import print_terminal, render_html, render_markdown
from perfpipe.viewmodel import Report, Table, Value

HOSTILE = "x</td><script>alert(1)</script>\"'<img src=x onerror=alert(1)>\u202e"


def report(**options: Any) -> Report:
    batch, items = simulated(**options)
    return batch_report(batch, items, {batch.runs[0].run_id: "../../runs/a/report.html"})


def table(page: Report, title: str) -> Table:
    return next(table for table in page.tables if table.title == title)


def column(of: Table, name: str) -> list[Value]:
    at = [column.name for column in of.columns].index(name)
    return [row[at] for row in of.rows]


class Links(HTMLParser):
    """Collects the texts of links by address, and the tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: dict[str, str] = {}
        self.tags: Counter[str] = Counter()
        self._open: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag == "a":
            self._open = dict(attrs)["href"] or ""
            self.links.setdefault(self._open, "")

    def handle_endtag(self, tag: str) -> None:
        self._open = None if tag == "a" else self._open

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.links[self._open] += data


def test_headline_says_how_far_what_failed_what_bounds_and_which_node() -> None:
    page = report()
    first, bounds, node = (fact.text for fact in page.statements)
    assert first == (
        "55 of 60 tasks done; 5 not successful: "
        "1 failed, 1 out of memory, 1 timeout, 1 node failure, 1 lost"
    )
    assert bounds.startswith("Largest part of the time: compute in 28 of 55 tasks, launch overhead")
    assert "kernel time is bound by launch (small grid) in 15, compute (tensor) in 14" in bounds
    assert re.fullmatch(
        r"node03 is \d\.\d % slower than the others for the same work "
        r"\(95 % CI \d\.\d to \d\.\d %, 13 tasks\)",
        node,
    )
    facts = {fact.name: fact.text for fact in page.summary}
    assert facts["Next"].startswith("perfpipe batch resume batch-")
    assert "1 outlier" in facts["Nodes"]


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ({}, "60 of 60 tasks done"),
        ({3: 1}, "59 of 60 tasks done; 1 timeout"),
        ({3: 1, 4: 1}, "58 of 60 tasks done; 2 timeout"),
    ],
)
def test_what_is_done(failures: dict[int, int], said: str) -> None:
    assert report(failures=failures).statements[0].text == said


def test_what_goes_on_is_not_counted_as_failed() -> None:
    batch, items = simulated(failures={})
    for at, state in ((1, State.RUNNING), (2, State.WAITING), (3, State.UNKNOWN)):
        items[at] = Item(replace(items[at].state, state=state))
    page = batch_report(batch, items, {})
    assert page.statements[0].text == "57 of 60 tasks done; 1 unknown, 1 running, 1 waiting"
    assert "Failed tasks" not in {table.title for table in page.tables}
    assert "Next" not in {fact.name for fact in page.summary}


def test_every_state_has_its_place() -> None:
    assert {*ORDER} == {*State}
    assert {*FAILED} | {*OPEN} | {State.DONE} == {*State}
    assert {state for state in State if state.in_flight} < {*OPEN}


def test_failures_come_first_with_the_end_of_their_log_and_a_command() -> None:
    page = report()
    states = column(table(page, "Configurations"), "state")
    assert states == [*(state.value for state in FAILED if state.value in states), *["done"] * 55]
    failed = table(page, "Failed tasks")
    assert column(failed, "task") == [7, 23, 18, 31, 44]
    assert column(failed, "log")[0] == FAILURES[0][2]
    assert (
        column(failed, "command")[0] == "perfpipe batch logs 7 --batch batch-20261122t144338z-1f2e"
    )
    page_text = render_html(page)
    assert "<pre>File &#34;train.py&#34;, line 88\nValueError: loss is nan</pre>" in page_text
    assert "ValueError: loss is nan" in render_markdown(page).replace("\\", "")


def test_failures_of_the_same_kind_are_counted_together() -> None:
    batch, items = simulated(failures={})
    for at in range(12):
        why = f"CUDA out of memory: {at}.5 GiB at 0x7f{at:02x}"
        items[at] = Item(
            replace(items[at].state, state=State.FAILED, reason=why, node=f"n{at // 10}")
        )
    items[30] = Item(replace(items[30].state, state=State.FAILED, reason="no such file"))
    reasons = table(batch_report(batch, items, {}), "Failures by reason")
    assert column(reasons, "tasks") == [12, 1]
    assert column(reasons, "nodes")[0] == "n0 (10), n1 (2)"
    assert column(reasons, "which")[0] == "0, 1, 2, 3, 4 and 7 more"


def test_configurations_link_to_their_pages_and_runs_to_theirs() -> None:
    batch, items = simulated()
    seen = Links(
        render_html(batch_report(batch, items, {batch.runs[0].run_id: "../../runs/a/report.html"}))
    )
    assert seen.links["../../runs/a/report.html"] == 2 * "gemm", "on the first screen, and below"
    done = [item for item in items if item.done]
    assert done
    for item in done:
        assert item.page is not None
        assert seen.links[item.page].startswith(item.state.task.label)


def test_hostile_names_stay_text_and_links_lead_nowhere_else() -> None:
    batch, items = simulated()
    task = replace(items[0].state.task, label=HOSTILE)
    items[0] = replace(
        items[0], state=replace(items[0].state, task=task, node=HOSTILE), page=HOSTILE
    )
    items[1] = replace(items[1], page="javascript:alert(1)")
    items[2] = replace(items[2], page="//evil.example/x")
    items[7] = replace(items[7], log=HOSTILE)
    text = render_html(batch_report(batch, items, {}))
    seen = Links(text)
    plain = Links(render_html(batch_report(*simulated(), {})))
    assert seen.tags["script"] == plain.tags["script"] == 1
    assert not seen.tags["img"]
    assert text.count("onerror=alert") == text.count("&lt;img src=x onerror=alert")
    for link in seen.links:
        assert re.fullmatch(r"#[a-z-]+|[A-Za-z0-9_.~%/-]+", link)
        assert not link.startswith("/")
    assert "javascript%3Aalert%281%29" in seen.links
    assert not any("evil" in link for link in seen.links)
    markdown = render_markdown(batch_report(batch, items, {}))
    assert "<script" not in markdown.replace("\\<", "")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("../a b/report.html", "../a%20b/report.html"),
        ("a?b#c", "a%3Fb%23c"),
        ("data:text/html,x", "data%3Atext/html%2Cx"),
        ("a\\b", "a%5Cb"),
        ("\ud800", "%3F"),
        ("/etc/passwd", None),
        ("//host/x", None),
        ("", None),
    ],
)
def test_links_are_relative_paths(path: str, url: str | None) -> None:
    assert local_url(path) == url


def test_best_and_worst_take_the_median_of_repeats() -> None:
    batch, items = simulated(configurations=3, repeats=3, workloads=["gemm"], failures={})
    peaks = {0: (10, 90, 20), 1: (30, 31, 32), 2: (25, 26, 27)}
    for at, item in enumerate(items):
        peak = peaks[at % 3][at // 3]
        items[at] = replace(item, summary=replace(item.summary, sol_pct=peak))
    best = table(batch_report(batch, items, {}), "Best and worst configurations")
    labels = [item.state.task.label for item in items[:3]]
    assert [column(best, name) for name in ("best", "best_value", "worst", "worst_value")] == [
        [labels[1]], [31], [labels[0]], [20],
    ]  # fmt: skip


def test_without_declared_work_the_shortest_is_best() -> None:
    batch, items = simulated(configurations=3, repeats=1, workloads=["gemm"], failures={})
    items = [replace(i, summary=replace(i.summary, sol_pct=None, mfu_pct=None)) for i in items]
    best = table(batch_report(batch, items, {}), "Best and worst configurations")
    times = {item.state.task.label: item.time_ms for item in items}
    assert column(best, "by") == ["time"]
    assert column(best, "best") == [min(times, key=lambda label: times[label] or 0)]
    assert column(best, "worst_value") == [max(time or 0 for time in times.values())]


def test_nodes_are_compared_by_what_was_measured_on_them() -> None:
    page = report()
    nodes = table(page, "Nodes compared")
    assert column(nodes, "place")[0] == "node03"
    assert column(nodes, "verdict") == ["slower", *["like the others"] * 3]
    (low,), (high,) = ([column(nodes, name)[0]] for name in ("low_pct", "high_pct"))
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 3 < low < 6 < high < 9
    assert len(table(page, "GPUs compared").rows) == 8
    recording = Recorded("NVIDIA H200", "2026-11-20T10:00:00Z")
    replayed = report(recording=recording)
    assert "Not compared: the times come from a recording" in table(replayed, "Nodes compared").doc
    assert {*column(table(replayed, "Nodes compared"), "verdict")} == {None}
    assert "slower" not in replayed.verdict


def test_differences_are_shown_with_their_sign() -> None:
    shown = [format_value(value, "change") for value in (5.55, -0.04, 0.04, -1.26, None)]
    assert shown == ["+5.5", "+0.0", "+0.0", "-1.3", "-"]


def test_different_models_of_gpus_are_not_compared() -> None:
    batch, items = simulated(failures={}, slow=0.5)
    for at, item in enumerate(items):
        model = "NVIDIA L4" if item.state.node == "node03" else "NVIDIA H200"
        items[at] = replace(item, summary=replace(item.summary, gpu=model))
    assert "slower" not in batch_report(batch, items, {}).verdict


def test_a_replayed_batch_says_so() -> None:
    recording = Recorded("NVIDIA H200", "2026-11-20T10:00:00Z")
    notice = report(recording=recording).notice
    assert notice == (
        "Replayed from a recording: captured on 2026-11-20T10:00:00Z (GPU: NVIDIA H200). "
        "Nothing was measured on these machines."
    )
    assert notice in render_html(report(recording=recording))
    assert report().notice is None
    batch, items = simulated()
    batch = replace(batch, runs=(replace(batch.runs[0], recording=recording), *batch.runs[1:]))
    assert str(batch_report(batch, items, {}).notice).startswith("gemm: replayed from a recording:")


def test_a_large_batch_is_cut_and_says_so() -> None:
    page = report(configurations=100, repeats=8, failures={2399: 0, 1500: 1})
    all_tasks = table(page, "Configurations")
    assert (len(all_tasks.rows), all_tasks.total_rows) == (1000, 2400)
    assert column(all_tasks, "task")[:3] == [2399, 1500, 0]
    text = render_html(page)
    assert "showing 1000 of 2,400" in text
    assert len(text) < 1_500_000


def test_every_format_holds_the_same_and_nothing_of_other_reports() -> None:
    page = report()
    document = json.loads(to_json(page))
    assert document["title"] == "gemm, attention, transformer_step (batch-20261122t144338z-1f2e)"
    assert document["sections"][-1]["tables"][0]["total_rows"] == 60
    console = Console(record=True, width=200)
    print_terminal(page, console)
    for text in (render_html(page), render_markdown(page), console.export_text()):
        assert "55 of 60 tasks done" in text
        assert "node failure" in text
        assert "Recommendations" not in text
        assert "None: " not in text
        assert "../../runs/a/report.html" not in text or text.startswith("<!doctype")


def test_an_empty_batch_has_a_page() -> None:
    batch, _ = simulated()
    page = batch_report(replace(batch, runs=(), tasks=0), [], {})
    assert page.statements[0].text == "0 of 0 tasks done"
    assert render_html(page)
    assert render_markdown(page)
