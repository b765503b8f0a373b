"""Chooses the windows that time budgets are wanted of."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Views that a connection must have for the functions here.
VIEWS_USED = "window_budget _tracks _spans"


def choose_time(con: DuckDBPyConnection, start_ns: int | None, end_ns: int | None) -> None:
    """Choose a time on the clock of each report, ns; None is the first or last operation."""
    _run(con, "choose_by_time", start_ns=start_ns, end_ns=end_ns)


def choose_ranges(con: DuckDBPyConnection, title: str, most: int) -> None:
    """Choose what was launched within NVTX ranges of a name, `most` of them at most."""
    _run(con, "choose_by_range", title=title, most=most)


def range_names(con: DuckDBPyConnection) -> dict[str, int]:
    """Return the names of all ranges and how many there are of each."""
    rows = con.execute(
        "SELECT name, count(*) FROM nsys_nvtx_ranges WHERE name IS NOT NULL "
        "GROUP BY name ORDER BY name"
    ).fetchall()
    return dict(rows)


def _run(con: DuckDBPyConnection, name: str, **values: object) -> None:
    sql = resources.files("analysis").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    con.execute(sql, values)
