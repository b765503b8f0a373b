"""Options that several commands share."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from perfpipe.database import MEMORY_VARIABLE
from perfpipe.errors import InputError
from perfpipe.functions import scalar
from perfpipe.pipelines.query_timeout import TIME_VARIABLE, USUAL_S
from perfpipe.pipelines.settings import stated
from perfpipe.store import DETACHED, STORE_VARIABLE, Store
from perfpipe.windows import STEADY, WINDOWS

if TYPE_CHECKING:
    from perfpipe.pipelines.workload import Scalar

#: Regular expression (any case) of NVTX ranges to treat as steps, instead of the default.
STEP_RANGE_VARIABLE = "PERFPIPE_STEP_RANGE"

store_option: Callable[[Any], Any] = click.option(
    "--store",
    "store_path",
    metavar="DIR",
    envvar=STORE_VARIABLE,
    show_envvar=True,
    default=partial(stated, "store"),
    help="Store directory (default: ./perfpipe-store).",
)


def resolve_store(path: str | None, *, must_exist: bool = False) -> Store:
    """Return the store given by --store, with the ends of detached programs in their runs."""
    store = Store.locate(path, must_exist=must_exist)
    if (store.root / DETACHED).is_dir():
        from perfpipe.pipelines.attaching.detaching import settle

        settle(store)
    return store


def json_option(help_text: str = "Print JSON.") -> Callable[[Any], Any]:
    """Return the --json flag."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def json_document(**content: Any) -> str:
    """Return a command's JSON output; types that JSON lacks become text."""
    return json.dumps({"schema_version": 1, **content}, indent=1, default=str, ensure_ascii=False)


def pairs(option: str, settings: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield name and values of each NAME=VALUE[,VALUE]; raises InputError on any other form."""
    for setting in settings:
        name, equals, values = setting.partition("=")
        if not equals or not name or not values:
            raise InputError(f"{option} {setting}: expected NAME=VALUE or NAME=VALUE,VALUE")
        yield name, values.split(",")


def settings_of(settings: Iterable[str]) -> dict[str, list[Scalar]]:
    """Return the values of --set by name; raises InputError for any other form."""
    return {name: [scalar(value) for value in values] for name, values in pairs("--set", settings)}


#: Seconds of a unit of time.
_UNITS = {"s": 1, "m": 60, "h": 3600, "": 1}


class Duration(click.ParamType[float]):
    """A time such as 15m, 90s or 1h; a plain number is in seconds."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the time in seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if match is not None and not float(match[1]):
            self.fail(f"{value} is not longer than 0", param, ctx)
        if match is None:
            self.fail(f"{value!r} is not a time such as 15m, 90s or 1h", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class WithProgram(click.Command):
    """Takes the words after `--` as a program, whose options must not be confused with its own.

    The program is in the context's meta as `program` (None without `--`), the whole line as `args`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["args"] = [*args]
        ctx.meta["program"] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])


class WithSubject(WithProgram):
    """Takes either its first argument, such as a workload file, or a program after `--`.

    The command receives the program as `program`.
    """

    #: What the argument names, in a sentence and in the usage line.
    names, metavar = "a workload file", "WORKLOAD.yaml"

    #: The parameter of a flag that needs neither.
    alone = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        program = ctx.params["program"] = ctx.meta["program"]
        (argument,) = (own for own in self.params if isinstance(own, click.Argument))
        lacks = (program is None) == (ctx.params[argument.name or ""] is None)
        if lacks and not ctx.params.get(self.alone):
            raise click.UsageError(f"give {self.names}, or a program after --", ctx)
        return rest

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, f"[OPTIONS] {self.metavar}")
        formatter.write_usage(ctx.command_path, "[OPTIONS] -- PROGRAM [ARGUMENT]...", "       ")


def _for_this_command(variable: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that lets an option take the place of an environment variable."""

    @contextlib.contextmanager
    def stating(value: Any) -> Iterator[None]:
        before = os.environ.get(variable)
        os.environ[variable] = f"{value:g}" if isinstance(value, float) else str(value)
        try:
            yield
        finally:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before

    def state(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value is not None:
            ctx.with_resource(stating(value))
        return value

    return state


_timeout_option: Callable[[Any], Any] = click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    expose_value=False,
    callback=_for_this_command(TIME_VARIABLE),
    help=f"Time limit for queries; 0 means no limit (default: ${TIME_VARIABLE}, else {USUAL_S:g}).",
)


def memory_option(who: str) -> Callable[[Any], Any]:
    """Return --memory, the limit of those who use memory."""
    option: Callable[[Any], Any] = click.option(
        "--memory",
        metavar="SIZE",
        expose_value=False,
        callback=_for_this_command(MEMORY_VARIABLE),
        help=f"Memory that {who} may use, such as 2GB (default: ${MEMORY_VARIABLE}, else 80 % of "
        "the machine's memory).",
    )
    return option


def limit_options(command: Any) -> Any:
    """Add --timeout and --memory, the limits of queries."""
    return _timeout_option(memory_option("queries")(command))


filter_option: Callable[[Any], Any] = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="NAME=PATTERN[,PATTERN]",
    callback=lambda _, __, values: dict(pairs("--filter", values)),
    help="Use only configurations in which the parameter NAME matches PATTERN (wildcards: * and "
    "?).",
)


_env_option: Callable[[Any], Any] = click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable to set for the program after --.",
)

_cwd_option: Callable[[Any], Any] = click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Working directory of the program after --.",
)


def program_options(command: Any) -> Any:
    """Add --env and --cwd, which are for a program after `--`."""
    return _env_option(_cwd_option(command))


window_option: Callable[[Any], Any] = click.option(
    "--window",
    metavar="|".join((*WINDOWS, "STEP")),
    default=STEADY,
    show_default=True,
    help="Part of the timeline to analyze.  steady: the steady steps (or the whole capture, if "
    "nothing repeats); whole: the whole capture; startup: start-up and warm-up; STEP: one step, "
    "by its name or number.",
)

#: Where --step keeps its loop until --step-range is read.
_STEP_LOOP = "perfpipe.step_loop"


def _keep_loop(context: click.Context, _: click.Parameter, value: int | None) -> None:
    if value is not None:
        context.meta[_STEP_LOOP] = value


def _steps_from(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return the loop of --step, if it is given, else the ranges of --step-range."""
    if _STEP_LOOP not in context.meta:
        return value
    if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        raise click.UsageError("--step and --step-range exclude each other")
    return context.meta[_STEP_LOOP]


range_option: Callable[[Any], Any] = click.option(
    "--step-range",
    metavar="REGEX",
    envvar=STEP_RANGE_VARIABLE,
    show_envvar=True,
    default=partial(stated, "step_range"),
    callback=_steps_from,
    help="Regular expression of the NVTX ranges to treat as steps (default: ranges such as "
    "'step 3', 'iter_3', 'ProfilerStep#3').",
)

_loop_option: Callable[[Any], Any] = click.option(
    "--step",
    metavar="LOOP",
    type=click.IntRange(1),
    is_eager=True,
    expose_value=False,
    callback=_keep_loop,
    help="Treat the iterations of this loop as steps, not those of the loop that perfpipe chose.  "
    "The view `loops` and the page list the numbers of the loops.",
)


def step_range_option(command: Any) -> Any:
    """Add --step-range and --step, which say what a step is, as `step_range`."""
    return range_option(_loop_option(command))
