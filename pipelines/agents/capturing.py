"""Recommends the next capture: the exact command, its cost, and the question that it answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfpipe.errors import InputError
from perfpipe.pipelines.agents.cutting import first, lean
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.following import open_question
from perfpipe.pipelines.agents.overview import VIEWS
from perfpipe.pipelines.agents.wording import captured, plain, value, without_paths
from perfpipe.pipelines.planning import PROGRAM, Planned, plans_of

#: Warns that a command is incomplete.
_HIDDEN = "absolute paths are removed: 'perfpipe plan' prints the complete command"
_SHORT = "absolute paths are removed: use the full path of the program"

#: Kernels of a plan.
_KERNELS = 6

#: Longest command, characters: a truncated command is useless.
_COMMAND = 8_000

#: What profiles of kernels answer.
_SETTLES = {
    "kernels": "what bounds these kernels: compute, memory, latency, or their small size",
    "source": "the instructions and lines at which warps of these kernels stall (lines need "
    "-lineinfo)",
}

#: Options that collect the instructions and lines at which warps stall.
_SOURCE = ("--section=SourceCounters", "--import-source=yes")


@dataclass(frozen=True)
class Capture:
    """A command for a question that does not need a plan from a timeline.

    `start` is what the program's command follows.
    """

    start: str
    settles: str
    note: str

    def command(self, program: str) -> str:
        """Return the command for a program."""
        return f"{self.start} {program}"


_TRACE = "perfpipe run --collector nsys --"

_FIXED = {
    "timeline": Capture(
        _TRACE,
        "where the time of a step goes: compute, copies, communication, launch overhead, idle",
        "make the program short: a few hundred steps are enough",
    ),
    "host": Capture(
        _TRACE,
        "which lines of the program the host executes while the GPU is idle or a copy runs",
        "perfpipe run samples the stacks of Python threads; for native code: nsys profile "
        "--sample=process-tree",
    ),
    "startup": Capture(
        f"env TRITON_PRINT_AUTOTUNING=1 {_TRACE}",
        "which lines, library loads, compilations and autotuning trials take the time before the "
        "first step",
        "then call timeline with window startup; the output of the program lists Triton's "
        "autotuning results",
    ),
    "loading": Capture(
        f"env TORCH_LOGS=recompiles JAX_LOG_COMPILES=1 {_TRACE}",
        "which lines make a library load or build kernels again, and what changes between steps",
        "perfpipe run samples the stacks of Python threads; the output of the program lists what "
        "torch.compile and JAX compile anew",
    ),
    "communication": Capture(
        f"{_TRACE} torchrun --nproc-per-node=N",
        "how much communication is exposed, and which rank the others wait for",
        "trace all ranks; do not use ncu, because replaying a collective hangs",
    ),
    "try": Capture(
        "perfpipe try --budget 15m --",
        "how much each piece of advice saves on this program, and whether its results stay equal",
        "launches the program many times with and without each lever (TF32, torch.compile, ...)",
    ),
    "replicates": Capture(
        "perfpipe ab WORKLOAD.yaml --b NAME=VALUE",
        "whether a change is real: runs of the two sides alternate until the verdict is certain",
        "a side may also be another checkout: --b cwd=DIRECTORY",
    ),
}

#: Questions whose command ends with a workload file, not with a program.
_OF_WORKLOADS = ("replicates",)


def next_capture(desk: Desk, question: str | None, target: str | None) -> Answer:
    """Return the command that answers a question, by default the open one; nothing is run."""
    why = None
    if question is None:
        chosen = desk.select(target)
        scope = desk.scope(chosen, VIEWS)
        question, why = open_question(desk.session(chosen), scope)
    answer = _of_fixed if question in _FIXED else _of_kernels
    found = answer(desk, question, target)
    return replace(found, data=lean({"question": question, "because": why, **found.data}))


def _of_fixed(desk: Desk, question: str, target: str | None) -> Answer:
    fixed = _FIXED[question]
    program, hidden = _program(desk, target)
    words = fixed.start if question in _OF_WORKLOADS else fixed.command(program)
    one = {
        "settles": fixed.settles,
        "command": words if program == PROGRAM else captured(words, _COMMAND),
        "cost": {"seconds": None, "why": "this command was not timed before"},
        "note": fixed.note,
    }
    return Answer({"captures": [one]}, rows="captures", warnings=(_SHORT,) if hidden else ())


def _program(desk: Desk, target: str | None) -> tuple[str, bool]:
    """Return the command of the program that was captured, and whether it lost absolute paths."""
    try:
        reports = desk.select(target).reports
    except InputError:
        if target is not None:
            raise
        return PROGRAM, False  # nothing was captured yet
    with desk.fresh(reports) as session:
        found = session.execute(
            "SELECT t.command, r.command FROM reports AS r "
            "LEFT JOIN run_tasks AS t ON list_contains(t.reports, r.report_id)"
        ).fetchall()
    commands = {shlex.join(words) if words else command for words, command in found} - {None}
    if len(commands) != 1:
        return PROGRAM, False
    command = str(commands.pop())
    shown = without_paths(command)
    return shown, shown != command


def _of_kernels(desk: Desk, question: str, target: str | None) -> Answer:
    reports = desk.select(target).reports
    try:
        planned = plans_of(desk.store, reports, None, None)
    except InputError as error:
        if question == "source" and (again := _profiled_again(desk, reports)):
            return again
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


def _profiled_again(desk: Desk, reports: Sequence[str]) -> Answer | None:
    """Return the command that adds lines to a profile without a timeline; None without kernels."""
    with desk.fresh(reports) as session:
        found = session.execute(
            "SELECT kernel_name FROM ncu_launches WHERE kernel_name IS NOT NULL "
            "GROUP BY kernel_name ORDER BY sum(duration_ns) DESC NULLS LAST, kernel_name"
        ).fetchall()
    names = [name for (name,) in found]
    if not names:
        return None
    program, hidden = _program(desk, ",".join(reports))
    pattern = "|".join(map(re.escape, names[:_KERNELS]))
    words = ["ncu", "--set=detailed", *_SOURCE, f"--kernel-name=regex:^({pattern})$"]
    words += ["--launch-count=3", "--export=profile"]
    one = {
        "settles": _SETTLES["source"],
        "kernels": first([captured(name) for name in names], _KERNELS),
        "command": captured(f"{shlex.join(words)} {program}", _COMMAND),
        "cost": {"seconds": None, "why": "the program was not timed"},
        "note": "the first launches of these kernels are profiled",
    }
    return Answer({"captures": [one]}, rows="captures", warnings=(_SHORT,) if hidden else ())


def _told(planned: Planned, question: str) -> dict[str, Any]:
    about = {"report_id": planned.report_id, "source": captured(planned.source_name)}
    plan = planned.plan
    if plan is None:
        return {**about, "command": None, "why": plain(planned.reason or "")}
    names = dict.fromkeys(kernel.name for kernel in plan.kernels if kernel.chosen)
    return {
        **about,
        "settles": _SETTLES[question],
        "covers_pct": value(plan.coverage_pct),
        "kernels": first([captured(name) for name in names], _KERNELS),
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
