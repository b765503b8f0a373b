"""Resolves the names on a command line to runs, reports and batches of a store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.errors import InputError, StoreError
from perfpipe.pipelines.console import say
from perfpipe.provenance import age_of
from perfpipe.runrecord import RunRecord
from perfpipe.searchrecord import identifiers
from perfpipe.store import Store
from perfpipe.units import ago, counted


@dataclass(frozen=True)
class Selection:
    """Reports and runs that were selected, and the number of names that selected them.

    `left_out` has the reports that cannot be read, and why; they are not in `reports`.
    """

    reports: list[str]
    runs: list[RunRecord]
    named: int
    left_out: Mapping[str, str] = field(default_factory=dict)

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
        """The run, if only one run was named."""
        return self.runs[0] if len(self.runs) == 1 and self.only_runs else None


def select(store: Store, names: Sequence[str]) -> Selection:
    """Return the readable reports and the runs that names select.

    A name is the id of a run, a report or a batch (for its runs), or a prefix of an id; @1 for the
    newest run, @2 for the one before it; the name of a workload, for its newest run; or the file
    that a report was read from.  Without names: the newest run, else every report.  Raises
    InputError for an unknown or ambiguous name, StoreError if a named run or report cannot be read.
    """
    runs = {run.run_id: run for run in store.runs()}
    if not names and runs:
        newest = list(runs.values())[-1]
        return _selection(store, (), [newest])
    every = store.report_ids()
    if not names:
        if not every:
            raise InputError(f"{store.root}: the store is empty")
        chosen = _selection(store, every)
        if not chosen.reports:
            # With the reason, if there is one report.
            for report_id in every if len(every) == 1 else ():
                store.check(report_id)
            raise StoreError(f"{store.root}: none of the {len(every)} reports can be read")
        return chosen
    found: list[str] = []
    named_runs: list[RunRecord] = []
    of_runs, batches = frozenset(store.run_ids()), frozenset(store.batch_ids())
    for name in names:
        meant = _found(store, name, (*of_runs, *every, *batches), [*runs.values()])
        if meant in batches:
            named_runs += [runs[run_id] for run_id in _runs_of(store, meant) if run_id in runs]
        elif meant in of_runs:
            named_runs.append(runs.get(meant) or store.run(meant))
        else:
            store.check(meant)
            found.append(meant)
    return _selection(store, found, named_runs)


def chosen(store: Store, names: Sequence[str], more: str = "") -> Selection:
    """Return what `select` returns; without names, print once which run that is, and `more`."""
    found = select(store, names)
    if not names and found.run is not None and store.is_new("default"):
        age_s = age_of(found.run.started_at)
        when = "" if age_s is None else f", {ago(age_s)}"
        say(f"latest run: {found.run.workload}{when} (@1){more}")
    return found


def _selection(store: Store, reports: Sequence[str], runs: Sequence[RunRecord] = ()) -> Selection:
    """Return the selection of some reports and runs; warns about unreadable reports."""
    every = dict.fromkeys([*reports, *(report for run in runs for report in run.reports)])
    found, left_out = store.readable(every)
    for report_id, fault in left_out.items():
        store.leave_out(report_id, fault)
    return Selection(found, list(runs), len(reports) + len(runs), left_out)


def batch_named(store: Store, names: Sequence[str]) -> str | None:
    """Return the batch, if one batch is the only name, by its id or a prefix of it.

    Raises InputError as `select` does.
    """
    batches = store.batch_ids() if len(names) == 1 else []
    if not any(batch.startswith(names[0]) for batch in batches):
        return None
    meant = _meant(names[0], (*store.run_ids(), *store.report_ids(), *batches))
    return meant if meant in batches else None


def search_named(store: Store, names: Sequence[str]) -> str | None:
    """Return the search, if one search is the only name, by its id or a prefix of it.

    Raises InputError as `select` does.
    """
    searches = identifiers(store.root) if len(names) == 1 else []
    if not any(search.startswith(names[0]) for search in searches):
        return None
    # The name of a workload is that of its newest run.
    if any(run.workload == names[0] for run in store.runs()):
        return None
    meant = _meant(names[0], (*store.run_ids(), *store.report_ids(), *store.batch_ids(), *searches))
    return meant if meant in searches else None


def _found(store: Store, name: str, ids: Sequence[str], runs: Sequence[RunRecord]) -> str:
    """Return the id that a name stands for; `runs` are the oldest first."""
    if name in ids:
        return name
    if match := re.fullmatch(r"@(\d+)", name):
        if not 1 <= int(match[1]) <= len(runs):
            raise InputError(f"no run {name}: the store has {counted(len(runs), 'run')}")
        return runs[-int(match[1])].run_id
    if own := [run.run_id for run in runs if run.workload == name]:
        if len(own) > 1:
            say(f"{name}: {own[-1]} is the newest of {counted(len(own), 'run')}")
        return own[-1]
    if any(key.startswith(name) for key in ids):
        return _meant(name, ids)
    return _read_from(store, name)


def _read_from(store: Store, name: str) -> str:
    """Return the report that was read from a file; raises InputError without one."""
    if store.has_trial(name):
        raise InputError(
            f"{name} is a trial: perfpipe query \"FROM trials WHERE trial_id = '{name}'\""
        )
    path = Path(name)
    there, exists = _place(path)
    if not is_path(name) and not exists:
        return _meant(name, ())
    every = [(own.report_id, own.source_name, own.source_path) for own in store.each_manifest()]
    found = [key for key, _, source in every if source == there]
    found = found or [key for key, source, _ in every if source == path.name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"'{name}' is ambiguous: {', '.join(found)}")
    if exists:
        raise InputError(f"{name} is not in the store; to read it: perfpipe ingest {name}")
    raise InputError(no_such_file(name))


def _place(path: Path) -> tuple[str, bool]:
    """Return the whole path of a file, and whether it exists; no path if no file can be there."""
    try:
        return str(path.resolve()), path.exists()
    except (OSError, ValueError):
        return "", False


def is_path(name: str) -> bool:
    """Return whether a name looks like that of a file."""
    return bool(Path(name).suffix) or "/" in name


def no_such_file(name: str) -> str:
    """Return the sentence on a file that neither exists nor was ever read."""
    return f"{name}: no such file, and no such run, report or batch in the store"


def _meant(name: str, known: Iterable[str]) -> str:
    if (meant := by_prefix(name, known)) is None:
        raise InputError(f"no run, report or batch '{name}' in the store")
    return meant


def by_prefix(name: str, known: Iterable[str]) -> str | None:
    """Return the id that a name is, or that it begins; None if there is none.

    Raises InputError if there are several.
    """
    matches = [key for key in known if key.startswith(name)]
    exact = [key for key in matches if key == name] or matches
    if len(exact) > 1:
        raise InputError(f"'{name}' is ambiguous: {', '.join(exact)}")
    return exact[0] if exact else None


def _runs_of(store: Store, batch_id: str) -> list[str]:
    """Return the runs of a batch; raises InputError if the batch is not collected yet."""
    from perfpipe.pipelines.batch.disk import BatchDirectory

    run_ids = [run.run_id for run in BatchDirectory.read(store, batch_id).batch.runs]
    if missing := {*run_ids} - {*store.run_ids()}:
        raise InputError(f"{batch_id}: not collected yet, so run {min(missing)} does not exist")
    return run_ids
