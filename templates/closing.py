"""The end of a run on a terminal: verdict, findings with the next command, where the report is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from perfpipe.viewmodel import Finding, Report

#: The most lines, as a terminal shows them.
MOST = 40

#: What is shown at most: findings, and lines of each text.
_FINDINGS = 5
_VERDICT_LINES, _FACT_LINES, _WARNING_LINES, _CLAIM_LINES, _EVIDENCE_LINES = 5, 2, 2, 2, 2

#: Facts of the summary that say how long something takes, or what to do.
_FACTS = ("GPU", "Configurations", "Wall time", "Shared GPU", "Tracing", "Next", "Autotuning")


def closing_lines(
    report: Report, files: Sequence[str], store: str = "", width: int = 80
) -> list[str]:
    """Return lines of at most `width` characters; only commands and file names may be longer.

    They fill at most MOST lines of a terminal: where there is no room, evidence is cut, then the
    last findings are left out.  `files` are the reports that were written, `store` the option that
    commands need, if any.
    """
    width, store = max(width, 40), f" {store}" if store else ""
    for findings, evidence in [(_FINDINGS, n) for n in range(_EVIDENCE_LINES, -1, -1)] + [
        (n, 0) for n in range(_FINDINGS - 1, -1, -1)
    ]:
        lines = list(_lines(report, files, store, width, findings, evidence))
        if sum(-(-len(line) // width) for line in lines) <= MOST:
            break
    return lines


def _lines(
    report: Report, files: Sequence[str], store: str, width: int, findings: int, evidence: int
) -> Iterator[str]:
    yield _plain(report.title)
    if report.notice:
        yield from _wrapped(report.notice, width, _FACT_LINES)
    yield from _wrapped(report.verdict, width, _VERDICT_LINES)
    for fact in report.summary:
        if fact.name in _FACTS:
            yield from _wrapped(f"{fact.name}: {fact.text}", width, _FACT_LINES, "  ")
    for number, finding in enumerate(report.findings[:findings], 1):
        yield from _of_finding(number, finding, store, width, evidence)
    if not report.findings and report.nothing_found:
        yield from _wrapped(f"No findings: {report.nothing_found}", width, _FACT_LINES)
    if report.warnings:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        yield from _wrapped(f"Warning: {report.warnings[0].text}{more}", width, _WARNING_LINES)
    if files:
        yield f"Report: {', '.join(files)}"


def _of_finding(
    number: int, finding: Finding, store: str, width: int, evidence: int
) -> Iterator[str]:
    bound = f": {finding.bound}" if finding.bound else ""
    yield from _wrapped(f"{finding.claim}{bound}", width, _CLAIM_LINES, f"{number}. ")
    yield from _wrapped(finding.evidence, width, evidence, "   ") if evidence else ()
    if finding.command:
        # Not cut or wrapped: it is to be pasted.
        yield f"   next: {_plain(finding.command)}{store}"


def _wrapped(text: str, width: int, most: int, first: str = "") -> list[str]:
    return textwrap.wrap(
        _plain(text),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        max_lines=most,
        placeholder=" …",
    )


def _plain(text: str) -> str:
    """Return text without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)
