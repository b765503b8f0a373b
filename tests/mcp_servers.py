"""Servers as processes of their own, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import ROOT
from mcp import Client, StdioServerParameters

#: A query that runs for hours unless it is interrupted.
ENDLESS = "SELECT count(*) FROM range(100000000) AS a(i), range(100000000) AS b(i) WHERE a.i > b.i"


def started(*words: str, **environment: str) -> StdioServerParameters:
    """Return how a client starts `perfpipe mcp`."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "perfpipe", "mcp", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


async def ask(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    """Return the structured answer of a tool; the client checks it against the tool's schema."""
    found: dict[str, Any] = (await client.call_tool(tool, given)).structured_content
    return found


@contextmanager
def over_http(
    store: Path, *words: str, **environment: str
) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Yield the address of a server over HTTP, what it printed first, and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perfpipe", "mcp", "--http", "0", "--store", str(store), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        url = re.search(r"http://\S+", first)
        assert url, first + process.stderr.read()
        yield url[0], first, process
    finally:
        process.terminate()
        process.communicate(timeout=60)
