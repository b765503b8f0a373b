"""Replays the steps of runs and reports with shorter parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfpipe.analysis.critical import shorter
from perfpipe.analysis.critical.shorter import Shorter, Wish
from perfpipe.analysis.session import Session
from perfpipe.pipelines.selection import chosen
from perfpipe.store import Store
from perfpipe.viewmodel import Report
from perfpipe.windows import STEADY


@dataclass(frozen=True)
class Shortened:
    """What was asked, and the replayed steps of each job."""

    wishes: tuple[Wish, ...]
    found: tuple[Shorter, ...]

    @property
    def page(self) -> Report:
        """The replay as tables and sentences."""
        return shorter.page(self.wishes, self.found)

    def as_data(self) -> dict[str, Any]:
        """Return the replay as JSON data; times in ns."""
        return {**shorter.as_data(self.wishes, self.found)}


def shortened(
    store: Store,
    names: Sequence[str],
    texts: Sequence[str],
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Shortened:
    """Replay the steps of runs or reports with shorter parts, as PART[@RANK]=PERCENT.

    Raises InputError for a part that no step has, or if there is nothing to replay.
    """
    for text in texts:
        shorter.wish_of(text)
    found = chosen(store, names)
    with Session.open(
        store,
        found.reports,
        [run.run_id for run in found.runs],
        use=shorter.VIEWS,
        step_range=step_range,
        window=window,
    ) as session:
        session.check_window()
        wishes, steps = shorter.shorter_steps(session.con, texts)
    return Shortened(wishes, tuple(steps))
