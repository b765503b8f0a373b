"""Measures the MCP server as a client sees it: time and size of answers, and its peak memory.

Usage: python benchmarks/bench_agents.py [--reports 1000] [--check]

A capture of tests/data is cloned into a store of many reports, which is compacted.  The SDK's own
client starts `perfpipe mcp` on it, waits as a person would who types a question, and calls each
tool about reports that nothing was asked of before.  Exits with 1 where an answer takes longer
than a second or the server has more than 300 MB (--check), which holds for two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from clones import fill
from mcp import Client, StdioServerParameters

from perfpipe.store import Store

ROOT = Path(__file__).resolve().parent.parent
SEED = ROOT / "tests" / "data" / "nsys" / "memcpy.sqlite.xz"

#: Seconds between the start of the server and the first question; times each tool is called.
WAIT_S, CALLS = 6.0, 5

#: Seconds of an answer, MB of the server.
LIMIT_S, LIMIT_MB = 1.0, 300


def main() -> int:
    """Measure and print a table as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--reports", type=int, default=1000)
    parser.add_argument("--check", action="store_true", help="exit with 1 above a limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seed, store = Path(directory) / "seed.sqlite", Store(Path(directory) / "store")
        seed.write_bytes(lzma.decompress(SEED.read_bytes()))
        ids = fill(store, seed, options.reports)
        compact = ["store", "compact", "--grace", "0", "--store", str(store.root)]
        subprocess.run([sys.executable, "-m", "perfpipe", *compact], cwd=ROOT, check=True)
        found = anyio.run(_asked, str(store.root), ids)
    print(json.dumps({"seed": SEED.name, "reports": len(ids), **found}, indent=1))
    slow = [row["tool"] for row in found["tools"] if row["median_s"] > LIMIT_S]
    return 1 if options.check and (slow or found["peak_mb"] > LIMIT_MB) else 0


async def _asked(store: str, ids: list[str]) -> dict[str, Any]:
    """Ask for everything; returns the rows of the table."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "perfpipe", "mcp", "--store", store], cwd=ROOT
    )
    fresh = iter(ids)
    calls: dict[str, Any] = {
        "overview": lambda: {"target": next(fresh)},
        "explain": lambda: {"target": next(fresh), "finding": 1},
        "timeline": lambda: {"target": next(fresh)},
        "compare": lambda: {"base": next(fresh), "candidate": next(fresh)},
        "schema": lambda: {"name": "findings"},
        "query": lambda: {"sql": "FROM cuda_gpu_kern_sum", "target": next(fresh)},
        "next_capture": lambda: {"question": "kernels", "target": next(fresh)},
    }
    rows = []
    async with Client(server) as client:
        await client.list_tools()
        await anyio.sleep(WAIT_S)
        for tool, given in calls.items():
            took, size = [], 0
            for _ in range(CALLS):
                started = time.perf_counter()
                answer = await client.call_tool(tool, given())
                took.append(time.perf_counter() - started)
                size = len(answer.content[0].text)  # type: ignore[union-attr]
                if answer.is_error:
                    raise SystemExit(f"{tool}: {answer.content}")
            middle, longest = statistics.median(took), max(took)
            rows.append(
                {
                    "tool": tool,
                    "median_s": round(middle, 2),
                    "longest_s": round(longest, 2),
                    "characters": size,
                }
            )
        peak = max(map(_peak_mb, _children()))
    return {"tools": rows, "peak_mb": round(peak)}


def _children() -> list[int]:
    """Return the processes that this one has started."""
    listed = Path("/proc/self/task").glob("*/children")
    return [int(word) for path in listed for word in path.read_text().split()]


def _peak_mb(process: int) -> float:
    """Return the most memory that a process has had, MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(one.split()[1]) / 1024 for one in lines if one.startswith("VmHWM")), 0.0)


if __name__ == "__main__":
    sys.exit(main())
