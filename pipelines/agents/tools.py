"""The tools: their arguments, descriptions and functions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from perfpipe.errors import InputError, PerfpipeError, os_error_sentence
from perfpipe.pipelines.agents import (
    capturing,
    comparing,
    explain,
    overview,
    problems,
    queries,
    timing,
)
from perfpipe.pipelines.agents.calls import Call
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.envelope import Answer, Next, render
from perfpipe.pipelines.agents.judging import Jobs
from perfpipe.pipelines.agents.refusals import (
    nothing_yet,
    refusal,
    unknown_tool,
    wrong_arguments,
)
from perfpipe.pipelines.agents.wording import unmarked

_Target = Annotated[
    str | None,
    Field(description="Id or id prefix of a run or report; separate several with commas."),
]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Overview(_Arguments):
    target: _Target = None


class _Explain(_Arguments):
    target: _Target = None
    finding: Annotated[int | None, Field(description="Number of a finding in overview.", ge=1)] = (
        None
    )
    kernel: Annotated[str | None, Field(description="Name of a kernel, instead of a finding.")] = (
        None
    )
    detail: Literal["brief", "full"] = "brief"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.finding is None) == (self.kernel is None):
            raise ValueError("pass either the number of a finding or the name of a kernel")
        return self


class _Timeline(_Arguments):
    target: _Target = None
    window: Annotated[
        str, Field(description="steady, whole, startup, or the number or name of a step.")
    ] = "steady"
    start_ms: Annotated[
        float | None, Field(description="Start of a time range, ms from the start of the capture.")
    ] = None
    end_ms: Annotated[float | None, Field(description="End of the time range.")] = None
    nvtx: Annotated[str | None, Field(description="Name of NVTX ranges to use as the window.")] = (
        None
    )


class _Compare(_Arguments):
    base: Annotated[
        str, Field(description="Runs or reports before, comma-separated; or a baseline.")
    ]
    candidate: Annotated[str, Field(description="Runs or reports after, comma-separated.")]


class _Schema(_Arguments):
    name: Annotated[
        str | None,
        Field(description="View or table whose columns to return; if omitted, an index."),
    ] = None
    search: Annotated[
        str | None, Field(description="Words to find in names, meanings and columns.")
    ] = None


class _Query(_Arguments):
    sql: Annotated[str, Field(description="One SELECT in DuckDB's dialect; read-only.")]
    target: Annotated[
        str | None,
        Field(
            description="Id or id prefix of a run or report, several with commas; all: the whole "
            "store; default: the latest run, else every report."
        ),
    ] = None
    limit: Annotated[int, Field(description="Rows to return.", ge=1, le=500)] = 50


class _NextCapture(_Arguments):
    question: Annotated[
        Literal[
            "kernels",
            "source",
            "timeline",
            "host",
            "startup",
            "loading",
            "communication",
            "try",
            "replicates",
        ]
        | None,
        Field(
            description="kernels: what bounds them. source: the lines where they stall. timeline: "
            "where the time goes. host: the lines of the program while the GPU is idle. startup: "
            "what takes the time before the first step. loading: what loads or builds kernels "
            "again. communication: which rank waits for which. try: what the advice saves. "
            "replicates: whether a change is real. If omitted: the question that is open."
        ),
    ] = None
    target: _Target = None


class _Problem(_Arguments):
    workload: Annotated[str | None, Field(description="Name of an allowed workload.")] = None


class _Evaluate(_Arguments):
    workload: Annotated[str, Field(description="Name of an allowed workload.")]
    files: Annotated[
        dict[str, str],
        Field(description="Candidate: file contents by name, such as kernel.py.", min_length=1),
    ]
    baseline: Annotated[
        str | None, Field(description="Baseline of the workload; default: all baselines.")
    ] = None
    profile: Annotated[
        bool,
        Field(description="Profile a correct candidate with ncu: class and SOL of its kernels."),
    ] = False


class _Try(_Arguments):
    workload: Annotated[str, Field(description="Name of an allowed workload.")]
    budget_s: Annotated[
        int, Field(description="Time for all launches after the timeline, s.", ge=30, le=7200)
    ] = 900
    levers: Annotated[
        list[str],
        Field(
            description="Levers to try, whatever the findings are, such as tf32 or compile*; "
            "default: those that findings call for, and those that cost nothing.",
            max_length=30,
        ),
    ] = []


class _Job(_Arguments):
    id: Annotated[str, Field(description="Job id that evaluate or try returned.")]
    wait_s: Annotated[
        float, Field(description="How long to wait for the job to end.", ge=0, le=60)
    ] = 0
    cancel: Annotated[bool, Field(description="Cancel the job.")] = False


@dataclass(frozen=True)
class Tool:
    """A tool: its description, its arguments, and its function.

    A tool that `reads` abstains while the store is empty; one that `runs` programs does not read.
    """

    doc: str
    arguments: type[BaseModel]
    answer: Callable[[Desk, Any], Answer]
    reads: bool = False
    runs: bool = False


TOOLS: Mapping[str, Tool] = {
    "overview": Tool(
        "Begin here. Without a target: lists the runs and reports of the store. With a target: the "
        "verdict, what bounds the time, the first three findings, provenance, and missing data.",
        _Overview,
        lambda desk, given: overview.overview(desk, _name(given.target)),
        reads=True,
    ),
    "explain": Tool(
        "Explains a finding or a kernel: class, evidence, NVIDIA's own verdict, SOL headroom, "
        "techniques with bounds on their gain and the assumption of each bound, hot lines, and the "
        "lines of the program during idle time.",
        _Explain,
        lambda desk, given: explain.explain(
            desk, _name(given.target), given.finding, given.kernel, given.detail
        ),
        reads=True,
    ),
    "timeline": Tool(
        "The exact time budget of each GPU in the steady steps, another window, a time range or "
        "NVTX ranges; causes of idle time, the lines of the program meanwhile, communication "
        "overlap, the rank that others wait for.",
        _Timeline,
        lambda desk, given: timing.timeline(
            desk, _name(given.target), given.window, given.start_ms, given.end_ms, given.nvtx
        ),
        reads=True,
    ),
    "compare": Tool(
        "Compares candidate with base: verdict, ratio, interval, number of runs, and the cause. "
        "Abstains if the runs are inconclusive.",
        _Compare,
        lambda desk, given: comparing.compare(desk, given.base, given.candidate),
        reads=True,
    ),
    "schema": Tool(
        "Lists the views and tables for query, or those that match a search, or the columns of one "
        "with meaning and unit.",
        _Schema,
        lambda desk, given: queries.schema(_name(given.name), given.search),
    ),
    "query": Tool(
        "Returns the rows of one SQL SELECT on the views of schema, of the latest run or a target.",
        _Query,
        lambda desk, given: queries.query(desk, given.sql, _name(given.target), given.limit),
        reads=True,
    ),
    "next_capture": Tool(
        "Returns the exact command that would answer an open question, its cost, and what it "
        "answers. Does not run anything.",
        _NextCapture,
        lambda desk, given: capturing.next_capture(desk, given.question, _name(given.target)),
    ),
}


#: Tools of a server that may run workloads.
RUNNING: Mapping[str, Tool] = {
    "problem": Tool(
        "Call before you write a kernel: entry point and signature, inputs, outputs, sizes, types, "
        "tolerances, limits, attainable time, baselines with times, a kernel.py that runs, the "
        "best candidate so far, and earlier verdicts. Without a workload: lists the allowed ones.",
        _Problem,
        lambda desk, given: problems.problem(desk, _jobs(desk), given.workload),
        runs=True,
    ),
    "evaluate": Tool(
        "Judges a kernel that you wrote: whether it is correct, whether it cheats, and how fast it "
        "is in runs that alternate with baselines. Returns a job. Only a correct kernel is timed.",
        _Evaluate,
        lambda desk, given: _jobs(desk).evaluate(
            given.workload,
            given.files,
            given.baseline,
            desk.store.root if given.profile else None,
        ),
        runs=True,
    ),
    "try": Tool(
        "Tries the advice on the unmodified program of a workload: launches it with and without "
        "each lever (TF32, torch.compile, loader workers, ...), and returns the measured gain, "
        "whether the results stay equal, and the change to make by hand. Returns a job, which "
        "takes about the budget.",
        _Try,
        lambda desk, given: _jobs(desk).try_levers(
            given.workload, desk.store.root, given.budget_s, given.levers
        ),
        runs=True,
    ),
    "job": Tool(
        "Returns the state of a job of evaluate or try, and its result.",
        _Job,
        lambda desk, given: _jobs(desk).job(given.id, given.wait_s, given.cancel),
        runs=True,
    ),
}


def input_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's arguments, short: clients show it to the model in each session.

    Titles repeat names, and null only stands for an argument that is missing.
    """
    made = tool.arguments.model_json_schema()
    made.pop("title")
    made["properties"] = {name: _short(own) for name, own in made.get("properties", {}).items()}
    return made


