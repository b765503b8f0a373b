"""Results of runs and reports in Python: the verdict, data frames, plots, and the page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from perfpipe.analysis.report.facts import notice_of
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.api.frames import frame_of, pandas
from perfpipe.pipelines.api.plots import plot_of
from perfpipe.pipelines.commands.schema import relations
from perfpipe.pipelines.reading import with_files
from perfpipe.pipelines.reporting import make_report, output
from perfpipe.pipelines.selection import select
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.templates.closing import closing_lines
from perfpipe.templates.renderers import render_html
from perfpipe.viewmodel import Report

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from matplotlib.figure import Figure
    from pandas import DataFrame

#: Height of a page in a notebook, CSS, and the width of text, characters.
_HEIGHT, _WIDTH = "42rem", 100

#: What a page may do in a notebook: run its own scripts, and open links.
_SANDBOX = "allow-scripts allow-popups"


@dataclass(frozen=True, repr=False)
class Results:
    """Runs and reports of a store, read when something is asked of them.

    A notebook shows it as the HTML report, a terminal as the report's first screen.  `metrics` are
    the ncu metrics that were asked for.
    """

    store: Store
    names: tuple[str, ...]
    runs: tuple[RunRecord, ...]
    reports: tuple[str, ...]
    metrics: tuple[str, ...] = ()

    @classmethod
    def named(cls, names: Sequence[str | Path], path: str | Path | None) -> Self:
        """Return what some names stand for; arguments and errors are those of perfpipe.report."""
        store = Store.locate(path)
        meant = with_files(store, [str(name) for name in names])
        chosen = select(Store.locate(path, must_exist=True), meant)
        return cls(store, meant, tuple(chosen.runs), tuple(chosen.reports))

    @classmethod
    def of_run(cls, store: Store, run: RunRecord, metrics: Sequence[str] = ()) -> Self:
        """Return the results of one run."""
        return cls(store, (run.run_id,), (run,), run.reports, tuple(metrics))

    @property
    def run_id(self) -> str:
        """The id of the run; raises InputError if there is not exactly one."""
        if len(self.runs) != 1:
            raise InputError(f"{len(self.runs)} runs, not one")
        return self.runs[0].run_id

    @property
    def notice(self) -> str | None:
        """The sentence that marks results which were replayed, not measured; else None."""
        return next(filter(None, map(notice_of, self.runs)), None)

    @property
    def verdict(self) -> str:
        """The first sentence of the report: what limits the program."""
        opening = self._report.opening
        return opening.verdict.text if opening is not None else self._report.verdict

    def sql(self, query: str) -> DuckDBPyRelation:
        """Return the relation of a query on these runs and reports; `.df()` and `.show()` run it.

        `perfpipe schema` lists the tables and views.
        """
        return self._session.sql(query)

    def frame(
        self,
        view: str | None = None,
        *,
        metrics: Sequence[str] | None = None,
        kernels: bool = False,
    ) -> DataFrame:
        """Return a pandas data frame: a row for each configuration, its parameters and metrics.

        `metrics` are columns of the views run_times, run_efficiency, kernel_sol and
        kernel_bottleneck, or names of ncu metrics.  Units are base units, as the names say: ns,
        bytes, FLOP/s; `attrs["columns"]` has the meaning and unit of each column.  The metric of a
        kernel is that of the longest kernel under ncu (`kernel_name`); with `kernels`, there is a
        row for each kernel launch that ncu profiled.  What was not measured is NaN or None.

        With `view`, return a table or view as it is.

        Raises InputError for an unknown metric or view, ToolMissing without pandas.
        """
        if view is None:
            return frame_of(self._session, metrics, self.metrics, kernels=kernels)
        pandas()
        known = [relation.name for relation in relations()]
        if view not in known:
            raise InputError(
                f"no table or view {view}{did_you_mean(view, known)} ('perfpipe schema' lists them)"
            )
        frame: DataFrame = self.sql(f"FROM {view}").df()
        return frame

    def plot(
        self,
        x: str,
        y: str = "median_ms",
        *,
        by: str | Sequence[str] | None = None,
        baseline: Any = None,
        path: str | Path | None = None,
    ) -> Figure:
        """Plot a metric over a parameter, with a line for each value of the parameters `by`.

        `by` defaults to the other parameters that vary.  With `baseline`, the name of a line, the
        plot shows y divided by the y of that line at the same x.  Rates and percentages of a peak
        have a line at the vendor's dense peak, if the GPU is known.  The file at `path` gets its
        format from its ending, such as .png or .svg; a notebook shows the figure.

        Raises InputError for unknown parameters and metrics, and if there is nothing to draw.
        """
        return plot_of(self._session, self._frame_for(y), x, y, by, baseline, path, self.notice)

    def save(self, path: str | Path) -> None:
        """Write the report as a page (.html), Markdown (.md) or data (.json), by the ending."""
        kinds = {".html": "html", ".md": "md", ".json": "as_json"}
        if (kind := kinds.get(Path(path).suffix)) is None:
            raise InputError(f"{path}: the name of a report ends in {', '.join(kinds)}")
        options: Any = {kind: str(path)}
        output(self._report, **options)

    def _frame_for(self, metric: str) -> DataFrame:
        return frame_of(self._session, [metric], (), kernels=False)

    @cached_property
    def _session(self) -> Session:
        run_ids = [run.run_id for run in self.runs]
        return Session.open(self.store, self.reports, run_ids)

    @cached_property
    def _report(self) -> Report:
        return make_report(self.store, self.names)

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its styles and scripts stay inside."""
        page = html.escape(render_html(self._report), quote=True)
        style = f"width: 100%; height: {_HEIGHT}; border: 0; resize: vertical"
        return (
            f'<iframe srcdoc="{page}" sandbox="{_SANDBOX}" style="{style}" '
            f'title="{html.escape(self._report.title, quote=True)}"></iframe>'
        )

    def __repr__(self) -> str:
        return "\n".join(closing_lines(self._report, (), self.store.option, _WIDTH))
