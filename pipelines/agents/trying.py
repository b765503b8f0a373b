"""The MCP tool `try`: the command, and the answer from the trial that it prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfpipe.analysis.trying.outcomes import RESULTS
from perfpipe.errors import InputError
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.marking import Marking
from perfpipe.pipelines.agents.wording import captured, plain, sentence, value

#: Names of levers and their variants; NAME* stands for all variants.
_LEVER = re.compile(r"\w[\w.:-]*\*?")


def command(path: Path, store: Path, budget_s: int, levers: Sequence[str]) -> list[str]:
    """Return the words after perfpipe; raises InputError for a name that is no lever's."""
    for name in levers:
        if not _LEVER.fullmatch(name):
            raise InputError(f"{plain(name, 60)}: not the name of a lever")
    words = ["try", str(path), "--json", "--store", str(store), f"--budget={budget_s}s"]
    return words + ([f"--levers={','.join(levers)}"] if levers else [])


def result(printed: Any) -> dict[str, Any]:
    """Return the trial that `perfpipe try --json` prints; raises KeyError if it is none."""
    return {**printed, "trial": printed["trial"], "levers": [*printed["levers"]]}


def told(made: Mapping[str, Any], job: str, state: str) -> Answer:
    """Return what was tried: the headline, levers, the stack with its change, and evidence."""
    levers = [own for own in made["levers"] if own["launches"]]
    named = [made["program"], made["gpu"], *(own["name"] for own in made["levers"])]
    data: dict[str, Any] = {
        "job": job,
        "state": state,
        "trial": made["trial"],
        "headline": Marking(named).sentence(made["headline"]),
        "program": captured(made["program"]),
        "gpu": captured(made["gpu"]),
        "unit": made["unit"],
        "plain_ms": value(made["plain"]["median_ms"]),
        "aa": {**_gain(made["aa"]), "results": RESULTS[made["aa"]["results"]]},
        "stack": _stack(made["stack"]),
        "levers": [_lever(own) for own in levers],
        "not_launched": [
            {"lever": captured(own["name"]), "why": sentence(own["why"])}
            for own in made["levers"]
            if not own["launches"]
        ],
        "notes": [sentence(note) for note in made["notes"]],
    }
    unit = f"% of the time of a {made['unit']}"
    proofs = tuple(
        Evidence(
            "trials", {"trial_id": made["trial"], "lever": captured(own["name"])},
            "gain_pct", value(own["gain_pct"]), unit, own["launches"],
        )
        for own in levers
        if own["gain_pct"] is not None
    )  # fmt: skip
    return Answer(
        data,
        Status.ANSWERED if made["decided"] else Status.ABSTAINED,
        "" if made["decided"] else "nothing was decided within the budget",
        evidence=proofs,
        rows="levers",
        next=Next("overview", {"target": made["run"]}) if made["run"] else None,
    )


def _gain(own: Mapping[str, Any]) -> dict[str, Any]:
    interval = own["interval_pct"]
    return {
        "gain_pct": value(own["gain_pct"]),
        "interval_pct": None if interval is None else [value(end) for end in interval],
    }


def _lever(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "lever": captured(own["name"]),
        "technique": own["technique"],
        "applied_to": [sentence(where) for where in own["where"]],
        "at_most_pct": value(own["bound_pct"]),
        **_gain(own),
        "verdict": own["verdict"],
        "results": RESULTS[own["results"]],
        "why": sentence(own["why"] or own["results_why"] or None),
        "memory_bytes": own["memory_bytes"],
        "energy_j": value(own["energy_j"]),
        "plain_energy_j": value(own["plain_energy_j"]),
        "start_up_s": value(own["start_up_s"]),
        "change": _lines(own["manual"]),
    }


def _stack(stack: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if stack is None:
        return None
    return {
        "levers": [captured(name) for name in stack["levers"]],
        **_gain(stack),
        "verdict": stack["verdict"],
        "results": RESULTS[stack["results"]],
        "median_ms": value(stack["median_ms"]),
        "change": _lines(stack["manual"]),
    }


def _lines(change: str) -> list[str | None]:
    """Return the change to make by hand; a change may be that of the user's own lever."""
    return [sentence(line) for line in change.splitlines()]
