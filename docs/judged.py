"""Writes docs/judged.md: the verdicts on the captures in tests/data, for readers to judge.

python docs/judged.py
"""

from __future__ import annotations

import lzma
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.session import Session
from perfpipe.analysis.words import assumption
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

DOCS = Path(__file__).resolve().parent
DATA = DOCS.parent / "tests" / "data"

#: Captures by the title of their table: files that one report is about.
CAPTURES: dict[str, tuple[str, ...]] = {
    "Kernels built to have one limiter each (`ncu/visible`)": ("ncu/visible.ncu-rep",),
    "Operators of PyTorch and Triton (`ncu/ops`)": ("ncu/ops.ncu-rep",),
    "A training step with its profile (`nsys/gpumetrics`, `ncu/block`)": (
        "nsys/gpumetrics.sqlite",
        "ncu/block.ncu-rep",
    ),
    "A small transformer, launched kernel by kernel (`nsys/eager_small`)": (
        "nsys/eager_small.sqlite",
    ),
    "The same transformer as a CUDA graph, traced per node (`nsys/graph_node`)": (
        "nsys/graph_node.sqlite",
    ),
    "The same transformer as a CUDA graph, traced as a whole (`nsys/graph_whole`)": (
        "nsys/graph_whole.sqlite",
    ),
    "A pageable copy before each step (`nsys/h2d`)": ("nsys/h2d.sqlite",),
    "A large transformer (`nsys/compute`)": ("nsys/compute.sqlite",),
    "Only copies (`nsys/memcpy`)": ("nsys/memcpy.sqlite",),
    "Two ranks that communicate a lot (`nsys/ddp_comm`)": (
        "nsys/ddp_comm_rank0.sqlite",
        "nsys/ddp_comm_rank1.sqlite",
    ),
    "The same job in one capture of both GPUs (`nsys/ddp_single`)": ("nsys/ddp_single.sqlite",),
    "Two ranks, one of them late (`nsys/ddp_straggler`)": (
        "nsys/ddp_straggler_rank0.sqlite",
        "nsys/ddp_straggler_rank1.sqlite",
    ),
    "Operators on a timeline, with a synchronization after each (`nsys/ops`)": ("nsys/ops.sqlite",),
    "Llama training with transformers; first launches profiled (`real/llama_train`)": (
        "real/llama_train.sqlite",
        "real/llama_train.ncu-rep",
    ),
    "GPT-2 generation with transformers; first launches profiled (`real/gpt2_generate`)": (
        "real/gpt2_generate.sqlite",
        "real/gpt2_generate.ncu-rep",
    ),
}

#: Findings of a capture that are shown, and recommendations.
MOST = 15

HEAD = """# Verdicts on known captures

Each table lists the findings on one capture, followed by the recommendations, as a report would
print them. The content of the captures is known, so that you can judge the verdicts at a glance. In
`ncu/visible` the NVTX range of a kernel names the limiter that the kernel was built for. Shares and
bounds refer to the step if the capture has steps, else to the profiled time; *SOL headroom* is what
the same work would save at 100 % SOL. `python docs/judged.py` writes this page.
"""

_FINDINGS = f"""
    SELECT
        coalesce(short_name, concat('GPU ', device)) AS what,
        nvtx_path,
        concat_ws(
            ', ', claim, if(subject = 'kernel' OR claim = 'operator', subclass, NULL), cause
        ) AS verdict,
        share_pct, headroom_pct, bound_pct, floor, technique
    FROM findings ORDER BY rank LIMIT {MOST}
"""
_ADVICE = f"""
    SELECT technique, share_pct, gain_pct, floors, instances
    FROM recommendations ORDER BY rank LIMIT {MOST}
"""


def page(sessions: Callable[[Sequence[str]], AbstractContextManager[Session]]) -> str:
    """Return the page; `sessions` opens a session on some captures."""
    parts = [HEAD]
    for title, names in CAPTURES.items():
        with sessions(names) as con:
            # Both at once: what the second reads of the first is then made once.
            con.use("findings", "recommendations")
            parts.append(f"## {title}\n")
            parts.append("\n".join(_findings(con)) + "\n")
            parts.append("\n".join(_advice(con)) + "\n")
    return "\n".join(parts)


def _findings(con: Session) -> Iterator[str]:
    yield "| kernel or GPU | verdict | share | SOL headroom | bound | if | advice |"
    yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
    for what, nvtx, verdict, share, headroom, bound, floor, technique in con.execute(
        _FINDINGS
    ).fetchall():
        label = f"`{what}`" + (f" in {nvtx.rsplit('/', 1)[-1]}" if nvtx else "")
        cells = (
            *(label, verdict.replace("_", " "), _pct(share), _pct(headroom), _pct(bound)),
            *(assumption(floor) if floor and bound is not None else "", _name(technique)),
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _advice(con: Session) -> Iterator[str]:
    yield "| recommendation | share | bound | if | kernels or GPUs |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for technique, share, gain, floors, instances in con.execute(_ADVICE).fetchall():
        assumed = ", or ".join(assumption(floor) for floor in floors or [])
        cells = (_name(technique), _pct(share), _pct(gain), assumed if gain is not None else "")
        yield "| " + " | ".join((*cells, str(instances))) + " |"


def _pct(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _name(technique: str | None) -> str:
    return techniques()[technique].technique if technique else ""


def main() -> None:
    """Ingest the captures into a store of their own and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")

        def session(names: Sequence[str]) -> Session:
            return Session.open(store, [_ingested(name, Path(folder), store) for name in names])

        (DOCS / "judged.md").write_text(page(session), encoding="utf-8")


def _ingested(name: str, folder: Path, store: Store) -> str:
    path = folder / Path(name).name
    path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return ingest(path, store).report_id


if __name__ == "__main__":
    main()
