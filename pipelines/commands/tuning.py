"""perfpipe report --tuning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

if TYPE_CHECKING:
    from perfpipe.analysis.search_summary import Found


@click.command("tuning")
@click.argument("history", required=False)
@json_option()
@store_option
def tuning_command(history: str | None, as_json: bool, store_path: str | None) -> None:
    """Summarize an autotuning run.

    HISTORY is a run (default: the latest) or a JSON lines file, which may come from any optimizer.
    Candidates of 'perfpipe evaluate --history' are ranked by their speedups over the baseline.  Of
    any other tool, each line is one configuration: its parameters (under "params" or at top level)
    and, if known, "generation", "time_ms" (or "times_ms"), "status" (done or failed), "failure",
    "registers", "spills" and "shared_bytes".

    \b
    perfpipe run workloads/fused_matmul_tuning.yaml
    perfpipe report --tuning
    perfpipe report --tuning trials.jsonl
    """
    from perfpipe.analysis.history import history_of_run, read_history
    from perfpipe.analysis.report.sections.tuning_history import tuning_tables
    from perfpipe.analysis.search_gain import gains
    from perfpipe.analysis.search_story import (
        convergence,
        generations,
        pareto,
        shared_by_best,
        story,
    )
    from perfpipe.analysis.search_summary import read_candidates
    from perfpipe.pipelines.selection import chosen
    from perfpipe.viewmodel import Source

    if history is not None and (Path(history).is_file() or history.endswith(".jsonl")):
        if (paired := read_candidates(Path(history))) is not None:
            _tell_candidates(paired, history, as_json=as_json)
            return
        found, name = read_history(Path(history)), history
    else:
        store = resolve_store(store_path, must_exist=True)
        run = chosen(store, [history] if history else []).run
        if run is None:
            raise InputError("give a run or a JSON lines file")
        found, name = history_of_run(run), run.run_id
        if not found.trials:
            raise InputError(f"{name} is not an autotuning run: its workload has no 'tune'")
    rounds = generations(found)
    gain = gains(found).get(found.best.index) if found.best else None
    if as_json:
        click.echo(
            json_document(
                story=story(found),
                generations=[asdict(r) for r in rounds],
                converged_in=convergence(rounds),
                best=found.best and asdict(found.best),
                gain_over_default_pct=gain.pct if gain else found.gain_over_default_pct(),
                gain_verdict=gain.verdict if gain else None,
                gain_confirmed=gain.confirmed if gain else None,
                shared_by_best=[asdict(trait) for trait in shared_by_best(found)],
                pareto=[asdict(trial) for trial in pareto(found.trials)],
                trials=[asdict(trial) for trial in found.trials],
            )
        )
        return
    from perfpipe.pipelines.console import stdout
    from perfpipe.templates.renderers import print_tables

    for sentence in story(found):
        click.echo(sentence)
    print_tables(tuning_tables(found, Source("history", (name,))), stdout(highlight=True))


def _tell_candidates(found: Found, name: str, *, as_json: bool) -> None:
    """Print candidates whose times are paired with those of baselines."""
    from perfpipe.analysis.search_summary import data, sentences
    from perfpipe.analysis.search_tables import search_tables
    from perfpipe.pipelines.console import stdout
    from perfpipe.templates.renderers import print_tables
    from perfpipe.viewmodel import Source

    if as_json:
        click.echo(json_document(**data(found)))
        return
    for sentence in sentences(found):
        click.echo(sentence)
    print_tables(search_tables(found, Source("history", (name,))), stdout(highlight=True))
