"""What an autotuning run tried and found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfpipe.analysis.history import History, Trial
from perfpipe.analysis.report.declare import Given, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.analysis.search_gain import Gain, gains
from perfpipe.analysis.search_story import best_of, generations, pareto, traits
from perfpipe.database import quote
from perfpipe.units import words
from perfpipe.viewmodel import Column, Source, Table, Value

#: Rows of the tables of the best configurations and of failures.
_SHOWN = 15

_TRIAL = (
    Column("label", "Configuration", "text"),
    Column("generation", "Generation", "int", "", "generation of the search, from 0"),
    Column("time_ms", "Median", "ms", "ms", "median time of an iteration"),
    Column("of_best", "Time / best time", "number", "x", "time / best time"),
    Column("registers", "Registers", "int", "per thread", "registers of the compiled kernel"),
    Column(
        "spills",
        "Spills",
        "int",
        "",
        "number of registers that the compiled kernel spills to memory",
    ),
    Column(
        "shared_bytes",
        "Shared memory",
        "bytes",
        "per block",
        "shared memory of the compiled kernel",
    ),
    Column(
        "gain",
        "Compared with the default",
        "text",
        "",
        "verdict from runs of the program, as in comparisons; for the fastest configuration, "
        "from alternating runs after the search; unreplicated if there is only one run",
    ),
    Column(
        "spread_pct", "Sample spread", "pct", "%", "(slowest - fastest sample) / median", core=False
    ),
)


#: Rate of a configuration, FLOP/s, and its share of the dense peak, %, by trial.
Rates = Mapping[int, tuple[float, float | None]]


def tuning_tables(history: History, source: Source, rates: Rates | None = None) -> list[Table]:
    """Return the tables of an autotuning run, without empty ones.

    `rates` are those of the configurations, if their work is declared.
    """
    made = [
        _generations(history, source),
        _all(history, source, rates or {}),
        _trials("Tuning: the best configurations", history, best_of(history), source, _BEST_DOC),
        _traits(history, source),
        _trials(
            "Tuning: trade-off between time and registers",
            history,
            _front(history),
            source,
            _PARETO_DOC,
        ),
        _failures(history, source),
    ]
    return [table for table in made if table.rows]


_BEST_DOC = "The fastest fifth of the valid configurations, but at least three."
_PARETO_DOC = (
    "Pareto front: no other configuration is better in both time and registers. Fewer registers "
    "leave room for more warps, or for more work in the same kernel."
)

_RATE = (
    Column("rate", "Throughput", "flops", "", "declared FLOPs / median time"),
    Column("of_peak_pct", "MFU", "pct", "% of dense peak", "share of the dense peak"),
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
        Column("generation", "Generation", "int", "", "generation of the search, from 0"),
        Column("tried", "Configurations tried", "int"),
        Column(
            "worked",
            "Valid",
            "int",
            "",
            "number of configurations with a correct result that were timed",
        ),
        Column("failures", "Rejected", "text"),
        Column("best_ms", "Fastest", "ms", "ms", "fastest configuration of this generation"),
        Column(
            "median_ms",
            "Median",
            "ms",
            "ms",
            "median of the valid configurations in this generation",
        ),
        Column("worst_ms", "Slowest", "ms", "ms", "slowest valid configuration of this generation"),
        Column("best_so_far_ms", "Fastest so far", "ms", "ms"),
        Column(
            "gain_pct",
            "Gain",
            "pct",
            "%",
            "gain over the fastest configuration of all earlier generations",
        ),
    )
    rows = [tuple(vars(round_).values()) for round_ in generations(history)]
    doc = (
        "The search: the first generation is random, and later generations stay close to the best "
        "configuration so far."
    )
    return _table("Tuning: generations", doc, columns, rows, source)


def _row(history: History, trial: Trial, judged: dict[int, Gain]) -> tuple[Value, ...]:
    best = history.best
    gain = judged.get(trial.index)
    ratio = trial.time_ms / best.time_ms if trial.time_ms and best and best.time_ms else None
    return (
        trial.label,
        trial.generation,
        trial.time_ms,
        ratio,
        trial.registers,
        trial.spills,
        trial.shared_bytes,
        gain.verdict if gain else None,
        trial.spread_pct,
    )


def _trials(title: str, history: History, trials: list[Trial], source: Source, doc: str) -> Table:
    judged = gains(history)
    rows = [_row(history, trial, judged) for trial in trials[:_SHOWN]]
    return _table(title, doc, _TRIAL, rows, source)


def _all(history: History, source: Source, rates: Rates) -> Table:
    index = Column("index", "Trial", "int", "", "number of the trial, from 0")
    columns: tuple[Column, ...] = (index, *_TRIAL)
    judged = gains(history)
    rows: list[tuple[Value, ...]] = [
        (trial.index, *_row(history, trial, judged)) for trial in history.worked
    ]
    if rates:
        columns = (*columns, *_RATE)
        rows = [
            (*row, *rates.get(trial.index, (None, None)))
            for row, trial in zip(rows, history.worked, strict=True)
        ]
    doc = "All valid configurations, fastest first."
    return _table("Tuning: all valid configurations", doc, columns, rows, source, "search")


def _traits(history: History, source: Source) -> Table:
    columns = (
        Column("parameter", "Parameter", "text"),
        Column("value", "Value", "text"),
        Column(
            "best",
            "Best configurations with this value",
            "int",
            "",
            "number of the best configurations that have this value",
        ),
        Column(
            "best_pct",
            "Share of the best configurations",
            "pct",
            "%",
            "percentage of the best configurations that have this value",
        ),
        Column(
            "all_pct",
            "Share of all valid configurations",
            "pct",
            "%",
            "percentage of all valid configurations that have this value",
        ),
    )
    rows: list[tuple[Value, ...]] = [
        (t.parameter, t.value, t.best, t.best_pct, t.all_pct) for t in traits(history)
    ]
    doc = (
        f"Values that are much more frequent among the {len(best_of(history))} best configurations "
        "than among all configurations, most distinctive first."
    )
    return _table("Tuning: what the best configurations have in common", doc, columns, rows, source)


def _failures(history: History, source: Source) -> Table:
    columns = (
        Column("label", "Configuration", "text"),
        Column("generation", "Generation", "int"),
        Column("failure", "Type of failure", "text"),
        Column("error", "Reason", "text"),
    )
    rows: list[tuple[Value, ...]] = [
        (t.label, t.generation, words(t.failure), t.error) for t in history.trials if t.failure
    ]
    doc = "Rejected configurations and the reasons. They count neither as slow nor as fast."
    return _table("Tuning: rejected configurations", doc, columns, rows, source)


def _of_run(scope: Scope) -> Iterable[Table]:
    if scope.history is None or scope.run is None:
        return ()
    sql = f"""
        SELECT task_index, model_flop_per_s, 100 * model_flop_per_s / peak_flop_per_s
        FROM run_efficiency
        WHERE run_id = {quote(scope.run.run_id)} AND model_flop_per_s IS NOT NULL
    """
    rates = {task: (rate, pct) for task, rate, pct in rows_of(scope.con, sql)}
    return tuning_tables(scope.history, Source("tuning", (scope.run.run_id,)), rates)


SECTION = SectionSpec(
    "tuning",
    "Tuning history",
    Missing("no autotuning run", perfpipe="add 'tune' to a workload to search its parameters"),
    (Given(_of_run, ("run_efficiency",)),),
)
