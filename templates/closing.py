"""A report on a terminal: verdict, numbers, time budget, what to try first with its command."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from perfpipe.templates.bars import CATEGORIES, IDLE, part_words
from perfpipe.viewmodel import Action, Budget, Finding, Opening, Report

#: The most lines, as a terminal shows them.
MOST = 40

#: What is shown at most: findings, and lines of each text.
_FINDINGS = 5
_VERDICT_LINES, _FACT_LINES, _WARNING_LINES, _CLAIM_LINES, _EVIDENCE_LINES = 5, 2, 2, 2, 3

#: Budgets that are drawn, letters of a bar, parts of one, and its signs.
_BUDGETS, _BAR, _PARTS = 2, 76, 6
_FILLED = 6 * "\u2588"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")

#: Facts of the summary on times or on what to do.
_FACTS = (
    "GPU",
    "Configurations",
    "Wall time",
    "Energy",
    "Shared GPU",
    "Tracing",
    "Next",
    "Autotuning",
)

#: Those that follow the actions on a first screen, which shows the other facts elsewhere.
_BEHIND = ("Wall time", "Energy", "Shared GPU", "Tracing", "Autotuning")


def closing_lines(
    report: Report, files: Sequence[str], store: str = "", width: int = 80, *, colour: bool = False
) -> list[str]:
    """Return lines of at most `width` characters; only commands and file names may be longer.

    With `colour` the budget is drawn in the colors of pages (24-bit escape sequences).

    They fill at most MOST lines of a terminal: if there is no room, evidence is cut, then the
    last findings are dropped.  `files` are the reports that were written, `store` the option that
    commands need, if any.
    """
    width, store = max(width, 40), f" {store}" if store else ""
    if report.opening is not None:
        return _opened(report, report.opening, files, store, width, colour)
    for findings, evidence in [(_FINDINGS, n) for n in range(_EVIDENCE_LINES, -1, -1)] + [
        (n, 0) for n in range(_FINDINGS - 1, -1, -1)
    ]:
        lines = list(_lines(report, files, store, width, findings, evidence))
        if sum(-(-len(line) // width) for line in lines) <= MOST:
            break
    return lines


def _opened(
    report: Report, opening: Opening, files: Sequence[str], store: str, width: int, colour: bool
) -> list[str]:
    """Return the first screen of a page as lines."""
    head = [*_wrapped(f"{report.title} - {opening.subject.text}", width, 1)]
    if report.notice:
        head += _wrapped(report.notice, width, _FACT_LINES)
    head += _wrapped(opening.verdict.text, width, _VERDICT_LINES)
    longest = max((len(tile.name) for tile in opening.tiles), default=0)
    for tile in opening.tiles:
        said = f"{tile.name:{longest}}  {tile.number}  {tile.note}"
        head += _wrapped(said, width, 1, "  ")
    for budget in opening.budgets[:_BUDGETS]:
        head += _bar(budget, width, colour)
    tail = []
    for fact in report.summary:
        if fact.name in _BEHIND:
            tail += _wrapped(f"{fact.name}: {fact.text}", width, _FACT_LINES)
    if report.warnings:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        tail += _wrapped(f"Warning: {report.warnings[0].text}{more}", width, _WARNING_LINES)
    if files:
        tail.append(f"Report: {', '.join(files)}")
    for evidence in range(_EVIDENCE_LINES, -1, -1):
        for most in range(len(opening.actions) if evidence == 0 else 1):
            kept = opening.actions[: len(opening.actions) - most]
            lines = [
                line
                for number, action in enumerate(kept, 1)
                for line in _of_action(number, action, store, width, evidence)
            ]
            if _height([*head, *lines, *tail], width) <= MOST:
                return [*head, *lines, *tail]
    return [*head, *tail]


def _height(lines: Sequence[str], width: int) -> int:
    """Return how many lines of a terminal they fill; escape sequences take no room."""
    return sum(max(1, -(-len(_ESCAPE.sub("", line)) // width)) for line in lines)


def _of_action(number: int, action: Action, store: str, width: int, evidence: int) -> Iterator[str]:
    bound = f": {action.bound}" if action.bound else ""
    yield from _wrapped(f"{action.what}{bound}", width, _CLAIM_LINES, f"{number}. ")
    yield from _wrapped(action.evidence, width, evidence, "   ") if evidence else ()
    if action.command:
        yield f"   next: {_plain(action.command)}{store}"


def _bar(budget: Budget, width: int, colour: bool) -> Iterator[str]:
    """Yield the budget as a bar, with a letter for each of its largest parts, and a legend."""
    room = min(width - 4, _BAR)
    told = [(name, share) for name, share in budget.shares if share >= 100 / room][:_PARTS]
    if not told:
        return
    marks = _FILLED if colour else "#=+-.:"
    bar, key = "", []
    for (name, share), mark in zip(told, marks, strict=False):
        sign = "\u2592" if colour and name in IDLE else mark
        length = max(1, round(share * room / 100))
        bar += (
            _coloured(sign * length, CATEGORIES.get(name, "#808890")) if colour else sign * length
        )
        key.append(
            f"{_coloured(sign, CATEGORIES.get(name, '#808890')) if colour else sign} "
            f"{part_words(name)} {share:.0f} %"
        )
    yield f"  {bar}"
    # Wrapped as plain text: escape sequences take no room.
    line, room = f"  {_plain(budget.name)}:", width
    for part in key:
        if len(_ESCAPE.sub("", f"{line} {part}")) > room:
            yield line
            line = "   "
        line += f" {part}"
    yield line


def _coloured(text: str, colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"


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
    bound = f": {finding.gain}" if finding.gain else ""
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
