"""Tables of a search: candidates with lineage, generations, finalists, failures, common traits."""

from __future__ import annotations

from perfpipe.analysis.search_decision import Speedup, log_gains, speedup_of
from perfpipe.analysis.search_summary import Found
from perfpipe.searchrecord import INCUMBENT, PROPOSED, Attempt
from perfpipe.viewmodel import Column, Source, Table, Value

_SPEEDUP = (
    Column("speedup", "Speedup", "number", "x", "time of the baseline / time of the candidate"),
    Column("low", "Low", "number", "x", "low end of the interval"),
    Column("high", "High", "number", "x", "high end of the interval"),
    Column("launches", "Launches", "int", "", "launches in which both alternated"),
)


def _cells(speedup: Speedup | None) -> tuple[Value, ...]:
    """Return the values of the columns in `_SPEEDUP`."""
    if speedup is None:
        return (None,) * len(_SPEEDUP)
    return speedup.ratio, speedup.low, speedup.high, speedup.launches


def search_tables(found: Found, source: Source) -> list[Table]:
    """Return the tables of a search, without empty ones."""
    made = [
        finalists(found, source),
        candidates(found, source),
        generations(found, source),
        traits(found, source),
        failures(found, source),
    ]
    return [table for table in made if table.rows]


def candidates(found: Found, source: Source) -> Table:
    """Return the candidates that were timed, the best first."""
    columns = (
        Column("name", "Candidate", "text", "", "g2v1: variant 1 of generation 2"),
        Column("generation", "Generation", "int", "", "", core=False),
        Column("variant", "Variant", "int", "", "", core=False),
        Column("parents", "Made from", "text", "", "the candidate that was changed"),
        Column("params", "Parameters", "text", "", "as the candidate states them"),
        *_SPEEDUP,
        Column("over_best", "Over the best before it", "number", "x",
               "speedup over the best candidate of earlier generations, in the same launches"),
        Column("attainable_pct", "Attainable", "pct", "%",
               "attainable time of the declared work / time of the candidate; the smallest of all "
               "cases"),
        Column("place", "Confirmation", "text", "", "finalist, or proven"),
        Column("proposer", "Proposer", "text", "", "who wrote it", core=False),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for own, speedup in found.ranking:
        over = speedup_of(log_gains(own, INCUMBENT))
        rows.append(
            (
                own.name, own.generation, own.variant, ", ".join(own.parents), own.stated,
                *_cells(speedup),
                over.ratio if over else None, min(own.attainable_pct.values(), default=None),
                _place(found, own.name), own.proposer,
            )
        )  # fmt: skip
    doc = (
        f"Correct candidates that were timed against {found.baseline}, by the low end of the 95 % "
        "interval. These speedups guide the search; they prove nothing, because the best of many "
        "is partly the luckiest."
    )
    return Table("Candidates", doc, columns, tuple(rows), len(rows), source, "speedups")


def _place(found: Found, name: str) -> str:
    decision = found.decision
    if decision is None or name not in decision.speedups:
        return ""
    return "proven" if name == decision.winner else "finalist"


def finalists(found: Found, source: Source) -> Table:
    """Return the finalists with their speedups on fresh launches."""
    columns = (
        Column("name", "Finalist", "text"),
        Column("params", "Parameters", "text"),
        *_SPEEDUP,
        Column("verdict", "Gain", "text", "", "proven, or not proven"),
    )
    decision = found.decision
    rows: list[tuple[Value, ...]] = []
    if decision is not None:
        for name, speedup in decision.speedups.items():
            own = found.of(name)
            sure = "proven" if name == decision.winner else "not proven"
            # Others may pass as well; the one with the best low end is the winner.
            verdict = sure if decision.winner is None or name == decision.winner else "not the best"
            rows.append((name, own.stated if own else "", *_cells(speedup), verdict))
        for name, why in found.search.confirmations[-1].failed.items() if found.search else ():
            rows.append((name, "", *_cells(None), why))
    pct = decision.sure_pct if decision else 99.0
    doc = (
        "Fresh launches of the finalists and the baseline, in new processes, on new inputs, in "
        f"random order. All intervals together hold with {pct:.3g} %."
    )
    return Table("Confirmation", doc, columns, tuple(rows), len(rows), source)


def generations(found: Found, source: Source) -> Table:
    """Return the generations in order."""
    columns = (
        Column("generation", "Generation", "int"),
        Column("tried", "Candidates", "int"),
        Column("correct", "Correct", "int"),
        Column("timed", "Timed", "int"),
        Column("failures", "Not correct or not new", "text"),
        Column("best", "Best", "text", "", "the candidate with the best low end"),
        *_SPEEDUP,
    )
    rows: list[tuple[Value, ...]] = []
    for own in found.generations:
        counts = (own.number, own.tried, own.correct, own.timed)
        rows.append((*counts, own.failures, own.best, *_cells(own.speedup)))
    doc = f"Each generation, with its best candidate. {found.convergence.why.capitalize()}."
    return Table("Generations", doc, columns, tuple(rows), len(rows), source)


def traits(found: Found, source: Source) -> Table:
    """Return what is frequent among the best."""
    columns = (
        Column("parameter", "Parameter", "text"),
        Column("value", "Value", "text"),
        Column("best", "Best candidates with it", "int"),
        Column("best_pct", "Share of the best", "pct", "%"),
        Column("all_pct", "Share of all that were timed", "pct", "%"),
    )
    rows: list[tuple[Value, ...]] = [
        (one.parameter, one.value, one.best, one.best_pct, one.all_pct)
        for one in found.traits
        if one.all < one.of_all
    ]
    doc = "Parameters and imported modules of the best candidates, most distinctive first."
    return Table("What the best have in common", doc, columns, tuple(rows), len(rows), source)


def failures(found: Found, source: Source) -> Table:
    """Return the candidates without times, and why."""
    columns = (
        Column("name", "Candidate", "text"),
        Column("made_from", "Made from", "text"),
        Column("status", "Status", "text"),
        Column("reason", "Reason", "text"),
    )
    rows: list[tuple[Value, ...]] = [
        (own.label, ", ".join(own.parents), own.status, _why(own))
        for own in found.attempts
        if own.status != PROPOSED and not (own.correct and own.times)
    ]
    doc = "Candidates that are wrong, refused, not new, or could not be timed."
    return Table("Without times", doc, columns, tuple(rows), len(rows), source)


def _why(own: Attempt) -> str | None:
    return own.no_times if own.correct else own.reason
