"""What one launch of a program computed: recorded, printed and written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfpipe.analysis.trying.printed import Printed, printed
from perfpipe.analysis.trying.series import Vector

#: Kinds of recorded series.
LOSS, OUTPUT, GRADIENT, PARAMETER = "loss", "output", "gradient norm", "parameter norm"
UPDATE, TOKENS = "update norm", "tokens"

#: Counts, and what they count.
COUNTED = {
    "backward": "backward pass",
    "steps": "optimizer step",
    "calls": "call",
    "tokens": "token",
}


@dataclass(frozen=True)
class Results:
    """What one launch gave.

    `series` are recorded numbers by kind and process, then by step, call or token; `types` are
    their types.  `counts` is the work of each process.  `printed` are numbers in the output,
    `files` the hashes of files that were written.  None is unknown.
    """

    series: Mapping[tuple[str, str], Mapping[int, Vector]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    types: frozenset[str] = frozenset()
    complete: bool = True
    printed: Printed = field(default_factory=Printed)
    files: Mapping[str, str] | None = None
    exit_code: int | None = None

    def of_steps(self) -> Results:
        """Return what optimizer steps add up to, without the calls that a step consists of."""
        counts = {
            process: {name: own[name] if name == "steps" else 0 for name in own}
            for process, own in self.counts.items()
        }
        series = {key: values for key, values in self.series.items() if key[0] != OUTPUT}
        return replace(self, series=series, counts=counts)


def read(
    folder: Path | None,
    output: str = "",
    files: Mapping[str, str] | None = None,
    exit_code: int | None = None,
) -> Results:
    """Return the results of a launch from the folder with its reports, and from its output."""
    reports = _reports(folder) if folder else {}
    return Results(
        {
            (kind, process): values
            for process, report in reports.items()
            for kind, values in _series(report)
        },
        {process: _counts(report) for process, report in reports.items()},
        frozenset(kind for report in reports.values() for kind in _types(report)),
        all(report.get("complete") for report in reports.values()),
        printed(output),
        files,
        exit_code,
    )


def _reports(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the reports of the processes that train, else of those that call the model most."""
    found: list[tuple[tuple[bool, int, int], dict[str, Any]]] = []
    for path in folder.glob("results.*.json"):
        try:
            report = json.loads(path.read_bytes())
            rank = report["rank"]
            order = (rank is None, int(rank or 0), int(report["pid"]))
            [*_series(report), *_types(report), *_counts(report)]
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # the program may overwrite what it likes
        found.append((order, report))
    found.sort(key=lambda one: one[0])
    most = max((_counts(report)["calls"] for _, report in found), default=0)
    if trains := [report for _, report in found if _counts(report)["steps"]]:
        kept = trains
    else:
        kept = [report for _, report in found if 2 * _counts(report)["calls"] >= most]
    if len(kept) == 1:
        return {"": kept[0]}
    return {f"rank {report['rank'] or at}": report for at, report in enumerate(kept)}


def _counts(report: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(report["counts"].get(name, 0)) for name in COUNTED}


def _series(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[int, Vector]]]:
    """Yield the series of a process that are not empty."""
    found: dict[str, dict[int, Vector]] = {
        LOSS: {int(step): (float(value),) for step, value in report["losses"]},
        OUTPUT: {
            int(own["call"]): (float(own["norm"]), *map(float, own["values"]))
            for own in report["outputs"]
        },
        TOKENS: {int(at): tuple(map(float, ids)) for at, ids in report.get("tokens", ())},
    }
    names = {GRADIENT: "gradients", PARAMETER: "parameters", UPDATE: "updates"}
    for kind, name in names.items():
        found[kind] = {int(own["step"]): (float(own["norm"]),) for own in report.get(name, ())}
    yield from ((kind, values) for kind, values in found.items() if values)


def _types(report: Mapping[str, Any]) -> Iterator[str]:
    if report.get("losses"):
        yield str(report.get("loss_dtype"))
    yield from (str(own.get("dtype")) for own in report["outputs"])
