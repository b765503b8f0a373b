"""A store of many reports, which are one capture with changed ids."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.ingest.reading import ingest
from perfpipe.manifest import Manifest, StoredTable
from perfpipe.store import Store


def fill(store: Store, seed: Path, size: int) -> list[str]:
    """Ingest the seed and clone its report; returns all ids."""
    first = ingest(seed, store).report_id
    source = store.reports_dir / first
    manifest = Manifest.read(source / "manifest.json")
    tables = {name: pq.read_table(source / f"{name}.parquet") for name in manifest.tables}
    ids = [first]
    for number in range(1, size):
        sha256 = hashlib.sha256(f"{number}".encode()).hexdigest()
        clone = sha256[:16]
        directory = store.reports_dir / clone
        directory.mkdir()
        stated = {}
        for name, rows in tables.items():
            path = directory / f"{name}.parquet"
            own = pa.array([clone] * len(rows)).dictionary_encode()
            changed = rows.set_column(0, "report_id", own)
            pq.write_table(changed, path, compression="zstd", store_schema=False)
            stated[name] = StoredTable.of(path, len(rows), manifest.tables[name].schema)
        record = asdict(replace(manifest, report_id=clone, sha256=sha256, tables=stated))
        (directory / "manifest.json").write_text(json.dumps(record, indent=1))
        ids.append(clone)
    return ids
