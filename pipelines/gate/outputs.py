"""A decision for other tools: JSON, JUnit XML, Bencher Metric Format, OpenMetrics, a comment."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.gate.compare.explain import Explanation
from perfpipe.analysis.gate.decision import Decision, Verdict, headline, name_of
from perfpipe.analysis.gate.judging import Change, change_of
from perfpipe.pipelines.junit import Case, Outcome, Suite, xml
from perfpipe.units import format_joules, format_ns

#: A later comment finds and replaces the one that begins with this line.
MARKER = "<!-- perfpipe check -->"

_OUTCOMES = {
    Verdict.REGRESSED: Outcome.FAILURE,
    Verdict.FAILED: Outcome.ERROR,
    Verdict.INCONCLUSIVE: Outcome.SKIPPED,
    Verdict.UNREPLICATED: Outcome.SKIPPED,
    Verdict.NOT_COMPARABLE: Outcome.SKIPPED,
}


def as_data(decision: Decision, why: Explanation) -> dict[str, Any]:
    """Return a decision as JSON data, with the explanation of the change."""
    return {
        "verdict": decision.verdict,
        "action": decision.action,
        "aa": decision.alike,
        "reason": decision.reason,
        "basis": decision.basis,
        "endpoint": decision.endpoint,
        "further_runs": decision.further_runs,
        "results": decision.results
        and {
            "kind": decision.results.kind,
            "why": decision.results.why,
        },
        "notes": list(decision.notes),
        "why": {"text": why.text, "differences": [asdict(row) for row in why.rows]},
        "mean": decision.mean and _row(decision.mean),
        "endpoints": [_row(pair) for pair in decision.endpoints],
        "others": [_row(pair) for pair in decision.others],
        "kernels": [_row(pair) for pair in decision.kernels],
    }


def _row(pair: Compared) -> dict[str, Any]:
    change = pair.change
    unit = "j" if pair.is_energy else "ns"
    return {
        **pair.key._asdict(),
        **dict(zip((f"before_{unit}", f"after_{unit}"), pair.medians, strict=True)),
        "change_pct": None if change is None else 100 * change.ratio,
        "low_pct": None if change is None or change.low is None else 100 * change.low,
        "high_pct": None if change is None or change.high is None else 100 * change.high,
        "q": pair.q,
        "test": None if change is None or change.p is None else _test(change),
        "runs": [len(pair.before.medians), len(pair.after.medians)],
        "verdict": pair.verdict,
        "note": pair.note,
    }


def _test(change: Change) -> str:
    return "mann-whitney" if change.outliers else "welch"


def junit(decision: Decision) -> str:
    """Return JUnit XML: a case for each configuration, their mean, and each kernel."""
    cases = [_case("steps", pair) for pair in decision.tested]
    cases += [_case("kernels", pair) for pair in decision.kernels]
    if decision.verdict == Verdict.FAILED or not cases:
        outcome = _OUTCOMES.get(decision.verdict, Outcome.SKIPPED)
        cases.insert(0, Case("perfpipe", "decision", 0, outcome, decision.verdict, decision.reason))
    return xml("perfpipe check", [Suite("perfpipe check", cases)])


def _case(kind: str, pair: Compared) -> Case:
    verdict = pair.verdict or "no verdict"
    outcome = _OUTCOMES.get(Verdict(verdict)) if verdict in {*Verdict} else None
    # Kernels decide nothing.
    if kind == "kernels" and outcome == Outcome.FAILURE:
        outcome = Outcome.SKIPPED
    text = headline_of(pair)
    seconds = 0 if pair.is_energy else (pair.after_ns or 0) / 1e9
    return Case(kind, name_of(pair), seconds, outcome, verdict, text)


def headline_of(pair: Compared) -> str:
    """Return the change of a pair as text."""
    change = pair.change
    told = "" if change is None else f"{100 * change.ratio:+.1f} %"
    if change is not None and change.interval:
        told += f" ({change.interval})"
    return "; ".join(part for part in (f"{pair.verdict} {told}".strip(), pair.note) if part)


def bencher(decision: Decision) -> str:
    """Return Bencher Metric Format: each configuration with its 95 % interval.

    The measure is latency, ns, or energy, J.
    """
    found = {}
    for pair in decision.endpoints:
        times = pair.after.medians
        if not times:
            continue
        low, high = _interval(times)
        value = statistics.median(times)
        measure = "energy" if pair.is_energy else "latency"
        found[name_of(pair)] = {measure: {"value": value, "lower_value": low, "upper_value": high}}
    return json.dumps(found, indent=1) + "\n"


def _interval(times: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a geometric mean of times; for one time, the time itself."""
    if len(times) < 2:
        return times[0], times[0]
    # Compared with itself, the interval has twice the variance, so it is sqrt(2) too wide.
    change = change_of(times, times)
    centre = math.exp(statistics.fmean(math.log(time) for time in times))
    margin = math.log1p(change.high or 0) / math.sqrt(2)
    return centre * math.exp(-margin), centre * math.exp(margin)


