"""Pages that an index has written, and what they were made from, so that none is made again."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from perfpipe import calibrationrecord, trialrecord
from perfpipe.analysis.thresholds import thresholds
from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned
from perfpipe.model import SCHEMA_VERSION
from perfpipe.pipelines.writing import write_text
from perfpipe.provenance import code_digest
from perfpipe.store import Store
from perfpipe.templates.index_page import Difference, Summary
from perfpipe.work import work_files

#: Libraries that compute and draw what a page shows.
_LIBRARIES = ("duckdb", "numpy", "matplotlib", "jinja2")


@dataclass(frozen=True)
class Known:
    """A page, and what the index says of it; `key` is a digest of everything it was made from.

    `page` is the digest of its content, empty if there is none: runs that cannot be compared.
    """

    summary: Summary | None = None
    difference: Difference | None = None
    key: str = ""
    page: str = ""


def read_known(page: Path, key: str) -> Known | None:
    """Return what is known of a page; None if it is missing, edited or made from something else."""
    try:
        found: Known = decode(Known, read_versioned(_beside(page), "summary of a page"))
    except (StoreError, ValueError):
        return None
    same = found.key == key and found.page == (_content(page) if found.page else "")
    return found if same else None


def write_known(page: Path, text: str, known: Known) -> None:
    """Write a page, if it has a text, and then what is known of it; StoreError if that fails."""
    if text:
        write_text(page, text)
    stated = replace(known, page=(_content(page) or "") if text else "")
    content = {"schema_version": SCHEMA_VERSION, **vars(stated)}
    write_text(_beside(page), json.dumps(content, indent=1, default=vars) + "\n")


def _beside(page: Path) -> Path:
    return page.with_suffix(".json")


class Inputs:
    """Digests of everything that the pages of some runs are made from.

    They change with the runs, their reports, and what was declared or tried since; with thresholds
    and options; with the code of perfpipe and its libraries.
    """

    def __init__(
        self,
        store: Store,
        run_ids: Iterable[str],
        step_range: str | int | None,
        window: str,
    ) -> None:
        self._store = store
        self._runs = {run_id: store.run(run_id) for run_id in dict.fromkeys(run_ids)}
        wanted = {report for run in self._runs.values() for report in run.reports}
        self._manifests = {own.report_id: _digest(own) for own in store.each_manifest(wanted)}
        self._work: dict[str, list[Path]] = {}
        for path in work_files(store.root):
            self._work.setdefault(path.parent.name, []).append(path)
        self._common = _digest(
            code_digest(),
            platform.python_version(),
            {name: metadata.version(name) for name in _LIBRARIES},
            thresholds(),
            step_range,
            window,
            _digest_of_files(trialrecord.files(store.root)),
        )
        self._calibrations = _digest_of_files(calibrationrecord.files(store.root))

    def of(self, run_id: str, before: str | None = None) -> str:
        """Return the digest for the page of a run, or of the change since the run `before`."""
        if before is None:
            return _digest(self._common, self._of_run(run_id))
        both = (self._of_run(before), self._of_run(run_id))
        return _digest(self._common, both, self._calibrations)

    def _of_run(self, run_id: str) -> str:
        run = self._runs[run_id]
        reports = run.reports
        declared = [path for report in reports for path in self._work.get(report, ())]
        record = self._store.runs_dir / run_id / "run.json"
        manifests = {report: self._manifests.get(report) for report in reports}
        # The status changes without the record when the process of a run is killed.
        return _digest(_digest_of_files([record, *declared]), manifests, run.status)


def _digest(*values: Any) -> str:
    text = json.dumps(values, sort_keys=True, default=vars)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _digest_of_files(paths: Iterable[Path]) -> str:
    """Return a digest of files by name."""
    return _digest({path.name: _content(path) for path in paths})


def _content(path: Path) -> str | None:
    """Return the digest of a file; None if it cannot be read, such as one that was just removed."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
