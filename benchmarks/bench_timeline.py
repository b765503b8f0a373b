"""Measures timeline analysis: ingest of a long capture, then every timeline view and finding.

Usage: python benchmarks/bench_timeline.py [EXPORT.sqlite]

Without an export, a small capture of tests/data is repeated with shifted times and fresh
correlation ids, in three sizes up to 2.2 million kernels, 4.1 million calls and 10.8 million nested
NVTX ranges; the exponent says how cost grows with the number of kernels.  Each step runs in a
process of its own, so that peak memory is its own.  The reference is a plain sqlite3 fetch of the
same tables.
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

from bench_ingest import _fetch
from synthetic import SEED, synthesize

THREADS = 2
SIZES = (71, 142, 311)

#: Bound on DuckDB's memory, beyond which it spills to disk.
MEMORY = "1500MB"


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("export", nargs="?", type=Path, help="an nsys SQLite export")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="copies of the seed")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--side", choices=("ingest", "views", "fetch", "make"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.side:
        print(json.dumps(_side(options.side, options.export, options.store, options.sizes)))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for copies in [0] if options.export else options.sizes:
            export = options.export or Path(directory) / f"{copies}.sqlite"
            if copies:
                _in_a_process("make", export, sizes=copies)
            store = Path(directory) / f"store-{copies}"
            result = {
                side: _in_a_process(side, export, store) for side in ("fetch", "ingest", "views")
            }
            results.append(_summary(export, result))
            if copies:
                export.unlink()
    first, last = results[0], results[-1]
    document: dict[str, object] = {"seed": SEED.name, "threads": THREADS, "sizes": results}
    if len(results) > 1:
        growth = math.log(float(last["kernels"]) / float(first["kernels"]))
        document["exponent"] = {
            key: round(math.log(float(last[key]) / float(first[key])) / growth, 2)
            for key in ("ingest_s", "views_s")
        }
    print(json.dumps(document, indent=1))
    return 0


def _summary(export: Path, result: dict[str, dict[str, float]]) -> dict[str, float]:
    ingest, views, fetch = result["ingest"], result["views"], result["fetch"]
    return {
        "export_mb": round(export.stat().st_size / 1e6),
        "kernels": views["kernels"],
        "fetch_s": round(fetch["seconds"], 2),
        "ingest_s": round(ingest["seconds"], 2),
        "ingest_peak_mb": round(ingest["peak_mb"]),
        "views_s": round(views["seconds"], 2),
        "views_warm_s": round(views["warm"], 2),
        "views_peak_mb": round(views["peak_mb"]),
        "ratio_all_to_fetch": round((ingest["seconds"] + views["seconds"]) / fetch["seconds"], 2),
    }


def _in_a_process(
    side: str, export: Path, store: Path | None = None, sizes: int | None = None
) -> dict[str, float]:
    words = [sys.executable, __file__, str(export), "--side", side]
    words += ["--store", str(store)] if store else []
    words += ["--sizes", str(sizes)] if sizes else []
    answer = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def _side(side: str, export: Path, store: Path, sizes: list[int]) -> dict[str, float]:
    if side == "make":
        synthesize(export, sizes[0], annotated=True)
        return {}
    if side == "fetch":
        return _fetch(export)
    return _ingest(export, store) if side == "ingest" else _views(store)


def _ingest(export: Path, store: Path) -> dict[str, float]:
    import adbc_driver_sqlite.dbapi
    import duckdb
    import pyarrow as pa

    from ingest.report import ingest
    from perfpipe.store import Store

    # Imports are not counted.
    assert adbc_driver_sqlite.dbapi and duckdb and len(pa.array([0]))
    started = time.perf_counter()
    ingest(export, Store(store))
    return {"seconds": time.perf_counter() - started, "peak_mb": _peak_mb()}


def _views(store: Path) -> dict[str, float]:
    """Open the store and read every timeline view to its end, then all of them once more."""
    os.environ.setdefault("PERFPIPE_MEMORY", MEMORY)
    import duckdb

    from analysis.session import Session
    from analysis.views import views
    from perfpipe.store import Store

    assert duckdb
    names = [view.name for view in views().values() if view.layer == "nsys" and view.public]
    started = time.perf_counter()
    with Session.open(Store(store)) as con:
        con.execute(f"SET threads = {THREADS}")
        rounds = []
        for _ in range(2):
            for name in names:
                for _ in con.sql(f"FROM {name}").to_arrow_reader(100_000):
                    pass
            rounds.append(time.perf_counter() - started)
        kernels = con.execute("SELECT count(*) FROM nsys_kernels").fetchall()[0][0]
    first, both = rounds
    return {"seconds": first, "warm": both - first, "kernels": kernels, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
