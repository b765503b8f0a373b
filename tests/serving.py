"""Servers under load in tests: the stand-in server, on a port of its own, and what was measured."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe.analysis.session import Session
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store

SERVER = Path(__file__).with_name("standserver.py")


class Served:
    """Runs perfpipe with the stand-in server; `url` is where it answers."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli, self.folder = cli, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.base}/v1/chat/completions"

    def command(self, *options: str) -> str:
        """Return the command of the server."""
        return " ".join([sys.executable, str(SERVER), f"--port={self.port}", *options])

    def __call__(
        self, *words: str, server: str = "", ready: str | None = None, load: bool = True,
        collector: str = "timing",
    ) -> int:  # fmt: skip
        """Run a server with options, and a load on it; returns the exit code."""
        place = f"{self.base}/health" if ready is None else ready
        options = ["--ready", place] if place else []
        if load:
            options += ["--url", self.url, "--body", '{"prompt": "{prompt:7}"}']
        serve = self.command(*server.split())
        return self.cli("run", "--collector", collector, "--serve", serve, *options, *words)

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    @property
    def run(self) -> RunRecord:
        """The newest run."""
        return self.store.runs()[-1]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Query the reports of the newest run."""
        with Session.open(self.store, self.run.reports) as session:
            return session.execute(sql).fetchall()


@pytest.fixture
def served(cli: Cli, tmp_path: Path) -> Served:
    """Runs perfpipe with the stand-in server."""
    return Served(cli, tmp_path)
