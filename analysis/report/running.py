"""What a running program did while `perfpipe attach` looked at it, as a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import records_of, rows_of
from perfpipe.database import in_list
from perfpipe.units import gpu_name
from perfpipe.viewmodel import Fact, Source

#: Kind of reports with what was sampled of a running program.
KIND = "attached"

#: Views that are read here.
VIEWS = ("process_use", "gpu_use", "host_code", "reports", "_ops", "_tracks")

_NOTHING = "nothing was recorded"

#: GPUs that the sentence lists individually.
_NAMED = 4

#: Time in which an operation of the timelines ran on each GPU, as % of the time that was looked at.
#: Timelines are longer, because they start earlier and stop later.
_TRACED = """
    WITH looked AS (
        SELECT min(started_ns) AS start_ns, min(started_ns) + {ns} AS end_ns
        FROM reports WHERE kind = 'attached' AND report_id IN {chosen}
    ),
    placed AS (
        SELECT
            t.device, o.start_ns, o.end_ns, coalesce(o.busy_until, o.start_ns) AS busy_ns,
            coalesce(l.start_ns - r.started_ns, o.start_ns) AS from_ns,
            coalesce(l.end_ns - r.started_ns, o.end_ns) AS until_ns
        FROM _ops AS o
        JOIN (SELECT DISTINCT track, report_id, device FROM _tracks) AS t USING (track)
        JOIN reports AS r ON r.report_id = t.report_id
        CROSS JOIN looked AS l
        WHERE t.report_id IN {chosen}
    )
    SELECT
        device,
        100.0 * sum(greatest(least(end_ns, until_ns) - greatest(start_ns, busy_ns, from_ns), 0))
            / {ns}
    FROM placed GROUP BY device ORDER BY device
"""

#: The process whose time is shown, and its main thread.  A process whose parent also executes the
#: program's own code is a worker.  torchrun and other launchers execute none; a script that starts
#: ranks by itself uses no CPU time while it waits for them.
_MAIN = """
    WITH coded AS (
        SELECT report_id, pid, max(kind = 'user') AS is_user FROM host_code GROUP BY ALL
    ),
    placed AS (
        SELECT c.report_id, c.pid, c.is_user, u.cpu_pct, u.name,
            (u.report_id, u.parent) IN (SELECT (report_id, pid) FROM coded WHERE is_user)
                AS is_worker
        FROM coded AS c LEFT JOIN process_use AS u USING (report_id, pid)
        WHERE c.report_id IN {chosen}
    ),
    main AS (
        FROM placed
        ORDER BY
            NOT is_user, coalesce(cpu_pct, 0) = 0, is_worker, cpu_pct DESC NULLS LAST,
            report_id, pid
        LIMIT 1
    ),
    thread AS (
        SELECT report_id, pid, tid
        FROM host_code JOIN main USING (report_id, pid)
        GROUP BY report_id, pid, tid
        ORDER BY tid != pid, sum(time_ns) DESC, tid LIMIT 1
    )
    SELECT m.name, t.pid, t.tid, h.share_pct, h.function, h.library_function,
        short_source(h.file) || coalesce(':' || h.line, '') AS place
    FROM thread AS t
    JOIN main AS m USING (report_id, pid)
    JOIN host_code AS h USING (report_id, pid, tid)
    WHERE h.rank = 1
"""


def statements_of(scope: Scope) -> Iterator[Fact]:
    """Yield what the program did; nothing unless it was attached to."""
    if scope.kinds.get(KIND):
        yield Fact("", answer_of(scope), Source("host_code", scope.reports))


def answer_of(scope: Scope) -> str:
    """Return what the GPU and the host did, in a sentence."""
    seconds = _seconds(scope)
    parts = [part for part in (_gpu(scope, seconds), _host(scope), _cpu(scope)) if part]
    told = ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1] if parts else _NOTHING
    whole = f"In {seconds:.3g} s, " if seconds else ""
    return f"{whole}{told}" if whole else f"{told[0].upper()}{told[1:]}"


def _seconds(scope: Scope) -> float:
    sql = f"SELECT max(seconds) FROM process_use WHERE report_id IN {in_list(scope.reports)}"
    ((seconds,),) = rows_of(scope.con, sql)
    return float(seconds or 0.0)


def _gpu(scope: Scope, seconds: float) -> str:
    """Return how busy the GPU was: by the timeline if there is one, else as NVML shows it."""
    chosen = in_list(scope.reports)
    if scope.timeline and seconds:
        if rows := rows_of(scope.con, _TRACED.format(chosen=chosen, ns=round(seconds * 1e9))):
            return _busy([(device, min(pct, 100.0)) for device, pct in rows], "")
        return "no work ran on a GPU"
    sql = f"""
        SELECT device, busy_pct FROM gpu_use
        WHERE report_id IN {chosen} AND busy_pct IS NOT NULL ORDER BY device
    """
    return _busy(rows_of(scope.con, sql), " (NVML, all programs)")


def _busy(rows: list[tuple[int | None, float]], how: str) -> str:
    if not rows:
        return ""
    if len(rows) == 1:
        return f"the GPU was busy {rows[0][1]:.0f} %{how}"
    if len(rows) <= _NAMED:
        each = ", ".join(f"{gpu_name(device)} {pct:.0f} %" for device, pct in rows)
        return f"the GPUs were busy {each}{how}"
    low, high = min(pct for _, pct in rows), max(pct for _, pct in rows)
    return f"the {len(rows)} GPUs were busy {low:.0f} to {high:.0f} %{how}"


def _host(scope: Scope) -> str:
    """Return where the main thread spent most of its time."""
    rows = records_of(scope.con, _MAIN.format(chosen=in_list(scope.reports)))
    if not rows:
        return ""
    (row,) = rows
    function = row["function"]
    where = row["place"] or function
    if row["place"] and function and function != "<module>":
        where = f"{row['place']} {function}()"
    called = row["library_function"]
    calls = f", which calls {called}()" if called and called != function else ""
    return f"the host spent {row['share_pct']:.0f} % in {where}{calls}"


def _cpu(scope: Scope) -> str:
    """Return how many cores the processes of the program kept busy."""
    chosen = in_list(scope.reports)
    sql = f"""
        SELECT sum(cpu_pct), count(*) FROM process_use
        WHERE report_id IN {chosen} AND cpu_pct IS NOT NULL
    """
    ((cpu_pct, processes),) = rows_of(scope.con, sql)
    if cpu_pct is None:
        return ""
    whose = "its process" if processes == 1 else f"its {processes} processes"
    return f"{whose} used {cpu_pct / 100:.2g} CPU cores"
