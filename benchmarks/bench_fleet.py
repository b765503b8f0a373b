"""Measures a store with as many reports as a fleet makes: the catalogue, and one report of it.

Usage: python benchmarks/bench_fleet.py [--sizes 10000 100000 1000000]

A store of 1,000 reports is compacted, and its segment repeated with changed ids.  Each command runs
in a process of its own, so that imports and peak memory count.  The last one merges the segment
with 1,000 more reports, which a compaction otherwise does only after half as many.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from clones import fill

from perfpipe.compaction import compact
from perfpipe.database import open_database, quote
from perfpipe.segments import CATALOGUE, INDEX, Segment, SegmentFile
from perfpipe.store import Store

ROOT = Path(__file__).resolve().parent.parent
SEED = ROOT / "tests" / "data" / "nsys" / "memcpy.sqlite.xz"
SIZES = (10_000, 100_000, 1_000_000)

#: Reports of the segment that is repeated.
BASE = 1_000

#: Runs a command, and then prints its CPU time and its peak memory, MB.
MEASURED = """
import atexit, json, resource, runpy, sys
from perfpipe import compaction

def measured():
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = open("/proc/self/status").read()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps([round(used.ru_utime + used.ru_stime, 2), round(peak)]), file=sys.stderr)

atexit.register(measured)
if "compact" in sys.argv:
    compaction._GROWTH = sys.maxsize
runpy.run_module("perfpipe", run_name="__main__")
"""

#: The id of copy number i of a report.
_ID = "substr(md5(report_id || '-' || i), 1, 16)"


def main() -> int:
    """Measure and print a row of JSON per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of reports")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seed = Path(directory) / "seed.sqlite"
        seed.write_bytes(lzma.decompress(SEED.read_bytes()))
        base = Store(Path(directory) / "base")
        fill(base, seed, BASE)
        compact(base, 0)
        for size in options.sizes:
            store = Store(Path(directory) / f"store-{size}")
            one = repeat(base, store, size // BASE)
            print(json.dumps({"reports": size, **_measured(store, one, seed)}), flush=True)
            shutil.rmtree(store.root)
    return 0


def repeat(base: Store, store: Store, times: int) -> str:
    """Write a store whose only segment is that of `base`, repeated; returns the id of a report."""
    (segment,) = base.segments()
    files = []
    store.reports_dir.mkdir(parents=True)
    with store.new_segment() as directory, open_database() as con:
        for file in segment.files:
            source, path = segment.path / file.file, directory / file.file
            row = f"* REPLACE ({_ID} AS report_id)"
            if file.table == CATALOGUE:
                row = (
                    f"* REPLACE ({_ID} AS report_id, replace(manifest, report_id, {_ID}) "
                    "AS manifest)"
                )
            con.execute(
                f"COPY (SELECT {row} FROM range({times}) r(i), read_parquet({quote(str(source))}) "
                f"ORDER BY report_id) TO {quote(str(path))} (FORMAT parquet, COMPRESSION zstd)"
            )
            stated = replace(
                file,
                rows=file.rows * times,
                bytes=path.stat().st_size,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            files.append(SegmentFile(**vars(stated)))
        catalogue = quote(str(directory / f"{CATALOGUE}.parquet"))
        ids = [one for (one,) in con.execute(f"SELECT report_id FROM {catalogue}").fetchall()]
        made = Segment(directory, frozenset(ids), frozenset(), tuple(files))
        made.write_index(directory)
        store.publish_segment(directory)
    return str(ids[len(ids) // 2])


def _measured(store: Store, one: str, seed: Path) -> dict[str, Any]:
    (segment,) = store.segments()
    kernels = f"SELECT sum(instances) FROM cuda_gpu_kern_sum WHERE report_id = '{one}'"
    by_gpu = "SELECT gpu, count(*) FROM reports GROUP BY gpu"
    found: dict[str, Any] = {
        "catalogue_mb": round((segment.path / f"{CATALOGUE}.parquet").stat().st_size / 1e6, 1),
        "index_mb": round((segment.path / INDEX).stat().st_size / 1e6, 1),
        "segment_mb": round(sum(file.bytes for file in segment.files) / 1e6, 1),
    }
    for name, words in {
        "count": ("query", "SELECT count(*) FROM reports"),
        "by_gpu": ("query", by_gpu),
        "one_report": ("query", "--report", one, kernels),
        "list": ("store", "ls"),
    }.items():
        found[name] = _run(store, *words)
    fill(store, seed, BASE)
    return {**found, "merge": _run(store, "store", "compact", "--grace", "0")}


def _run(store: Store, *words: str) -> dict[str, float]:
    """Run a command and return its elapsed and CPU time, s, and its peak memory, MB."""
    program = [sys.executable, "-c", MEASURED, *words, "--store", str(store.root)]
    started = time.perf_counter()
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    cpu, peak = json.loads(done.stderr.splitlines()[-1])
    return {"s": round(elapsed, 2), "cpu_s": cpu, "peak_mb": peak}


if __name__ == "__main__":
    sys.exit(main())
