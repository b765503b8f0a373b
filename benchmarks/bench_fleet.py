"""Measures a store with as many reports as a fleet makes: the catalogue, and one report of it.

Usage: python benchmarks/bench_fleet.py [--sizes 10000 100000 1000000] [--segments 100 1000]
       [--runs 1000 10000]

Three kinds of store grow: one segment with many reports, many segments of ten reports, and ten
reports with many runs.  A store is compacted, and its segment repeated with changed ids.  Each
command runs in a process of its own, so that imports and peak memory count.  The last command on a
large segment merges it with 1,000 more reports, which a compaction otherwise does only after half
as many.
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

#: Reports of the segment that is repeated, and of each of many segments.
BASE, SMALL = 1_000, 10

#: A workload with a recording, whose run is repeated.
WORKLOAD = ROOT / "workloads" / "vector_add.yaml"

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
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="numbers of reports")
    parser.add_argument(
        "--segments", type=int, nargs="*", default=(100, 1_000), help="numbers of segments"
    )
    parser.add_argument("--runs", type=int, nargs="*", default=(1_000, 10_000), help="of runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seed = Path(directory) / "seed.sqlite"
        seed.write_bytes(lzma.decompress(SEED.read_bytes()))
        large, small = (Store(Path(directory) / name) for name in ("large", "small"))
        for base, count in ((large, BASE), (small, SMALL)):
            fill(base, seed, count)
            compact(base, 0)
        for size in options.sizes:
            store = Store(Path(directory) / "store")
            one = repeat(large, store, range(size // BASE))
            print(json.dumps({"reports": size, **_measured(store, one, seed)}), flush=True)
            shutil.rmtree(store.root)
        for count in options.segments:
            store = Store(Path(directory) / "store")
            ids = [repeat(small, store, range(at, at + 1)) for at in range(count)]
            row = {"segments": count, **_queries(store, ids[0])}
            row["merge"] = _run(store, "store", "compact", "--grace", "0")
            print(json.dumps(row), flush=True)
            shutil.rmtree(store.root)
        for count in options.runs:
            _repeat_run(small, count)
            print(json.dumps({"runs": count, **_queries(small, small.report_ids()[0])}), flush=True)
    return 0


def repeat(base: Store, store: Store, numbers: range) -> str:
    """Add a segment, that of `base` for each number; returns the id of a report."""
    (segment,) = base.segments()
    files = []
    with store.new_segment() as directory, open_database() as con:
        for file in segment.files:
            source, path = segment.path / file.file, directory / file.file
            row = f"* EXCLUDE (i) REPLACE ({_ID} AS report_id)"
            if file.table == CATALOGUE:
                row = (
                    f"* EXCLUDE (i) REPLACE ({_ID} AS report_id, "
                    f"replace(manifest, report_id, {_ID}) AS manifest)"
                )
            copies = f"range({numbers.start}, {numbers.stop}) r(i)"
            con.execute(
                f"COPY (SELECT {row} FROM {copies}, read_parquet({quote(str(source))}) "
                f"ORDER BY report_id) TO {quote(str(path))} (FORMAT parquet, COMPRESSION zstd)"
            )
            stated = replace(
                file,
                rows=file.rows * len(numbers),
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


def _repeat_run(store: Store, count: int) -> None:
    """Replay a workload once, and copy the record of its run."""
    if not store.run_ids():
        words = ("run", str(WORKLOAD), "--collector", "replay")
        _run(store, *words)
    record = (store.runs_dir / store.run_ids()[0] / "run.json").read_text()
    first = store.run_ids()[0]
    for number in range(len(store.run_ids()), count):
        directory = store.runs_dir / f"{first}-{number}"
        directory.mkdir()
        (directory / "run.json").write_text(record.replace(first, directory.name))


def _measured(store: Store, one: str, seed: Path) -> dict[str, Any]:
    (segment,) = store.segments()
    found: dict[str, Any] = {
        "catalogue_mb": round((segment.path / f"{CATALOGUE}.parquet").stat().st_size / 1e6, 1),
        "index_mb": round((segment.path / INDEX).stat().st_size / 1e6, 1),
        "segment_mb": round(sum(file.bytes for file in segment.files) / 1e6, 1),
    }
    found |= _queries(store, one)
    found["list"] = _run(store, "store", "ls")
    fill(store, seed, BASE)
    return {**found, "merge": _run(store, "store", "compact", "--grace", "0")}


def _queries(store: Store, one: str) -> dict[str, Any]:
    kernels = f"SELECT sum(instances) FROM cuda_gpu_kern_sum WHERE report_id = '{one}'"
    return {
        "count": _run(store, "query", "SELECT count(*) FROM reports"),
        "by_gpu": _run(store, "query", "SELECT gpu, count(*) FROM reports GROUP BY gpu"),
        "one_report": _run(store, "query", "--report", one, kernels),
    }


def _run(store: Store, *words: str) -> dict[str, float]:
    """Run a command and return its elapsed and CPU time, s, and its peak memory, MB."""
    program = [sys.executable, "-c", MEASURED, *words, "--store", str(store.root)]
    started = time.perf_counter()
    done = subprocess.run(
        program, check=False, capture_output=True, text=True, cwd=store.root.parent
    )
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    cpu, peak = json.loads(done.stderr.splitlines()[-1])
    return {"s": round(elapsed, 2), "cpu_s": cpu, "peak_mb": peak}


if __name__ == "__main__":
    sys.exit(main())
