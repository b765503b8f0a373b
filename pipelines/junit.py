"""JUnit XML, which CI systems display."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from xml.etree import ElementTree

#: Characters that XML 1.0 cannot contain, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Outcome(StrEnum):
    """The outcome of a case that did not pass."""

    FAILURE = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Case:
    """A test case; `outcome` is None if it passed.

    Otherwise `kind` and `message` give details; `text` is shown with a failure or an error.
    """

    group: str
    name: str
    seconds: float
    outcome: Outcome | None = None
    kind: str = ""
    message: str = ""
    text: str = ""


@dataclass(frozen=True)
class Suite:
    """Cases under a name; `id` distinguishes suites of the same name.

    `timestamp` is UTC, ISO 8601 without a zone.
    """

    name: str
    cases: Sequence[Case]
    id: str | None = None
    timestamp: str | None = None


def xml(name: str, suites: Sequence[Suite]) -> str:
    """Return JUnit XML."""
    root = ElementTree.Element("testsuites", name=plain(name))
    _count(root, [case for suite in suites for case in suite.cases])
    for suite in suites:
        made = ElementTree.SubElement(root, "testsuite", name=plain(suite.name))
        for key, value in (("id", suite.id), ("timestamp", suite.timestamp)):
            if value is not None:
                made.set(key, plain(value))
        _count(made, suite.cases)
        for case in suite.cases:
            _add(made, case)
    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add(suite: ElementTree.Element, case: Case) -> None:
    made = ElementTree.SubElement(
        suite,
        "testcase",
        classname=plain(case.group),
        name=plain(case.name),
        time=f"{case.seconds:.3f}",
    )
    if case.outcome is None:
        return
    said = ElementTree.SubElement(made, case.outcome, message=plain(case.message))
    if case.outcome != Outcome.SKIPPED:
        said.set("type", case.kind)
        said.text = plain(case.text) or None


def _count(element: ElementTree.Element, cases: Sequence[Case]) -> None:
    found = [case.outcome for case in cases]
    element.set("tests", str(len(cases)))
    for name, outcome in (
        ("failures", Outcome.FAILURE),
        ("errors", Outcome.ERROR),
        ("skipped", Outcome.SKIPPED),
    ):
        element.set(name, str(found.count(outcome)))
    element.set("time", f"{sum(case.seconds for case in cases):.3f}")


def plain(text: str) -> str:
    """Return text without characters that XML cannot contain."""
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
