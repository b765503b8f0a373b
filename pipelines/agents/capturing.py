"""Recommends the next capture: the exact command, its cost, and the question that it answers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.wording import captured, sentence, value, without_paths
from perfpipe.pipelines.planning import PROGRAM, Planned, plans_of

#: Warns that a command is incomplete.
_HIDDEN = "absolute paths are removed: 'perfpipe plan' prints the complete command"

#: Longest command, characters: a truncated command is useless.
_COMMAND = 8_000

#: Options that collect the instructions and lines at which warps stall.
_SOURCE = ("--section=SourceCounters", "--import-source=yes")


@dataclass(frozen=True)
class Capture:
    """A command for a question that does not need a plan from a timeline."""

    command: str
    settles: str
    note: str


_FIXED = {
    "timeline": Capture(
        f"perfpipe run --collector nsys -- {PROGRAM}",
        "where the time of a step goes: compute, copies, communication, launch overhead, idle",
        "make the program short: a few hundred steps are enough",
    ),
    "communication": Capture(
        f"perfpipe run --collector nsys -- torchrun --nproc-per-node=N {PROGRAM}",
        "how much communication is exposed, and which rank the others wait for",
        "trace all ranks; do not use ncu, because replaying a collective hangs",
    ),
    "replicates": Capture(
        "perfpipe ab WORKLOAD.yaml --b NAME=VALUE",
        "whether a change is real: runs of the two sides alternate until the verdict is certain",
        "a side may also be another checkout: --b cwd=DIRECTORY",
    ),
}

#: Known questions.
QUESTIONS = ("kernels", "source", *_FIXED)


def next_capture(desk: Desk, question: str, target: str | None) -> Answer:
    """Return the command that answers a question; nothing is run."""
    if question in _FIXED:
        fixed = _FIXED[question]
        cost = {"seconds": None, "why": "this command was not timed before"}
        one = {"settles": fixed.settles, "command": fixed.command, "cost": cost, "note": fixed.note}
        return Answer({"captures": [one]}, rows="captures")
    reports = desk.select(target).reports
    try:
        planned = plans_of(desk.store, reports, None, None)
    except InputError as error:
        return Answer(
            status=Status.ABSTAINED,
            reason=f"{error}; without a timeline it is unknown which kernels matter",
            next=Next("next_capture", {"question": "timeline"}),
        )
    told = [_told(one, question) for one in planned]
    possible = any(one.plan for one in planned)
    return Answer(
        {"captures": told},
        Status.ANSWERED if possible else Status.ABSTAINED,
        "" if possible else "no timeline among the selected reports has kernels to profile",
        tuple(_evidence(one) for one in planned if one.plan),
        (_HIDDEN,) if any(_command(one, question)[1] for one in planned) else (),
        rows="captures",
    )


def _told(planned: Planned, question: str) -> dict[str, Any]:
    about = {"report_id": planned.report_id, "source": captured(planned.source_name)}
    plan = planned.plan
    if plan is None:
        return {**about, "command": None, "why": sentence(planned.reason)}
    settles = (
        "the instructions and lines at which warps of these kernels stall (lines need -lineinfo)"
        if question == "source"
        else "what bounds these kernels: compute, memory, latency, or their small size"
    )
    return {
        **about,
        "settles": settles,
        "covers_pct": value(plan.coverage_pct),
        "kernels": [captured(kernel.name) for kernel in plan.kernels if kernel.chosen][:10],
        "command": captured(_command(planned, question)[0], _COMMAND),
        "cost": {
            "seconds": round(planned.seconds),
            "basis": "measured time of the program"
            if planned.measured
            else "length of the timeline from its first operation",
        },
        "note": "communication is excluded: replaying a kernel that waits for other ranks hangs",
    }


def _command(planned: Planned, question: str) -> tuple[str, bool]:
    """Return the command without absolute paths, and whether it had any."""
    words = [*planned.command]
    if question == "source" and words:
        words[1:1] = [word for word in _SOURCE if word not in words]
    whole = shlex.join(words)
    shown = without_paths(whole)
    return shown, shown != whole


def _evidence(planned: Planned) -> Evidence:
    plan = planned.plan
    covered = None if plan is None else value(plan.coverage_pct)
    key = {"report_id": planned.report_id}
    launches = None if plan is None else plan.most_launches
    return Evidence(
        "profile_plan_totals", key, "coverage_pct", covered, "% of kernel time", launches
    )
