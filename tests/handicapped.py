"""Launches programs with handicaps, for tests of the sensitivity of real programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.analysis.trying import pace
from perfpipe.analysis.trying.pace import Pace
from perfpipe.pipelines.collectors.observing import INJECTED
from perfpipe.scratch import scratch


@dataclass(frozen=True)
class Effect:
    """What a handicap reported."""

    applied: Sequence[Any] = ()
    refused: Sequence[str] = ()
    failed: Sequence[str] = ()
    counters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Launched:
    """A launch that has ended."""

    pace: Pace
    failure: str | None = None
    why: str = ""
    effects: Mapping[str, Effect] = field(default_factory=dict)


@dataclass
class Program:
    """A Python program in a folder; `said` are the names of its launches."""

    folder: Path
    code: str
    env: Mapping[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __call__(
        self,
        entries: Sequence[Mapping[str, Any]],
        env: Mapping[str, str],
        wrapper: Sequence[str] = (),
    ) -> Launched:
        with scratch() as folder:
            plan = folder / "plan.json"
            plan.write_text(json.dumps({"levers": entries, "record": False, "steps": None}))
            began = time.perf_counter_ns()
            done = subprocess.run(
                [*wrapper, sys.executable, "-c", self.code],
                cwd=self.folder,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.folder),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **self.env,
                    **env,
                    "PYTHONPATH": os.pathsep.join([str(INJECTED), str(self.folder)]),
                    "PERFPIPE_INJECT_DIR": str(folder),
                    "PERFPIPE_INJECT_HELPER": "trying.py",
                    "PERFPIPE_TRY_PLAN": str(plan),
                },
                capture_output=True,
                text=True,
                timeout=200,
            )
            seconds = (time.perf_counter_ns() - began) / 1e9
            reports = [json.loads(path.read_text()) for path in folder.glob("levers.*.json")]
            effects = {
                own["name"]: Effect(own["applied"], own["refused"], own["failed"], own["counters"])
                for report in reports
                for own in report["levers"]
            }
            found = pace.read(folder, (), seconds, started_ns=began)
            failure = None if done.returncode == 0 else "crash"
            return Launched(found, failure, done.stderr[-500:], effects)
