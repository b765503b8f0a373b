"""Measures groups of ranks: ingest of a simulated job of 64 ranks, then the views of its groups.

Usage: python benchmarks/bench_ranks.py [--events N ...]

The exponent says how CPU time grows from the smallest to the largest number of events; above LIMIT
the script exits with 1.  Ingest and views run in processes of their own.  The fixed costs of 64
reports and of planning the views are measured with one step, and subtracted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from rank_traces import write_traces  # noqa: E402
from simulated_ranks import Training, simulate  # noqa: E402

from perfpipe.analysis.session import Session  # noqa: E402
from perfpipe.ingest.reading import ingest  # noqa: E402
from perfpipe.store import Store  # noqa: E402

EVENTS = (10_000, 100_000, 1_000_000)

#: Bound on the exponent of CPU time over events.
LIMIT = 1.05

VIEWS = (
    "rank_groups",
    "rank_mesh",
    "group_traffic",
    "rank_pairs",
    "rank_lateness",
    "slow_ranks",
    "pipeline_stages",
    "pipeline_schedules",
    "expert_loads",
)


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS)
    parser.add_argument("--side", choices=("ingest", "views"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(_side(options.side, options.directory))
        return 0
    fixed = _measure(0)
    found = []
    for events in options.events:
        measured = _measure(events)
        own = {side: measured[side] - fixed[side] for side in ("ingest", "views")}
        found.append({"events": measured["events"] - fixed["events"], **own})
        print(json.dumps({**measured, "without fixed costs": own}), flush=True)
    failed = False
    for side in ("ingest", "views"):
        first, last = found[0], found[-1]
        exponent = math.log(last[side] / first[side]) / math.log(last["events"] / first["events"])
        print(f"{side}: exponent {exponent:.2f}")
        failed |= exponent > LIMIT
    return int(failed)


def _measure(events: int) -> dict[str, float]:
    """Return the events of a job of about that size, and CPU seconds to ingest and query it."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths, steps = _job(directory, 1), 1
        written = _events(paths)
        if events > written:
            steps = max(2, round(events / written))
            paths = _job(directory, steps)
            written = _events(paths)
        # A job without steady steps plans the views as well.
        return {
            "events": written,
            "steps": steps,
            **{side: _run(side, directory) for side in ("ingest", "views")},
        }


def _job(directory: Path, steps: int) -> list[Path]:
    training = Training(tensor=4, data=4, pipeline=4, microbatches=1, steps=steps)
    return write_traces(simulate(training.programs()), directory)


def _events(paths: list[Path]) -> int:
    return sum(path.read_text().count('"ph"') for path in paths)


def _run(side: str, directory: Path) -> float:
    command = [sys.executable, __file__, "--side", side, "--directory", str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _side(side: str, directory: Path) -> float:
    """Do one part of the work; returns its CPU time, s."""
    store = Store(directory / "store")
    paths = sorted(directory.glob("*.json"))
    if side == "ingest":
        reports = [ingest(path, store).report_id for path in paths]
        (directory / "reports").write_text("\n".join(reports))
    else:
        reports = (directory / "reports").read_text().split()
        with Session.open(store, reports) as con:
            for view in VIEWS:
                con.execute(f"FROM {view}").fetchall()
    used = os.times()
    return used.user + used.system


if __name__ == "__main__":
    sys.exit(main())
