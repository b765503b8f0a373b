"""Runs Python programs with levers, and reads what their processes report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.pipelines.collectors.observing import HELPER, INJECTED, observing

Json = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """A program that has ended, and what its processes reported."""

    done: subprocess.CompletedProcess[str]
    levers: list[Json]
    reports: list[Json]

    @property
    def said(self) -> tuple[int, str, str]:
        return self.done.returncode, self.done.stdout, self.done.stderr

    def lever(self, index: int = 0) -> Json:
        """Return what the only process says about a lever."""
        (report,) = self.levers
        found: Json = report["levers"][index]
        return found

    def seen(self) -> list[str]:
        """Return what the only process used, of what levers may need."""
        (report,) = self.levers
        found: list[str] = report["seen"]
        return found

    def where(self, index: int = 0) -> dict[str, int]:
        """Return where a lever was applied, and how often."""
        return {one["where"]: one["count"] for one in self.lever(index)["applied"]}


class Programs:
    """Runs Python programs with levers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lever(self, name: str, text: str) -> None:
        """Write a lever."""
        (self.folder / f"{name}.py").write_text(text)

    def __call__(
        self,
        code: str,
        levers: Mapping[str, Json] | Sequence[str] = (),
        *,
        words: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **plan: Any,
    ) -> Launch:
        program = self.folder / "program.py"
        program.write_text(code)
        options = levers if isinstance(levers, Mapping) else {name: {} for name in levers}
        entries = []
        for name, own in options.items():
            path = self.folder / f"{name}.py"
            file = path if path.exists() else INJECTED / "levers" / path.name
            entries.append({"name": name, "file": str(file), "options": own})
        known = {"PATH": os.environ["PATH"], "PYTHONPATH": "", "HOME": str(self.folder)} | dict(
            env or {}
        )
        with observing(known, wanted=True) as observer:
            assert observer is not None
            folder = Path(observer.env["PERFPIPE_INJECT_DIR"])
            planned = self.folder / "plan.json"
            planned.write_text(json.dumps({"levers": entries, **plan}))
            injected = {**observer.env, HELPER: "trying.py", "PERFPIPE_TRY_PLAN": str(planned)}
            done = subprocess.run(
                [sys.executable, *words, str(program)],
                cwd=self.folder,
                env={**known, **injected},
                capture_output=True,
                text=True,
                timeout=240,
            )
            found = [
                [json.loads(path.read_text()) for path in sorted(folder.glob(f"{kind}.*.json"))]
                for kind in ("levers", "report")
            ]
        return Launch(done, *found)
