"""The store: immutable reports and runs as directories, safe for many writers.

A report is written into a hidden temporary directory beside its final place and renamed, so a
reader or a killed writer never leaves half of one behind; there are no lock files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.files import replacing
from perfpipe.manifest import Manifest
from perfpipe.runrecord import RunRecord

#: Environment variable that names the store.
STORE_VARIABLE = "PERFPIPE_STORE"
DEFAULT_STORE = "perfpipe-store"

_TEMPORARY = (".tmp-", ".trash-")


class Store:
    """A store directory; it is created by the first report or run that is written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.reports_dir = self.root / "reports"
        self.runs_dir = self.root / "runs"

    @classmethod
    def locate(cls, path: str | Path | None = None, *, must_exist: bool = False) -> Store:
        """Return the store at `path`, else $PERFPIPE_STORE, else ./perfpipe-store."""
        store = cls(path or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE)
        if must_exist and not (store.reports_dir.is_dir() or store.runs_dir.is_dir()):
            raise StoreError(
                f"{store.root}: no store here; make one with 'perfpipe ingest FILE...' "
                f"or name another with --store or ${STORE_VARIABLE}"
            )
        return store

    def report_ids(self) -> list[str]:
        """Return the ids of the published reports, sorted."""
        return _published(self.reports_dir)

    def has_report(self, report_id: str) -> bool:
        """Say whether a report is published."""
        return (self.reports_dir / report_id).is_dir()

    def alias(self, file_sha256: str) -> str | None:
        """Return the report that a compressed file gave, so that it need not be expanded again."""
        try:
            return (self.root / "inputs" / file_sha256).read_text(encoding="ascii").strip()
        except OSError:
            return None

    def add_alias(self, file_sha256: str, report_id: str) -> None:
        """Remember which report a compressed file gave."""
        directory = self.root / "inputs"
        directory.mkdir(exist_ok=True)
        with replacing(directory / file_sha256) as temporary:
            temporary.write_text(report_id + "\n", encoding="ascii")

    def manifest(self, report_id: str) -> Manifest:
        """Return a report's manifest; StoreError when it is missing or of another version."""
        return Manifest.read(self.reports_dir / report_id / "manifest.json")

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all reports, by report id."""
        return [self.manifest(report_id) for report_id in self.report_ids()]

    def table_path(self, report_id: str, table: str) -> Path:
        """Return where a report's table lies."""
        return self.reports_dir / report_id / f"{table}.parquet"

    def run_ids(self) -> list[str]:
        """Return the ids of the recorded runs, sorted; a launch that ended early has no record."""
        found = _published(self.runs_dir)
        return [run_id for run_id in found if (self.runs_dir / run_id / "run.json").exists()]

    def runs(self) -> list[RunRecord]:
        """Return the run records, oldest first."""
        records = [self.run(run_id) for run_id in self.run_ids()]
        return sorted(records, key=lambda run: (run.started_at, run.run_id))

    def run(self, run_id: str) -> RunRecord:
        """Return one run record; StoreError when it is damaged or of another version."""
        return RunRecord.read(self.runs_dir / run_id / "run.json")

    def write_run(self, record: RunRecord) -> Path:
        """Write a run record atomically and return its directory."""
        directory = self.runs_dir / record.run_id
        with storing(directory):
            record.write(directory / "run.json")
        return directory

    @contextlib.contextmanager
    def new_report(self, report_id: str) -> Iterator[Path]:
        """Give a temporary directory for a report; it is removed unless `publish` moved it."""
        directory = self.reports_dir / f".tmp-{report_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with storing(directory):
            directory.mkdir(parents=True)
        try:
            with storing(directory):
                yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def publish(self, directory: Path, manifest: Manifest, *, replace: bool = False) -> bool:
        """Rename a finished directory to its report id; False when another writer was first."""
        final = self.reports_dir / manifest.report_id
        with storing(final):
            manifest.write(directory / "manifest.json")
            if replace and final.exists():
                trash = self._trash(manifest.report_id)
                with contextlib.suppress(FileNotFoundError):
                    final.rename(trash)
                    shutil.rmtree(trash, ignore_errors=True)
            try:
                directory.rename(final)
            except OSError:
                if not final.is_dir():
                    raise
                return False
        return True

    def remove(self, report_id: str) -> None:
        """Remove a report."""
        final = self.reports_dir / report_id
        if not final.is_dir():
            raise StoreError(f"{report_id}: no such report in {self.root}")
        trash = self._trash(report_id)
        with storing(final):
            final.rename(trash)
            shutil.rmtree(trash)

    def _trash(self, report_id: str) -> Path:
        return self.reports_dir / f".trash-{report_id}-{uuid.uuid4().hex[:8]}"

    def leftovers(self) -> list[Path]:
        """Return temporary directories that unfinished or killed writers left behind."""
        if not self.reports_dir.is_dir():
            return []
        return sorted(p for p in self.reports_dir.iterdir() if p.name.startswith(_TEMPORARY))

    def collect_garbage(self, older_than_s: float) -> list[Path]:
        """Remove leftovers that nobody has touched for `older_than_s` seconds; return them."""
        now = time.time()
        removed = []
        for path in self.leftovers():
            with contextlib.suppress(FileNotFoundError):
                newest = max(p.stat().st_mtime for p in (path, *path.iterdir()))
                if now - newest >= older_than_s:
                    shutil.rmtree(path, ignore_errors=True)
                    removed.append(path)
        return removed


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an operating-system error while writing the store into one sentence."""
    try:
        yield
    except OSError as error:
        sentence = os_error_sentence(error, f"cannot write the store at {path.parent}:")
        raise StoreError(f"{sentence}; nothing was changed") from error


def _published(directory: Path) -> list[str]:
    try:
        names = [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot read the store")) from error
    return sorted(name for name in names if not name.startswith("."))
