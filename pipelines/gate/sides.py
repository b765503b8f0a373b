"""The sides of a comparison, by name: runs, reports, named baselines, exported baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import sides
from analysis.gate.document import side_from
from analysis.session import Session
from analysis.sides import Side
from perfpipe import baselinerecord
from perfpipe.errors import InputError
from perfpipe.jsonfile import read_json
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.windows import STEADY
from pipelines.runs import counts_as_failed
from pipelines.selection import Selection, select


@dataclass(frozen=True)
class Named:
    """A side with the runs that it comes from; an exported baseline has none."""

    side: Side
    runs: tuple[RunRecord, ...] = ()

    @property
    def replayed(self) -> bool:
        """Whether any of it was not measured."""
        return any(run.replayed for run in self.runs)

    @property
    def failed(self) -> tuple[str, ...]:
        """The configurations that failed in any run."""
        labels = (task.label for run in self.runs for task in run.tasks if counts_as_failed(task))
        return tuple(dict.fromkeys(labels))


def named(
    store: Store,
    names: Sequence[str],
    step_range: str | None = None,
    window: str = STEADY,
) -> Named:
    """Return the side that names stand for: runs or reports, a baseline, or an exported one.

    Raises InputError for a name that means nothing.
    """
    exported = [name for name in names if name.endswith(".json")]
    if exported:
        if len(names) > 1:
            raise InputError(f"{exported[0]}: an exported baseline is a side of its own")
        path = Path(exported[0])
        if not path.exists():
            raise InputError(f"{path}: no such file")
        return Named(side_from(read_json(path, "exported baseline"), str(path)))
    found = select(store, [run for name in names for run in _runs_of(store, name)])
    return Named(_measured(store, found, step_range, window), tuple(found.runs))


def _runs_of(store: Store, name: str) -> Sequence[str]:
    baseline = baselinerecord.read(store.root, name)
    return baseline.runs if baseline is not None else [name]


def _measured(store: Store, found: Selection, step_range: str | None, window: str) -> Side:
    loose = {*found.reports} - {r for run in found.runs for r in run.reports}
    if loose and found.runs:
        raise InputError("compare either runs or reports, not both at once")
    if not found.reports:
        return sides.side_of(None, found.runs, [])
    with Session.open(
        store,
        found.reports,
        [run.run_id for run in found.runs],
        use=sides.VIEWS,
        step_range=step_range,
        window=window,
    ) as session:
        return sides.side_of(session.con, found.runs, found.reports)


def refuse_both(before: Named, after: Named) -> None:
    """Raise InputError if a run or report is on both sides."""
    if both := sorted({*before.side.names} & {*after.side.names}):
        raise InputError(f"{both[0]} is on both sides of the comparison")
