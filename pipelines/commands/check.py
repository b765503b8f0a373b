"""perfpipe check."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.gate.options import (
    allow_mixed_option,
    allow_not_comparable_option,
    gate_outputs,
)
from perfpipe.pipelines.options import resolve_store, step_range_option, store_option, window_option

if TYPE_CHECKING:
    from perfpipe.pipelines.gate.options import Outputs


@click.command("check")
@click.argument("names", nargs=-1, metavar="[RUN|REPORT]...")
@click.option(
    "--baseline",
    multiple=True,
    required=True,
    metavar="NAME|RUN|FILE.json",
    help="Baseline to check against: a name, a run (repeat for several), or an exported file.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["regressed", "inconclusive"]),
    default="regressed",
    show_default=True,
    help="With 'inconclusive', also exit with 4 if the verdict is inconclusive or unreplicated.",
)
@click.option(
    "--endpoint",
    type=click.Choice(["time", "energy"]),
    default="time",
    show_default=True,
    help="Quantity to compare: time, or energy (per step if perfpipe observed the steps, else "
    "per execution).",
)
@click.option(
    "--confirms",
    metavar="RUN",
    multiple=True,
    help="Earlier run to compare with the same baseline; if it also regressed, the regression "
    "counts as confirmed (repeat for several).",
)
@allow_mixed_option
@allow_not_comparable_option
@gate_outputs
@window_option
@step_range_option
@store_option
def check_command(
    names: tuple[str, ...],
    baseline: tuple[str, ...],
    fail_on: str,
    endpoint: str,
    confirms: tuple[str, ...],
    allow_mixed: bool,
    allow_not_comparable: bool,
    outputs: Outputs,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Decide whether runs are slower than a baseline, and recommend an action.

    The recommended action is: continue, investigate or revert.  The default is the newest run.  If
    the program prints no times and its steps were not observed, its wall time is compared.  With
    --endpoint energy, energies are compared instead of times.  Exit codes: 0 not slower, or not
    known to be slower; 1 a task failed, or a configuration of the baseline was not measured; 3
    regressed; 4 not comparable (another workload or GPU, a replay, or an unknown energy with
    --endpoint energy; 0 with --allow-not-comparable), or inconclusive with --fail-on inconclusive.

    \b
    perfpipe check --baseline main
    perfpipe check run4 run5 run6 --baseline run1 --baseline run2 --baseline run3
    perfpipe check --baseline baseline.json --junit check.xml --md comment.md
    perfpipe check --baseline main --endpoint energy
    """
    from perfpipe.pipelines.gate.compare import compared, raise_for

    store = resolve_store(store_path)
    fresh = list(names)
    compare = partial(
        compared,
        store,
        baseline,
        step_range=step_range,
        window=window,
        allow_mixed=allow_mixed,
        same_work=True,
        endpoint=endpoint,
    )
    found = compare(fresh)
    if confirms:
        before = compare(confirms)
        if {*before.after.side.names} & {*found.after.side.names}:
            raise InputError("--confirms names a run that is also checked; check only fresh runs")
        found = found.confirming(before)
    found.write(outputs, store, step_range, window)
    raise_for(
        found.decision,
        unknown_too=fail_on == "inconclusive",
        allow_not_comparable=allow_not_comparable,
    )
