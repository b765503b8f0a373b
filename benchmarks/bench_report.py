"""Measures reports: time to build and to render, and the size of the page.

Usage: python benchmarks/bench_report.py [--launches 95 500 5000] [--operations 20000]

The profiled kernels of a capture of tests/data are repeated, with numbers of their own, to as many
launches as asked for.  The budgets are 1.5 MB and 2 s for 500 kernels, 3 MB and 5 s for 5,000.  A
training step of so many GPU operations has 1.5 MB and 2 s.  A command is `perfpipe report --html`
as a person runs it, with Python's start.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from synthetic import of_long_steps

from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

SEED = Path(__file__).parent.parent / "tests" / "data" / "ncu" / "block.raw.csv.xz"


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, nargs="*", default=(95, 500, 5000))
    parser.add_argument("--operations", type=int, nargs="*", default=(20_000,))
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for launches in options.launches:
            capture = Path(directory) / f"{launches}.csv"
            capture.write_text(_repeated(launches), encoding="utf-8")
            store = Store(Path(directory) / str(launches))
            ingest(capture, store)
            results.append({"launches": launches, **_measure(store)})
        for operations in options.operations:
            capture = of_long_steps(Path(directory) / f"{operations}.sqlite", operations)
            store = Store(Path(directory) / f"step-{operations}")
            ingest(capture, store)
            results.append({"operations_per_step": operations, **_measure(store)})
    print(json.dumps({"seed": SEED.name, "sizes": results}, indent=1))
    return 0


def _repeated(launches: int) -> str:
    """Return the raw page with its launches repeated; the first column counts them."""
    lines = lzma.decompress(SEED.read_bytes()).decode().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
    head, rows = lines[: first + 2], lines[first + 2 :]
    made = []
    for number in range(launches):
        _, _, rest = rows[number % len(rows)].partition(",")
        made.append(f'"{number}",{rest}')
    return "\n".join([*head, *made]) + "\n"


def _measure(store: Store) -> dict[str, float]:
    from perfpipe.pipelines.reporting import make_report, to_json
    from perfpipe.templates.renderers import render_html, render_markdown

    started = time.perf_counter()
    report = make_report(store, store.report_ids())
    built = time.perf_counter()
    page = render_html(report)
    rendered = time.perf_counter()
    return {
        "build_s": round(built - started, 2),
        "render_s": round(rendered - built, 2),
        "command_s": round(_command(store), 2),
        "html_mb": round(len(page.encode()) / 1e6, 3),
        "md_kb": round(len(render_markdown(report).encode()) / 1e3, 1),
        "json_mb": round(len(to_json(report).encode()) / 1e6, 3),
    }


def _command(store: Store) -> float:
    """Return the least time of three that the command takes, s."""
    words = ["report", "--store", str(store.root), f"--html={store.root.parent}/page.html"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "perfpipe", *words], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
