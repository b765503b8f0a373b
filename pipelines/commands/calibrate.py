"""perfpipe gate calibrate."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfpipe.pipelines.gate.options import ROUNDS
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

if TYPE_CHECKING:
    from perfpipe.calibrationrecord import Calibrated, Calibration

#: Rounds of a calibration, each with two executions.
_CALIBRATING = 10


@click.command("calibrate")
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    type=click.IntRange(min=3),
    default=_CALIBRATING,
    show_default=True,
    help="Number of rounds to measure; a round runs each configuration twice.",
)
@click.option(
    "--change",
    "change_pct",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="Smallest change to detect, %.",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting: a parameter, env.VARIABLE, cwd, python or wrapper, as in 'perfpipe ab --a'.",
)
@json_option()
@store_option
def calibrate_command(
    workload: Path,
    rounds: int,
    change_pct: float,
    given: tuple[str, ...],
    as_json: bool,
    store_path: str | None,
) -> None:
    """Compare a workload with itself to measure how small a change can be detected.

    Programs run without a profiler, as in 'perfpipe ab'.  Reports run-to-run and within-run
    variation, drift, bimodal times, the false-alarm rate for an unchanged program, and the smallest
    change that is detected in 95 % of comparisons.  Proposes the number of rounds and the threshold
    needed to detect a change of --change.  The store keeps the calibration for this
    workload and this kind of machine; 'perfpipe ab' and 'perfpipe check' use it.

    \b
    perfpipe gate calibrate workloads/gemm.yaml
    perfpipe gate calibrate workloads/cpu_noise.yaml --rounds 20 --change 1
    """
    from perfpipe.pipelines.console import progress
    from perfpipe.pipelines.gate.arms import arm_of, source_of
    from perfpipe.pipelines.gate.calibrate import calibrated
    from perfpipe.pipelines.signals import launching

    store = resolve_store(store_path)
    arm = arm_of("set", source_of(workload, None), given)
    with launching(), progress(arm.workload.name, rounds) as steps:
        found = calibrated(arm, store, rounds, steps, usual_rounds=ROUNDS, change_pct=change_pct)
    if as_json:
        click.echo(json_document(**asdict(found), rounds=found.rounds))
    else:
        _print(found)


def _print(found: Calibration) -> None:
    click.echo(f"{found.workload} on {found.machine}, {len(found.runs)} executions")
    for own in found.configurations:
        click.echo(f"\n{own.label}: {own.median_ms:.4g} ms")
        for line in _lines(own, found.change_pct):
            click.echo(f"  {line}")
    click.echo(
        f"\n'perfpipe ab' and 'perfpipe check' now use this calibration; 'perfpipe ab' measures up "
        f"to {found.rounds} rounds."
    )


def _lines(own: Calibrated, change_pct: float) -> list[str]:
    within = "" if own.within_pct is None else f"; within-run variation {own.within_pct:.2g} %"
    span = f"{own.between_low_pct:.2g} to {own.between_high_pct:.2g} %"
    found = [f"run-to-run variation {own.between_pct:.2g} % ({span}){within}"]
    drift = f"{own.drift_pct:+.2g} % from first to last execution"
    interval = f"({own.drift_low_pct:+.2g} to {own.drift_high_pct:+.2g} %)"
    found.append(f"drift: {drift} {interval}" if own.drifts else f"no significant drift {interval}")
    if own.correlated:
        found.append(
            f"each execution depends on the previous one (correlation {own.autocorrelation:.2g})"
        )
    if own.modes is not None:
        fast, slow = own.modes.fast_ms, own.modes.slow_ms
        found.append(
            f"two modes: {fast:.4g} ms, and {slow:.4g} ms in "
            f"{own.modes.slow_pct:.0f} % of executions"
        )
    for title, setting in (("now", own.now), ("proposed", own.proposed)):
        found.append(
            f"{title}: {setting.rounds} rounds, threshold {setting.limit_pct:g} %: "
            f"false alarms {setting.false_pct:.1f} %; a change of {change_pct:g} % is detected in "
            f"{setting.found_pct:.0f} % of comparisons; the smallest change detected in 95 % of "
            f"comparisons is {setting.detectable_pct:.2g} %"
        )
    if own.proposed.found_pct < 95:
        found.append(
            f"a change of {change_pct:g} % cannot be detected reliably: too much variation"
        )
    return found
