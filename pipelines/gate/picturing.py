"""Draws a step of either side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from perfpipe.analysis.report.build import PICTURE_VIEWS, picture_of_sides
from perfpipe.analysis.session import Session
from perfpipe.picture import Picture
from perfpipe.store import Store


def both_steps(
    store: Store,
    before: Sequence[str],
    after: Sequence[str],
    step_range: str | None,
    window: str,
) -> Picture | None:
    """Return the picture of a step before and after; None if a side has no timeline."""
    if not before or not after:
        return None
    reports = {"Before": before, "After": after}
    every = [*before, *after]
    with Session.open(
        store, every, use=PICTURE_VIEWS, step_range=step_range, window=window
    ) as session:
        return picture_of_sides(session.con, reports)
    raise AssertionError("unreachable")
