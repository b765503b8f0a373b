"""Estimates runs on another GPU, by name, and writes pages about two GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from perfpipe.analysis.gate.project.page import assumptions, projection_page
from perfpipe.analysis.gate.project.reading import VIEWS, gpu_of, project
from perfpipe.analysis.gate.project.totals import Whole
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.pipelines.options import json_document
from perfpipe.pipelines.selection import chosen
from perfpipe.pipelines.writing import write_text
from perfpipe.specs import GpuSpec, gpu_specs, search_specs
from perfpipe.store import Store
from perfpipe.templates.renderers import print_terminal, render_html, render_markdown
from perfpipe.viewmodel import Report
from perfpipe.windows import STEADY


@dataclass(frozen=True)
class Projected:
    """A projection: its configurations, the two GPUs, and the projected runs."""

    wholes: tuple[Whole, ...]
    before: GpuSpec
    after: GpuSpec
    names: tuple[str, ...]

    @property
    def page(self) -> Report:
        """The projection as tables and sentences."""
        return projection_page(self.wholes, self.before, self.after, self.names)

    def as_data(self) -> dict[str, Any]:
        """Return the projection as JSON data; times in ns."""
        wholes = [{**asdict(whole), "faster": whole.faster} for whole in self.wholes]
        return {
            "from": self.before.name,
            "to": self.after.name,
            "names": self.names,
            "assumed": [*assumptions(self.before, self.after)],
            "configurations": [
                {**whole, "faster": None if whole["faster"] is None else asdict(whole["faster"])}
                for whole in wholes
            ],
        }


def projected(
    store: Store,
    names: Sequence[str],
    target: str,
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Projected:
    """Project runs or reports; raises InputError for an unknown GPU, or if there is nothing."""
    after = gpu_named(target)
    found = chosen(store, names)
    if not found.reports:
        raise InputError("these runs have no reports, so their GPU is unknown")
    runs = found.runs if found.only_runs else []
    with Session.open(
        store,
        found.reports,
        [run.run_id for run in found.runs],
        use=VIEWS,
        step_range=step_range,
        window=window,
    ) as session:
        session.check_window()
        before = gpu_of(session.con, found.reports)
        wholes = tuple(project(session.con, runs, found.reports, before, after))
    if not wholes:
        raise InputError("nothing to project: no timeline, profile or timing")
    labels = tuple(run.run_id for run in found.runs) or tuple(found.reports)
    return Projected(wholes, before, after, labels)


def gpu_named(words: str) -> GpuSpec:
    """Return the GPU of a name; raises InputError, with near matches, for an unknown one."""
    import difflib

    found = search_specs(words)
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"--to {words}: matches several GPUs ({_listed(found)})")
    known = {name: spec for spec in gpu_specs() for name in (spec.key, spec.name.casefold())}
    near = difflib.get_close_matches(words.casefold(), list(known), n=3, cutoff=0.5)
    close = list(dict.fromkeys(known[name].key for name in near))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise InputError(f"--to {words}: unknown GPU{hint} ('perfpipe gpu' lists them)")


def _listed(specs: Sequence[GpuSpec]) -> str:
    return ", ".join(spec.key for spec in specs)


def write(
    page: Report,
    as_data: Callable[[], dict[str, Any]],
    *,
    as_json: str | None,
    md: str | None,
    html: str | None,
) -> None:
    """Print a page, or write the requested files; - is stdout."""
    from perfpipe.pipelines.console import stdout

    made: tuple[tuple[str | None, Callable[[], str]], ...] = (
        (as_json, lambda: json_document(**as_data()) + "\n"),
        (md, lambda: render_markdown(page)),
        (html, lambda: render_html(page)),
    )
    for target, make in made:
        if target == "-":
            click.echo(make(), nl=False)
        elif target is not None:
            write_text(Path(target), make())
    if not any(target == "-" for target, _ in made):
        print_terminal(page, stdout(highlight=True), most=1)
