"""Makes long captures out of a small real one."""

from __future__ import annotations

import lzma
import sqlite3
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEED = ROOT / "tests" / "data" / "nsys" / "eager_small.sqlite.xz"
TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
    "OSRT_API",
)

#: API calls and nested NVTX ranges a kernel of a long training run that annotates its operators.
CALLS_PER_KERNEL = 4.1 / 2.2
RANGES_PER_KERNEL = 10.5 / 2.2

#: Ranges right around a launching call, as operators that call one another have.
_LEAF_LEVELS = 4


def synthesize(target: Path, copies: int, *, annotated: bool = False) -> Path:
    """Repeat the seed capture with shifted times and fresh correlation ids.

    `annotated` first puts nested NVTX ranges around its launches, as PyTorch's emit_nvtx does,
    and thins out calls that launch nothing.
    """
    with lzma.open(SEED) as seed:
        target.write_bytes(seed.read())
    with sqlite3.connect(target) as con:
        con.execute("PRAGMA journal_mode = OFF")
        con.execute("PRAGMA synchronous = OFF")
        if annotated:
            _annotate(con)
        _repeat(con, copies)
    return target


def _repeat(con: sqlite3.Connection, copies: int) -> None:
    span = con.execute(
        "SELECT max(e) - min(s) FROM ("
        "SELECT min(start) s, max(end) e FROM CUPTI_ACTIVITY_KIND_RUNTIME "
        "UNION ALL SELECT min(start), max(end) FROM NVTX_EVENTS)"
    ).fetchone()[0]
    ids = con.execute("SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
    for table in TABLES:
        columns = [row[1] for row in con.execute(f"PRAGMA table_info({table})")]
        shifted = {
            "start": f"start + :copy * {span}",
            "end": f"end + :copy * {span}",
            "correlationId": f"correlationId + :copy * {ids}",
        }
        values = ", ".join(shifted.get(column, f'"{column}"') for column in columns)
        con.execute(f"CREATE TEMP TABLE seed AS SELECT * FROM {table}")
        for copy in range(1, copies):
            con.execute(f"INSERT INTO {table} SELECT {values} FROM seed", {"copy": copy})
        con.execute("DROP TABLE seed")


def _annotate(con: sqlite3.Connection) -> None:
    kernels = con.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    con.execute(
        """
        CREATE TEMP TABLE launching AS
        SELECT DISTINCT r.rowid AS id, r.start, r.end, r.globalTid
        FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
        WHERE r.correlationId IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL)
        ORDER BY r.start
        """
    )
    (calls,) = con.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    con.execute(
        """
        DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid IN (
            SELECT rowid FROM CUPTI_ACTIVITY_KIND_RUNTIME
            WHERE rowid NOT IN (SELECT id FROM launching)
                AND correlationId NOT IN (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_MEMCPY)
            ORDER BY start % 1009, rowid LIMIT ?
        )
        """,
        (max(0, round(calls - CALLS_PER_KERNEL * kernels)),),
    )
    # A group never crosses the borders of the seed's own ranges, so all are nested.
    con.execute(
        """
        CREATE TEMP TABLE numbered AS
        SELECT l.start, l.end, l.globalTid, row_number() OVER (ORDER BY l.start) - 1 AS n,
            (SELECT count(*) FROM NVTX_EVENTS WHERE start <= l.start)
            + (SELECT count(*) FROM NVTX_EVENTS WHERE end <= l.start) AS phase
        FROM launching AS l
        """
    )
    (last_id,) = con.execute("SELECT max(id) FROM StringIds").fetchone()
    made = level = 0
    while made < RANGES_PER_KERNEL * kernels:
        # The first levels hold one call each, the next ones 2, 4, 8 ... calls.
        name, size = last_id + 1 + level, 2 ** max(0, level - _LEAF_LEVELS + 1)
        con.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (name, f"op {level}"))
        made += con.execute(
            """
            INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId)
            SELECT min(start) - :out, max(end) + :out, 59, :name, globalTid, 0
            FROM numbered GROUP BY globalTid, phase, n / :size
            """,
            {"out": level + 1, "name": name, "size": size},
        ).rowcount
        level += 1
    # nsys exports events in the order of their start.
    con.execute("CREATE TEMP TABLE ordered AS SELECT * FROM NVTX_EVENTS ORDER BY start, end DESC")
    con.execute("DELETE FROM NVTX_EVENTS")
    con.execute("INSERT INTO NVTX_EVENTS SELECT * FROM ordered")
