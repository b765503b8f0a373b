"""Write drawn pictures of the docs: verdicts, causes of idle time, SOLs, and a comparison.

python docs/pictures.py
"""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path
from typing import Any

from perfpipe.analysis.gate.choosing import judge
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.page import page_of
from perfpipe.analysis.gate.compare.story import compare
from perfpipe.analysis.gate.decision import decide
from perfpipe.analysis.thresholds import thresholds
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.gate.compare import both_steps
from perfpipe.pipelines.gate.sides import named
from perfpipe.pipelines.reporting import make_report
from perfpipe.store import Store
from perfpipe.templates.figures import CLASSES, GREY, Drawing, Marks, sol_figure
from perfpipe.templates.renderers import render_html
from perfpipe.windows import STEADY

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS / "examples"
RECORDINGS = DOCS.parent / "workloads" / "recordings"
CAPTURES = DOCS.parent / "tests" / "data" / "nsys"

_Spans = tuple[tuple[float, float, str], ...]

#: Times of runs before, relative to their mean, and what is done to them after: factor, scatter.
_BEFORE = (1.0, 1.004, 0.996, 1.002, 0.998)
_AFTER = ((0.95, 1.0), (1.002, 1.0), (1.05, 1.0), (1.03, 8.0), (1.05, 0.0))

#: Cases of idle time: where the host and the GPU are busy, and how the time between is split.
_IDLE: tuple[tuple[str, _Spans, _Spans, _Spans], ...] = (
    (
        "the host launches too late",
        ((0, 5, "other work of the host"), (5, 7, "launch")),
        ((0, 2, "kernel A"), (8.5, 12, "kernel B")),
        ((2, 5, "launch_gap or host"), (5, 7, "launch_api"), (7, 8.5, "queued")),
    ),
    (
        "the host waits for the GPU, then launches",
        ((0, 2.6, "wait for A"), (2.6, 5, "short work"), (5, 7, "launch")),
        ((0, 2, "kernel A"), (8.5, 12, "kernel B")),
        ((2, 8.5, "sync"),),
    ),
    (
        "the host is ahead",
        ((0, 1.5, "launch B"), (1.5, 3.5, "launch C"), (3.5, 12, "other work of the host")),
        ((0, 6, "kernel A"), (7.4, 12, "kernel B")),
        ((6, 7.4, "kernel_gap"),),
    ),
)

_BUSY_AND_IDLE = (CLASSES["compute"][0], CLASSES["memory"][0])

_COLOURS = {"improved": "launch", "same": "compute", "regressed": "memory"}


def main() -> None:
    """Write the pictures."""
    EXAMPLES.mkdir(exist_ok=True)
    drawing = Drawing(_verdicts, 7.2, 2.6)
    (EXAMPLES / "verdicts.svg").write_bytes(drawing.file("svg"))
    (EXAMPLES / "sol.svg").write_bytes(_speed_of_light())
    (EXAMPLES / "idle.svg").write_bytes(Drawing(_idle, 7.6, 3.6).file("svg"))
    (EXAMPLES / "comparison.html").write_text(_comparison(), encoding="utf-8")


def _verdicts(axes: Any) -> Marks:
    """Draw changes with their intervals, and the verdicts that perfpipe has on them."""
    limit = thresholds()["compare.change_pct"]
    axes.axvspan(-limit, limit, color=GREY, alpha=0.15, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=0.8)
    for at, (factor, scatter) in enumerate(_AFTER):
        after = [factor * (1 + scatter * (time - 1)) for time in _BEFORE]
        runs = after if scatter else after[:1]
        change, verdict = judge(_BEFORE, runs)
        colour = CLASSES[_COLOURS[verdict]][0] if verdict in _COLOURS else GREY
        if change.low is not None and change.high is not None:
            axes.plot([100 * change.low, 100 * change.high], [-at, -at], color=colour, linewidth=3)
        axes.plot([100 * change.ratio], [-at], "o", color=colour)
        axes.annotate(verdict, (13.5, -at), va="center", color=colour)
    axes.set(xlim=(-8, 18), ylim=(0.6 - len(_AFTER), 0.6), yticks=[])
    axes.set_xlabel(f"change in time with its 95 % interval, %; grey: within {limit:g} %")
    return {}


def _idle(axes: Any) -> Marks:
    """Draw when the host and the GPU work, and which category the idle time of the GPU has."""
    for at, (title, *lanes) in enumerate(_IDLE):
        top = -4.6 * at
        axes.annotate(title, (0, top + 0.75), weight="bold")
        rows = zip(("host", "GPU", "idle time"), lanes, (GREY, *_BUSY_AND_IDLE), strict=True)
        for lane, (name, spans, colour) in enumerate(rows):
            low = top - lane - 0.3
            axes.annotate(name, (-0.2, low + 0.4), ha="right", va="center")
            for begins, ends, text in spans:
                hatch = "//" if lane == 2 else None
                axes.broken_barh(
                    [(begins, ends - begins)], (low, 0.8),
                    facecolor=colour, alpha=0.35, edgecolor=colour, hatch=hatch,
                )  # fmt: skip
                middle = ((begins + ends) / 2, low + 0.4)
                axes.annotate(text, middle, ha="center", va="center", color="black", size=8)
    axes.set(xlim=(-1.6, 12.1), ylim=(top - 2.6, 1.6))
    axes.set_axis_off()
    return {}


def _speed_of_light() -> bytes:
    """Return the figure of SOLs, of matrix products of several sizes and types."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "store")
        ids = [
            ingest(_unpacked(packed, Path(scratch)), store).report_id
            for packed in sorted(RECORDINGS.glob("gemm-h200/*.ncu-rep.xz"))
        ]
        tables = make_report(store, ids).tables
    shown = [table for table in tables if table.figure == "speed_of_light"]
    drawing = sol_figure(shown[0])
    if drawing is None:
        raise ValueError("the recording of gemm has no profiled kernel")
    return drawing.file("svg")


def _unpacked(packed: Path, folder: Path) -> Path:
    """Write a capture without its compression, and return it."""
    path = folder / packed.name.removesuffix(".xz")
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def _comparison() -> str:
    """Return the page of a step launched kernel by kernel against the same as a CUDA graph."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "store")
        ids = []
        for name in ("eager_small", "graph_node"):
            path = _unpacked(CAPTURES / f"{name}.sqlite.xz", Path(scratch))
            ids.append([ingest(path, store).report_id])
        before, after = (own.side for own in named(store, *ids))
        both = both_steps(store, ids[0], ids[1], None, STEADY)
    return render_html(page_of(decide(pairs_of(before, after)), compare(before, after), both))


if __name__ == "__main__":
    main()
