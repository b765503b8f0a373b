"""The picture of a step as plain data: lanes of slices on one time scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Label(NamedTuple):
    """Label of a slice: name, category, short kernel name ("" if none), launch in words."""

    name: str
    category: str
    kernel: str = ""
    detail: str = ""


class Slice(NamedTuple):
    """A slice: start and duration, ns from the left border of the picture; `label` is a number.

    `call` is the call that launched it: its number among the slices of all lanes of calls of the
    panel, from 0; -1 if no call is drawn.
    """

    start_ns: int
    dur_ns: int
    label: int
    call: int = -1


class Sample(NamedTuple):
    """A sampled metric: % of its peak until this time, ns from the left border."""

    end_ns: int
    pct: float


@dataclass(frozen=True)
class Lane:
    """A row: `kind` is range, call, code, stream, idle or metric.

    Slices are sorted and do not overlap.  A metric has `samples` instead of slices.
    """

    name: str
    kind: str
    slices: tuple[Slice, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Panel:
    """The lanes of a GPU in a step; `command` exports that step, of all ranks, for Perfetto."""

    name: str
    dur_ns: int
    lanes: tuple[Lane, ...]
    command: str


class Arrival(NamedTuple):
    """Where a rank starts a collective: panel number, and ns from the left border."""

    panel: int
    start_ns: int


@dataclass(frozen=True)
class View:
    """Stacked panels on one scale; each link is one collective on several panels."""

    title: str
    panels: tuple[Panel, ...]
    links: tuple[tuple[Arrival, ...], ...] = ()

    @property
    def dur_ns(self) -> int:
        """The duration of the scale."""
        return max(panel.dur_ns for panel in self.panels)


class Span(NamedTuple):
    """A part of a capture, ns on the clock of the captures of a picture."""

    start_ns: int
    end_ns: int


class Phase(NamedTuple):
    """A phase of a capture (start-up, warm-up, steady, other, shutdown, whole) and its steps."""

    name: str
    span: Span
    steps: int


@dataclass(frozen=True)
class Capture:
    """A whole capture on a GPU; `busy_pct` is how busy the GPU is in parts of equal length, %.

    `steps` are the steps that are drawn, by role: median or slowest.
    """

    name: str
    span: Span
    phases: tuple[Phase, ...]
    busy_pct: tuple[float, ...]
    steps: tuple[tuple[str, Span], ...]


@dataclass(frozen=True)
class Picture:
    """The median step, and the slowest step if there are several; `labels` name the slices.

    `captures` are those around the steps.
    """

    views: tuple[View, ...]
    labels: tuple[Label, ...]
    captures: tuple[Capture, ...] = ()
