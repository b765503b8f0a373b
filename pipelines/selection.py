"""What the names on a command line mean: runs and reports of a store."""

from __future__ import annotations

from collections.abc import Sequence
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

    A name is a run id, a report id, or the beginning of one.  Without names: the newest run,
    else every report.  Raises InputError for a name that means nothing or several things.
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
    named_runs = []
    for name in names:
        matches = [key for key in (*runs, *store.report_ids()) if key.startswith(name)]
        exact = [key for key in matches if key == name] or matches
        if len(exact) != 1:
            problem = "is ambiguous" if exact else "is not a run or report in this store"
            raise InputError(f"{name}: {problem}{': ' + ', '.join(exact) if exact else ''}")
        if exact[0] in runs:
            named_runs.append(runs[exact[0]])
            found += runs[exact[0]].reports
        else:
            found.append(exact[0])
    return Selection(list(dict.fromkeys(found)), named_runs, len(names))
