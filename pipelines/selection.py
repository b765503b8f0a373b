"""What the names on a command line mean: runs, reports and batches of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfpipe.errors import InputError
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store


@dataclass(frozen=True)
class Selection:
    """The selection that names stand for: report ids, and the named runs."""

    reports: list[str]
    runs: list[RunRecord]
    named: int

    @property
    def only_runs(self) -> bool:
        """Whether only runs were named."""
        return len(self.runs) == self.named

    @property
    def title(self) -> str | None:
        """The title of several runs; None for anything else."""
        if len(self.runs) < 2 or not self.only_runs:
            return None
        names = dict.fromkeys(run.workload for run in self.runs)
        return f"{', '.join(names)} ({len(self.runs)} runs)"

    @property
    def run(self) -> RunRecord | None:
        """The run, if it is the only thing named."""
        return self.runs[0] if len(self.runs) == 1 and self.only_runs else None


def select(store: Store, names: Sequence[str]) -> Selection:
    """Return the reports and runs that names stand for.

    A name is the id of a run, a report or a batch (for its runs), or the beginning of one.  Without
    names: the newest run, else every report.  Raises InputError for a name that means nothing or
    several things.
    """
    runs = {run.run_id: run for run in store.runs()}
    if not names:
        if runs:
            newest = list(runs.values())[-1]
            return Selection(list(newest.reports), [newest], 1)
        reports = store.report_ids()
        if not reports:
            raise InputError(f"{store.root}: the store is empty")
        return Selection(reports, [], len(reports))
    found: list[str] = []
    named_runs: list[RunRecord] = []
    named = 0
    batches = frozenset(store.batch_ids())
    for name in names:
        meant = _meant(name, (*runs, *store.report_ids(), *batches))
        run_ids = _runs_of(store, meant) if meant in batches else [meant]
        own = [runs[run_id] for run_id in run_ids if run_id in runs]
        named_runs += own
        found += [report for run in own for report in run.reports] if own else run_ids
        named += len(run_ids)
    return Selection(list(dict.fromkeys(found)), named_runs, named)


def batch_named(store: Store, names: Sequence[str]) -> str | None:
    """Return the batch that is the only thing named, by its id or the beginning of it.

    Raises InputError as `select` does.
    """
    batches = store.batch_ids() if len(names) == 1 else []
    if not any(batch.startswith(names[0]) for batch in batches):
        return None
    meant = _meant(names[0], (*store.run_ids(), *store.report_ids(), *batches))
    return meant if meant in batches else None


def _meant(name: str, known: Iterable[str]) -> str:
    matches = [key for key in known if key.startswith(name)]
    exact = [key for key in matches if key == name] or matches
    if len(exact) != 1:
        problem = "is ambiguous" if exact else "is not a run or report in this store, nor a batch"
        raise InputError(f"{name}: {problem}{': ' + ', '.join(exact) if exact else ''}")
    return exact[0]


def _runs_of(store: Store, batch_id: str) -> list[str]:
    """Return the runs of a batch; raises InputError for one that is not collected yet."""
    from pipelines.batch.disk import BatchDirectory

    run_ids = [run.run_id for run in BatchDirectory.read(store, batch_id).batch.runs]
    if missing := {*run_ids} - {*store.run_ids()}:
        raise InputError(f"{batch_id}: not collected yet, so it has no run {min(missing)}")
    return run_ids
