"""Selects the windows of time budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfpipe.files import packaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: What a session must have for the functions here; windows are chosen before anything reads them.
VIEWS_USED = (
    "_tracks",
    "_spans",
    "nsys_nvtx_ranges",
    "launches",
    "_chosen_windows",
    "nsys_range_name",
)


def make_chosen_windows(con: DuckDBPyConnection) -> None:
    """Create the private table of chosen windows, numbered from -1 down; a plain query has none."""
    con.execute(
        "CREATE TABLE _chosen_windows "
        "(track INTEGER, window_id INTEGER, name VARCHAR, start_ns BIGINT, end_ns BIGINT)"
    )


def choose_time(con: DuckDBPyConnection, start_ns: int | None, end_ns: int | None) -> None:
    """Select a time window of each report, ns; None means the first or last operation."""
    _run(con, "choose_by_time", start_ns=start_ns, end_ns=end_ns)


def choose_ranges(con: DuckDBPyConnection, title: str, most: int) -> None:
    """Select what was launched within NVTX ranges of a name, at most `most` of them."""
    _run(con, "choose_by_range", title=title, most=most)


def range_names(con: DuckDBPyConnection) -> dict[str, int]:
    """Return the names of all ranges, with the number of each."""
    rows = con.execute(
        "SELECT name, count(*) FROM nsys_nvtx_ranges WHERE name IS NOT NULL "
        "GROUP BY name ORDER BY name"
    ).fetchall()
    return dict(rows)


def _run(con: DuckDBPyConnection, name: str, **values: object) -> None:
    sql = packaged("perfpipe.analysis", "sql", f"{name}.sql")
    con.execute(sql, values)
