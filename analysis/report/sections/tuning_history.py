"""What a search for the quickest parameters tried and found."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.history import History, Trial
from analysis.report.declare import Given, SectionSpec
from analysis.report.scope import Scope
from analysis.search_story import best_of, generations, pareto, traits
from perfpipe.units import words
from perfpipe.viewmodel import Column, Source, Table, Value

#: How many configurations the tables of the best and of the failures show.
_SHOWN = 15

_TRIAL = (
    Column("label", "Configuration", "text"),
    Column("generation", "Generation", "int", "", "round of the search, from 0"),
    Column("time_ms", "Median", "ms", "ms", "median time of an iteration"),
    Column("of_best", "Against the best", "number", "x", "time / time of the best"),
    Column("registers", "Registers", "int", "per thread", "as compiled"),
    Column("spills", "Spills", "int", "", "registers that are kept in memory, as compiled"),
    Column("shared_bytes", "Shared memory", "bytes", "per block", "as compiled"),
    Column("spread_pct", "Spread", "pct", "%", "(slowest - quickest sample) / median", core=False),
)


def tuning_tables(history: History, source: Source) -> list[Table]:
    """Return the tables that tell a search; those that would be empty are left out."""
    made = [
        _generations(history, source),
        _all(history, source),
        _trials("Tuning: the best configurations", history, best_of(history), source, _BEST_DOC),
        _traits(history, source),
        _trials("Tuning: time against registers", history, _front(history), source, _PARETO_DOC),
        _failures(history, source),
    ]
    return [table for table in made if table.rows]


_BEST_DOC = "The quickest fifth of what worked, three at least."
_PARETO_DOC = (
    "Pareto front: configurations that no other beats in both time and registers; fewer registers "
    "leave room for more warps, or for more work in the same kernel."
)


def _front(history: History) -> list[Trial]:
    return pareto(history.trials)


def _table(
    title: str,
    doc: str,
    columns: tuple[Column, ...],
    rows: list[tuple[Value, ...]],
    source: Source,
    figure: str = "",
) -> Table:
    return Table(title, doc, columns, tuple(rows), len(rows), source, figure)


def _generations(history: History, source: Source) -> Table:
    columns = (
        Column("generation", "Generation", "int", "", "round of the search, from 0"),
        Column("tried", "Tried", "int"),
        Column("worked", "Worked", "int", "", "right result, and timed"),
        Column("failures", "Rejected", "text"),
        Column("best_ms", "Best", "ms", "ms", "of this round"),
        Column("median_ms", "Median", "ms", "ms", "of what worked in this round"),
        Column("worst_ms", "Worst", "ms", "ms", "of what worked in this round"),
        Column("best_so_far_ms", "Best so far", "ms", "ms"),
        Column("gain_pct", "Gain", "pct", "%", "over the best of all rounds before"),
    )
    rows = [tuple(vars(round_).values()) for round_ in generations(history)]
    doc = "The rounds of the search: the first at random, each later one near the best so far."
    return _table("Tuning: generations", doc, columns, rows, source)


def _row(history: History, trial: Trial) -> tuple[Value, ...]:
    best = history.best
    ratio = trial.time_ms / best.time_ms if trial.time_ms and best and best.time_ms else None
    return (
        trial.label,
        trial.generation,
        trial.time_ms,
        ratio,
        trial.registers,
        trial.spills,
        trial.shared_bytes,
        trial.spread_pct,
    )


def _trials(title: str, history: History, trials: list[Trial], source: Source, doc: str) -> Table:
    return _table(title, doc, _TRIAL, [_row(history, trial) for trial in trials[:_SHOWN]], source)


def _all(history: History, source: Source) -> Table:
    columns = (Column("index", "Tried as", "int", "", "order of trial, from 0"), *_TRIAL)
    rows = [(trial.index, *_row(history, trial)) for trial in history.worked]
    doc = "Everything that worked, the quickest first."
    return _table("Tuning: all configurations that worked", doc, columns, rows, source, "search")


def _traits(history: History, source: Source) -> Table:
    columns = (
        Column("parameter", "Parameter", "text"),
        Column("value", "Value", "text"),
        Column("best", "Of the best", "int", "", "how many of the best have it"),
        Column("best_pct", "Share of the best", "pct", "%"),
        Column("all_pct", "Share of all", "pct", "%", "of all that worked"),
    )
    rows: list[tuple[Value, ...]] = [
        (t.parameter, t.value, t.best, t.best_pct, t.all_pct) for t in traits(history)
    ]
    doc = (
        f"What the {len(best_of(history))} best configurations have in common, the most telling "
        "first: values that are much more frequent among them than among all."
    )
    return _table("Tuning: what the best share", doc, columns, rows, source)


def _failures(history: History, source: Source) -> Table:
    columns = (
        Column("label", "Configuration", "text"),
        Column("generation", "Generation", "int"),
        Column("failure", "Kind", "text"),
        Column("error", "Why", "text"),
    )
    rows: list[tuple[Value, ...]] = [
        (t.label, t.generation, words(t.failure), t.error) for t in history.trials if t.failure
    ]
    doc = "Configurations that were rejected, and why; they are neither slow nor quick."
    return _table("Tuning: rejected configurations", doc, columns, rows, source)


def _of_run(scope: Scope) -> Iterable[Table]:
    if scope.history is None or scope.run is None:
        return ()
    return tuning_tables(scope.history, Source("tuning", (scope.run.run_id,)))


SECTION = SectionSpec(
    "tuning",
    "Tuning history",
    "no search; a workload with 'tune' searches its parameters",
    (Given(_of_run),),
)
