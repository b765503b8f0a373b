"""The answer of a trial: sentences and a table for the terminal, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfpipe.analysis.trying.outcomes import (
    RESULTS,
    Outcome,
    energy,
    interval,
    saved,
    start_up,
)
from perfpipe.pipelines.trying.trial import MOST_ROUNDS
from perfpipe.trialrecord import (
    EQUAL_RESULTS,
    INTERRUPTED,
    NO_BUDGET,
    NO_FINDING,
    NO_TIMELINE,
    UNUSED,
    WAITS,
    Gained,
    LeverTrial,
    StackTrial,
    Trial,
    Used,
)
from perfpipe.units import counted, format_bytes, format_joules, format_ns, with_article

#: Begins the headline of a trial that found that no lever helps.
_NOTHING = "Nothing to gain"

#: Why few levers are tried.
_ALONE = "without a timeline, only levers that need no finding are tried"

#: Titles of the table.
TITLES = ("lever", "gain", "interval", "verdict", "at most", "results", "memory", "energy")

#: Columns whose cells stay on one line.
WHOLE = ("gain", "verdict", "at most", "energy")


def as_data(trial: Trial) -> dict[str, Any]:
    """Return a trial as JSON data."""
    return {
        "trial": trial.trial_id,
        "headline": headline(trial),
        "decided": trial.decided,
        "program": trial.program,
        "gpu": trial.gpu,
        "unit": trial.unit,
        "plain": {
            "median_ms": trial.plain_ms,
            "n": trial.plain_launches,
            "memory_bytes": trial.plain_memory_bytes,
            "energy_j": trial.plain_energy_j,
        },
        "energy_source": trial.energy_source,
        "energy_missing": trial.energy_missing,
        "aa": {**_gain(trial.aa), "results": trial.aa_results},
        "levers": [_lever(own) for own in trial.levers],
        "stack": _stack(trial.stack),
        "launches": trial.launches,
        "seconds": trial.seconds,
        "run": trial.run_id,
        "protection": trial.protection,
        "diagnosis": trial.diagnosis,
        "unsteady": trial.unsteady,
        "notes": list(trial.notes),
    }


def _gain(gained: Gained) -> dict[str, Any]:
    interval = None if gained.low_pct is None else [gained.low_pct, gained.high_pct]
    return {"gain_pct": gained.gain_pct, "interval_pct": interval}


def _energy(used: Used) -> dict[str, Any]:
    return {"energy_j": used.joules, "plain_energy_j": used.plain_joules}


def _lever(own: LeverTrial) -> dict[str, Any]:
    return {
        "name": own.name,
        "title": own.title,
        "finding": own.finding,
        "technique": own.technique,
        "applied": bool(own.applied),
        "where": list(own.applied),
        "bound_pct": own.bound_pct,
        **_gain(own.gained),
        "in_steps": _gain(own.in_steps),
        "verdict": own.verdict,
        "why": own.why,
        "results": own.results,
        "results_why": own.results_why,
        "start_up_s": own.start_up_s,
        "pays_after": own.pays_after,
        "memory_bytes": own.memory_bytes,
        **_energy(own.energy),
        "launches": own.launches,
        "manual": own.manual,
    }


def _stack(stack: StackTrial | None) -> dict[str, Any] | None:
    if stack is None:
        return None
    return {
        "levers": list(stack.levers),
        **_gain(stack.gained),
        "verdict": stack.verdict,
        "results": stack.results,
        "results_why": stack.results_why,
        "median_ms": stack.ms,
        "memory_bytes": stack.memory_bytes,
        **_energy(stack.energy),
        "manual": stack.manual,
    }


def headline(trial: Trial) -> str:
    """Return what a trial gained, as one sentence."""
    stack = trial.stack
    if stack is not None and stack.verdict == "gain" and stack.plain_ms and stack.ms:
        unit = with_article(trial.unit)
        times = f"{format_ns(1e6 * stack.plain_ms)} -> {format_ns(1e6 * stack.ms)} {unit}"
        if stack.energy.joules is not None and stack.energy.plain_joules is not None:
            ends = stack.energy.plain_joules, stack.energy.joules
            times += f"; {' -> '.join(map(format_joules, ends))}"
        return (
            f"{' + '.join(stack.levers)}: {saved(stack.gained)} ({times}), results "
            f"{RESULTS[stack.results]}"
        )
    text = _without_gain(trial)
    about = f" ({trial.diagnosis})" if trial.diagnosis and text.startswith(_NOTHING) else ""
    return f"{text}{about}"


def _without_gain(trial: Trial) -> str:
    """Return what came of a trial that confirmed no gain: "nothing" only if that was measured."""
    if trial.stack is not None:
        return _unconfirmed(trial.stack)
    if trial.unsteady:
        return f"Undecided: the program does different work in each launch: {trial.unsteady}"
    tried = [own for own in trial.levers if own.launches]
    over = [own for own in trial.levers if own.why == NO_BUDGET]
    if not tried:
        return _untried(trial, bool(over))
    changed = [own for own in tried if own.verdict == "gain" and own.results not in EQUAL_RESULTS]
    if changed:
        return _changing(changed[0])
    if gains := [own for own in tried if own.verdict == "gain"]:
        best = max(gains, key=lambda own: own.gained.gain_pct or 0.0)
        early = INTERRUPTED in trial.notes
        begins = "Interrupted before fresh launches" if early else "Not confirmed"
        return f"{begins}: {_changing(best)}"
    unclear = [own for own in tried if own.verdict == "inconclusive"]
    if hidden := [own for own in unclear if own.results != "differ"]:
        most = max(own.gained.high_pct or 0.0 for own in hidden)
        up_to = f"; gains up to {most:.1f} % are possible" if most > 0 else ""
        names = ", ".join(own.name for own in hidden)
        few = max(own.launches for own in hidden) < MOST_ROUNDS
        rounds = "; a larger --budget allows more rounds" if few else ""
        return f"Undecided: launches scatter too much to judge {names}{up_to}{rounds}"
    more = f"; the budget does not allow {counted(len(over), 'more lever')}" if over else ""
    measured = [own for own in tried if own.verdict in ("no gain", "slower")]
    if measured:
        best = max(measured, key=lambda own: own.gained.gain_pct or -1e9)
        of = f"the best of {counted(len(measured), 'lever')}, {best.name},"
        one = best.name if len(measured) == 1 else of
        return f"{_NOTHING}: {one} changes the time by {saved(best.gained)}{more}"
    if unclear:
        return f"{_NOTHING} with equal results: {unclear[0].name} changes them{more}"
    whys = "; ".join(f"{own.name} {own.verdict}: {own.why}" for own in tried[:3])
    useless = all(own.verdict == "not applied" for own in tried)
    if useless and any(own.why == NO_TIMELINE for own in trial.levers):
        return f"Undecided: {_ALONE}; {whys}; --levers tries others"
    return f"{_NOTHING if useless else 'No lever was measured'}: {whys}{more}"


def _unconfirmed(stack: StackTrial) -> str:
    """Return why a stack of levers with gains is not the answer."""
    names = " + ".join(stack.levers)
    if stack.verdict in ("no gain", "slower"):
        return f"{_NOTHING}: on fresh launches, {names} changes the time by {saved(stack.gained)}"
    if stack.verdict == "inconclusive":
        return f"Not confirmed: {names}: {saved(stack.gained)} on fresh launches"
    return f"Not confirmed: {names}: {stack.results_why}"


def _untried(trial: Trial, over: bool) -> str:
    """Return why no lever was launched."""
    if any(own.why == WAITS for own in trial.levers):
        return f"{_NOTHING}: {WAITS}, and levers do not bring requests; --levers tries some"
    if over:
        return (
            "Undecided: the budget does not allow any lever; raise --budget, or end launches early "
            "with --steps or --duration"
        )
    if any(own.why == NO_TIMELINE for own in trial.levers):
        return f"Undecided: {_ALONE}, and none applies; --levers tries others"
    if trial.levers and not any(own.why == NO_FINDING for own in trial.levers):
        whys = "; ".join(f"{own.name}: {own.why}" for own in trial.levers[:3])
        return f"Nothing was tried: {whys}"
    return f"{_NOTHING}: no lever answers a finding of this program"


def _not_tried(skipped: Sequence[LeverTrial]) -> Iterator[str]:
    """Yield the levers that were not launched by reason; those that do not apply are counted."""
    useless = [own for own in skipped if own.why == NO_FINDING or own.why.startswith(UNUSED)]
    for why in dict.fromkeys(own.why for own in skipped if own not in useless):
        names = ", ".join(own.name for own in skipped if own.why == why)
        yield f"Not tried ({why}): {names}"
    if not useless:
        return
    parts = []
    if uncalled := sum(own.why == NO_FINDING for own in useless):
        parts.append(f"{counted(uncalled, 'lever')} that no finding calls for")
    libraries = [own.why.removeprefix(UNUSED) for own in useless if own.why != NO_FINDING]
    if libraries:
        what = f"what the program does not use ({', '.join(dict.fromkeys(libraries))})"
        parts.append(f"{counted(len(libraries), 'lever')} for {what}")
    yield f"Not tried: {', '.join(parts)}; --json names them"


def _changing(own: LeverTrial) -> str:
    """Return that a lever saves time, but not with equal results."""
    results = Outcome.of(own).said_of_results()
    return f"{own.name}: {saved(own.gained)}, {results}".rstrip(".")


def rows(trial: Trial) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: levers that were measured."""
    for own in trial.levers:
        if own.gained.gain_pct is None:
            continue
        yield (
            own.name,
            f"{own.gained.gain_pct:+.1f} %",
            interval(own.gained),
            own.verdict,
            f"{own.bound_pct:.1f} %" if own.bound_pct is not None else "",
            RESULTS[own.results],
            format_bytes(own.memory_bytes) if own.memory_bytes else "",
            energy(own.energy),
        )


