"""perfpipe try."""

from __future__ import annotations

from typing import Any

import click

from perfpipe.errors import Inconclusive, InputError
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import (
    Duration,
    WithSubject,
    filter_option,
    program_options,
    resolve_store,
    settings_of,
    store_option,
)
from perfpipe.visible import visible_line

#: Width of the table in files and pipes.
_WIDTH = 160


class _TryCommand(WithSubject):
    """Takes a workload file, a run, or a program after `--`."""

    names, metavar = "a workload file or a run", "WORKLOAD.yaml|RUN"
    alone = "listed"


@click.command("try", cls=_TryCommand)
@click.argument("subject", required=False)
@click.option(
    "--budget",
    type=Duration(),
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Time limit for all launches after the diagnosis, such as 15m; levers that do not fit are "
    "listed as not tried.",
)
@click.option(
    "--levers",
    metavar="NAME[,NAME]",
    help="Try these levers, regardless of the findings; NAME* stands for all variants.",
)
@click.option(
    "--most", type=click.IntRange(1), metavar="N", help="Try at most this number of levers."
)
@click.option(
    "--rounds",
    type=click.IntRange(2),
    metavar="N",
    help="Maximum number of rounds, in each of which every lever is launched once (default: what "
    "the budget allows, at most 5).",
)
@click.option(
    "--steps",
    type=click.IntRange(20),
    metavar="N",
    help="End each launch after this number of optimizer steps, tokens or calls of the model.",
)
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End each launch after this time.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override a parameter of the workload, or its timeout.",
)
@filter_option
@program_options
@click.option(
    "--protect",
    type=click.Choice(["auto", "overlay", "copy", "in-place"]),
    default="auto",
    show_default=True,
    help="Where launches run.  overlay: writes are discarded; copy: a copy of the directory for "
    "each launch; auto: overlay where the kernel allows it, else copy.",
)
@click.option("--in-place", is_flag=True, help="Same as --protect in-place.")
@click.option(
    "--no-diagnosis",
    is_flag=True,
    help="Do not use or record a timeline; try only the levers that need no finding.",
)
@click.option("--fresh", is_flag=True, help="Record a new timeline even if there is one.")
@click.option(
    "--accept",
    is_flag=True,
    help="Also combine levers that change the results, or whose results are unknown.",
)
@click.option("--seed", type=int, help="Seed of the random order of launches.")
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Instead of trying levers, slow one resource at a time, and show which resource the step "
    "waits for.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["never", "inconclusive"]),
    default="never",
    show_default=True,
    help="With 'inconclusive', exit with 4 if nothing was decided.",
)
@click.option("--list", "listed", is_flag=True, help="List the levers and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the trial, or the list, as JSON.")
@store_option
def try_command(**given: Any) -> None:
    """Try the advice on the program itself: measure the gain, and compare the results.

    perfpipe launches the unmodified program with and without each lever (TF32, torch.compile,
    loader workers, ...), in random order, without a profiler.  It then combines the levers that
    help, and measures the combination on fresh launches.  This figure is the answer, with the
    change to make by hand (docs/trying.md).

    \b
    perfpipe try -- python train.py --lr 3e-4
    perfpipe try --steps 200 --budget 10m -- python train.py
    perfpipe try --levers tf32,compile*,workers -- python train.py
    perfpipe try workloads/gemm.yaml --set size=4096
    perfpipe try --sensitivity -- python train.py

    The working directory does not change: every launch runs in an overlay or a copy of it, and
    logging services are set to offline.  Files that the program writes elsewhere are listed.
    If a lever crashes, hangs or runs out of memory, the others continue.  Results are losses,
    outputs of the model, gradients, printed numbers and written files.  They are compared with
    those of the unchanged program, which shows how much they vary from launch to launch.

    Exit codes: 0 answered, 1 the program fails without any change, 4 nothing was decided (with
    --fail-on inconclusive).
    """
    from perfpipe.pipelines.options import json_document
    from perfpipe.pipelines.signals import launching
    from perfpipe.pipelines.trying import answering
    from perfpipe.pipelines.trying.session import Wishes, try_levers
    from perfpipe.pipelines.trying.subject import subject_of

    if given["listed"]:
        _show_levers(as_json=given["as_json"])
        return
    store = resolve_store(given["store_path"])
    settings = settings_of(given["settings"])
    if given["duration"] is not None:
        settings["duration"] = [given["duration"]]
    subject = subject_of(
        given["subject"],
        given["program"],
        store,
        settings=settings,
        filters=given["filters"],
        env=given["env"],
        cwd=given["cwd"],
    )
    names = tuple(name for name in (given["levers"] or "").split(",") if name)
    if given["levers"] is not None and not names:
        raise InputError("--levers: expected names, separated by commas")
    wishes = Wishes(
        budget_s=given["budget"],
        names=names,
        most=given["most"],
        rounds=given["rounds"],
        steps=given["steps"],
        protection="in-place" if given["in_place"] else given["protect"],
        seed=given["seed"],
        accept=given["accept"],
        diagnose=not given["no_diagnosis"],
        fresh=given["fresh"],
    )
    if given["sensitivity"]:
        from perfpipe.pipelines.trying.slowing import slow

        with launching():
            slowed = slow(subject, store, wishes, say, say)
        if given["as_json"]:
            click.echo(json_document(**slowed.as_data()))
        else:
            click.echo("\n".join(map(visible_line, slowed.lines())))
        return

    def show(trial: Any) -> None:
        if given["as_json"]:
            click.echo(json_document(**answering.as_data(trial)))
        else:
            _show(trial)

    with launching():
        trial = try_levers(subject, store, wishes, say, say, partly=show)
    show(trial)
    if given["fail_on"] == "inconclusive" and not trial.decided:
        raise Inconclusive("nothing was decided within the budget")


def _show(trial: Any) -> None:
    """Print the answer with its table."""
    from rich.table import Table
    from rich.text import Text

    from perfpipe.pipelines.console import stdout
    from perfpipe.pipelines.gate.outputs import filled
    from perfpipe.pipelines.trying import answering

    for line in answering.lines(trial):
        click.echo(visible_line(line))
    found = [*answering.rows(trial)]
    if found:
        titles, cells = filled(answering.TITLES, found)
        table = Table(box=None, pad_edge=False)
        for title in titles:
            table.add_column(title, overflow="fold", no_wrap=title in answering.WHOLE)
        for row in cells:
            # Reasons are texts of the program, in which brackets are not markup.
            table.add_row(*(Text(visible_line(cell)) for cell in row))
        stdout(width=_WIDTH).print(table)
    for line in answering.after(trial):
        click.echo(visible_line(line))


def _show_levers(*, as_json: bool) -> None:
    from perfpipe.pipelines.options import json_document
    from perfpipe.pipelines.trying.levers import levers

    if as_json:
        shown = ("name", "title", "answers", "free", "needs", "difficulty", "risks")
        every = [{name: getattr(one, name) for name in shown} for one in levers().values()]
        click.echo(json_document(levers=every))
        return
    width = max(map(len, levers()))
    for lever in levers().values():
        click.echo(f"{lever.name:<{width}}  {lever.title}")
