"""Reads NVTX ranges and marks: names, domains, threads."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfpipe.ingest.arrays import STILL_OPEN, Vocabulary, give_back, ints, none, time_order
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.door import Door
from perfpipe.ingest.nsys.export import Part
from perfpipe.ingest.nsys.payloads import has_payload_schemas
from perfpipe.ingest.nsys.python_stacks import SOURCES, Mark
from perfpipe.ingest.nsys.ranges import MARK, PUSH_POP, START_END, Ranges
from perfpipe.ingest.nsys.resolve import Resolver, pid_of, signed, tid_of

#: Event types of NVTX_EVENTS; 70 and 71 are their nvtxt forms.
_STYLES = {34: MARK, 59: PUSH_POP, 60: START_END, 70: PUSH_POP, 71: START_END}
_DOMAIN_CREATED = 75

#: Other events, which are neither ranges nor marks: categories, names, and domains.
_OTHERS = (32, 33, 39, 64, 72, 73, 74, _DOMAIN_CREATED, 76, 97, 98, 99)
_DEFAULT_DOMAIN = 0

_COLUMNS = (
    "start",
    "end",
    "eventType",
    "category",
    "text",
    "textId",
    "globalTid",
    "endGlobalTid",
    "domainId",
    "binaryData",
)

#: Columns that the reader gathers, named as in Ranges.
_GATHERED = ("start", "end", "style", "thread", "end_thread", "name", "domain", "category")

#: Vocabularies of commonly filled columns; codes of few values take half the memory.
_CODED = {"thread": "threads", "name": "names", "domain": "domains"}
_FEW = 1 << 14


class _Reader:
    """Gathers batches as small columns: a long capture has tens of millions of ranges."""

    def __init__(self) -> None:
        self.threads, self.names, self.domains, self.categories = (Vocabulary() for _ in range(4))
        self.created: list[pa.RecordBatch] = []
        self.payloads: list[tuple[int, bytes | str]] = []
        #: Events of an unknown type.
        self.unknown = 0
        self._parts: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the ranges, marks and domains of a batch."""
        kinds = signed(batch["eventType"])
        created = pc.equal(kinds, _DOMAIN_CREATED)
        if pc.any(created).as_py():
            self.created.append(batch.filter(created))
        wanted = pc.is_in(kinds, value_set=pa.array([*_STYLES], pa.int64()))
        if not pc.all(wanted).as_py():
            others = pc.is_in(kinds, value_set=pa.array(_OTHERS, pa.int64()))
            self.unknown += len(kinds) - (wanted.true_count + others.true_count)
            batch = batch.filter(wanted)
        styles = pa.array([*_STYLES.values()], pa.int8())
        places = pc.index_in(signed(batch["eventType"]), pa.array([*_STYLES], pa.int64()))
        text = self.names.codes(batch["text"].cast(pa.string()))
        thread = signed(batch["globalTid"])
        columns = {
            "start": ints(signed(batch["start"])),
            "end": ints(signed(batch["end"]), missing=STILL_OPEN),
            "style": np.asarray(styles.take(places)),
            "thread": self.threads.codes(thread),
            "end_thread": self.threads.codes(signed(batch["endGlobalTid"])),
            # Ids of registered names are numbers, inline names are text: one vocabulary has both.
            "name": np.where(text < 0, self.names.codes(signed(batch["textId"])), text),
            "domain": self.domains.codes(_domain_key(thread, batch["domainId"])),
            "category": self.categories.codes(signed(batch["category"])),
        }
        contents = batch["binaryData"]
        if contents.null_count < len(contents):
            filled = np.flatnonzero(pc.fill_null(pc.binary_length(contents), 0))
            some = contents.take(pa.array(filled)).to_pylist()
            self.payloads += zip((len(self) + filled).tolist(), some, strict=True)
        for name, values in columns.items():
            self._parts.setdefault(name, []).append(values)

    def extend(self, other: _Reader) -> None:
        """Append the data of a later part of the table."""
        self.created += other.created
        first = len(self)
        self.payloads += [(first + at, content) for at, content in other.payloads]
        vocabularies = {
            "thread": (self.threads, other.threads),
            "end_thread": (self.threads, other.threads),
            "name": (self.names, other.names),
            "domain": (self.domains, other.domains),
            "category": (self.categories, other.categories),
        }
        for name, parts in other._parts.items():
            if name in vocabularies:
                ours, theirs = vocabularies[name]
                number = ours.adopt(theirs)
                if (number[:-1] != np.arange(len(number) - 1)).any():
                    parts[:] = [number[part] for part in parts]
            self._parts.setdefault(name, []).extend(parts)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a gathered column, and release it."""
        parts = self._parts.pop(name)
        if not any(part.strides[0] for part in parts):
            return none(sum(len(part) for part in parts))
        few = name in _CODED and len(getattr(self, _CODED[name]).values) < _FEW
        return np.concatenate(parts, dtype=np.int16 if few else None, casting="unsafe")

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts.get("start", ()))


def start_reading(export: Door, pool: Executor) -> list[Future[_Reader]]:
    """Start reading the ranges and marks of an export, in parts."""
    if not export.has_rows("NVTX_EVENTS"):
        return []
    return [pool.submit(_read, export, part) for part in export.parts("NVTX_EVENTS")]


def _read(export: Door, part: Part | None) -> _Reader:
    reader = _Reader()
    wanted = _COLUMNS if has_payload_schemas(export) else _COLUMNS[:-1]
    there = [c for c in wanted if c in export.columns("NVTX_EVENTS")]
    for batch in export.scan("NVTX_EVENTS", there, part=part):
        reader.add(_complete(batch))
    unknown = "have an unknown type; they were skipped"
    export.note("NVTX_EVENTS", unknown, reader.unknown, part)
    return reader


def ranges_of(
    parts: list[Future[_Reader]], resolver: Resolver, columns: Columns
) -> tuple[Ranges | None, list[Mark]]:
    """Return the ranges and marks read, or None, and the marks that have Python stacks."""
    reader = _Reader()
    while parts:
        # Each part is added when it is read, while later parts are still being read, then released.
        reader.extend(parts.pop(0).result())
    if not len(reader):
        return None, []
    domains = _domains(reader, resolver)
    column: dict[str, Any] = {}
    for name in _GATHERED:
        give_back()
        # Frees memory that the next column needs.
        column[name] = reader.column(name)
    give_back()
    payloads, stacks = _without_stacks(reader, column, domains)
    if not len(column["start"]):
        return None, stacks
    # Outer ranges come first; ranges still open when the capture ended are outermost.
    order = time_order(column["start"], -column["end"], column["thread"])
    if (np.diff(order) != 1).any():
        for name in _GATHERED:
            if column[name].strides[0]:
                column[name] = column[name][order]
        place = {int(row): at for at, row in enumerate(order)} if payloads else {}
        payloads = {place[row]: content for row, content in payloads.items()}
    del order
    threads = pa.array(reader.threads.values, pa.int64())
    pids, tids = pid_of(threads).to_pylist(), tid_of(threads).to_pylist()
    ranges = Ranges(
        threads=list(zip(pids, tids, strict=True)),
        names=_names(reader.names.values, resolver),
        domains=domains,
        categories=reader.categories.values,
        payloads=dict(sorted(payloads.items())),
        storage=columns,
        **column,
    )
    return ranges, stacks


def _without_stacks(
    reader: _Reader, column: dict[str, npt.NDArray[Any]], domains: list[str | None]
) -> tuple[dict[int, bytes | str], list[Mark]]:
    """Take marks with Python stacks out of the columns; return the other payloads, and the marks.

    A mark without payload, of an export without blobs, has no stack.
    """
    payloads = dict(reader.payloads)
    codes = [code for code, domain in enumerate(domains) if domain in SOURCES]
    if not codes:
        return payloads, []
    found = np.isin(column["domain"], codes)
    threads = pa.array(reader.threads.values, pa.int64())
    pids, tids = pid_of(threads).to_pylist(), tid_of(threads).to_pylist()
    marks = []
    for row in np.flatnonzero(found).tolist():
        thread = int(column["thread"][row])
        domain = domains[int(column["domain"][row])]
        marks.append(
            Mark(
                str(domain),
                int(column["start"][row]),
                pids[thread],
                tids[thread],
                payloads.pop(row, b""),
            )
        )
    for name in _GATHERED:
        kept = column[name].strides[0] != 0
        column[name] = column[name][~found] if kept else none(int(np.count_nonzero(~found)))
    place = np.cumsum(~found) - 1
    return {int(place[row]): content for row, content in payloads.items()}, marks


def why_no_ranges(export: Door) -> str:
    """Return why an export has no ranges, with a remedy."""
    state = "has no ranges" if "NVTX_EVENTS" in export.tables() else "is not in the export"
    return f"NVTX_EVENTS {state}; annotate the program and trace with --trace=nvtx"


def _complete(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add empty columns that this version of the export lacks."""
    names = batch.schema.names
    arrays = [batch[c] if c in names else pa.nulls(batch.num_rows) for c in _COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _domain_key(thread: pa.Array, domain: pa.Array) -> pa.Array:
    """Return process and domain as one number, since domain ids are per process."""
    number = pc.bit_wise_and(signed(domain).fill_null(_DEFAULT_DOMAIN), 0xFFFF)
    return pc.add(pc.shift_left(pid_of(thread), 16), number)


def _names(keys: list[int | str], resolver: Resolver) -> list[str | None]:
    """Return the texts of a vocabulary of texts and string ids."""
    ids = [key for key in keys if isinstance(key, int)]
    texts = resolver.strings(pa.array(ids, pa.int64())).cast(pa.string()).to_pylist()
    registered = dict(zip(ids, texts, strict=True))
    return [registered[key] if isinstance(key, int) else key for key in keys]


def _domains(reader: _Reader, resolver: Resolver) -> list[str | None]:
    named: dict[int, str | None] = {}
    for batch in reader.created:
        registered = resolver.strings(signed(batch["textId"])).cast(pa.string())
        names = pc.coalesce(batch["text"].cast(pa.string()), registered).to_pylist()
        keys = _domain_key(signed(batch["globalTid"]), batch["domainId"]).to_pylist()
        named |= dict(zip(keys, names, strict=True))
    unnamed = {key: key & 0xFFFF for key in reader.domains.values}
    return [
        named.get(key) or (f"domain {number}" if number != _DEFAULT_DOMAIN else None)
        for key, number in unnamed.items()
    ]
