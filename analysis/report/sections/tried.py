"""What `perfpipe try` measured in the program of a report."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.declare import Given, Missing, SectionSpec
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.report.tried import VIEWS, latest
from perfpipe.analysis.rows import records_of
from perfpipe.analysis.trying.outcomes import RESULTS, Outcome
from perfpipe.database import in_list, quote
from perfpipe.trialrecord import EQUAL_RESULTS, Gained
from perfpipe.units import format_ns, with_article
from perfpipe.viewmodel import Code, Column, Source, Table, Value

#: Row of the unchanged program.
_PLAIN = "no change (A/A)"

_COLUMNS = (
    Column("lever", "Lever", "text", "", "name of the lever, or the levers that help together"),
    Column("title", "What it does", "text", core=False, hover_of="lever"),
    Column("verdict", "Verdict", "text"),
    Column(
        "bound_pct",
        "Bound",
        "pct",
        "%",
        "upper bound on the gain that the finding stated, in % of the whole that it names",
    ),
    Column(
        "gain_pct",
        "Time saved",
        "pct",
        "%",
        "time saved, in % of the unchanged program; negative if slower",
    ),
    Column("low_pct", "From", "pct", "%", "low end of the interval of the time saved"),
    Column("high_pct", "To", "pct", "%", "high end of the interval of the time saved"),
    Column(
        "results",
        "Results",
        "text",
        "",
        "results of the program compared with those of the unchanged program",
    ),
    Column("why", "Why", "lines", "", "reason for the verdict, or what differs in the results"),
    Column("applied", "Applied to", "text", "", "what the lever was applied to"),
    Column(
        "memory_bytes", "GPU memory", "bytes", "", "peak of the GPU memory that PyTorch reserved"
    ),
    Column(
        "energy_j",
        "Energy",
        "number",
        "J",
        "energy of a unit, over all GPUs that the program may use, idle power included",
    ),
    Column(
        "start_up_s", "Start-up", "number", "s", "time that the lever takes once, as to compile"
    ),
    Column(
        "pays_after", "Pays after", "number", "units", "units after which the start-up has paid"
    ),
    Column("launches", "Launches", "int", "", "launches of the program with the lever"),
)


def _tables(scope: Scope) -> Iterator[Table]:
    trial = latest(scope)
    if trial is None:
        return
    own = f"trial_id = {quote(trial)}"
    levers = records_of(
        scope.con,
        f"FROM trials WHERE {own} AND launches > 0 ORDER BY kind = 'stack' DESC, "
        f"verdict = 'gain' AND results IN {in_list(EQUAL_RESULTS)} DESC, "
        "gain_pct DESC NULLS LAST, lever",
    )
    skipped = records_of(
        scope.con,
        f"SELECT lever, why FROM trials WHERE {own} AND launches = 0 AND kind = 'lever' "
        "ORDER BY lever",
    )
    if not levers:
        return
    rows = (_plain(levers[0]), *map(_row, levers))
    doc = (
        "Levers of 'perfpipe try', each measured against the unchanged program in turns; levers "
        "that help together were measured again on fresh launches."
    )
    if skipped:
        names = "; ".join(f"{own['lever']} ({own['why']})" for own in skipped)
        doc += f" Not launched: {names}."
    source = Source("trials", (trial,))
    yield Table("Tried levers", doc, _COLUMNS, rows, len(rows), source, "tried", 1)


def _plain(trial: dict[str, Value]) -> tuple[Value, ...]:
    """Return the row of the unchanged program, compared with itself."""
    ms = trial["plain_ms"]
    time = (
        f"{format_ns(1e6 * float(ms))} {with_article(str(trial['unit']))}; "
        if ms is not None
        else ""
    )
    why = f"{time}{trial['gpu'] or 'GPU unknown'}, {str(trial['tried_at'])[:10]}"
    row = {
        "lever": _PLAIN,
        **{end: trial[f"aa_{end}"] for end in ("gain_pct", "low_pct", "high_pct")},
        "results": RESULTS[str(trial["aa_results"])],
        "memory_bytes": trial["plain_memory_bytes"],
        "energy_j": trial["plain_energy_j"],
        "launches": trial["plain_launches"],
        "why": why,
    }
    return _cells(row)


def _row(lever: dict[str, Value]) -> tuple[Value, ...]:
    gained = Gained(lever["gain_pct"], lever["low_pct"], lever["high_pct"])  # type: ignore[arg-type]
    results = str(lever["results"])
    return _cells(
        {
            **lever,
            "applied": "; ".join(lever["applied"] or ()),  # type: ignore[arg-type]
            "results": RESULTS[results] if gained.gain_pct is not None else None,
            "verdict": Outcome(str(lever["verdict"]), gained, results).label,
            "why": lever["why"] or lever["results_why"] or None,
        }
    )


def _cells(row: dict[str, Value]) -> tuple[Value, ...]:
    return tuple(row.get(column.name) for column in _COLUMNS)


def _codes(scope: Scope) -> Iterator[Code]:
    """Yield the change to make by hand: that of the levers that help together."""
    trial = latest(scope)
    for own in records_of(
        scope.con, f"FROM trials WHERE trial_id = {quote(trial or '')} AND kind = 'stack'"
    ):
        if Outcome(own["verdict"], Gained(), own["results"]).helps and own["manual"]:
            title = f"The change to make by hand: {own['lever']}"
            yield Code(title, own["manual"], Source("trials", (own["trial_id"],)))


SECTION = SectionSpec(
    "tried",
    "Tried",
    Missing(
        "nothing was tried",
        perfpipe="measure what the advice gains with perfpipe try -- PROGRAM ...",
    ),
    (Given(_tables, VIEWS),),
    codes=_codes,
)
