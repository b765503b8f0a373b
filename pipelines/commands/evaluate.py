"""perfpipe evaluate."""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option

if TYPE_CHECKING:
    from perfpipe.pipelines.evaluate.result import Judgement


@click.command("evaluate")
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory or file of a candidate, or a FlashInfer-Trace solution; repeat for several.",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Candidate to compare with, instead of the baselines in the workload file; repeat for "
    "several.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto",
              show_default=True, help="Device that candidates run on.")  # fmt: skip
@click.option("--no-timing", is_flag=True, help="Only check results; do not time candidates.")
@click.option(
    "--launches",
    type=click.IntRange(min=1),
    help="Number of processes for each candidate and baseline.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help="Number of batches of calls to time in each process.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the inputs (default: random).")
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append each result to a JSON lines file, which 'perfpipe report --tuning' reads.",
)
@click.option(
    "--workloads",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Workloads of a FlashInfer-Trace definition (JSON lines).",
)
@click.option(
    "--flashinfer",
    "exported",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a FlashInfer-Trace data set (definition, workloads, solutions, traces) to DIR.",
)
@click.option("--generation", type=click.IntRange(min=0), default=0, show_default=True,
              help="With --history: generation number in the search.")  # fmt: skip
@click.option(
    "--parent",
    "parents",
    multiple=True,
    metavar="NAME",
    help="With --history: the candidate that this one was made from; repeat for several.",
)
@click.option("--describe", is_flag=True,
              help="Print the problem with a kernel.py that runs, and judge nothing.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Profile the fastest correct candidate with ncu.")
@json_option()
@store_option
def evaluate_command(
    workload: Path,
    candidates: tuple[Path, ...],
    baselines: tuple[str, ...],
    device: str,
    no_timing: bool,
    launches: int | None,
    batches: int | None,
    seed: int | None,
    history: Path | None,
    workloads: Path | None,
    exported: Path | None,
    generation: int,
    parents: tuple[str, ...],
    describe: bool,
    profile: bool,
    as_json: bool,
    store_path: str | None,
) -> None:
    """Evaluate kernels: check that they are correct and do not cheat, and time them.

    WORKLOAD has a block 'evaluate' with the inputs, the outputs and a reference (docs/agents.md).
    WORKLOAD can also be a FlashInfer-Trace definition (.json), a KernelBench problem (.py) or a GPU
    MODE task (task.yml).  A candidate is a directory with kernel.py, which defines run(inputs...,
    outputs...), or this file alone.  A candidate runs in a separate process from the reference and
    the timer, with resource limits and without network access.  A candidate can read only the
    libraries and a copy of its own directory.  Only correct candidates are timed, alternating with
    each baseline.  With --profile, ncu profiles the fastest correct candidate, and perfpipe reports
    the class, SOL and SOL headroom of its kernels.  The exit code is 1 if any candidate is not
    correct.

    \b
    perfpipe evaluate workloads/softmax.yaml --candidate workloads/candidates/softmax/fused
    perfpipe evaluate w.yaml --candidate a --candidate b --baseline best --profile --json
    perfpipe evaluate w.yaml --describe
    """
    from perfpipe.pipelines.console import progress
    from perfpipe.pipelines.evaluate.device import device_of, pytorch
    from perfpipe.pipelines.evaluate.history import append
    from perfpipe.pipelines.evaluate.judge import Judge, Options
    from perfpipe.pipelines.evaluate.load import loaded
    from perfpipe.pipelines.evaluate.profiling import best, case_of
    from perfpipe.pipelines.evaluate.profiling import profile as profile_of
    from perfpipe.pipelines.evaluate.traces import definition, export
    from perfpipe.pipelines.signals import launching

    if not candidates and not describe:
        raise click.UsageError("give --candidate, or --describe")
    torch = pytorch()
    where = device_of(torch, device)
    if describe:
        _describe(torch, workload, where, workloads, as_json)
        return
    chosen = secrets.randbits(40) if seed is None else seed
    options = Options(where, chosen, not no_timing, launches, batches)
    made: list[Judgement] = []
    with TemporaryDirectory(prefix="perfpipe-problem-") as folder, launching():
        own = loaded(torch, workload, where, Path(folder), workloads)
        if exported is not None:
            definition(own.problem)  # before anything is run
        at = Path(folder) / "candidates"
        paths = [own.candidate(path, at) for path in candidates]
        against = dict(own.baselines)
        if baselines:
            named = dict(map(_named, baselines))
            against = {name: own.candidate(path, at) for name, path in named.items()}
        with (
            Judge.opened(own.problem, own.work, options) as judge,
            progress(own.problem.name, len(paths)) as steps,
        ):
            for directory in paths:
                made.append(judge.judge(directory, against, steps.detail))
                steps.step(f"{directory.name}: {made[-1].status}: {made[-1].reason}")
                if history is not None:
                    append(history, made[-1], generation, parents)
        if profile and (number := best(made)) is not None:
            found = made[number]
            case, store = case_of(own.problem, found), resolve_store(store_path)
            seen = profile_of(torch, own, paths[number], case, where, store)
            made[number] = replace(found, profile=seen)
        if exported is not None:
            pairs = [*zip(made, paths, strict=True)]
            export(exported, own.problem, pairs, own.workloads)
    if as_json:
        click.echo(json_document(results=[asdict(one) for one in made]))
    else:
        from perfpipe.pipelines.evaluate.telling import tell

        tell(made)
    if not all(one.ok for one in made):
        raise click.exceptions.Exit(1)


def _describe(
    torch: Any, workload: Path, device: str, workloads: Path | None, as_json: bool
) -> None:
    """Print the problem of a workload."""
    from perfpipe.pipelines.evaluate.describing import problem_data, problem_text
    from perfpipe.pipelines.evaluate.load import loaded

    with TemporaryDirectory(prefix="perfpipe-problem-") as folder:
        found = problem_data(
            torch, loaded(torch, workload, device, Path(folder), workloads), device
        )
    click.echo(json_document(problem=found) if as_json else problem_text(found).rstrip())


def _named(given: str) -> tuple[str, Path]:
    name, equals, directory = given.partition("=")
    path = Path(directory if equals else name)
    if not path.exists():
        raise InputError(f"--baseline {given}: no such directory")
    return (name if equals else path.stem), path
