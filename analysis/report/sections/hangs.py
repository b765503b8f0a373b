"""Calls in which the ranks of a job wait, and for whom."""

from __future__ import annotations

from perfpipe.analysis.report.declare import LABEL, Col, KindTable, Missing, SectionSpec
from perfpipe.analysis.report.hangs import KIND

#: Ranks in a table.
_ROWS = 64


class _HangTable(KindTable):
    """A table about a job that hangs."""

    kind = KIND


WAITS = _HangTable(
    "hang_waits",
    "Calls in which ranks wait",
    (
        LABEL,
        Col("kind", "Why"),
        Col("group_name", "Group"),
        Col("operation", "Call"),
        Col("sequence", "Number", "int"),
        Col("source", "From rank", "int", detail=True),
        Col("target", "To rank", "int", detail=True),
        Col("ranks", "Ranks", "int"),
        Col("waiting_ranks", "Waiting"),
        Col("idle_ranks", "Not enqueued by"),
        Col("elsewhere_ranks", "In another call"),
        Col("finished_ranks", "Finished on"),
        Col("unknown_ranks", "No dump"),
        Col("unstarted_ranks", "Not started on", detail=True),
        Col("waited_s", "Waited", "number", "s"),
        Col("timeout_ms", "Timeout", "number", "ms", detail=True),
        Col("site", "Line"),
    ),
    order="waiting DESC, since_ns, call",
    limit=_ROWS,
    headline=1,
    key="{operation} of {group_name}: {kind}",
)

RANKS = _HangTable(
    "hang_ranks",
    "Where each rank is",
    (
        LABEL,
        Col("rank", "Rank", "int"),
        Col("state", "State"),
        Col("waits_in", "Waits in"),
        Col("group_name", "Group"),
        Col("waits_at", "Line"),
        Col("last_call", "Last call"),
        Col("last_group", "Its group", detail=True),
        Col("last_site", "Its line"),
        Col("unfinished", "Unfinished", "int", detail=True),
        Col("calls", "Calls", "int", detail=True),
        Col("overwritten", "Overwritten", "int", detail=True),
    ),
    order="state = 'waits', rank",
    limit=_ROWS,
)

MISMATCHES = _HangTable(
    "hang_mismatches",
    "Calls that differ between ranks",
    (
        LABEL,
        Col("group_name", "Group"),
        Col("sequence", "Number", "int"),
        Col("most_ranks", "Ranks"),
        Col("most_call", "Call"),
        Col("most_site", "Line"),
        Col("other_ranks", "Other ranks"),
        Col("other_call", "Their call"),
        Col("other_site", "Their line"),
        Col("further", "Still others", "int", detail=True),
        Col("shift", "Shift"),
    ),
    order="group_id",
)

DIFFERENCES = _HangTable(
    "ras_differences",
    "Collectives that ranks launched, by NCCL RAS",
    (
        LABEL,
        Col("communicator", "Communicator"),
        Col("operation", "Collective"),
        Col("most", "Most", "int"),
        Col("most_ranks", "Ranks", "int"),
        Col("least", "Least", "int"),
        Col("behind", "Ranks behind", "int"),
        Col("behind_ranks", "These ranks"),
        Col("behind_where", "First of them", detail=True),
        Col("queries", "Queries", "int"),
        Col("progress", "Progress"),
    ),
    order="behind DESC, communicator, operation",
    limit=_ROWS,
)

STATES = _HangTable(
    "ras_states",
    "Ranks with a problem, by NCCL RAS",
    (
        LABEL,
        Col("communicator", "Communicator"),
        Col("state", "State"),
        Col("rank", "Rank", "int"),
        Col("ranks", "Ranks", "int"),
        Col("place", "Process"),
    ),
    order="communicator NULLS FIRST, state, rank",
    limit=_ROWS,
)

SECTION = SectionSpec(
    "hangs",
    "Hang of a distributed job",
    Missing(
        "no dump of a job that hangs was given",
        perfpipe="give the folder of flight recorder dumps to perfpipe ingest",
    ),
    (WAITS, RANKS, MISMATCHES, DIFFERENCES, STATES),
)
