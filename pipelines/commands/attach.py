"""perfpipe attach."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option
from perfpipe.pipelines.signals import Ended, launching
from perfpipe.sweeping import sweep

if TYPE_CHECKING:
    from perfpipe.pipelines.attaching.session import Attached
    from perfpipe.pipelines.attaching.target import Target
    from perfpipe.pipelines.attaching.ways import Prepared
    from perfpipe.store import Store


@click.command("attach")
@click.argument("subject", metavar="[PID|RUN]", required=False)
@click.option(
    "--duration",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to look at the program.",
)
@click.option(
    "--job", metavar="JOB", help="Slurm job to attach to: its processes on one node, with srun."
)
@click.option("--node", metavar="NODE", help="Node of --job [default: its first].")
@click.option(
    "--session",
    metavar="NAME",
    help="nsys session of the program, if it was started with nsys launch --session-new=NAME.",
)
@click.option(
    "--no-timeline",
    is_flag=True,
    help="Do not record a timeline: only sample stacks, /proc and NVML.",
)
@json_option("Print the answer, the ways that were used, and the run record as JSON.")
@store_option
def attach_command(
    subject: str | None,
    duration: float,
    job: str | None,
    node: str | None,
    session: str | None,
    no_timeline: bool,
    as_json: bool,
    store_path: str | None,
) -> None:
    """Show what a program that already runs is doing, without stopping it.

    PID is a process on this machine; its child processes are included.  RUN is a run that was
    started with 'perfpipe run --detach', such as @1.

    \b
    perfpipe attach 4711
    perfpipe attach 4711 --duration 30
    perfpipe run --detach -- python train.py; perfpipe attach @1
    perfpipe attach --job 1234 --node n2

    A timeline of the GPU needs a program that was prepared when it was started.  perfpipe uses the
    first of: the nsys session of 'perfpipe run --detach'; the on-demand traces of PyTorch, with
    KINETO_USE_DAEMON=1 in the program's environment; those of PyTorch before 2.13 by SIGUSR2.
    Without preparation, perfpipe samples the stacks of Python programs with py-spy, and reads
    /proc and NVML.  The answer says which ways were used, and what each of them does not see.

    The program continues, also if perfpipe is interrupted or killed.  The result is a run:
    'perfpipe report @1' shows it.  Exit codes: 0 also if the program ended meanwhile; 2 if the
    process does not exist, or belongs to another user.
    """
    if (subject is None) == (job is None):
        raise click.UsageError("give either a process id or run, or --job")
    if node is not None and job is None:
        raise click.UsageError("--node needs --job")
    from perfpipe.pipelines.attaching.jobs import is_here

    store = resolve_store(store_path)
    if job is not None and not is_here(job, node):
        given = [f"--duration={duration:g}"]
        given += [f"--session={session}"] if session else []
        given += ["--no-timeline"] if no_timeline else []
        given += ["--json"] if as_json else []
        _attach_there(job, node, given, store)
        return
    target, prepared = _found(subject, job, session, store)
    sweep(store)
    from perfpipe.pipelines.attaching.session import attach

    say(f"attaching to process {target.label} for {duration:g} s")
    try:
        with launching():
            attached = attach(target, prepared, duration, store, say, timeline=not no_timeline)
    except Ended as end:
        end.advice += "; the program continues" if target.alive else ""
        raise
    _show(attached, store, as_json=as_json)


def _found(
    subject: str | None, job: str | None, session: str | None, store: Store
) -> tuple[Target, Prepared]:
    """Return the process that is meant, and how it was prepared."""
    from perfpipe.pipelines.attaching.detaching import prepared_for
    from perfpipe.pipelines.attaching.jobs import process_of
    from perfpipe.pipelines.attaching.target import find
    from perfpipe.pipelines.attaching.ways import Prepared

    if job is not None:
        target = process_of(job)
    elif subject is not None and subject.isdecimal():
        target = find(int(subject))
    else:
        target = _process_of_run(subject or "", store)
    return target, Prepared(session) if session else prepared_for(store, target)


def _process_of_run(name: str, store: Store) -> Target:
    """Return the process of a detached run; raises InputError if it has ended."""
    from perfpipe.owner import host
    from perfpipe.pipelines.attaching.detaching import detached_of
    from perfpipe.pipelines.attaching.target import find
    from perfpipe.pipelines.selection import select

    run = select(store, [name]).run
    own = detached_of(store, run.run_id) if run else None
    if run is None or own is None:
        raise InputError(f"{name} was not started with 'perfpipe run --detach': give a process id")
    if own.host != host():
        raise InputError(f"{name} runs on {own.host}: attach to it there")
    if own.target is None:
        raise InputError(f"the program of {name} has ended: it was process {own.pid}")
    return find(own.pid)


def _attach_there(job: str, node: str | None, given: list[str], store: Store) -> None:
    """Attach on a node of a job, and end as perfpipe there ended."""
    from perfpipe.pipelines.attaching.jobs import attach_there

    with launching():
        finished = attach_there(job, node, given, store)
    click.echo(finished.stdout, nl=False)
    sys.stderr.write(finished.stderr)
    if not finished.ok:
        raise _Failed(finished.returncode if finished.returncode > 0 else 1, job)


class _Failed(PerfpipeError):
    """perfpipe on the node of a job failed with an exit code."""

    def __init__(self, code: int, job: str) -> None:
        super().__init__(f"attaching to job {job} failed on its node, with exit code {code}")
        self.exit_code = code


def _show(attached: Attached, store: Store, *, as_json: bool) -> None:
    """Print the answer."""
    from perfpipe.pipelines.attaching.session import said_of
    from perfpipe.pipelines.reporting import make_report, print_closing

    report = make_report(store, [attached.run.run_id])
    if as_json:
        process: dict[str, Any] = {
            "pid": attached.target.pid,
            "command": attached.run.words,
            "seconds": round(attached.seconds, 3),
            "running": attached.alive,
        }
        ways = [asdict(way) for way in attached.ways]
        run = asdict(attached.run)
        click.echo(json_document(answer=report.headline, process=process, ways=ways, run=run))
        return
    print_closing(report, (), store)
    width = max(shutil.get_terminal_size().columns, 40)
    for text in (*said_of(attached.ways), *(f"note: {note}" for note in attached.notes)):
        wrapped = textwrap.wrap(text, width, initial_indent="- ", subsequent_indent="  ")
        click.echo("\n".join(wrapped))
    option = f" {store.option}" if store.option else ""
    click.echo(f"More: perfpipe report @1{option}")
