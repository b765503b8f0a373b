"""perfpipe search."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perfpipe.pipelines.options import (
    Duration,
    json_document,
    json_option,
    resolve_store,
    store_option,
)

if TYPE_CHECKING:
    from perfpipe.searchrecord import Settings

#: Options that are settings of a search, and can change when it is continued.
_SETTINGS = (
    "generations", "variants", "launches", "batches", "confirm", "parallel", "by_hand",
)  # fmt: skip


@click.command("search")
@click.argument("workload", required=False, type=click.Path(path_type=Path))
@click.option(
    "--agent",
    metavar="CMD",
    help="Command that writes a candidate; it is not run through a shell.",
)
@click.option(
    "--by-hand", is_flag=True, help="Wait until you have edited each candidate and press Enter."
)
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Judge these directories as one generation; repeat for several.",
)
@click.option(
    "--resume", "resumed", metavar="SEARCH", help="Continue this search where it stopped."
)
@click.option("--generations", type=click.IntRange(1), default=5, show_default=True,
              help="Number of generations.")  # fmt: skip
@click.option("--variants", type=click.IntRange(1), default=3, show_default=True,
              help="Number of candidates in each generation.")  # fmt: skip
@click.option(
    "--budget",
    type=Duration(),
    metavar="TIME",
    help="Time limit, such as 2h; it includes the time for the confirmation.",
)
@click.option(
    "--agent-timeout",
    type=Duration(),
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Time limit of the agent for each candidate.",
)
@click.option("--parallel", type=click.IntRange(1), default=1, show_default=True,
              help="Number of agents that run at the same time.")  # fmt: skip
@click.option(
    "--baseline",
    metavar="NAME",
    help="Baseline of the workload to compare with (default: the fastest).",
)
@click.option(
    "--launches",
    type=click.IntRange(2),
    help="Number of processes for each candidate and baseline during the search.",
)
@click.option("--batches", type=click.IntRange(1),
              help="Number of batches of calls to time in each process.")  # fmt: skip
@click.option(
    "--confirm",
    type=click.IntRange(10),
    default=12,
    show_default=True,
    help="Least number of fresh launches of each finalist and the baseline.",
)
@click.option(
    "--profile/--no-profile",
    default=None,
    help="Profile the best candidate of each generation with ncu (default: if there is ncu).",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto",
              show_default=True, help="Device that candidates run on.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), help="Seed that agents get (default: random).")
@click.option(
    "--workloads",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Workloads of a FlashInfer-Trace definition (JSON lines).",
)
@json_option("Print the result as JSON.")
@store_option
@click.pass_context
def search_command(context: click.Context, /, **given: Any) -> None:
    """Search for a faster kernel: generations of candidates, judged and confirmed.

    WORKLOAD is a problem as for 'perfpipe evaluate'.  For each candidate, perfpipe prepares a
    directory and runs the agent in it: any command that edits files, such as a coding agent or
    your own script.  perfpipe itself calls no model.  The directory has

    \b
      kernel.py       a copy of one of the best candidates so far: edit it
      PROBLEM.md      what to compute, sizes, tolerances, reference, attainable time
      FEEDBACK.md     verdict on kernel.py: errors, speedups, profile (feedback.json: the same)
      HISTORY.md      what was tried, what failed, what the best have in common
      best/           the best candidate so far

    The agent also reads a prompt that names these files on its input, and has the variables
    PERFPIPE_GENERATION, PERFPIPE_VARIANT and PERFPIPE_SEED.  What it leaves is the candidate.
    Without --agent, the parameters in the workload's 'tune' are searched: a candidate reads them
    from params.json.

    Candidates are compared with the fastest baseline, in launches in which both alternate.  The
    three best and the baseline are then launched again.  Only this confirmation proves a gain;
    otherwise the answer is "no proven gain".

    Everything is kept in the store as it happens.  After Ctrl-C or a crash, --resume continues.

    \b
    perfpipe search workloads/softmax.yaml --agent "claude -p --permission-mode acceptEdits"
    perfpipe search workloads/softmax.yaml --agent "python tuner.py" --generations 3 --budget 30m
    perfpipe search workloads/softmax.yaml --by-hand --variants 1
    perfpipe search --resume softmax-2026 --candidate my_kernel
    perfpipe report softmax-2026 --html search.html
    """
    from perfpipe.analysis.search_summary import data, sentences
    from perfpipe.pipelines.searching.opening import Asked, resume, start
    from perfpipe.pipelines.searching.page import found_of
    from perfpipe.pipelines.signals import launching
    from perfpipe.searchrecord import Settings

    own = {name: given[name] for name in _SETTINGS}
    words = _words(given["agent"])
    settings = Settings(
        **own, agent=words, budget_s=given["budget"], agent_timeout_s=given["agent_timeout"]
    )
    asked = Asked(
        settings, words, given["candidates"], given["device"], given["baseline"], given["seed"],
        given["workloads"], given["profile"],
    )  # fmt: skip
    resumed = given["resumed"]
    if (given["workload"] is None) == (resumed is None):
        raise click.UsageError("give a workload, or --resume and a search", context)
    store = resolve_store(given["store_path"], must_exist=resumed is not None)
    with launching():
        if resumed is None:
            disk = start(store, given["workload"], asked)
        else:
            disk = resume(store, resumed, asked, lambda old: _changed(context, old, settings))
    found = found_of(disk)
    if given["as_json"]:
        click.echo(json_document(search_id=disk.search.search_id, **data(found)))
        return
    for sentence in sentences(found):
        click.echo(sentence)
    option = f" {store.option}" if store.option else ""
    click.echo(f"Page: perfpipe report {disk.search.search_id} --html{option}")


def _words(agent: str | None) -> tuple[str, ...]:
    """Return the words of a command; raises BadParameter if quotes do not match."""
    try:
        words = tuple(shlex.split(agent or ""))
    except ValueError as error:
        raise click.BadParameter(f"{agent}: {error}", param_hint="--agent") from error
    if agent is not None and not words:
        raise click.BadParameter("no command", param_hint="--agent")
    return words


def _changed(context: click.Context, old: Settings, new: Settings) -> Settings:
    """Return the settings of a search with those that the command line states."""
    fields = {"budget": "budget_s", "agent_timeout": "agent_timeout_s", "agent": "agent"}
    names = {**fields, **{name: name for name in _SETTINGS}}
    stated = {
        field: getattr(new, field)
        for name, field in names.items()
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    return replace(old, **stated)
