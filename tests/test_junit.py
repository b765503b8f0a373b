"""JUnit XML of a batch."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from batches import simulated
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.batch.items import Item
from perfpipe.batchrecord import State
from perfpipe.pipelines.batch.junit import junit

#: Attributes that the schema of Jenkins and surefire knows, by element; required ones are marked.
KNOWN = {
    "testsuites": {"name", "time", "tests*", "failures", "errors", "skipped"},
    "testsuite": {"name*", "tests*", "failures", "errors", "skipped", "time", "timestamp", "id"},
    "testcase": {"name*", "classname*", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped"},
    "failure": set[str](),
    "error": set[str](),
    "skipped": set[str](),
}


def check(element: ElementTree.Element) -> None:
    """Fail where an element is not as the schema has it."""
    known = KNOWN[element.tag]
    assert {*element.attrib} <= {name.rstrip("*") for name in known}
    assert {name[:-1] for name in known if name.endswith("*")} <= {*element.attrib}
    assert {child.tag for child in element} <= CHILDREN[element.tag]
    assert element.tag != "testcase" or len(element) <= 1
    if "tests" in element.attrib:
        cases = list(element.iter("testcase"))
        assert int(element.attrib["tests"]) == len(cases)
        for name in ("failure", "error"):
            found = [case for case in cases if case.find(name) is not None]
            assert int(element.attrib[f"{name}s"]) == len(found)
        skipped = [case for case in cases if case.find("skipped") is not None]
        assert int(element.attrib["skipped"]) == len(skipped)
        times = sum(float(case.attrib["time"]) for case in cases)
        assert float(element.attrib["time"]) == pytest.approx(times, abs=0.01 * len(cases))
    for child in element:
        check(child)


def test_each_task_is_a_case_of_its_run() -> None:
    batch, items = simulated()
    root = ElementTree.fromstring(junit(batch, items))
    check(root)
    assert [suite.attrib["name"] for suite in root] == ["gemm", "attention", "transformer_step"]
    assert [len(suite) for suite in root] == [20, 20, 20]
    names = [(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")]
    assert len({*names}) == 60
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == (
        "1",
        "4",
        "0",
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.DONE, None),
        (State.FAILED, "failure"),
        (State.CANCELLED, "skipped"),
        *((state, "error") for state in State if state not in (State.DONE, State.FAILED, State.CANCELLED)),
    ],
)  # fmt: skip
def test_states(state: State, expected: str | None) -> None:
    batch, items = simulated(configurations=1, repeats=1, workloads=["gemm"], failures={})
    item = Item(replace(items[0].state, state=state, reason="why"), log="the end")
    root = ElementTree.fromstring(junit(batch, [item]))
    check(root)
    (case,) = root.iter("testcase")
    assert [child.tag for child in case] == ([expected] if expected else [])
    for child in case:
        assert child.attrib["message"] == f"{state.value}: why"
        if expected != "skipped":
            assert child.attrib["type"] == state.value
            assert "the end\nperfpipe batch logs 0 --batch" in str(child.text)


@given(st.text(max_size=40))
def test_any_text_makes_xml_that_is_read_back(text: str) -> None:
    batch, items = simulated(configurations=1, repeats=1, workloads=["gemm"], failures={})
    task = replace(items[0].state.task, label=text)
    state = replace(items[0].state, task=task, state=State.FAILED, reason=text or "x")
    root = ElementTree.fromstring(junit(batch, [Item(state, log=f"begin {text} end")]).encode())
    check(root)


def test_control_characters_do_not_break_it() -> None:
    batch, items = simulated(configurations=1, repeats=1, workloads=["gemm"], failures={})
    log = "\x00\x08 ]]> <tag> & \ud800 \ufffe \U0001f600"
    state = replace(items[0].state, state=State.FAILED, reason="\x1b[31ma & b\x1b[0m < c")
    root = ElementTree.fromstring(junit(batch, [Item(state, log=log)]).encode())
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == "failed: a & b < c"
    assert "\ufffd\ufffd ]]> <tag> & \ufffd \ufffd \U0001f600" in str(failure.text)
