"""Views of which a session has no data: the same columns and rows as where each is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Tiny, empty_database

from analysis import emptiness
from analysis.session import Session
from analysis.views import views
from perfpipe.store import Store

shipped = emptiness._shipped
PUBLIC = [name for name, view in views().items() if view.public]


def _answers(store: Store, reports: list[str]) -> dict[str, Any]:
    with Session.open(store, reports, use=PUBLIC) as session:
        # The catalogue knows the columns of all: DESCRIBE would plan each once more.
        columns: dict[str, list[tuple[str, str]]] = {}
        for name, column, of in session.con.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY table_name, column_index"
        ).fetchall():
            columns.setdefault(name, []).append((column, of))
        return {
            name: (columns[name], str(session.con.execute(f"FROM {name}").fetchall()))
            for name in PUBLIC
        }


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, emptiness.Variant], str]:
    """What is known of views without rows: nothing at first, not even what comes with perfpipe."""
    known = dict[tuple[str, emptiness.Variant], str]()
    monkeypatch.setattr(emptiness, "_COLUMNS", known)
    monkeypatch.setattr(emptiness, "_shipped", lambda _: {})
    return known


def test_views_over_nothing_are_as_they_are_planned(
    captures: Store,
    ingested: Callable[[str], str],
    known: dict[tuple[str, emptiness.Variant], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A profile alone: most views are of timelines."""
    reports = [ingested("ncu/visible.raw.csv")]
    first = _answers(captures, reports)
    assert len(known) > 60
    planned = set(known)
    assert _answers(captures, reports) == first
    assert set(known) == planned, "none is planned again"
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_sources", lambda *_: ())
        assert _answers(captures, reports) == first
        assert set(known) == planned, "all were planned"
    known.clear()
    monkeypatch.setattr(emptiness, "_shipped", shipped)
    assert _answers(captures, reports) == first
    assert not known, "all came with perfpipe"


def test_what_had_no_rows_elsewhere_has_its_own_here() -> None:
    sql = "SELECT count(*), sum(time_ns) FROM gpu_time_budget WHERE time_ns > 0"
    for _ in range(2):
        assert Tiny().rows(sql) == [(0, None)]
        db = Tiny()
        db.add("launches", {"kind": "kernel", "device": 0, "pid": 1, "start_ns": 0, "end_ns": 9})
        assert db.rows(sql) == [(1, 9)]


def test_other_limits_are_planned_for_themselves(
    known: dict[tuple[str, emptiness.Variant], str],
) -> None:
    for window, more in (("steady", True), ("whole", True), ("steady", False)):
        before = len(known)
        with Session(empty_database(), window=window) as session:
            session.use("gpu_time_budget")
        assert (len(known) > before) == more
