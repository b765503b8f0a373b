"""Measures ingest of a long timeline against a plain sqlite3 fetch of the same tables.

Usage: python benchmarks/bench_ingest.py [EXPORT.sqlite]

Without an export, a small capture of tests/data is repeated with shifted times and fresh
correlation ids to some 283,000 kernels.  Each side runs in a process of its own, in turn, so
that peak memory is its own; medians of the rounds are printed as one JSON document.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from synthetic import TABLES, Shape, synthesize

COPIES = 40


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("export", nargs="?", type=Path, help="an nsys SQLite export")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=("fetch", "ingest"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(
            json.dumps(
                _fetch(options.export) if options.side == "fetch" else _ingest(options.export)
            )
        )
        return 0
    with tempfile.TemporaryDirectory() as directory:
        export = options.export or synthesize(
            Path(directory) / "long.sqlite", COPIES, Shape(annotated=False)
        )
        rounds: dict[str, list[dict[str, float]]] = {"fetch": [], "ingest": []}
        for _ in range(options.rounds):
            for side, results in rounds.items():
                results.append(_in_a_process(side, export))
        print(json.dumps(_summary(export, rounds), indent=1))
    return 0


def _summary(export: Path, rounds: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    median = {
        side: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for side, results in rounds.items()
    }
    return {
        "export_bytes": export.stat().st_size,
        "rows_fetched": median["fetch"]["rows"],
        "fetch_s": round(median["fetch"]["seconds"], 3),
        "ingest_s": round(median["ingest"]["seconds"], 3),
        "ingest_rows_per_s": round(median["fetch"]["rows"] / median["ingest"]["seconds"]),
        "rows_written": median["ingest"]["rows"],
        "ratio_ingest_to_fetch": round(median["ingest"]["seconds"] / median["fetch"]["seconds"], 3),
        "ingest_peak_mb": round(median["ingest"]["peak_mb"]),
        "fetch_peak_mb": round(median["fetch"]["peak_mb"]),
        "rounds": len(rounds["fetch"]),
    }


def _in_a_process(side: str, export: Path) -> dict[str, float]:
    words = [sys.executable, __file__, str(export), "--side", side]
    answer = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def _fetch(export: Path) -> dict[str, float]:
    """Fetch every row with the sqlite3 module, in batches, and drop it."""
    started = time.perf_counter()
    rows = 0
    with sqlite3.connect(f"{export.resolve().as_uri()}?mode=ro", uri=True) as con:
        there = {name for (name,) in con.execute("SELECT name FROM sqlite_master")}
        for table in there.intersection(TABLES):
            cursor = con.execute(f"SELECT * FROM {table}")
            while batch := cursor.fetchmany(10_000):
                rows += len(batch)
    return {"rows": rows, "seconds": time.perf_counter() - started, "peak_mb": _peak_mb()}


def _ingest(export: Path) -> dict[str, float]:
    """Ingest into a fresh store, imports not counted (the other side has none to speak of)."""
    import duckdb
    import pyarrow as pa

    from perfpipe.ingest.reading import ingest
    from perfpipe.store import Store

    # Imports are not counted; the first pa.array() imports pandas where that is installed.
    assert duckdb and len(pa.array([0]))

    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        outcome = ingest(export, Store(directory))
        seconds = time.perf_counter() - started
    return {"rows": outcome.rows, "seconds": seconds, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
