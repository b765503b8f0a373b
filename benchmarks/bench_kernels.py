"""Measures kernel analysis: ingest of a full ncu report, and every kernel view over 1,000 launches.

Usage: python benchmarks/bench_kernels.py [REPORT.ncu-rep]

The launches are those of the report (default: the fifteen of tests/data/ncu/visible, `--set full`)
repeated under new launch ids.  Each side runs in a process of its own, so that peak memory is its
own; medians of the rounds are printed as one JSON document.  The reference is reading the same
Parquet tables into memory with pyarrow.
"""

from __future__ import annotations

import argparse
import json
import lzma
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "tests" / "data" / "ncu" / "visible.ncu-rep.xz"
LAUNCHES = 1000
THREADS = 2


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("report", nargs="?", type=Path, help="an .ncu-rep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--side", choices=("ingest", "views", "read", "repeat"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    sides: dict[str, Callable[..., dict[str, float]]] = {
        "ingest": _ingest,
        "views": _views,
        "read": _read,
        "repeat": _repeat,
    }
    if options.side:
        more = (options.into,) if options.side == "repeat" else ()
        print(json.dumps(sides[options.side](options.report, *more)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        report = options.report or _expanded(Path(directory) / "visible.ncu-rep")
        # In a process of its own: a child's peak memory is at least that of its parent.
        _in_a_process("repeat", report, directory)
        store = Path(directory) / "store"
        rounds: dict[str, list[dict[str, float]]] = {"ingest": [], "views": [], "read": []}
        for _ in range(options.rounds):
            rounds["ingest"].append(_in_a_process("ingest", report))
            rounds["views"].append(_in_a_process("views", store))
            rounds["read"].append(_in_a_process("read", store))
        print(json.dumps(_summary(rounds), indent=1))
    return 0


def _summary(rounds: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    median = {
        side: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for side, results in rounds.items()
    }
    ingest, views, read = median["ingest"], median["views"], median["read"]
    return {
        "ingest_launches": round(ingest["launches"]),
        "ingest_ms_per_launch": round(1000 * ingest["seconds"] / ingest["launches"], 1),
        "ingest_peak_mb": round(ingest["peak_mb"]),
        "views_launches": round(views["launches"]),
        "views_s": round(views["seconds"], 3),
        "views_rows": round(views["rows"]),
        "views_peak_mb": round(views["peak_mb"]),
        "read_s": round(read["seconds"], 3),
        "ratio_views_to_read": round(views["seconds"] / read["seconds"], 2),
        "threads": THREADS,
        "rounds": len(rounds["views"]),
    }


def _in_a_process(side: str, path: Path, into: str | None = None) -> dict[str, float]:
    words = [sys.executable, __file__, str(path), "--side", side]
    words += ["--into", into] if into else []
    answer = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def _expanded(target: Path) -> Path:
    target.write_bytes(lzma.decompress(REPORT.read_bytes()))
    return target


def _repeat(report: Path, directory: Path) -> dict[str, float]:
    """Ingest a report and repeat its launches until there are LAUNCHES."""
    import duckdb

    from perfpipe.ingest.reading import ingest
    from perfpipe.store import Store

    store = Store(directory / "store")
    found = store.reports_dir / ingest(report, store).report_id
    con = duckdb.connect()
    launches = con.execute(f"SELECT count(*) FROM '{found}/ncu_launches.parquet'").fetchall()[0][0]
    copies = -(-LAUNCHES // launches)
    for path in sorted(found.glob("*.parquet")):
        larger = path.with_suffix(".larger")
        con.execute(
            f"COPY (SELECT * REPLACE (launch_id + {launches} * copy AS launch_id) "
            f"FROM '{path}', range({copies}) AS c (copy) ORDER BY copy, launch_id) "
            f"TO '{larger}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 262144)"
        )
        larger.rename(path)
    return {"copies": copies}


def _ingest(report: Path) -> dict[str, float]:
    """Ingest into a fresh store, imports not counted."""
    import duckdb
    import ncu_report
    import pyarrow as pa

    from perfpipe.ingest.reading import ingest
    from perfpipe.store import Store

    assert duckdb and ncu_report and len(pa.array([0]))
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        store = Store(directory)
        outcome = ingest(report, store)
        seconds = time.perf_counter() - started
        launches = store.manifest(outcome.report_id).tables["ncu_launches"].rows
    return {"seconds": seconds, "launches": launches, "peak_mb": _peak_mb()}


def _views(root: Path) -> dict[str, float]:
    """Open the store and evaluate every kernel view, one after the other, into memory."""
    import duckdb

    from perfpipe.analysis.session import Session
    from perfpipe.analysis.views import views
    from perfpipe.store import Store

    assert duckdb
    names = [view.name for view in views().values() if view.layer == "ncu" and view.public]
    started = time.perf_counter()
    rows = 0
    with Session.open(Store(root)) as con:
        con.execute(f"SET threads = {THREADS}")
        for name in names:
            con.execute(f"CREATE TEMP TABLE result AS FROM {name}")
            rows += con.execute("SELECT count(*) FROM result").fetchall()[0][0]
            con.execute("DROP TABLE result")
        seconds = time.perf_counter() - started
        launches = con.execute("SELECT count(*) FROM ncu_launches").fetchall()[0][0]
    return {"seconds": seconds, "launches": launches, "rows": rows, "peak_mb": _peak_mb()}


def _read(root: Path) -> dict[str, float]:
    """Read the tables that the views are made of into memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(THREADS)
    started = time.perf_counter()
    rows = sum(pq.read_table(path).num_rows for path in root.glob("reports/*/*.parquet"))
    return {"seconds": time.perf_counter() - started, "rows": rows, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
