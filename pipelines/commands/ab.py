"""perfpipe ab."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.gate.options import ROUNDS, allow_not_comparable_option, gate_outputs
from perfpipe.pipelines.options import WithSubject, program_options, resolve_store, store_option
from perfpipe.windows import STEADY

if TYPE_CHECKING:
    from perfpipe.pipelines.gate.options import Outputs


@click.command("ab", cls=WithSubject)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@click.option(
    "--a",
    "of_a",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of arm A: a parameter, env.VARIABLE, cwd, python or wrapper.",
)
@click.option(
    "--b",
    "of_b",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of arm B, in the same form as --a.",
)
@click.option(
    "--git",
    "span",
    metavar="A..B|A...B",
    help="Compare two commits, each in its own work tree; with three dots, B and the last common "
    "ancestor of A and B.",
)
@click.option(
    "--build",
    metavar="COMMAND",
    help="With --git: command that builds the program in each work tree.",
)
@click.option(
    "--calibration",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Exported baseline whose calibration applies if the store has none.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    help="Maximum number of rounds; a round runs each arm once (default: from the calibration, "
    f"else {ROUNDS}).",
)
@click.option(
    "--no-early-stop",
    is_flag=True,
    help="Measure all rounds, and test the results only once, after the last round.",
)
@click.option(
    "--aa",
    is_flag=True,
    help="Compare arm A with itself: any difference is noise, and the result is marked A/A.",
)
@click.option(
    "--no-confirm", is_flag=True, help="Do not measure fresh rounds to confirm a regression."
)
@click.option("--seed", type=int, help="Seed of the random order of launches.")
@click.option(
    "--fail-on",
    type=click.Choice(["regressed", "inconclusive"]),
    default="regressed",
    show_default=True,
    help="With 'inconclusive', also exit with 4 if the verdict is inconclusive or unreplicated.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="If the time changed, also profile each arm once, to show where the difference comes "
    "from.",
)
@program_options
@allow_not_comparable_option
@gate_outputs
@store_option
def ab_command(
    workload: Path | None,
    program: tuple[str, ...] | None,
    env: tuple[str, ...],
    cwd: Path | None,
    of_a: tuple[str, ...],
    of_b: tuple[str, ...],
    span: str | None,
    build: str | None,
    file: Path | None,
    rounds: int | None,
    no_early_stop: bool,
    aa: bool,
    no_confirm: bool,
    seed: int | None,
    fail_on: str,
    explain: bool,
    allow_not_comparable: bool,
    outputs: Outputs,
    store_path: str | None,
) -> None:
    """Compare two arms of a workload or program, in rounds of random order on this machine.

    Arms can differ in parameters, environment, directory, interpreter, wrapper or commit.  Programs
    run without a profiler.  The first launch of each arm does not count.  Measurement stops early
    if the verdict is certain (group-sequential test, O'Brien-Fleming, 5 % over all tests).
    perfpipe advises you to revert only if fresh rounds confirm a regression.  If the arms are
    identical (A/A), a regression is a false alarm.  Exit codes are those of 'perfpipe check'.

    \b
    perfpipe ab workloads/gemm.yaml --a dtype=fp16 --b dtype=bf16
    perfpipe ab w.yaml --b env.CUDA_LAUNCH_BLOCKING=1 --rounds 10
    perfpipe ab w.yaml --b cwd=../other-checkout --b python=/opt/new/bin/python
    perfpipe ab w.yaml --git main...HEAD --build 'make -j8' --explain --md comment.md
    perfpipe ab w.yaml --aa --a size=4096 --rounds 10 --no-early-stop
    perfpipe ab --b env.NVIDIA_TF32_OVERRIDE=1 -- python train.py
    perfpipe ab --git main..HEAD --build 'make -j8' -- ./build/bench --size 4096
    """
    from perfpipe.analysis.gate.decision import Verdict
    from perfpipe.pipelines.console import progress, say
    from perfpipe.pipelines.gate.ab import ab, with_profiles
    from perfpipe.pipelines.gate.arms import arm_of, checkouts, source_of
    from perfpipe.pipelines.gate.calibrate import calibration_for
    from perfpipe.pipelines.gate.compare import both_steps, raise_for, write
    from perfpipe.pipelines.gate.sides import exported_calibration
    from perfpipe.pipelines.signals import launching

    if build is not None and span is None:
        raise InputError("--build needs --git")
    if aa and (of_b or span):
        raise InputError("--aa cannot be combined with --b or --git: both arms are A")
    if not (of_a or of_b or span or aa):
        raise InputError(
            "the arms are identical: use --a, --b or --git, or --aa to compare A with itself"
        )
    store = resolve_store(store_path)
    carried = None if file is None else exported_calibration(file)
    source = source_of(workload, program, env=env, cwd=cwd, elsewhere=span is not None)
    trees = nullcontext((None, None)) if span is None else checkouts(source, span, build)
    with launching(), trees as (one, other):
        arms = (
            arm_of("a", source, of_a, one),
            arm_of("b", source, of_a if aa else of_b, other),
        )
        calibration = calibration_for(arms[0], store, carried)
        if carried is not None and calibration is None:
            say(
                f"{file}: its calibration is not used (it is of {carried.workload} on "
                f"{carried.machine})"
            )
        most = rounds or (calibration.rounds if calibration else ROUNDS)
        with progress(arms[0].workload.name, most) as steps:
            early, confirm = not no_early_stop, not no_confirm
            found = ab(
                arms, store, most, steps, calibration, early=early, confirm=confirm, seed=seed
            )
            if explain and found.decision.verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
                steps.note("profiling both arms to show where the time went")
                found = with_profiles(found, arms, store, steps.note)
    both = partial(both_steps, store, *found.reports, None, STEADY)
    write(found.decision, found.comparison, outputs, both)
    raise_for(
        found.decision,
        unknown_too=fail_on == "inconclusive",
        allow_not_comparable=allow_not_comparable,
    )
