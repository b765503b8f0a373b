"""Write the pictures of docs/gate.md: verdicts by interval, and the page of a comparison.

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
from perfpipe.store import Store
from perfpipe.templates.figures import CLASSES, GREY, Drawing, Marks
from perfpipe.templates.renderers import render_html
from perfpipe.windows import STEADY

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS / "examples"
CAPTURES = DOCS.parent / "tests" / "data" / "nsys"

#: Times of runs before, relative to their mean, and what is done to them after: factor, scatter.
_BEFORE = (1.0, 1.004, 0.996, 1.002, 0.998)
_AFTER = ((0.95, 1.0), (1.002, 1.0), (1.05, 1.0), (1.03, 8.0), (1.05, 0.0))

_COLOURS = {"improved": "launch", "same": "compute", "regressed": "memory"}


def main() -> None:
    """Write the pictures."""
    EXAMPLES.mkdir(exist_ok=True)
    drawing = Drawing(_verdicts, 7.2, 2.6)
    (EXAMPLES / "verdicts.svg").write_bytes(drawing.file("svg"))
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


def _comparison() -> str:
    """Return the page of a step launched kernel by kernel against the same as a CUDA graph."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "store")
        ids = []
        for name in ("eager_small", "graph_node"):
            path = Path(scratch) / f"{name}.sqlite"
            path.write_bytes(lzma.decompress((CAPTURES / f"{path.name}.xz").read_bytes()))
            ids.append([ingest(path, store).report_id])
        before, after = (own.side for own in named(store, *ids))
        both = both_steps(store, ids[0], ids[1], None, STEADY)
    return render_html(page_of(decide(pairs_of(before, after)), compare(before, after), both))


if __name__ == "__main__":
    main()
