"""The store: immutable reports and runs as directories, safe for many writers.

A report is written to a hidden temporary directory next to its final place and renamed, so readers
never see an incomplete report and killed writers leave none; there are no lock files.  Compaction
(perfpipe.compaction) combines the rows of many reports in segments, published the same way.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import shlex
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from perfpipe import searchrecord, trialrecord
from perfpipe.claims import is_abandoned
from perfpipe.directories import TRASH, WRITING, new_directory, published, storing
from perfpipe.errors import OtherVersion, StoreError
from perfpipe.exchanging import put
from perfpipe.files import printable, replacing, text_of
from perfpipe.manifest import Manifest
from perfpipe.owner import is_at_work, own_name
from perfpipe.paths import is_plain
from perfpipe.runrecord import RunRecord
from perfpipe.scratch import remove_tree
from perfpipe.searchrecord import Search
from perfpipe.segments import Segment, check_size, segment_manifests
from perfpipe.setaside import SetAside
from perfpipe.trialrecord import Trial

#: Environment variable that names the store.
STORE_VARIABLE = "PERFPIPE_STORE"
DEFAULT_STORE = "perfpipe-store"

#: Prints warnings to stderr, also in notebooks.
log = logging.getLogger(__name__)

#: Directory with an empty file for each program that `perfpipe run --detach` started, until its end
#: is recorded.
DETACHED = "detached"

#: How often segments are listed again if they change meanwhile.
_ATTEMPTS = 5

#: Advice for finding all damage.
_CHECK = "'perfpipe store verify' checks the whole store"


class Store:
    """A store directory; it is created by the first report or run that is written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.reports_dir = self.root / "reports"
        self.runs_dir = self.root / "runs"
        self.batches_dir = self.root / "batches"
        self.trials_dir = trialrecord.directory(self.root)
        self.searches_dir = searchrecord.directory(self.root)
        self.segments_dir = self.root / "segments"
        self.removed_dir = self.root / "removed"
        self._aside = SetAside(self.written_at)
        self._warned: set[str] = set()

    @classmethod
    def locate(cls, path: str | Path | None = None, *, must_exist: bool = False) -> Store:
        """Return the store at `path`, else $PERFPIPE_STORE, else ./perfpipe-store.

        Raises StoreError if a required store is missing, or DuckDB could not open its files.
        """
        store = cls(path or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
        if (name := str(store.root.absolute())) != (shown := printable(name)):
            raise StoreError(
                f"{shown}: this path is not UTF-8, so DuckDB cannot read it; choose another store "
                f"with --store or ${STORE_VARIABLE}"
            )
        parts = ("reports", "segments", "runs", "batches", "trials", "searches")
        if must_exist and not any((store.root / part).is_dir() for part in parts):
            raise StoreError(
                f"{store.root}: no store; create one with 'perfpipe ingest FILE...' "
                f"or choose another with --store or ${STORE_VARIABLE}"
            )
        return store

    @property
    def option(self) -> str:
        """The option that commands need to find this store; empty if they need none."""
        usual = self.root == Store.locate().root
        return "" if usual else f"--store {shlex.quote(str(self.root))}"

    def report_ids(self) -> list[str]:
        """Return the ids of the published reports, sorted."""
        own, segments = self.reports_by_place()
        return sorted(own.union(*segments.values()))

    def reports_by_place(self) -> tuple[frozenset[str], dict[Segment, frozenset[str]]]:
        """Return the reports that are read from their own directories, and from segments."""
        own = {*self.own_report_ids()}
        segments = self.reports_in_segments()
        # A report is in a segment before its own directory is removed, and has its own directory
        # before it is hidden in a segment.
        own |= {*self.own_report_ids()}
        return frozenset(own.difference(*segments.values())), segments

    def own_report_ids(self) -> list[str]:
        """Return the ids of reports with their own directories, sorted."""
        return published(self.reports_dir)

    def has_report(self, report_id: str) -> bool:
        """Return whether a report is published."""
        if (self.reports_dir / report_id).is_dir():
            return True
        own, segments = self.reports_by_place()
        return report_id in own.union(*segments.values())

    def segments(self) -> list[Segment]:
        """Return the segments, without those that another segment replaces.

        Segments that cannot be read are skipped with a warning.
        """
        found, damaged = self._look_at_segments()
        for segment_id, fault in damaged.items():
            self.warn(f"segment {segment_id} is skipped: {fault}; {_CHECK}")
        replaced = frozenset[str]().union(*(segment.replaces for segment in found))
        return [segment for segment in found if segment.segment_id not in replaced]

    def damaged_segments(self) -> dict[str, str]:
        """Return why segments cannot be read, by id."""
        return self._look_at_segments()[1]

    def _look_at_segments(self) -> tuple[list[Segment], dict[str, str]]:
        """Return the segments that can be read, and why others cannot."""
        for attempts in range(_ATTEMPTS, 0, -1):
            paths = [self.segments_dir / name for name in published(self.segments_dir)]
            found, damaged = [], {}
            for path in paths:
                try:
                    found.append(Segment.read(path))
                except StoreError as error:
                    damaged[path.name] = str(error)
            # Missing segments may have been replaced and removed since they were listed.
            if attempts == 1 or all((self.segments_dir / name).is_dir() for name in damaged):
                return found, damaged
        raise AssertionError("unreachable")

    def reports_in_segments(self) -> dict[Segment, frozenset[str]]:
        """Return the segments with the reports that are read from them, each from one segment.

        Two compactions at the same time, or a copied segment, may add a report twice.
        """
        found: dict[Segment, frozenset[str]] = {}
        for segment in self.segments():
            held = segment.reports - self.removed_from(segment.segment_id)
            found[segment] = held.difference(*found.values())
        return found

    def removed_from(self, segment_id: str) -> frozenset[str]:
        """Return the reports that were removed from a segment."""
        try:
            return frozenset(path.name for path in (self.removed_dir / segment_id).iterdir())
        except FileNotFoundError:
            return frozenset()

    def alias(self, file_sha256: str) -> str | None:
        """Return the report of a compressed file, so that it is not expanded again."""
        try:
            name = text_of(self.root / "inputs" / file_sha256, "ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return name if is_plain(name) else None

    def add_alias(self, file_sha256: str, report_id: str) -> None:
        """Remember the report of a compressed file."""
        directory = self.root / "inputs"
        directory.mkdir(exist_ok=True)
        with replacing(directory / file_sha256) as temporary:
            temporary.write_text(report_id + "\n", encoding="ascii")

    def manifest(self, report_id: str) -> Manifest:
        """Return a report's manifest; raises StoreError if the report cannot be read."""
        for attempts in range(_ATTEMPTS, 0, -1):
            self._check_readable(report_id)
            own, segments = self.reports_by_place()
            try:
                for segment, held in segments.items():
                    if report_id in held:
                        return next(segment_manifests(segment, [report_id]))
                return self._own_manifest(report_id)
            except StoreError:
                # It moved to another place since.
                if attempts == 1 or self.reports_by_place() == (own, segments):
                    raise
        raise AssertionError("unreachable")

    def manifests(self) -> list[Manifest]:
        """Return the manifests of the reports that can be read, by report id.

        Other reports are skipped with a warning.
        """
        return [*self.each_manifest()]

    def each_manifest(self, wanted: Collection[str] | None = None) -> Iterator[Manifest]:
        """Yield what `manifests` returns, or of it the wanted ones, not all of them in memory."""
        own, segments = self.reports_by_place()
        if wanted is not None:
            own &= {*wanted}
            segments = {segment: held & {*wanted} for segment, held in segments.items()}
        found, damaged = self.own_manifests(sorted(own))
        for report_id, fault in damaged.items():
            self.leave_out(report_id, fault)
        aside = self.set_aside_ids()
        every = [segment_manifests(segment, held - aside) for segment, held in segments.items()]
        yield from heapq.merge(found, *every, key=lambda manifest: manifest.report_id)

    def readable(self, report_ids: Iterable[str]) -> tuple[list[str], dict[str, str]]:
        """Return the readable ones of some reports, and why the others cannot be read."""
        wanted = list(report_ids)
        held = frozenset[str]().union(*self.reports_in_segments().values())
        found, damaged = self.own_manifests(one for one in wanted if one not in held)
        there = {manifest.report_id for manifest in found} | held
        damaged |= {one: fault for one in wanted if (fault := self._aside.fault(one))}
        return [one for one in wanted if one in there and one not in damaged], damaged

    def own_manifests(self, report_ids: Iterable[str]) -> tuple[list[Manifest], dict[str, str]]:
        """Return the manifests of reports with own directories, and why others are unreadable.

        A report is readable if its files have the sizes in its manifest; `perfpipe store verify`
        checks their content.
        """
        found, damaged = [], {}
        for report_id in report_ids:
            try:
                self._check_readable(report_id)
                found.append(self._own_manifest(report_id))
            except StoreError as error:
                # It may have been removed since the directory was listed.
                if (folder := self.reports_dir / report_id).is_dir():
                    damaged[report_id] = str(error).replace(f"{folder}{os.sep}", "")
        return found, damaged

    def _own_manifest(self, report_id: str) -> Manifest:
        """Return the manifest of a report with its own directory; StoreError for a damaged one."""
        for attempts in range(_ATTEMPTS, 0, -1):
            at = self.written_at(report_id)
            try:
                return self._read_manifest(report_id)
            except StoreError:
                # Another one has taken its place since.
                if attempts == 1 or self.written_at(report_id) == at:
                    raise
        raise AssertionError("unreachable")

    def _read_manifest(self, report_id: str) -> Manifest:
        path = self.manifest_path(report_id)
        manifest = Manifest.read(path)
        if manifest.report_id != report_id:
            raise StoreError(f"{path}: belongs to another report")
        for name, stated in manifest.tables.items():
            check_size(self.table_path(report_id, name), stated.bytes)
        return manifest

    def is_damaged(self, report_id: str) -> bool:
        """Return whether a report exists in a supported version but cannot be read."""
        try:
            self.manifest(report_id)
        except OtherVersion:
            return False
        except StoreError:
            return self.has_report(report_id)
        return False

    def check(self, report_id: str) -> None:
        """Raise StoreError, with the reason and a remedy, if a report cannot be read."""
        try:
            self.manifest(report_id)
        except StoreError as error:
            raise StoreError(
                f"report {report_id} cannot be read: {error}; {self._way_out(report_id)}"
            ) from error

    def leave_out(self, report_id: str, fault: str) -> None:
        """Warn, once, that a report is not read."""
        self.warn(f"report {report_id} is skipped: {fault}; {self._way_out(report_id)}")

    def set_aside(self, report_id: str, fault: str) -> None:
        """Skip a report from now on, with a warning, because its rows are unreadable."""
        self._aside.add(report_id, fault)
        self.leave_out(report_id, fault)

    def set_aside_ids(self) -> frozenset[str]:
        """Return the reports that were set aside and not ingested again since."""
        return self._aside.ids()

    def _way_out(self, report_id: str) -> str:
        # Reports that were set aside have been checked.
        check = "" if self._aside.fault(report_id) else f"{_CHECK}; "
        return f"{check}ingest its input again, or remove it: 'perfpipe store rm {report_id}'"

    def _check_readable(self, report_id: str) -> None:
        if fault := self._aside.fault(report_id):
            raise StoreError(fault)

    def written_at(self, report_id: str) -> int:
        """Return a value that changes when a report is rewritten; 0 without its own directory."""
        try:
            return (self.reports_dir / report_id).stat().st_mtime_ns
        except OSError:
            return 0

    def warn(self, text: str) -> None:
        """Print a warning, once."""
        if self.is_new(text):
            log.warning("perfpipe: %s", text)

    def is_new(self, text: str) -> bool:
        """Return whether this is the first call with a text, which is then printed once."""
        new = text not in self._warned
        self._warned.add(text)
        return new

    def manifest_path(self, report_id: str) -> Path:
        """Return the manifest path of a report with its own directory."""
        return self.reports_dir / report_id / "manifest.json"

    def table_path(self, report_id: str, table: str) -> Path:
        """Return the table path of a report with its own directory."""
        return self.reports_dir / report_id / f"{table}.parquet"

    def run_ids(self) -> list[str]:
        """Return the ids of the recorded runs, sorted; a launch that ended early has no record."""
        found = published(self.runs_dir)
        return [run_id for run_id in found if (self.runs_dir / run_id / "run.json").exists()]

    def batch_ids(self) -> list[str]:
        """Return the ids of the batches, sorted."""
        return published(self.batches_dir)

    def runs(self) -> list[RunRecord]:
        """Return the run records, oldest first; damaged records are skipped with a warning."""
        records = []
        for run_id in self.run_ids():
            try:
                records.append(self.run(run_id))
            except StoreError as error:
                self.warn(f"run {run_id} is skipped: {error}")
        return sorted(records, key=lambda run: (run.started_at, run.run_id))

    def run(self, run_id: str) -> RunRecord:
        """Return one run record; raises StoreError if it is damaged or has another version.

        A run whose process is known to have been killed is interrupted.
        """
        directory = self.runs_dir / run_id
        record = RunRecord.read(directory / "run.json")
        if record.status == "running" and is_abandoned(directory):
            # Its process may have recorded the end since.
            record = RunRecord.read(directory / "run.json")
            return record.interrupted() if record.status == "running" else record
        return record

    def write_run(self, record: RunRecord) -> Path:
        """Write a run record atomically and return its directory."""
        directory = self.runs_dir / record.run_id
        with storing(directory):
            record.write(directory / "run.json")
        return directory

    def trials(self) -> list[Trial]:
        """Return the trials, oldest first; damaged ones are skipped with a warning."""
        found = []
        for path in trialrecord.files(self.root):
            try:
                found.append(trialrecord.read_file(path))
            except StoreError as error:
                self.warn(f"trial {path.stem} is skipped: {error}")
        return trialrecord.in_order(found)

    def searches(self) -> list[Search]:
        """Return the searches, oldest first; damaged ones are skipped with a warning."""
        found = []
        for name in searchrecord.identifiers(self.root):
            try:
                found.append(searchrecord.read(self.searches_dir / name))
            except StoreError as error:
                self.warn(f"search {name} is skipped: {error}")
        return searchrecord.in_time(found)

    def remove_search(self, search_id: str) -> None:
        """Remove a search with its candidates."""
        remove_tree(self.searches_dir / search_id)

    def has_trial(self, trial_id: str) -> bool:
        """Return whether there is a trial of this id, damaged or not."""
        return is_plain(trial_id) and self._trial_path(trial_id).exists()

    def remove_trial(self, trial_id: str) -> None:
        """Remove a trial."""
        path = self._trial_path(trial_id)
        with storing(path):
            path.unlink()

    def _trial_path(self, trial_id: str) -> Path:
        return self.trials_dir / f"{trial_id}.json"

    @contextlib.contextmanager
    def new_report(self, report_id: str) -> Iterator[Path]:
        """Yield a temporary directory for a report; it is removed unless `publish` moved it."""
        with new_directory(self.reports_dir, report_id) as directory:
            yield directory

    @contextlib.contextmanager
    def new_segment(self) -> Iterator[Path]:
        """Yield a temporary directory for a segment; it is removed unless it was published."""
        with new_directory(self.segments_dir, uuid.uuid4().hex[:12]) as directory:
            yield directory

    def publish_segment(self, directory: Path) -> Segment:
        """Rename a finished directory to the segment's id."""
        final = self.segments_dir / directory.name.split("-")[1]
        directory.rename(final)
        return Segment.read(final)

    def publish(self, directory: Path, manifest: Manifest, *, replace: bool = False) -> bool:
        """Rename a finished directory to its report id; False if another writer was first.

        A damaged report is replaced; an intact report only with `replace`.
        """
        final = self.reports_dir / manifest.report_id
        replace = replace or self.is_damaged(manifest.report_id)
        with storing(final):
            manifest.write(directory / "manifest.json")
            if replace:
                put(directory, final, self.trash_of)
                self._take_out(manifest.report_id)
                return True
            try:
                directory.rename(final)
            except OSError:
                if not final.is_dir():
                    raise
                return False
        return True

    def remove(self, report_id: str) -> None:
        """Remove a report; raises StoreError if there is none."""
        if not self.has_report(report_id):
            raise StoreError(f"{report_id}: no such report in {self.root}")
        final = self.reports_dir / report_id
        with storing(final):
            trash = self.trash_of(final)
            with contextlib.suppress(FileNotFoundError):
                final.rename(trash)
                shutil.rmtree(trash)
            self._take_out(report_id)

    def _take_out(self, report_id: str) -> None:
        """Hide the rows of a report in segments, including segments that are being written.

        A compaction creates its directory before it lists reports.  A compaction that has listed
        this report is therefore seen here, and one that is not seen does not list it.
        """
        for segment in self.segments():
            if report_id in segment.reports:
                self._mark_removed(segment.segment_id, report_id)
        # Their content is unknown; a perfpipe that can read them must not find the report.
        for segment_id in self.damaged_segments():
            self._mark_removed(segment_id, report_id)
        for path in self._temporary(self.segments_dir):
            if path.name.startswith(WRITING):
                self._mark_removed(path.name.split("-")[1], report_id)

    def _mark_removed(self, segment_id: str, report_id: str) -> None:
        mark = self.removed_dir / segment_id / report_id
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def trash_of(self, directory: Path) -> Path:
        """Return the name of a directory that is about to be removed."""
        return directory.with_name(own_name(f"{TRASH}{directory.name}"))

    def leftovers(self) -> list[Path]:
        """Return temporary directories of unfinished or killed writers."""
        parents = (self.reports_dir, self.segments_dir, self.batches_dir)
        return [path for parent in parents for path in self._temporary(parent)]

    def abandoned(self) -> list[Path]:
        """Return temporary directories, without those of writers that run on this machine."""
        return [path for path in self.leftovers() if not is_at_work(path.name)]

    @staticmethod
    def _temporary(directory: Path) -> list[Path]:
        if not directory.is_dir():
            return []
        return sorted(p for p in directory.iterdir() if p.name.startswith((WRITING, TRASH)))
