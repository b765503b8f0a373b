"""Measures opening a store of many reports, before and after compaction.

Usage: python benchmarks/bench_store.py [--sizes 1 100 1000 10000]

A real capture of tests/data is ingested once and cloned N times with changed ids.  Each command
runs in a process of its own, as a user would start it, so that imports and peak memory count.
The reference is the same capture in a store by itself.  Exits with 1 where a time is above its
limit (--check), which holds for two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clones import fill

from perfpipe.store import Store

ROOT = Path(__file__).resolve().parent.parent
SEED = ROOT / "tests" / "data" / "nsys" / "memcpy.sqlite.xz"
SIZES = (1, 100, 1_000, 10_000)

OPEN = """
import json, resource, sys
import perfpipe
with perfpipe.open_store(sys.argv[1]) as store:
    assert store.sql("SELECT count(*) FROM reports").fetchall()[0][0] > 0
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024}))
"""

#: Seconds, CPU seconds and MB that must not be exceeded at 10,000 reports, and at one.
LIMITS = {
    "compacted": {"count_s": 1.0, "one_report_s": 1.0, "open_cpu_s": 1.0, "open_peak_mb": 300},
    "plain": {"count_s": 5.0},
    "single": {"open_cpu_s": 0.5, "help_s": 0.2},
}


def main() -> int:
    """Measure and print a table as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of reports")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--check", action="store_true", help="exit with 1 above a limit")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        seed = Path(directory) / "seed.sqlite"
        seed.write_bytes(lzma.decompress(SEED.read_bytes()))
        for size in options.sizes:
            store = Store(Path(directory) / f"store-{size}")
            ids = fill(store, seed, size)
            rows.append(_measure(store, ids, "plain", options.repeats))
            started = time.perf_counter()
            _perfpipe(store, "store", "compact", "--grace", "0")
            compacting = time.perf_counter() - started
            row = _measure(store, ids, "compacted", options.repeats)
            rows.append({**row, "compact_s": round(compacting, 2)})
            shutil.rmtree(store.root)
    print(json.dumps({"seed": SEED.name, "rows": rows}, indent=1))
    faults = list(_above(rows)) if options.check else []
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _measure(store: Store, ids: list[str], state: str, repeats: int) -> dict[str, Any]:
    one = f"SELECT sum(instances) FROM cuda_gpu_kern_sum WHERE report_id = '{ids[-1]}'"
    opened = [_opened(store) for _ in range(repeats)]
    return {
        "reports": len(ids),
        "state": state,
        "store_mb": round(sum(p.stat().st_size for p in store.root.rglob("*")) / 1e6, 1),
        "help_s": _fastest(repeats, store, "--help"),
        "count_s": _fastest(repeats, store, "query", "SELECT count(*) FROM reports"),
        "one_report_s": _fastest(repeats, store, "query", one),
        "named_report_s": _fastest(repeats, store, "query", "--report", ids[-1], one),
        "open_cpu_s": round(min(o["cpu_s"] for o in opened), 2),
        "open_peak_mb": round(min(o["peak_mb"] for o in opened)),
    }


def _fastest(repeats: int, store: Store, *words: str) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        _perfpipe(store, *words)
        times.append(time.perf_counter() - started)
    return round(min(times), 2)


def _perfpipe(store: Store, *words: str) -> None:
    program = [sys.executable, "-m", "perfpipe"]
    where = [] if "--help" in words else ["--store", str(store.root)]
    subprocess.run([*program, *words, *where], check=True, capture_output=True)


def _opened(store: Store) -> dict[str, float]:
    words = [sys.executable, "-c", OPEN, str(store.root)]
    answer = subprocess.run(words, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout)
    return result


def _above(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each figure above its limit."""
    for row in rows:
        state = "single" if row["reports"] == 1 else row["state"]
        for key, limit in LIMITS[state].items():
            if row[key] > limit:
                yield f"{row['reports']} reports, {row['state']}: {key} {row[key]} > {limit}"


if __name__ == "__main__":
    sys.exit(main())
