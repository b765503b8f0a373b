"""Segments: rows of many reports in one file per table, written once and never changed.

    segments/<id>/segment.json        its reports, files, and the segments that it replaces
    segments/<id>/catalogue.parquet   one row per report: the row of `reports`, and the manifest
    segments/<id>/<table>.parquet     rows of all its reports, by report_id
    removed/<id>/<report_id>          a removed report: readers ignore its rows

A report may also have its own directory; if a segment holds it too, the segment is read.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from perfpipe.database import first_lines, in_list, open_database, quote
from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.manifest import Manifest
from perfpipe.model import SCHEMA_VERSION
from perfpipe.paths import is_plain, pattern_of

#: File of a segment that lists its content.
INDEX = "segment.json"

#: Manifests that are read at once.
_AT_ONCE = 1024

#: The table of reports in a segment.
CATALOGUE = "catalogue"


@dataclass(frozen=True)
class SegmentFile:
    """A Parquet file of a segment: rows of one table, all with the columns of `schema`."""

    file: str
    table: str
    schema: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Segment:
    """A segment on disk; `path` is its directory, `replaces` names segments that it holds.

    `sources` has the reports that it was made from, by when their directories were written.
    """

    path: Path
    reports: frozenset[str]
    replaces: frozenset[str]
    files: tuple[SegmentFile, ...]
    sources: Mapping[str, int] = field(default_factory=dict, hash=False, compare=False)

    @property
    def segment_id(self) -> str:
        """The id, which is the name of the directory."""
        return self.path.name

    def write_index(self, directory: Path) -> None:
        """Write segment.json into the directory that becomes the segment."""
        record = {
            "schema_version": SCHEMA_VERSION,
            "replaces": sorted(self.replaces),
            "files": [asdict(file) for file in self.files],
            "reports": sorted(self.reports),
            "sources": dict(sorted(self.sources.items())),
        }
        write_json(directory / INDEX, record)

    @classmethod
    def read(cls, path: Path) -> Segment:
        """Read a segment's index; raises StoreError if it is damaged or of an unknown version.

        Its files must have the sizes in the index; their content is not checked.
        """
        segment = _read(path.resolve())
        for file in segment.files:
            check_size(segment.path / file.file, file.bytes)
        return segment


def check_size(path: Path, stated: int) -> None:
    """Raise StoreError unless a path is a regular file of this size, bytes."""
    try:
        at = path.lstat()
    except OSError as error:
        raise StoreError(os_error_sentence(error, "cannot read")) from error
    if not stat.S_ISREG(at.st_mode):
        raise StoreError(f"{path}: not a regular file")
    if at.st_size != stated:
        raise StoreError(f"{path}: {at.st_size} bytes, but {stated} were written")


@cache
def _read(path: Path) -> Segment:
    record = read_versioned(path / INDEX, "segment of a store")
    try:
        files = tuple(SegmentFile(**file) for file in record["files"])
        reports, replaces = frozenset(record["reports"]), frozenset(record["replaces"])
        # Older segments state none.
        sources = {report: int(at) for report, at in record.get("sources", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path / INDEX}: not a complete segment ({error})") from error
    for name in (*reports, *replaces, *(file.file for file in files)):
        if not is_plain(name):
            raise StoreError(f"{path / INDEX}: {name!r} is not a plain file name")
    return Segment(path, reports, replaces, files, sources)


def segment_manifests(segment: Segment, report_ids: Collection[str]) -> Iterator[Manifest]:
    """Yield the manifests of some reports of a segment, by report id, a few at a time in memory.

    The catalogue of a segment is in that order.
    """
    import duckdb

    if not report_ids:
        return
    path = segment.path / f"{CATALOGUE}.parquet"
    chosen = in_list(sorted(report_ids)) if len(report_ids) < len(segment.reports) else None
    sql = f"SELECT manifest FROM read_parquet({quote(pattern_of(path))})"
    sql += f" WHERE report_id IN {chosen}" if chosen else ""
    with open_database() as con:
        try:
            found = con.execute(sql)
            while rows := found.fetchmany(_AT_ONCE):
                for (text,) in rows:
                    yield Manifest.of_record(json.loads(text), path)
        except duckdb.Error as error:
            raise StoreError(f"{path}: not readable ({first_lines(error)})") from error
