"""The same work on two GPU models, by the names of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from perfpipe.analysis.gate.across_gpus.page import across_page
from perfpipe.analysis.gate.across_gpus.reading import VIEWS, Across, OneSide, across
from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.pipelines.gate.options import Outputs
from perfpipe.pipelines.gate.sides import check_apart, selected
from perfpipe.store import Store
from perfpipe.viewmodel import Report
from perfpipe.windows import STEADY

#: Formats of a verdict, which a comparison across GPUs does not have.
_OF_VERDICTS = ("junit", "bmf", "openmetrics")


@dataclass(frozen=True)
class Found:
    """A comparison across GPUs, and its two sides."""

    across: Across
    names: tuple[str, ...]
    replayed: tuple[str, ...] = ()

    @property
    def page(self) -> Report:
        """The comparison as tables and sentences."""
        page = across_page(self.across, self.names)
        return replace(page, notice=self._notice)

    @property
    def _notice(self) -> str | None:
        if not self.replayed:
            return None
        return f"Replayed with the times of a recording: {', '.join(self.replayed)}"

    def as_data(self) -> dict[str, Any]:
        """Return the comparison as JSON data; times in ns."""
        found = self.across
        return {
            "gpus": [spec.name for spec in found.gpus],
            "names": self.names,
            "replayed": self.replayed,
            "configurations": [{**asdict(one), "ratio": one.ratio} for one in found.works],
            "kernels": [{**asdict(one), "ratio": one.pair.ratio} for one in found.kernels],
            "only_before": [asdict(one) for one in found.only_before],
            "only_after": [asdict(one) for one in found.only_after],
        }


def across_gpus(
    store: Store,
    before: Sequence[str],
    after: Sequence[str],
    step_range: str | int | None = None,
    window: str = STEADY,
) -> Found:
    """Compare two sides that ran on two GPU models; raises InputError if they did not."""
    chosen = [selected(store, names) for names in (before, after)]
    check_apart(chosen)
    for selection in chosen:
        if not selection.reports:
            raise InputError("these runs have no reports, so their GPU is unknown")
    runs = [run for selection in chosen for run in selection.runs]
    reports = [report for selection in chosen for report in selection.reports]
    with Session.open(
        store,
        reports,
        [run.run_id for run in runs],
        use=VIEWS,
        step_range=step_range,
        window=window,
    ) as session:
        old, new = (OneSide(selection.runs, selection.reports) for selection in chosen)
        found = across(session.con, old, new)
    names = tuple(run.run_id for run in runs) or tuple(reports)
    return Found(found, names, tuple(run.run_id for run in runs if run.replayed))


def refuse_verdicts(outputs: Outputs) -> None:
    """Raise InputError for a format that needs a verdict."""
    given = [f"--{item.name}" for item in fields(outputs) if getattr(outputs, item.name)]
    if wrong := [option for option in given if option.removeprefix("--") in _OF_VERDICTS]:
        raise InputError(f"{wrong[0]}: a comparison across GPUs has no verdict")
