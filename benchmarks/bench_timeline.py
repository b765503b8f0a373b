"""Measures timeline analysis: ingest of a long capture, then every timeline view and finding.

Usage: python benchmarks/bench_timeline.py [EXPORT.sqlite]

Without an export, small captures of tests/data are repeated with shifted times and fresh
correlation ids, in several shapes: many threads in turn, many processes and devices, deep nesting.
The exponent says how CPU time grows from the smallest to the largest size of a shape; above
LIMIT the script names the shape and exits with 1.  The shape "two ranks" goes up to 2.2 million
kernels, 4.1 million calls and 10.5 million nested NVTX ranges.  Each step runs in a process of its
own, so that peak memory is its own.  The reference is a plain sqlite3 fetch of the same tables.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_ingest import _fetch
from synthetic import Shape, synthesize

THREADS = 2

SHAPES = {
    "two ranks": Shape("ddp_single"),
    "one thread": Shape("eager_small"),
    "2 threads": Shape("compute", lanes=2),
    "8 threads": Shape("compute", lanes=8),
    "64 threads": Shape("compute", lanes=64),
    "8 processes and devices": Shape("compute", lanes=8, processes=8, devices=8),
    "nested 30 deep": Shape("compute", lanes=2, depth=30, around=True),
}

#: Kernels of the sizes that are compared, and of the longest capture.
SIZES = (70_000, 560_000)
LONGEST = ("two ranks", 2_200_000)

#: Bound on the exponent of CPU time over kernels.
LIMIT = 1.05

#: Bound on DuckDB's memory, beyond which it spills to disk.
MEMORY = "1500MB"


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("export", nargs="?", type=Path, help="an nsys SQLite export")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, help="default: all, and the longest")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="kernels")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=("ingest", "views", "fetch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(_side(options.side, options.export, options.store)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        if options.export:
            print(json.dumps(_measure(options.export, Path(directory)), indent=1))
            return 0
        failed = []
        for name in options.shapes or SHAPES:
            sizes = [*options.sizes]
            if not options.shapes and name == LONGEST[0]:
                sizes.append(LONGEST[1])
            shape = _measure_shape(SHAPES[name], sizes, Path(directory))
            print(json.dumps({"shape": name, "threads": THREADS, **shape}, indent=1), flush=True)
            failed += [f"{name}: {key} {x}" for key, x in shape["exponent"].items() if x > LIMIT]
    for text in failed:
        print(f"grows faster than the capture: {text}", file=sys.stderr)
    return 1 if failed else 0


def _measure_shape(shape: Shape, sizes: list[int], directory: Path) -> dict[str, Any]:
    export = directory / "export.sqlite"
    results = []
    for kernels in sizes:
        synthesize(export, max(1, round(kernels / shape.kernels)), shape)
        results.append(_measure(export, directory))
        export.unlink()
    first, last = results[0], results[-1]
    growth = math.log(last["kernels"] / first["kernels"]) if len(results) > 1 else 0
    exponent = {
        key: round(math.log(last[key] / first[key]) / growth, 2)
        for key in ("ingest_cpu_s", "views_cpu_s")
        if growth
    }
    return {"exponent": exponent, "sizes": results}


def _measure(export: Path, directory: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=directory) as store:
        fetch = _in_a_process("fetch", export)
        ingest = _in_a_process("ingest", export, store)
        views = _in_a_process("views", Path(store))
    return {
        "export_mb": round(export.stat().st_size / 1e6),
        **{key: views[key] for key in ("kernels", "calls", "ranges")},
        "fetch_s": round(fetch["seconds"], 2),
        "fetch_cpu_s": round(fetch["cpu_s"], 2),
        "ingest_s": round(ingest["seconds"], 2),
        "ingest_cpu_s": round(ingest["cpu_s"], 2),
        "ingest_peak_mb": round(ingest["peak_mb"]),
        "views_s": round(views["seconds"], 2),
        "views_cpu_s": round(views["cpu_s"], 2),
        "views_warm_s": round(views["warm"], 2),
        "views_peak_mb": round(views["peak_mb"]),
        "ratio_ingest_to_fetch": round(ingest["seconds"] / fetch["seconds"], 2),
        "ratio_all_to_fetch": round((ingest["seconds"] + views["seconds"]) / fetch["seconds"], 2),
    }


def _in_a_process(side: str, path: Path, store: str | None = None) -> dict[str, float]:
    words = [sys.executable, __file__, str(path), "--side", side]
    words += ["--store", store] if store else []
    answer = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def _side(side: str, path: Path, store: Path) -> dict[str, float]:
    if side == "fetch":
        spent = time.process_time()
        return _fetch(path) | {"cpu_s": time.process_time() - spent}
    return _ingest(path, store) if side == "ingest" else _views(path)


def _ingest(export: Path, store: Path) -> dict[str, float]:
    import duckdb
    import pyarrow as pa

    from perfpipe.ingest.reading import ingest
    from perfpipe.store import Store

    # Imports are not counted.
    assert duckdb and len(pa.array([0]))
    started, spent = time.perf_counter(), time.process_time()
    ingest(export, Store(store))
    return {
        "seconds": time.perf_counter() - started,
        "cpu_s": time.process_time() - spent,
        "peak_mb": _peak_mb(),
    }


def _views(store: Path) -> dict[str, float]:
    """Open the store and read every timeline view to its end, then all of them once more."""
    os.environ.setdefault("PERFPIPE_MEMORY", MEMORY)
    import duckdb

    from perfpipe.analysis.session import Session
    from perfpipe.analysis.views import views
    from perfpipe.store import Store

    assert duckdb
    names = [view.name for view in views().values() if view.layer == "nsys" and view.public]
    rows = {"kernels": "nsys_kernels", "calls": "nsys_api_calls", "ranges": "nsys_nvtx_ranges"}
    started, spent = time.perf_counter(), time.process_time()
    with Session.open(Store(store), use=[*names, *rows.values()]) as con:
        con.execute(f"SET threads = {THREADS}")
        rounds = []
        for _ in range(2):
            for name in names:
                for _ in con.sql(f"FROM {name}").to_arrow_reader(100_000):
                    pass
            rounds.append((time.perf_counter() - started, time.process_time() - spent))
        counts = {
            key: con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for key, table in rows.items()
        }
    (first, cpu), (both, _) = rounds
    return {"seconds": first, "cpu_s": cpu, "warm": both - first, **counts, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
