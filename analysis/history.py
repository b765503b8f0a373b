"""Histories of autotuning runs: from perfpipe or from any other tool.

A history comes from a run, or from a JSON lines file of any tool: one object per line with
`params` (or the parameters themselves), `generation`, `time_ms` or `times_ms`, `launches_ms` (the
samples of each launch of the program), `confirm_ms` (those of launches after the search, which
alternate with the default), `default` (whether it is the default), `status` and `failure`,
`registers`, `spills`, `shared_bytes`.  Missing fields are None.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.jsonfile import json_lines
from perfpipe.runrecord import Kernel, RunRecord, Scalar


@dataclass(frozen=True)
class Trial:
    """One configuration: `time_ms` is the median, None if it failed; `failure` is the kind.

    `launches` are the medians of each launch of the program, ms; empty if unknown.
    `confirming` are those of launches after the search, which alternate with the default's.
    """

    index: int
    generation: int
    params: dict[str, Scalar]
    time_ms: float | None
    failure: str | None = None
    error: str | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    spread_pct: float | None = None
    launches: tuple[float, ...] = ()
    confirming: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """The parameters as text."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())


@dataclass(frozen=True)
class History:
    """A search; `default` is the configuration that gains are measured against, if it was tried."""

    trials: tuple[Trial, ...]
    default: Trial | None

    @property
    def worked(self) -> list[Trial]:
        """The valid trials, fastest first."""
        timed = [trial for trial in self.trials if trial.time_ms is not None]
        return sorted(timed, key=lambda trial: (trial.time_ms, trial.index))

    @property
    def best(self) -> Trial | None:
        """The fastest trial; None if none was valid."""
        return self.worked[0] if self.worked else None

    def gain_over_default_pct(self) -> float | None:
        """Return the speedup of the best over the default, %: 100 (default / best - 1)."""
        if self.best is None or self.default is None or not self.default.time_ms:
            return None
        return 100 * (self.default.time_ms / (self.best.time_ms or 1) - 1)


def history_of_run(run: RunRecord) -> History:
    """Return the history of a run whose tasks have generations.

    Parameters with a single value are not part of the search and are excluded.
    """
    names = (
        *("params", "generation", "times_ms", "launches_ms", "confirm_ms", "default"),
        *("status", "failure", "error"),
    )
    lines = [
        {**{name: getattr(task, name) for name in names}, **vars(task.kernel or Kernel())}
        for task in sorted(run.tasks, key=lambda task: task.index)
        if task.generation is not None
    ]
    return _history(lines)


def read_history(path: Path) -> History:
    """Read a JSON lines file; raises InputError with the line of an invalid trial."""
    lines = []
    for where, value in json_lines(path, "trial"):
        try:
            _trial(value, 0)
        except (ValueError, TypeError) as error:
            raise InputError(f"{where}: not a trial ({error})") from error
        lines.append(value)
    if not lines:
        raise InputError(f"{path}: contains no trials")
    return _history(lines)


_KNOWN = {
    "generation",
    "time_ms",
    "times_ms",
    "launches_ms",
    "confirm_ms",
    "status",
    "failure",
    "error",
    "registers",
    "spills",
    "shared_bytes",
    "default",
    "index",
}


def _history(lines: Sequence[dict[str, Any]]) -> History:
    trials = [_trial(line, index) for index, line in enumerate(lines)]
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in trial.params.items():
            values.setdefault(name, set()).add(str(value))
    searched = {name for name, found in values.items() if len(found) > 1}
    if searched:
        trials = [
            Trial(**{**vars(t), "params": {k: v for k, v in t.params.items() if k in searched}})
            for t in trials
        ]
    marked = [t for t, line in zip(trials, lines, strict=True) if line.get("default") is True]
    # If no line marks the default: a search starts with it.
    unmarked = all(line.get("default") is None for line in lines)
    default = next(iter(trials if unmarked else marked), None)
    return History(tuple(trials), default)


def _trial(line: dict[str, Any], index: int) -> Trial:
    params = line.get("params")
    if params is None:
        params = {k: v for k, v in line.items() if k not in _KNOWN}
    if not isinstance(params, dict) or not params:
        raise ValueError("no parameters")
    generation = line.get("generation", 0)
    if isinstance(generation, bool) or not isinstance(generation, int):
        raise ValueError("generation is not an integer")
    launches, confirming = (
        [[float(sample) for sample in own] for own in line.get(name) or [] if own]
        for name in ("launches_ms", "confirm_ms")
    )
    samples = line.get("times_ms") or [sample for own in launches for sample in own]
    if not samples and line.get("time_ms") is not None:
        samples = [line["time_ms"]]
    samples = [float(sample) for sample in samples]
    failed = line.get("status", "done") not in ("done", "ok") or not samples
    time = None if failed else statistics.median(samples)
    spread = 100 * (max(samples) - min(samples)) / time if time and len(samples) > 1 else None
    failure = (line.get("failure") or "failed") if failed else None
    numbers = {k: _whole(line.get(k)) for k in ("registers", "spills", "shared_bytes")}
    error = line.get("error")
    return Trial(
        index,
        generation,
        params,
        time,
        failure,
        None if error is None else str(error),
        spread_pct=spread,
        launches=tuple(map(statistics.median, launches)),
        confirming=tuple(map(statistics.median, confirming)),
        **numbers,
    )


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
