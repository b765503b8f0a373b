"""perfpipe run --detach."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from perfpipe.errors import InputError
from perfpipe.pipelines.attaching.detaching import detach
from perfpipe.pipelines.console import say
from perfpipe.pipelines.options import json_document, resolve_store
from perfpipe.pipelines.program import program_of
from perfpipe.pipelines.runs import task_folder

if TYPE_CHECKING:
    from perfpipe.pipelines.commands.run import RunOptions

#: Options that --detach takes, besides the program.
_DETACHED = frozenset(
    ("workload", "program", "detach", "collector", "env", "cwd", "as_json", "store_path")
)


def detach_program(ctx: click.Context, options: RunOptions) -> None:
    """Start a program that outlives perfpipe; raises InputError for options that --detach lacks."""
    if options.program is None:
        raise InputError("--detach needs a program after --")
    for parameter in ctx.command.params:
        name = parameter.name or ""
        given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in _DETACHED:
            raise InputError(f"--detach and {parameter.opts[-1]} exclude each other")
    program = program_of(options.program, env=options.env, cwd=options.cwd)
    store = resolve_store(options.store_path)
    run, own = detach(program, options.collector, store)
    if options.as_json:
        click.echo(json_document(run=asdict(run.record), pid=own.pid, session=own.session))
        return
    option = f" {store.option}" if store.option else ""
    click.echo(f"{run.record.run_id}  process {own.pid}")
    folder = run.directory / "tasks" / task_folder(0, "detach")
    say(f"its output: {folder}/plain.out and plain.err")
    say(f"to look at it: perfpipe attach @1{option}")
