"""Measures ingest of .ncu-rep files against NVIDIA's reader alone.

Usage: python benchmarks/bench_ncu_rep.py [REPORT.ncu-rep ...]

Without reports, those of tests/data, and longer ones made of them: `visible` with 30 launches and
`block` with 200.  Each side runs in processes of its own, medians of the rounds are printed as one
JSON document.  Seconds are those of CPU if not said otherwise, imports are not counted.

reader    NVIDIA's reader alone: it loads the report and tells all that ingest stores (each metric
          with its unit, the instances of the same families, rules, NVTX ranges, instructions)
ingest    a whole ingest in one process; `in_reader_s` is spent in NVIDIA's reader, of which
          `first_calls_s` goes to the first metric, unit and instruction of a process
parallel  a whole ingest by as many processes as there are CPUs, with what it takes to start them
"""

from __future__ import annotations

import argparse
import itertools
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
LONGER = {"visible": 30, "block": 200}
FIRST = ("IAction_metric_by_name", "IMetric_unit", "IAction_sass_by_pc")
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
        reports = options.reports or _captures(Path(directory))
        print(json.dumps([_measured(report, options.rounds) for report in reports], indent=1))
    return 0


def _captures(directory: Path) -> list[Path]:
    found = {
        packed.stem: _expanded(packed, directory) for packed in sorted(DATA.glob("*.ncu-rep.xz"))
    }
    longer = [_longer(found[f"{name}.ncu-rep"], launches) for name, launches in LONGER.items()]
    return [*found.values(), *longer]


def _expanded(packed: Path, directory: Path) -> Path:
    path = directory / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def _longer(report: Path, launches: int) -> Path:
    """Write a report with some of its launches several times."""
    from perfpipe.ingest.ncu.container import read_container

    container, content = read_container(report), report.read_bytes()
    parts = [content]
    missing = launches - len(container.process_ids)
    blocks = [b for b in container.blocks if b.contents and None not in b.contents]
    for block in itertools.cycle(blocks):
        if missing < len(block.contents):
            break
        missing -= len(block.contents)
        parts.append(content[block.start - 4 - len(block.header) : block.end])
    path = report.with_stem(f"{report.stem}-{launches}")
    path.write_bytes(b"".join(parts))
    return path


def _measured(report: Path, rounds: int) -> dict[str, object]:
    sides: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side, results in sides.items():
            words = [sys.executable, __file__, str(report), "--side", side]
            answer = subprocess.run(words, check=True, capture_output=True, text=True)
            results.append(json.loads(answer.stdout))
    medians = {
        f"{side}_{key}": round(statistics.median(result[key] for result in results), 3)
        for side, results in sides.items()
        for key in results[0]
    }
    return {
        "report": report.name,
        "bytes": report.stat().st_size,
        "rounds": rounds,
        **medians,
        "ratio_ingest_to_reader": round(medians["ingest_s"] / medians["reader_s"], 3),
    }


def _reader(report: Path) -> dict[str, float]:
    """Have NVIDIA's reader tell what ingest stores."""
    import ncu_report

    from perfpipe.ingest.ncu.names import keeps_instances
    from perfpipe.ingest.ncu.sass import actions

    started = time.process_time()
    known: set[tuple[str, int]] = set()
    launches = 0
    for _, _, action in actions(ncu_report.load_report(str(report))):
        launches += 1
        action.rule_results_as_dicts()
        if state := action.nvtx_state():
            [state.domain_by_id(number).push_pop_ranges() for number in state.domains()]
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            metric.unit()
            metric.value()
            if keeps_instances(name) and metric.num_instances():
                keys = metric.correlation_ids()
                texts = keys.kind() == ncu_report.IMetric.ValueKind_STRING
                key = keys.as_string if texts else keys.as_uint64
                for at in range(metric.num_instances()):
                    key(at)
                    metric.as_double(at)
        function = action.name(action.NameBase_MANGLED)
        for metric in filter(None, map(action.metric_by_name, SAMPLED)):
            keys = metric.correlation_ids()
            reached = [
                keys.as_uint64(i) for i in range(metric.num_instances()) if metric.as_uint64(i)
            ]
            new = {(function, address) for address in reached} - known
            known |= new
            for ask in (action.sass_by_pc, action.source_info):
                for _, address in new:
                    ask(address)
    seconds = time.process_time() - started
    return {"s": seconds, "ms_per_launch": 1000 * seconds / launches, "peak_mb": _peak_mb()}


def _ingest(report: Path) -> dict[str, float]:
    """Ingest into a fresh store; imports are not counted."""
    import duckdb
    import pyarrow as pa
    from ncu_report import _ncu_report

    import perfpipe.ingest.ncu.rep as reader
    from perfpipe.ingest.ncu.container import read_container
    from perfpipe.ingest.reading import ingest
    from perfpipe.store import Store

    # The first pa.array() imports pandas where that is installed.
    assert duckdb and reader and len(pa.array([0]))
    spent: dict[str, list[float]] = {}
    for name in dir(_ncu_report):
        function = getattr(_ncu_report, name)
        if name.startswith(
            ("IAction_", "IMetric_", "IRange_", "IReport", "ISource", "load_report")
        ):
            setattr(_ncu_report, name, _timed(function, spent.setdefault(name, [])))
    with tempfile.TemporaryDirectory() as directory:
        clock, started = time.perf_counter(), time.process_time()
        outcome = ingest(report, Store(directory))
        seconds, wall = time.process_time() - started, time.perf_counter() - clock
    launches = len(read_container(report).process_ids)
    in_reader = sum(map(sum, spent.values()))
    return {
        "launches": launches,
        "s": seconds,
        "wall_s": wall,
        "ms_per_launch": 1000 * seconds / launches,
        "in_reader_s": in_reader,
        "in_reader_share": in_reader / seconds,
        "first_calls_s": sum(max(spent[name], default=0) for name in FIRST),
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
            spent.append(time.process_time() - started)

    return call


def _parallel(report: Path) -> dict[str, float]:
    """Ingest with processes, this one only waits for them."""
    from perfpipe.cores import cores
    from perfpipe.pipelines.ingesting import Failure, ingest_many
    from perfpipe.pipelines.workers import end_idle_workers
    from perfpipe.store import Store

    with tempfile.TemporaryDirectory() as directory:
        clock = time.perf_counter()
        results = list(ingest_many([report], Store(directory), jobs=cores()))
        wall = time.perf_counter() - clock
        if isinstance(results[0], Failure):
            raise results[0].error
        end_idle_workers()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "jobs": cores(),
        "s": used.ru_utime + used.ru_stime,
        "wall_s": wall,
        "largest_process_mb": used.ru_maxrss / 1024,
    }


def _peak_mb() -> float:
    """Return the most memory that this process held; getrusage counts its parent's before exec."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


SIDES: dict[str, Callable[[Path], dict[str, float]]] = {
    "reader": _reader,
    "ingest": _ingest,
    "parallel": _parallel,
}

if __name__ == "__main__":
    sys.exit(main())
