"""Names the metrics of ncu's details page, which prints labels, metric names or both."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache

from perfpipe.errors import brief
from perfpipe.files import packaged
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.units import base_unit

#: The section of metrics that the user listed: it has names instead of labels.
_LISTED = "Command line profiler metrics"

#: A metric name as a whole label, or after a label (--print-metric-name label-name).
_NAME = re.compile(r"[a-z][a-z0-9]*_\w+(?:\.\w+)*")
_NAMED = re.compile(r"(?:^|[\s(:])([a-z][a-z0-9]*__\w+(?:\.\w+)*)")

#: Rows that show the version of ncu: a label of every version's section, and one since 2025.1.
_ANY, _SINCE_2025 = "Registers Per Thread", "Stack Size"

#: Maximum number of unknown labels that a warning names.
_NAMED_LABELS = 5


class Labels:
    """Metrics of the labels of a details page, and the labels without a known metric."""

    def __init__(self, printed: Iterable[str]) -> None:
        """Find the version of ncu from all labels of the page."""
        labels = set(printed)
        #: Index into lists of the table; None if the version is unknown.
        self._version = 0 if _SINCE_2025 in labels else 1 if _ANY in labels else None
        self._unknown: dict[str, None] = {}

    def metric(self, record: Mapping[str, str]) -> str:
        """Return the metric of a record: "section:label" if unknown, empty without a label."""
        if not (label := record.get("Metric Name", "")):
            return ""
        section = record["Section Name"]
        known = section_labels().get(section, {})
        metric = known.get(label)
        if isinstance(metric, list):
            metric = None if self._version is None else metric[self._version]
        elif isinstance(metric, dict):
            metric = metric.get(base_unit(record.get("Metric Unit", "")).unit)
        if metric is not None:
            return metric
        if section == _LISTED or _NAME.fullmatch(label):
            return label
        if named := _NAMED.search(label):
            return named[1]
        if known:
            self._unknown[label] = None
        return f"{section}:{label}"

    def warn(self, builder: ReportBuilder) -> None:
        """Add a warning about labels of known sections whose metric is unknown."""
        if unknown := [brief(label, 40) for label in self._unknown]:
            more = f" and {len(unknown) - _NAMED_LABELS} more" if unknown[_NAMED_LABELS:] else ""
            builder.warn(
                "the metrics of these labels on the details page are unknown, and no analysis "
                f"uses them: {', '.join(unknown[:_NAMED_LABELS])}{more} (ingest the .ncu-rep, or "
                "export it with --page raw)"
            )


@cache
def section_labels() -> dict[str, dict[str, str | list[str] | dict[str, str]]]:
    """Return section -> label -> metric, its metrics by version, or its metrics by unit."""
    return tomllib.loads(packaged("perfpipe.ingest.ncu", "labels.toml"))
