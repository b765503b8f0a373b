"""perfpipe gate baseline."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path

import click

from perfpipe.errors import InputError, StoreError
from perfpipe.pipelines.options import (
    json_document,
    json_option,
    resolve_store,
    step_range_option,
    store_option,
    window_option,
)


@click.group("baseline")
def baseline_command() -> None:
    """Save runs as a named baseline for 'perfpipe check', and export their measurements.

    \b
    perfpipe gate baseline set main run1 run2 run3
    perfpipe gate baseline export main baseline.json     # a small file; no store needed
    perfpipe gate baseline show baseline.json
    perfpipe check --baseline baseline.json
    """


@baseline_command.command("set")
@click.argument("name")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@store_option
def set_command(name: str, runs: tuple[str, ...], store_path: str | None) -> None:
    """Save runs as baseline NAME, replacing any existing baseline of that name."""
    from perfpipe import baselinerecord
    from perfpipe.directories import storing
    from perfpipe.pipelines.selection import select
    from perfpipe.provenance import utc_now

    store = resolve_store(store_path, must_exist=True)
    found = select(store, runs)
    if not found.only_runs:
        raise InputError("a baseline consists of runs, not reports")
    replays = [run.run_id for run in found.runs if run.replayed]
    if replays:
        raise InputError(f"{replays[0]} is a replay, not a measurement")
    ids = tuple(run.run_id for run in found.runs)
    path = baselinerecord.path_of(store.root, name)
    with storing(path):
        baselinerecord.write(store.root, baselinerecord.Baseline(name, ids, utc_now()))
    click.echo(f"{name}: {', '.join(ids)}")


@baseline_command.command("ls")
@json_option()
@store_option
def ls_command(as_json: bool, store_path: str | None) -> None:
    """List the baselines with their runs."""
    from perfpipe import baselinerecord

    store = resolve_store(store_path, must_exist=True)
    found = []
    for name in baselinerecord.names(store.root):
        try:
            own = baselinerecord.read(store.root, name)
        except StoreError as error:
            store.warn(f"baseline {name} is skipped: {error}")
        else:
            found += [own] if own is not None else []
    if as_json:
        click.echo(json_document(baselines=[asdict(own) for own in found]))
        return
    for own in found:
        click.echo(f"{own.name}  {own.set_at}  {', '.join(own.runs)}")


@baseline_command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@store_option
def rm_command(names: tuple[str, ...], store_path: str | None) -> None:
    """Remove baselines; their runs are kept."""
    from perfpipe import baselinerecord
    from perfpipe.directories import storing

    root = resolve_store(store_path, must_exist=True).root
    for name in names:
        path = baselinerecord.path_of(root, name)
        if not path.exists():
            raise InputError(f"{name}: no such baseline")
        with storing(path):
            path.unlink()
        click.echo(f"removed {name}")


@baseline_command.command("export")
@click.argument("name", metavar="NAME|RUN[,RUN]")
@click.argument("file", type=click.Path(path_type=Path))
@window_option
@step_range_option
@store_option
def export_command(
    name: str, file: Path, window: str, step_range: str | int | None, store_path: str | None
) -> None:
    """Write a baseline's measurements, without profiles, to a small JSON file.

    The file also has the calibration of the workload on this kind of machine, if there is one.
    """
    import json

    from perfpipe.analysis.gate.check import Exported, document_of
    from perfpipe.analysis.gate.sides import ENDPOINTS, WALL
    from perfpipe.pipelines.console import say
    from perfpipe.pipelines.gate.calibrate import calibration_of
    from perfpipe.pipelines.gate.sides import named
    from perfpipe.pipelines.writing import write_text

    if file.suffix != ".json":
        raise InputError(f"{file}: an exported baseline must be a .json file")
    store = resolve_store(store_path, must_exist=True)
    (found,) = named(store, name.split(","), step_range=step_range, window=window)
    if found.replayed:
        raise InputError(f"{name} is a replay, not a measurement")
    parts = {key.part for key in found.side.measured}
    if parts.isdisjoint(ENDPOINTS):
        raise InputError(
            f"{name} has no measurements: the program printed no times, no execution ended by "
            "itself, and no profiler recorded GPU work"
        )
    silent = sorted({key.label for key in found.side.measured if key.part == WALL})
    if silent:
        say(f"{', '.join(silent)}: the program prints no times; its wall time is compared")
    exported = Exported(found.side, calibration_of(store, found.runs))
    write_text(file, json.dumps(document_of(exported), indent=1) + "\n")
    click.echo(file)


@baseline_command.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@json_option()
def show_command(file: Path, as_json: bool) -> None:
    """Check an exported baseline, and show what it contains.

    The exit code is 2 if FILE is missing or not valid.
    """
    from perfpipe.analysis.facts import MACHINE, MACHINE_MODEL, PROGRAM, WORKLOAD
    from perfpipe.analysis.gate.sides import ENDPOINTS
    from perfpipe.pipelines.gate.sides import exported
    from perfpipe.units import counted, format_ns

    found = exported(file)
    facts = found.side.facts
    about = {
        "runs": found.side.names,
        "workload": facts.values(PROGRAM, WORKLOAD),
        "machine": facts.values(MACHINE, MACHINE_MODEL),
        "configurations": sorted(found.side.labels),
    }
    measured = [
        (key, statistics.median(own.medians), len(own.medians))
        for key, own in sorted(found.side.measured.items())
        if key.part in ENDPOINTS
    ]
    if as_json:
        calibration = found.calibration and asdict(found.calibration)
        times = [
            {"configuration": key.label, "part": key.part, "median_ms": ns / 1e6, "runs": runs}
            for key, ns, runs in measured
        ]
        click.echo(json_document(**about, times=times, calibration=calibration))
        return
    for name, values in about.items():
        click.echo(f"{name}: {', '.join(values) or 'unknown'}")
    for key, ns, runs in measured:
        label = "" if key.label == "-" else f" of {key.label}"
        click.echo(f"{key.part}{label}: {format_ns(ns)} in the median of {counted(runs, 'run')}")
    calibrated = "none" if found.calibration is None else f"{found.calibration.at[:10]}"
    click.echo(f"calibration: {calibrated}")