def _short(argument: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in argument.get("anyOf", ()) if kind != {"type": "null"}]
    known = {key: one for key, one in argument.items() if key not in ("anyOf", "title")}
    if known.get("default", ...) is None:
        del known["default"]
    return {**(kinds[0] if kinds else {}), **known}


def offered(desk: Desk) -> Mapping[str, Tool]:
    """Return the tools of a server."""
    return TOOLS if desk.jobs is None else {**TOOLS, **RUNNING}


def _jobs(desk: Desk) -> Jobs:
    if desk.jobs is None:
        raise InputError("this server does not run programs: it was started without --allow-run")
    return desk.jobs


def call(
    desk: Desk, name: str, given: Mapping[str, Any], inside: Call | None = None
) -> tuple[str, bool]:
    """Call a tool; return its answer as JSON, and whether the call failed.

    Another thread can follow and stop the call `inside`.
    """
    answer = _answer(desk, name, given, inside or Call())
    return render(answer), answer.status == "failed"


def _answer(desk: Desk, name: str, given: Mapping[str, Any], inside: Call) -> Answer:
    tools = offered(desk)
    if name not in tools:
        return unknown_tool(name, tools)
    tool = tools[name]
    try:
        arguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        instead = _instead(desk, name, given)
        return wrong_arguments(name, tool.arguments, given, error, instead)
    answer = partial(tool.answer, desk, arguments)
    try:
        if tool.reads and desk.is_empty:
            return nothing_yet(str(desk.store.root))
        return answer() if tool.runs else desk.call(answer, inside)
    except PerfpipeError as error:
        if name == "next_capture" and desk.is_empty:
            return nothing_yet(str(desk.store.root))
        return refusal(error, _instead(desk, name, given))
    except OSError as error:
        return refusal(os_error_sentence(error, "cannot read"), None)


def _instead(desk: Desk, name: str, given: Mapping[str, Any]) -> Next | None:
    """Return the call that shows what the arguments of a failed call may be."""
    if name in RUNNING:
        return Next("problem", {})
    if name in ("schema", "query"):
        return Next("schema", {})
    target = given.get("target")
    if isinstance(target, str) and name != "overview":
        with contextlib.suppress(PerfpipeError):
            desk.select(target)
            return Next("overview", {"target": target})
    return Next("overview", {}) if given or name != "overview" else None


def _name(given: str | None) -> str | None:
    return unmarked(given) or None if given is not None else None
