"""perfpipe store."""

from __future__ import annotations

from dataclasses import asdict

import click

from perfpipe.errors import StoreError
from perfpipe.pipelines.options import json_document, json_option, resolve_store, store_option
from perfpipe.searchrecord import identifiers
from perfpipe.units import counted, format_bytes
from perfpipe.visible import visible_line

#: What is listed of a trial.
_OF_TRIAL = ("trial_id", "program", "at", "gpu", "run_id", "launches")

#: What is listed of a search.
_OF_SEARCH = ("search_id", "workload", "created_at", "device_name", "baseline", "state")


@click.group("store")
def store_command() -> None:
    """List, verify and clean up the store."""


@store_command.command("ls")
@json_option()
@store_option
def ls_command(as_json: bool, store_path: str | None) -> None:
    """List the reports, trials and searches: id, kind, rows, size, name, warnings."""
    store = resolve_store(store_path, must_exist=True)
    trials, searches = store.trials(), store.searches()
    if as_json:
        click.echo(
            json_document(
                reports=[asdict(m) for m in store.manifests()],
                trials=[{key: vars(trial)[key] for key in _OF_TRIAL} for trial in trials],
                searches=[{key: vars(one)[key] for key in _OF_SEARCH} for one in searches],
            )
        )
        return
    for m in store.each_manifest():
        size = format_bytes(sum(table.bytes for table in m.tables.values()))
        doubts = f"  {counted(len(m.warnings), 'warning')}" if m.warnings else ""
        name = visible_line(m.source_name)
        click.echo(f"{m.report_id}  {m.kind:4}  {m.rows:>11,} rows  {size:>9}  {name}{doubts}")
    for trial in trials:
        tried = counted(sum(own.launches > 0 for own in trial.levers), "lever")
        click.echo(f"{trial.trial_id}  trial  {tried}  {visible_line(trial.program)}")
    for search in searches:
        click.echo(f"{search.search_id}  search  {search.state}  {visible_line(search.workload)}")


@store_command.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="REPORT|TRIAL|SEARCH...")
@store_option
def rm_command(names: tuple[str, ...], store_path: str | None) -> None:
    """Remove reports, trials and searches from the store; input files are not touched."""
    store = resolve_store(store_path, must_exist=True)
    for name in names:
        if name in identifiers(store.root):
            store.remove_search(name)
        elif store.has_trial(name):
            store.remove_trial(name)
        else:
            store.remove(name)
        click.echo(f"removed {name}")


@store_command.command("compact")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="Keep replaced files for this long, because queries may still have them open.",
)
@json_option()
@store_option
def compact_command(grace: float, as_json: bool, store_path: str | None) -> None:
    """Merge small reports and segments into one file per table, to speed up queries.

    Each report can still be queried, reported on and removed individually.  Other commands can read
    and write the store during compaction, and an interruption does not lose data.  The first
    compact or gc after the time given by --grace removes the replaced files.
    """
    from perfpipe.compaction import compact

    store = resolve_store(store_path, must_exist=True)
    done = compact(store, grace * 60)
    if as_json:
        segment = done.segment and done.segment.segment_id
        numbers = {"added": done.added, "merged": done.merged, "removed": len(done.removed)}
        click.echo(json_document(segment=segment, **numbers))
        return
    if done.segment is None:
        click.echo("nothing to compact")
    else:
        size = format_bytes(sum(file.bytes for file in done.segment.files))
        held = counted(len(done.segment.reports), "report")
        parts = [counted(done.added, "report")] if done.added else []
        parts += [counted(done.merged, "segment")] if done.merged else []
        what = " and ".join(parts)
        click.echo(f"{what} compacted into segment {done.segment.segment_id} ({held}, {size})")
    if done.removed:
        click.echo(f"{len(done.removed):,} replaced directories removed", err=True)


@store_command.command("gc")
@click.option(
    "--older-than",
    type=float,
    default=24,
    show_default=True,
    metavar="HOURS",
    help="Remove only directories that have not changed for this long; other directories may be "
    "in use.",
)
@store_option
def gc_command(older_than: float, store_path: str | None) -> None:
    """Remove files left behind by interrupted writes or replaced by compaction."""
    from perfpipe.prune import collect_garbage

    removed = collect_garbage(resolve_store(store_path, must_exist=True), older_than * 3600)
    for path in removed:
        click.echo(f"removed {path.name}")
    click.echo(f"{len(removed)} directories removed", err=True)


@store_command.command("verify")
@json_option()
@store_option
def verify_command(as_json: bool, store_path: str | None) -> None:
    """Check every report, run and trial: files, checksums, rows, columns and versions.

    Exits with code 2 if anything is damaged.
    """
    from perfpipe.verify import verify

    store = resolve_store(store_path, must_exist=True)
    results = list(verify(store))
    faults = [(name, fault) for name, fault in results if fault]
    left = len(store.abandoned())
    if as_json:
        found = [{"id": name, "fault": fault} for name, fault in results]
        click.echo(json_document(results=found, leftovers=left))
    else:
        for name, fault in faults:
            click.echo(f"{name}: {fault}")
        faulty = len({name for name, _ in faults})
        whole = len({name for name, _ in results}) - faulty
        click.echo(f"{whole} intact, {faulty} damaged, {counted(left, 'leftover')}")
    if faults:
        raise StoreError(f"{counted(len(faults), 'error')} in {store.root}")
