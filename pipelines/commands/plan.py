"""perfpipe plan."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option
from perfpipe.units import counted, format_ns

if TYPE_CHECKING:
    from perfpipe.analysis.profile_plan import ProfilePlan
    from perfpipe.pipelines.planning import Planned

#: Longer names of kernels are cut, characters.
_LONGEST_NAME = 56


@click.command("plan")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT|FILE]...")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 100, min_open=True),
    metavar="PERCENT",
    help="Percentage of kernel time to cover.  [default: 85]",
)
@click.option(
    "--max-kernels",
    type=click.IntRange(1),
    help="Maximum number of kernel launches to profile.  [default: 200]",
)
@json_option()
@store_option
def plan_command(
    names: tuple[str, ...],
    coverage: float | None,
    max_kernels: int | None,
    as_json: bool,
    store_path: str | None,
) -> None:
    """Show which kernels of a timeline to profile with ncu, why, and how long it will take.

    Also prints the ncu command.  A timeline is an nsys report or a torch.profiler trace.  Give the
    id of a run or report in the store, or a file, which is then ingested first.  The plan selects
    the kernels that take the most time in the steady steps.  Communication kernels are never
    selected: ncu replays kernels, and the replay of a kernel that waits for other ranks never ends.
    With several ranks, only one rank is profiled.  'perfpipe run' makes and follows such a plan
    automatically.

    \b
    perfpipe plan
    perfpipe plan timeline.nsys-rep --coverage 90
    perfpipe plan f2540d26 --json
    """
    from perfpipe.pipelines.planning import plans_of

    store = resolve_store(store_path)
    found = plans_of(store, names, coverage, max_kernels)
    if as_json:
        click.echo(json_document(plans=[_as_json(planned) for planned in found]))
        return
    for place, planned in enumerate(found):
        click.echo("" if place == 0 else "\n", nl=False)
        _show(planned)


def _as_json(planned: Planned) -> dict[str, Any]:
    plan = planned.plan
    document: dict[str, Any] = {
        "report_id": planned.report_id,
        "source_name": planned.source_name,
        "reason": planned.reason,
    }
    if plan is None:
        return document
    return document | {
        **{
            name: value for name, value in asdict(plan).items() if name not in ("kernels", "others")
        },
        "kernels": [asdict(kernel) for kernel in plan.kernels if kernel.chosen],
        "command": list(planned.command),
        "plain_seconds": planned.plain_s,
        "plain_seconds_measured": planned.measured,
        "expected_minutes": planned.seconds / 60,
    }


def _show(planned: Planned) -> None:
    plan = planned.plan
    if plan is None:
        click.echo(f"{planned.source_name}: nothing to profile: {planned.reason}")
        return
    if plan.chosen == 0 and plan.configurations:
        click.echo(
            f"{planned.source_name}: nothing to profile: each of the longest kernels has more "
            "sizes and instances than the launch limit; raise --max-kernels"
        )
        return
    gpu = "" if plan.device is None else f", GPU {plan.device}"
    covered = sum(kernel.share_pct for kernel in plan.kernels if kernel.chosen)
    click.echo(
        f"{planned.source_name}{gpu}: {plan.chosen} of {counted(plan.configurations, 'kernel')} "
        f"{'takes' if plan.chosen == 1 else 'take'} "
        f"{covered:.0f} % of the {_window(plan)}"
    )
    click.echo(f"{'share':>7}{'sum':>7}{'calls':>8}{'time':>10}  kernel <<<grid; block>>>")
    for kernel in plan.kernels:
        if kernel.chosen:
            name = kernel.name
            name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
            variants = f", {kernel.instances} instances" if kernel.instances > 1 else ""
            shares = f"{kernel.share_pct:>6.1f}%{kernel.cumulative_pct:>6.1f}%"
            spent = f"{kernel.launches:>8,}{format_ns(kernel.time_ns):>10}"
            where = f"<<<{kernel.grid}; {kernel.block}>>>"
            click.echo(f"{shares}{spent}  {name} {where}{variants}")
    for sentence in _notes(planned, plan):
        click.echo(sentence)
    click.echo(f"\n{shlex.join(planned.command)}")


def _window(plan: ProfilePlan) -> str:
    if plan.window_kind == "whole":
        return "kernel time of the whole capture (no repeating step was found)"
    return f"kernel time of {plan.steps:,} steady steps" if plan.steps else "kernel time of a step"


def _notes(planned: Planned, plan: ProfilePlan) -> list[str]:
    notes = []
    if plan.communication_pct:
        notes.append(
            f"Communication, {plan.communication_pct:.0f} % of all kernel time, is excluded: "
            "replaying a kernel that waits for other ranks hangs."
        )
    if plan.processes > 1:
        notes.append(f"Only one of {plan.processes} ranks is profiled, on GPU {plan.cuda_device}.")
    elif plan.communication_pct:
        notes.append("The other ranks must run at the same time, without ncu.")
    if plan.launches_before:
        notes.append(
            f"The first {plan.launches_before:,} launches, before these steps, are skipped."
        )
    program = "" if planned.measured else ", plus the time before the program's first kernel"
    notes.append(
        f"ncu profiles one launch per size of each kernel instance, {plan.most_launches} in all.  "
        "The profiles represent all launches of about the same duration: "
        f"{plan.coverage_pct:.0f} % of the kernel time.  "
        f"Profiling takes about {_minutes(planned.seconds)}{program}."
    )
    if plan.most_launches > plan.expected_launches:
        notes.append(
            f"ncu has profiled every chosen kernel after {plan.expected_launches} launches.  Press "
            "Ctrl-C at that point, and ncu writes its report ('perfpipe run' does this itself)."
        )
    return notes


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 90 else f"{seconds:.0f} s"
