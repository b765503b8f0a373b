"""JUnit XML of a batch, which CI systems show: each task is a test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from analysis.batch.failures import logs_command
from analysis.batch.items import Item
from perfpipe.batchrecord import Batch, State

#: What XML 1.0 cannot hold, not even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(batch: Batch, items: Sequence[Item]) -> str:
    """Return JUnit XML: a suite for each run, a case for each task.

    A task that failed by itself is a failure, one that the cluster ended or that has no result an
    error, a canceled one is skipped.
    """
    root = ElementTree.Element("testsuites", name=_plain(batch.batch_id))
    _count(root, items)
    of_run: dict[str, list[Item]] = {run.run_id: [] for run in batch.runs}
    for item in items:
        of_run[item.state.task.run_id].append(item)
    for run in batch.runs:
        attributes = {"name": _plain(run.workload), "id": _plain(run.run_id)}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        suite.set("timestamp", batch.created_at.removesuffix("Z"))
        _count(suite, of_run[run.run_id])
        for item in of_run[run.run_id]:
            _case(suite, batch, item)
    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, batch: Batch, item: Item) -> None:
    task = item.state.task
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_plain(task.workload),
        name=_plain(f"{task.label} [{task.index}]"),
        time=_seconds([item]),
    )
    outcome = _outcome(item)
    if outcome is not None:
        state = item.state.state.value
        said = ElementTree.SubElement(case, outcome)
        said.set("message", _plain(f"{state}: {item.reason}" if item.reason else state))
        if outcome != "skipped":
            said.set("type", state)
            where = f"node: {item.state.node or 'not known'}\njob: {item.state.element or '-'}"
            shown = f"{where}\n{item.log or 'no log'}\n{logs_command(batch, item)}"
            said.text = _plain(shown)


def _outcome(item: Item) -> str | None:
    """Return the name of the element that says what became of a task; None if it passed."""
    if item.done:
        return None
    known = {State.FAILED: "failure", State.CANCELLED: "skipped"}
    return known.get(item.state.state, "error")


def _count(element: ElementTree.Element, items: Sequence[Item]) -> None:
    found = [_outcome(item) for item in items]
    element.set("tests", str(len(items)))
    for name, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(found.count(outcome)))
    element.set("time", _seconds(items))


def _seconds(items: Sequence[Item]) -> str:
    return f"{sum(item.state.seconds or 0 for item in items):.3f}"


def _plain(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
