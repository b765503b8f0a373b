"""The sides of a comparison, by name: runs, reports, named baselines, exported baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perfpipe import baselinerecord
from perfpipe.analysis.gate import sides
from perfpipe.analysis.gate.check import exported_from
from perfpipe.analysis.gate.sides import Side
from perfpipe.analysis.gate.timed import comparable_runs
from perfpipe.analysis.session import Session
from perfpipe.calibrationrecord import Calibration
from perfpipe.errors import InputError
from perfpipe.jsonfile import read_json
from perfpipe.pipelines.rereading import rereading
from perfpipe.pipelines.runs import counts_as_failed, failure_of
from perfpipe.pipelines.selection import Selection, chosen
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.windows import STEADY


@dataclass(frozen=True)
class Named:
    """A side with its runs and reports; an exported baseline has its calibration instead."""

    side: Side
    runs: tuple[RunRecord, ...] = ()
    reports: tuple[str, ...] = ()
    calibration: Calibration | None = None

    @property
    def replayed(self) -> bool:
        """Whether any part of it was replayed."""
        return any(run.replayed for run in self.runs)

    @property
    def failed(self) -> tuple[str, ...]:
        """The configurations that failed in any run, each with the reason of its first failure."""
        first: dict[str, str] = {}
        for run in self.runs:
            for task in filter(counts_as_failed, run.tasks):
                first.setdefault(task.label, failure_of(task))
        return tuple(first.values())


def named(
    store: Store,
    *names: Sequence[str],
    step_range: str | int | None = None,
    window: str = STEADY,
) -> list[Named]:
    """Return the sides behind lists of names: runs or reports, baselines, exported baselines.

    Raises InputError for an unknown name, and for a run or report on two sides.
    """

    def selections() -> list[Selection | Named]:
        return [_meant(store, own) for own in names]

    def reports() -> list[str]:
        return [
            report for own in selections() if isinstance(own, Selection) for report in own.reports
        ]

    def measure() -> list[Named]:
        meant = selections()
        found = [own for own in meant if isinstance(own, Selection)]
        measured = iter(sides_of(store, found, step_range, window))
        sides = [
            own
            if isinstance(own, Named)
            else Named(next(measured), tuple(own.runs), tuple(own.reports))
            for own in meant
        ]
        _check_names_apart(sides)
        return sides

    return rereading(store, reports, measure) if reports() else measure()


def _meant(store: Store, names: Sequence[str]) -> Selection | Named:
    files = [name for name in names if is_exported(name)]
    if files:
        if len(names) > 1:
            raise InputError(
                f"{files[0]}: an exported baseline cannot be combined with other names"
            )
        return exported(Path(files[0]))
    return selected(store, names)


def exported(path: Path) -> Named:
    """Return the side of an exported baseline; raises InputError if it is missing or not valid."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    found = exported_from(read_json(path, "exported baseline"), str(path))
    return Named(found.side, calibration=found.calibration)


def exported_calibration(path: Path) -> Calibration:
    """Return the calibration of an exported baseline; raises InputError if it has none."""
    found = exported(path).calibration
    if found is None:
        raise InputError(
            f"{path}: has no calibration; run 'perfpipe gate calibrate', then "
            "'perfpipe gate baseline export'"
        )
    return found


def is_exported(name: str) -> bool:
    """Return whether a name is the path of an exported baseline."""
    return name.endswith(".json")


def selected(store: Store, names: Sequence[str]) -> Selection:
    """Return the selection behind names; a baseline stands for its runs."""
    return chosen(store, [run for name in names for run in _runs_of(store, name)])


def _runs_of(store: Store, name: str) -> Sequence[str]:
    baseline = baselinerecord.read(store.root, name)
    return baseline.runs if baseline is not None else [name]


def _check_names_apart(found: Sequence[Named]) -> None:
    """Raise InputError for a run or report on two sides, such as one that was also exported."""
    seen: set[str] = set()
    for own in found:
        if both := sorted(seen & {*own.side.names}):
            raise InputError(f"{both[0]} is on both sides of the comparison")
        seen |= {*own.side.names}


def check_apart(selections: Sequence[Selection]) -> None:
    """Raise InputError for runs mixed with reports, and for overlapping selections."""
    seen: dict[str, str] = {}
    for own in selections:
        of_runs = {report for run in own.runs for report in run.reports}
        if own.runs and {*own.reports} - of_runs:
            raise InputError("compare either runs or reports, not both together")
        names = {report: run.run_id for run in own.runs for report in run.reports if run.replayed}
        names = {name: name for name in (*own.reports, *(run.run_id for run in own.runs))} | names
        if both := sorted(names.keys() & seen.keys()):
            old, new = seen[both[0]], names[both[0]]
            if old != new:
                raise InputError(
                    f"{old} and {new} replay the same recording: there is nothing to compare"
                )
            raise InputError(f"{both[0]} is on both sides of the comparison")
        seen |= names


def sides_of(
    store: Store, selections: Sequence[Selection], step_range: str | int | None, window: str
) -> list[Side]:
    """Measure selections; raises InputError for runs mixed with reports, and for overlaps."""
    check_apart(selections)
    timed = iter(comparable_runs([run for own in selections for run in own.runs]))
    chosen = [(list(islice(timed, len(own.runs))), own.reports) for own in selections]
    # Other runs may have the same reports.
    only_runs = all(own.runs for own in selections)
    runs = [run.run_id for own in selections for run in own.runs] if only_runs else None
    every = [report for own in selections for report in own.reports]
    if not every:
        return [sides.side_of(None, own, []) for own, _ in chosen]
    with Session.open(
        store, every, runs, use=sides.VIEWS, step_range=step_range, window=window
    ) as session:
        return [sides.side_of(session.con, *own) for own in chosen]
