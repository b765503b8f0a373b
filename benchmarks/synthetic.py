"""Makes long captures out of a small real one."""

from __future__ import annotations

import lzma
import sqlite3
from dataclasses import dataclass
from pathlib import Path

SEEDS = Path(__file__).resolve().parent.parent / "tests" / "data" / "nsys"
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


@dataclass(frozen=True)
class Shape:
    """What a long capture looks like; lanes run the seed's threads once more, all at a time.

    `annotated` puts nested NVTX ranges around launches, as PyTorch's emit_nvtx does, and thins out
    calls that launch nothing; they are `depth` deep, or as many as a long training run has.
    `around` puts one more range around all that a thread does.
    """

    seed: str = "eager_small"
    annotated: bool = True
    lanes: int = 1
    processes: int = 1
    devices: int = 1
    depth: int = 0
    around: bool = False

    @property
    def kernels(self) -> int:
        """Kernels of one copy."""
        with sqlite3.connect(":memory:") as con:
            con.deserialize(_seed(self.seed))
            (count,) = con.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        return int(count) * self.lanes


def synthesize(target: Path, copies: int, shape: Shape) -> Path:
    """Repeat the seed capture with shifted times and fresh correlation ids."""
    target.write_bytes(_seed(shape.seed))
    with sqlite3.connect(target) as con:
        con.execute("PRAGMA journal_mode = OFF")
        con.execute("PRAGMA synchronous = OFF")
        if shape.annotated:
            _annotate(con, shape.depth)
        if shape.lanes > 1:
            _widen(con, shape)
        _repeat(con, copies)
        if shape.around:
            _surround(con)
    return target


def of_long_steps(target: Path, operations: int, steps: int = 4) -> Path:
    """Write a training of a few steps with at least so many GPU operations each."""
    shape = Shape("eager_small", annotated=False)
    with sqlite3.connect(":memory:") as con:
        con.deserialize(_seed(shape.seed))
        (found,) = con.execute(f"SELECT count(*) FROM NVTX_EVENTS{_STEP}").fetchone()
        (each,) = con.execute(
            "SELECT sum(n) FROM (SELECT count(*) AS n FROM CUPTI_ACTIVITY_KIND_KERNEL"
            " UNION ALL SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
            " UNION ALL SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET)"
        ).fetchone()
    together = -(-operations * found // each)
    synthesize(target, -(-together * steps // found), shape)
    with sqlite3.connect(target) as con:
        first = f"SELECT start, end, globalTid FROM NVTX_EVENTS{_STEP} ORDER BY start LIMIT ?"
        rows = con.execute(first, (together * steps,)).fetchall()
        con.execute(f"DELETE FROM NVTX_EVENTS{_STEP}")
        for step in range(steps):
            own = rows[step * together : (step + 1) * together]
            con.execute(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId)"
                " VALUES (?, ?, 59, ?, ?, 0)",
                (own[0][0], own[-1][1], f"step {step}", own[0][2]),
            )
    return target


#: Which ranges of the seed are steps.
_STEP = " WHERE text LIKE 'step %'"


def _seed(name: str) -> bytes:
    with lzma.open(SEEDS / f"{name}.sqlite.xz") as file:
        return file.read()


def _widen(con: sqlite3.Connection, shape: Shape) -> None:
    """Add threads that do the same at the same time, in the processes and on the devices in turn.

    Rows of all lanes lie in time order, as nsys exports them.
    """
    (ids,) = con.execute("SELECT max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    con.execute("CREATE TEMP TABLE lanes (lane, process, device)")
    con.executemany(
        "INSERT INTO lanes VALUES (?, ?, ?)",
        [(lane, lane % shape.processes, lane % shape.devices) for lane in range(shape.lanes)],
    )
    # Bits 24 to 47 of a global id are the process, those below the thread, equal for the main one.
    moved = {
        "start": "start + lane * 37",
        "end": "end + lane * 37",
        "correlationId": f"correlationId + lane * {ids}",
        "globalPid": "globalPid + (process << 24)",
        "globalTid": f"globalTid + (process << 24) + process + lane / {shape.processes} * 5000",
        "deviceId": "device",
        "streamId": "streamId + lane",
    }
    for table in TABLES:
        columns = [row[1] for row in con.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(moved.get(column, f'"{column}"') for column in columns)
        con.execute(f"CREATE TEMP TABLE seed AS SELECT * FROM {table}")
        con.execute(f"DELETE FROM {table}")
        con.execute(f"INSERT INTO {table} SELECT {values} FROM seed, lanes ORDER BY 1, 2 DESC")
        con.execute("DROP TABLE seed")


def _surround(con: sqlite3.Connection) -> None:
    """Put a range around all of each thread, in front of the rows that are there."""
    (name,) = con.execute("SELECT max(id) + 1 FROM StringIds").fetchone()
    con.execute("INSERT INTO StringIds (id, value) VALUES (?, 'all')", (name,))
    con.execute(
        """
        INSERT INTO NVTX_EVENTS (rowid, start, end, eventType, textId, globalTid, domainId)
        SELECT -row_number() OVER (ORDER BY min(start) DESC), min(start) - 1, max(end) + 1, 59, ?,
            globalTid, 0
        FROM (
            SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME
            UNION ALL SELECT start, end, globalTid FROM NVTX_EVENTS WHERE end IS NOT NULL
        )
        GROUP BY globalTid
        """,
        (name,),
    )


def _repeat(con: sqlite3.Connection, copies: int) -> None:
    span = con.execute(
        "SELECT max(e) - min(s) FROM ("
        "SELECT min(start) s, max(end) e FROM CUPTI_ACTIVITY_KIND_RUNTIME "
        "UNION ALL SELECT min(start), max(end) FROM NVTX_EVENTS WHERE end IS NOT NULL)"
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
        # Not the rows that name a domain, which have no end.
        con.execute(f"CREATE TEMP TABLE seed AS SELECT * FROM {table} WHERE end IS NOT NULL")
        for copy in range(1, copies):
            con.execute(f"INSERT INTO {table} SELECT {values} FROM seed", {"copy": copy})
        con.execute("DROP TABLE seed")


def _annotate(con: sqlite3.Connection, depth: int) -> None:
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
    made, level, wanted = 0, 0, round(RANGES_PER_KERNEL * kernels)
    while level < depth if depth else made < wanted:
        # The first levels hold one call each, the next ones 2, 4, 8 ... calls.
        name, size = last_id + 1 + level, 2 ** max(0, level - _LEAF_LEVELS + 1)
        con.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (name, f"op {level}"))
        made += con.execute(
            """
            INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId)
            SELECT min(start) - :out, max(end) + :out, 59, :name, globalTid, 0
            FROM numbered GROUP BY globalTid, phase, n / :size ORDER BY 1 LIMIT :left
            """,
            {
                "out": level + 1,
                "name": name,
                "size": size,
                "left": -1 if depth else wanted - made,
            },
        ).rowcount
        level += 1
    # nsys exports events in the order of their start.
    con.execute("CREATE TEMP TABLE ordered AS SELECT * FROM NVTX_EVENTS ORDER BY start, end DESC")
    con.execute("DELETE FROM NVTX_EVENTS")
    con.execute("INSERT INTO NVTX_EVENTS SELECT * FROM ordered")
