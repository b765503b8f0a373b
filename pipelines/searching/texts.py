"""The texts that a proposer reads: the prompt, the feedback on its parent, and what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.search_decision import Speedup, gains_of, log_gains, speedup_of
from perfpipe.analysis.search_summary import Found, failures
from perfpipe.searchrecord import BASELINE, Attempt, Kernel
from perfpipe.units import format_ns, words

#: Candidates that the history names, and characters of a reason and of a candidate's own output.
_TOLD, _REASON, _OUTPUT = 200, 300, 1500

PROMPT = """\
Make the kernel in this directory faster, and keep it correct.

- PROBLEM.md defines the problem: signature, sizes, types, tolerances, reference, attainable time.
- {module} is the candidate to start from ({parent}). Edit it; put other files beside it.
- FEEDBACK.md has the verdict on it: times, errors, and what limits it. feedback.json has the same.
- HISTORY.md lists what was tried before, what failed, and what the best have in common.
- best/ has the best candidate so far.

When you exit, {module} and the files beside it are the candidate. It is checked for correctness
on new inputs, and timed against {baseline}. State parameters such as tile sizes in params.json, an
object of numbers and strings, so that the history can compare them.

This is generation {generation} of {generations}, variant {variant} of {variants}, seed {seed}.
Variants of a generation start from the same results; choose a different idea for each of them.
"""


def feedback(found: Found, parent: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a parent and of every candidate, for JSON.

    `about` is the problem as `problem_data` describes it.
    """
    own = found.of(parent)
    best = found.ranking[0][0].name if found.ranking else None
    return {
        "baseline": found.baseline,
        "parent": _about_parent(found, own) if own else {"name": BASELINE},
        "best": best,
        "attainable_ms": {one["case"]: one["attainable_ms"] for one in about["timed"]},
        "tried": [_in_brief(found, one) for one in found.attempts[-_TOLD:]],
    }


def _about_parent(found: Found, own: Attempt) -> dict[str, Any]:
    cases = dict.fromkeys((one.case, one.against) for one in own.times)
    return {
        **_in_brief(found, own),
        "evidence": [*own.evidence],
        "no_times": own.no_times,
        "cases": [
            {"case": case, "against": against, **_ends(_of_case(own, case, against))}
            for case, against in cases
        ],
        "attainable_pct": own.attainable_pct,
        "kernels": [vars(kernel) for kernel in own.profile],
        "no_profile": own.profile_missing,
        "printed": own.output[-_OUTPUT:] if not own.correct else "",
    }


def _of_case(own: Attempt, case: str, against: str) -> Speedup | None:
    return speedup_of(gains_of((one for one in own.times if one.case == case), against))


def _in_brief(found: Found, own: Attempt) -> dict[str, Any]:
    return {
        "name": own.name,
        "generation": own.generation,
        "parents": [*own.parents],
        "status": own.status,
        "reason": own.reason[:_REASON],
        "params": own.params,
        "speedup": _ends(speedup_of(log_gains(own, found.baseline))),
    }


def _ends(speedup: Speedup | None) -> dict[str, Any]:
    return vars(speedup) if speedup else {"ratio": None, "low": None, "high": None, "launches": 0}


def feedback_text(data: Mapping[str, Any]) -> str:
    """Return feedback as Markdown."""
    return "\n".join(_feedback(data)) + "\n"


def _feedback(data: Mapping[str, Any]) -> Iterator[str]:
    parent, baseline = data["parent"], data["baseline"]
    yield f"# Feedback on {parent['name']}"
    yield ""
    if parent["name"] == BASELINE:
        yield f"It is {baseline}, which every candidate is compared with."
        yield from _attainable(data)
        return
    yield f"{words(parent['status'])}: {parent['reason']}"
    yield from (f"- {one}" for one in parent["evidence"])
    if parent["printed"]:
        yield from ("", "It printed:", "", *(f"    {s}" for s in parent["printed"].splitlines()))
    if parent["cases"]:
        yield ""
        yield "Speedups, from launches in which both alternate (95 % interval):"
        yield ""
    for one in parent["cases"]:
        speedup = Speedup(one["ratio"], one["low"], one["high"], one["launches"])
        yield f"- {one['case']}: {speedup.text} as fast as {one['against']}"
    if parent["no_times"]:
        yield f"- no times: {parent['no_times']}"
    yield from _attainable(data)
    yield from _profile(parent)


def _attainable(data: Mapping[str, Any]) -> Iterator[str]:
    reached = data["parent"].get("attainable_pct") or {}
    known = {case: ms for case, ms in data["attainable_ms"].items() if ms is not None}
    if known:
        yield ""
        yield "Attainable times (see PROBLEM.md for what they assume):"
        yield ""
    for case, ms in known.items():
        share = f"; it reaches {reached[case]:.0f} %" if case in reached else ""
        yield f"- {case}: {format_ns(ms * 1e6)}{share}"


def _profile(parent: Mapping[str, Any]) -> Iterator[str]:
    if parent["kernels"]:
        yield from ("", "Profile of one call (ncu):", "")
    for one in parent["kernels"]:
        yield f"- {_kernel(Kernel(**one))}"
    if parent["no_profile"]:
        yield from ("", f"No profile: {parent['no_profile']}")


def _kernel(one: Kernel) -> str:
    took = "" if one.time_ns is None else f", {format_ns(one.time_ns)}"
    sol = f"compute SOL {_pct(one.compute_sol_pct)}, memory SOL {_pct(one.memory_sol_pct)}"
    said = f"{one.name}{took}: {words(one.bound)}; {sol}; SOL headroom {_pct(one.headroom_pct)}"
    known = techniques().get(one.technique or "")
    return f"{said}; try: {known.technique}" if known else said


def _pct(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} %"


def history_text(found: Found) -> str:
    """Return what was tried as Markdown: ranking, failures by kind, what the best share."""
    return "\n".join(_history(found)) + "\n"


def _history(found: Found) -> Iterator[str]:
    yield "# What was tried"
    yield ""
    if not found.attempts:
        yield "Nothing yet: this is the first generation."
        return
    yield f"{len(found.attempts)} candidates: {failures(found.attempts) or 'none failed'}."
    yield ""
    if found.ranking:
        yield f"Correct, by the lower end of the speedup over {found.baseline}:"
        yield ""
    for own, speedup in found.ranking[:_TOLD]:
        of = f", from {' and '.join(own.parents)}" if own.parents else ""
        yield f"- {own.label}{of}: {speedup.text}"
    if shared := found.shared_text:
        yield from ("", f"All {found.shared[0].of_best} best candidates have: {shared}.")
    kinds: dict[str, list[Attempt]] = {}
    for one in found.attempts:
        if not one.correct:
            kinds.setdefault(one.status, []).append(one)
    for kind, own_kind in sorted(kinds.items()):
        yield from ("", f"## {words(kind)} ({len(own_kind)})", "")
        yield from (f"- {one.label}: {one.reason[:_REASON]}" for one in own_kind[-_TOLD:])
    untimed = [one for one in found.attempts if one.correct and one.no_times]
    if untimed:
        yield from ("", "## Correct, but not timed", "")
        yield from (f"- {one.label}: {one.no_times}" for one in untimed)