def lines(trial: Trial) -> Iterator[str]:
    """Yield the lines around the table: the headline is first."""
    yield headline(trial)
    if trial.plain_ms is not None:
        n = counted(trial.plain_launches, "launch")
        time = f"{format_ns(1e6 * trial.plain_ms)} {with_article(trial.unit)}"
        yield (
            f"Without changes: {time} ({n} on {trial.gpu}); compared with itself: "
            f"{saved(trial.aa) or 'too few launches'}, results {RESULTS[trial.aa_results]}"
        )
    if trial.plain_energy_j is not None:
        yield (
            f"Energy without changes: {format_joules(trial.plain_energy_j)} "
            f"{with_article(trial.unit)} ({trial.energy_source}; all GPUs that the program "
            "may use, idle power included)"
        )


def after(trial: Trial) -> Iterator[str]:
    """Yield the lines after the table.

    They say what levers were applied to, the change and its risks, what did not go well, and notes.
    """
    for own in trial.levers:
        if own.gained.gain_pct is not None:
            once = start_up(own, trial.unit)
            facts = [*own.applied, *([f"start-up {once}"] if once else [])]
            if facts:
                yield f"{own.name}: {'; '.join(facts)}"
    stack = trial.stack
    if stack is not None and stack.verdict == "gain" and stack.manual:
        yield "The change to make:"
        yield from (f"  {line}" for line in stack.manual.splitlines())
        for own in trial.levers:
            if own.name in stack.levers and own.risks:
                yield f"Risks of {own.name}: {own.risks}"
    for own in trial.levers:
        if own.launches and own.gained.gain_pct is None:
            yield f"{own.name}: {own.verdict}: {own.why}"
        elif own.launches and own.results not in EQUAL_RESULTS and own.results_why:
            yield f"{own.name}: results {RESULTS[own.results]}: {own.results_why}"
    yield from _not_tried([own for own in trial.levers if not own.launches])
    yield from (f"Note: {note}" for note in trial.notes)
    yield f"{counted(trial.launches, 'launch')} in {trial.seconds:.0f} s; trial {trial.trial_id}"