def openmetrics(decision: Decision) -> str:
    """Return OpenMetrics text: times or energies before and after, the change, and the verdict."""
    return "\n".join((*_samples(decision), "# EOF")) + "\n"


def _samples(decision: Decision) -> Iterator[str]:
    pairs = (*decision.endpoints, *decision.others)
    yield from _medians([pair for pair in pairs if not pair.is_energy], "time", "seconds", 1e9)
    yield from _medians([pair for pair in pairs if pair.is_energy], "energy", "joules", 1)
    yield "# TYPE perfpipe_change_ratio gauge"
    yield f"# HELP perfpipe_change_ratio {str(decision.endpoint).capitalize()} after / before - 1."
    for pair in decision.endpoints:
        if pair.change is not None:
            yield f"perfpipe_change_ratio{_labels(name_of(pair))} {pair.change.ratio!r}"
    yield "# TYPE perfpipe_verdict stateset"
    yield "# HELP perfpipe_verdict The decision of the gate."
    for verdict in Verdict:
        mark = int(verdict == decision.verdict)
        yield f'perfpipe_verdict{{perfpipe_verdict="{verdict}"}} {mark}'


def _medians(pairs: Sequence[Compared], what: str, unit: str, scale: float) -> Iterator[str]:
    """Yield a metric with the medians of pairs before and after; nothing without pairs."""
    name = f"perfpipe_{what}_{unit}"
    if pairs:
        yield f"# TYPE {name} gauge"
        yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} Median {what} of an iteration or step."
    for pair in pairs:
        for side, value in zip(("before", "after"), pair.medians, strict=True):
            if value is not None:
                yield f"{name}{_labels(name_of(pair), side=side)} {value / scale!r}"


def _labels(configuration: str, **more: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", configuration).replace("\n", "\\n")
    named = {"configuration": escaped, **more}
    return "{" + ",".join(f'{name}="{value}"' for name, value in named.items()) + "}"


def comment(decision: Decision, why: Explanation) -> str:
    """Return a comment for a pull request: the decision with its table and the explanation."""
    lines = [MARKER, f"**perfpipe: {_escaped(headline(decision))}**", ""]
    lines += _markdown(TITLES, [*rows(decision)])
    if note := table_note(decision):
        lines += ["", note]
    if decision.endpoints:
        lines += ["", f"{_escaped(decision.basis)}."]
    for note in decision.sentences:
        lines += ["", f"**{_escaped(note)}**"]
    if why.text:
        lines += ["", f"**{why.title}:** {_escaped(why.text)}", ""]
        lines += _markdown(WHY_TITLES, [*why_rows(why)])
    return "\n".join(lines) + "\n"


def filled(
    titles: Sequence[str], found: Sequence[Sequence[str]]
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return a table without the columns that are empty in all rows."""
    at = [place for place, _ in enumerate(titles) if any(row[place] for row in found)]
    return [titles[place] for place in at], [tuple(row[p] for p in at) for row in found]


def _markdown(titles: Sequence[str], found: Sequence[Sequence[str]]) -> list[str]:
    if not found:
        return []
    titles, found = filled(titles, found)
    return [_line(titles), f"|{' --- |' * len(titles)}", *map(_line, found)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", text)


#: Columns of `rows`.
TITLES = ("what", "before", "after", "change", "interval", "runs", "verdict")

#: Columns of `why_rows`.
WHY_TITLES = ("what differs", "kind", "before", "after", "difference", "share")

#: Most kernels of a table on a terminal.
_KERNELS = 10


def rows(decision: Decision) -> Iterator[tuple[str, ...]]:
    """Yield the rows: the mean, configurations, what does not decide, kernels that changed."""
    changed = [p for p in decision.kernels if p.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)]
    for pair in (*decision.tested, *decision.others, *changed[:_KERNELS]):
        data = _row(pair)
        interval = "-"
        if data["low_pct"] is not None:
            interval = f"{data['low_pct']:+.1f} to {data['high_pct']:+.1f} %"
        change = "-" if data["change_pct"] is None else f"{data['change_pct']:+.1f} %"
        yield (
            name_of(pair),
            *(_format(value, pair) for value in pair.medians),
            change,
            interval,
            " and ".join(str(count) for count in data["runs"]),
            str(pair.verdict),
        )


def table_note(decision: Decision) -> str:
    """Return a sentence on what the columns of `rows` are; empty without a change."""
    changes = [pair.change for pair in (*decision.tested, *decision.others) if pair.change]
    if not changes:
        return ""
    ranks = "; with outliers, it is the median ratio of runs"
    return (
        "Before and after are medians over the runs; the change is the ratio of the geometric means"
        f"{ranks if any(change.outliers for change in changes) else ''}."
    )


def _format(value: float | None, pair: Compared) -> str:
    """Return a median of a pair as text."""
    if value is None:
        return "-"
    return format_joules(value) if pair.is_energy else format_ns(value)


def why_rows(why: Explanation) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of differences, the first of each kind."""
    for row in why.brief:
        share = "" if row.share_pct is None else f"{row.share_pct:.0f} %"
        yield row.name, row.kind, row.before, row.after, row.change, share
