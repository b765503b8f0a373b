"""Measures ingest of .ncu-rep files, and how much of it NVIDIA's reader takes.

Usage: python benchmarks/bench_ncu_rep.py [REPORT.ncu-rep ...]

Without reports, those of tests/data.  `reader` is NVIDIA's reader alone, on the report as it is:
each action, and the disassembly of what ran.  `ingest` is a whole ingest; of that, `in_reader_s`
is spent in the same package.  CPU seconds, in processes of their own, medians of the rounds.
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
from typing import Any

DATA = Path(__file__).parents[1] / "tests" / "data" / "ncu"
SAMPLED = ("smsp__pcsamp_sample_count", "inst_executed")


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("reports", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.reports[0])))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        reports = options.reports or [
            _expanded(packed, Path(directory)) for packed in sorted(DATA.glob("*.ncu-rep.xz"))
        ]
        print(json.dumps([_measured(report, options.rounds) for report in reports], indent=1))
    return 0


def _expanded(packed: Path, directory: Path) -> Path:
    path = directory / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def _measured(report: Path, rounds: int) -> dict[str, object]:
    sides: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, results in sides.items():
            words = [sys.executable, __file__, str(report), "--side", side]
            answer = subprocess.run(words, check=True, capture_output=True, text=True)
            results.append(json.loads(answer.stdout))
    medians: dict[str, object] = {
        f"{side}_{key}": round(statistics.median(result[key] for result in results), 3)
        for side, results in sides.items()
        for key in results[0]
    }
    return {"report": report.name, "bytes": report.stat().st_size, "rounds": rounds, **medians}


def _reader(report: Path) -> dict[str, float]:
    """Load every action with NVIDIA's reader, and disassemble what ran of each function, once."""
    import ncu_report

    started = time.process_time()
    known: set[tuple[str, int]] = set()
    loaded = ncu_report.load_report(str(report))
    launches = 0
    for range_index in range(loaded.num_ranges()):
        actions = loaded.range_by_idx(range_index)
        for index in range(actions.num_actions()):
            action = actions.action_by_idx(index)
            launches += 1
            for metric in filter(None, map(action.metric_by_name, SAMPLED)):
                keys = metric.correlation_ids()
                for at in range(metric.num_instances()):
                    place = (action.name(action.NameBase_MANGLED), keys.as_uint64(at))
                    if place not in known and metric.as_uint64(at):
                        known.add(place)
                        action.sass_by_pc(place[1])
                        action.source_info(place[1])
    seconds = time.process_time() - started
    return {"s": seconds, "ms_per_launch": 1000 * seconds / launches, "peak_mb": _peak_mb()}


def _ingest(report: Path) -> dict[str, float]:
    """Ingest into a fresh store; imports are not counted."""
    import adbc_driver_sqlite.dbapi
    import duckdb
    import pyarrow as pa
    from ncu_report import _ncu_report

    import ingest.ncu.rep as reader
    from ingest.ncu.container import read_container
    from ingest.reading import ingest
    from perfpipe.store import Store

    # The first pa.array() imports pandas where that is installed.
    assert adbc_driver_sqlite.dbapi and duckdb and reader and len(pa.array([0]))
    spent = [0.0]
    for name in dir(_ncu_report):
        function = getattr(_ncu_report, name)
        if name.startswith(("IAction_", "IMetric_", "IRange_", "IReport", "load_report")):
            setattr(_ncu_report, name, _timed(function, spent))
    with tempfile.TemporaryDirectory() as directory:
        started = time.process_time()
        outcome = ingest(report, Store(directory))
        seconds = time.process_time() - started
    launches = len(read_container(report).process_ids)
    return {
        "launches": launches,
        "s": seconds,
        "ms_per_launch": 1000 * seconds / launches,
        "in_reader_s": spent[0],
        "in_reader_share": spent[0] / seconds,
        "rows": outcome.rows,
        "peak_mb": _peak_mb(),
    }


def _timed(function: Any, spent: list[float]) -> Any:
    if not callable(function):
        return function

    def call(*args: Any) -> Any:
        started = time.process_time()
        try:
            return function(*args)
        finally:
            spent[0] += time.process_time() - started

    return call


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


SIDES: dict[str, Callable[[Path], dict[str, float]]] = {"reader": _reader, "ingest": _ingest}

if __name__ == "__main__":
    sys.exit(main())
