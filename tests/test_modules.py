"""GPU time by PyTorch module: where kernels are placed, and what is kept of a launch for modules."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import Cli, Opened, Tiny
from hypothesis import given
from hypothesis import strategies as st
from moduleprogram import CALLS, name_calls

from perfpipe.analysis.session import Session
from perfpipe.ingest.arrays import NONE
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.attribution import attribute
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.module_names import PHASES, Names
from perfpipe.ingest.nsys.modules import HOW, places_of
from perfpipe.ingest.nsys.ranges import PUSH_POP, Ranges
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("nn.Module Net (Net)", ("Net", "", "Net")),
        ("nn.Module Net#2: layers.0.norm (LayerNorm)", ("Net#2", "layers.0.norm", "LayerNorm")),
        ("nn.Module Net: a b: (c) (Linear)", ("Net", "a b: (c)", "Linear")),
        ("nn.Module Net: (Dropout) (Dropout)", ("Net", "(Dropout)", "Dropout")),
        ("nn.Module: Linear_0", None),
        ("nn.Module Net", None),
        ("my nn.Module Net (Net)", None),
    ],
)
def test_names_of_modules(name: str, module: tuple[str, str, str] | None) -> None:
    found = Names([name])
    assert found.modules == ([module] if module else [])
    assert (found.module[0] != NONE) == bool(module)


@pytest.mark.parametrize(
    ("name", "operator", "graph", "engine"),
    [
        ("aten::mm, op_id = 12", "aten::mm", False, False),
        ("aten::mm, seq = 5, op_id = 9", "aten::mm", True, False),
        ("aten::mm, seq=5", "aten::mm", True, False),
        ("MmBackward, stashed seq=7", "MmBackward", True, False),
        ("MmBackward0, stashed seq = 7, op_id = 2", "MmBackward0", True, False),
        ("detach, op_id = 3, sizes = [[4, 4], []]", "detach", False, False),
        ("aten::add, seq = 1, op_id = 3, sizes = [], input_op_ids = [(1,0)]", "aten::add", True, False),
        ("aten::mm", "aten::mm", False, False),
        ("autograd::engine::evaluate_function: MmBackward0, op_id = 4", "MmBackward0", False, True),
        ("mylib::scale, seq = 1, op_id = 4", "mylib::scale", True, False),
        ("step 12", None, False, False),
        ("seq = 5", None, False, False),
        ("", None, False, False),
    ],
)  # fmt: skip
def test_names_of_operators(name: str, operator: str | None, graph: bool, engine: bool) -> None:
    found = Names([name])
    assert found.operators == ([operator] if operator else [])
    assert (found.graph[0], found.engine[0]) == (graph, engine)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("Optimizer.step#AdamW.step, op_id = 4", "optimizer"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer"),
        ("torch.optim.AdamW.step", "optimizer"),
        ("torch.autograd.backward", "backward"),
        ("optimizer.step", None),
        ("aten::mm, seq = 1", None),
    ],
)
def test_names_of_phases(name: str, phase: str | None) -> None:
    (code, _) = Names([name]).phase
    assert (None if code == NONE else PHASES[code]) == phase


class Kernel(NamedTuple):
    """A launching call, and where the kernel belongs: module, operator, phase, how."""

    pid: int
    tid: int
    start: int
    end: int
    place: tuple[tuple[str, str, str] | None, str | None, str | None, str | None]


class Simulated:
    """A training program: what it runs, with ranges as PyTorch and the start-up file name them."""

    def __init__(self, pid: int, first: int) -> None:
        self.pid, self.now, self.number, self.operators = pid, first, 0, 0
        self.ranges: list[tuple[int, int, int, str]] = []
        self.kernels: list[Kernel] = []

    def tick(self) -> int:
        # Two processes never do anything at the same time, which keeps starts distinct.
        self.now += 2
        return self.now

    @contextmanager
    def range(self, name: str, tid: int) -> Iterator[None]:
        start = self.tick()
        yield
        self.ranges.append((start, self.tick(), tid, name))

    @contextmanager
    def operator(self, name: str, tid: int, number: int | None = None) -> Iterator[None]:
        self.operators += 1
        numbered = "" if number is None else f", seq = {number}"
        with self.range(f"{name}{numbered}, op_id = {self.operators}", tid):
            yield

    def launch(self, tid: int, *place: Any) -> None:
        start = self.tick()
        self.kernels.append(Kernel(self.pid, tid, start, self.tick(), place))

    def forward(self, items: list[Any], module: tuple[str, str, str] | None) -> Iterator[Any]:
        """Call modules and operators, and yield the nodes: number and module."""
        main = self.pid
        for at, item in enumerate(items):
            if isinstance(item, list):
                own = ("Net", "", "Net") if module is None else (
                    "Net", f"{module[1]}.{at}".lstrip("."), "Block")  # fmt: skip
                where = f": {own[1]}" if own[1] else ""
                with self.range(f"nn.Module Net{where} ({own[2]})", main):
                    yield from [*self.forward(item, own)]
            elif item == "unknown":
                # A kernel of a library of the user.
                how, phase = ("range", "forward") if module else (None, None)
                self.launch(main, module, None, phase, how)
            else:
                graph = item != "no grad"
                phase = "forward" if module or graph else None
                number, how = self.number if graph else None, "range" if module else "outside"
                with self.operator("aten::linear", main, number), self.operator("aten::mm", main):
                    self.launch(main, module, "aten::mm", phase, how)
                if graph:
                    yield self.number, module, item
                    self.number += 1

    def backward(self, nodes: list[Any], tid: int) -> None:
        for number, module, kind in reversed(nodes):
            how = "sequence" if module else "outside"
            with self.operator("autograd::engine::evaluate_function: MmBackward0", tid):
                with self.operator("MmBackward0", tid, number):
                    if kind == "checkpoint":
                        other = ("Net", "again", "Block")
                        with (
                            self.range("nn.Module Net: again (Block)", tid),
                            self.operator("aten::mm", tid, 10**6 + number),
                        ):
                            self.launch(tid, other, "aten::mm", "backward", "range")
                    with self.operator("aten::mm", tid):
                        self.launch(tid, module, "aten::mm", "backward", how)
                if kind == "shared":
                    with self.operator("aten::add", tid):
                        self.launch(tid, module, "aten::add", "backward", how)
            if kind in ("weight", "parallel"):
                name = "torch::autograd::AccumulateGrad"
                order = "order" if module else "outside"
                with self.operator(f"autograd::engine::evaluate_function: {name}", tid):
                    with self.operator(name, tid), self.operator("aten::add_", tid):
                        self.launch(tid, module, "aten::add_", "backward", order)
                    if kind == "parallel":
                        with self.operator("nccl:all_reduce", tid):
                            self.launch(tid, None, "nccl:all_reduce", "backward", "outside")

    def optimize(self) -> None:
        with (
            self.operator("Optimizer.step#SGD.step", self.pid),
            self.operator("aten::add_", self.pid),
        ):
            self.launch(self.pid, None, "aten::add_", "optimizer", "outside")


ITEMS = st.recursive(
    st.sampled_from(["plain", "no grad", "unknown", "checkpoint", "shared", "weight", "parallel"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def _joined(programs: list[Simulated]) -> tuple[Ranges, Calls, list[Kernel]]:
    """Return the ranges and calls of processes."""
    rows = sorted(
        ((start, -end, tid, program.pid, name)
         for program in programs for start, end, tid, name in program.ranges)
    )  # fmt: skip
    threads = sorted({(pid, tid) for _, _, tid, pid, _ in rows})
    names = sorted({row[-1] for row in rows})
    none = np.full(len(rows), NONE, np.int32)
    ranges = Ranges(
        start=np.array([row[0] for row in rows], np.int64),
        end=np.array([-row[1] for row in rows], np.int64),
        style=np.full(len(rows), PUSH_POP, np.int8),
        thread=np.array([threads.index((row[3], row[2])) for row in rows], np.int32),
        threads=threads,
        name=np.array([names.index(row[-1]) for row in rows], np.int32),
        names=[*names],
        domain=np.zeros(len(rows), np.int32),
        domains=[None],
        end_thread=none,
        category=none,
        categories=[],
    )
    kernels = sorted(kernel for program in programs for kernel in program.kernels)
    columns = {
        name: np.array([getattr(kernel, name) for kernel in kernels], np.int64)
        for name in ("pid", "tid", "start", "end")
    }
    codes = np.zeros(len(kernels), np.int32)
    span = (columns["start"], columns["end"], columns["end"] - columns["start"])
    calls = Calls(
        **columns, name=codes, recorded_name=codes, names=["cudaLaunchKernel"], gpu_start=span[0],
        gpu_end=span[1], gpu_time=span[2], time=span[2],
    )  # fmt: skip
    return ranges, calls, kernels


@given(
    st.lists(
        st.tuples(st.lists(ITEMS, max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=2
    )
)
def test_every_kernel_is_where_the_program_launched_it(
    steps: list[tuple[list[Any], bool, bool]],
) -> None:
    """With steps in ranges of the user or not, and the backward pass on any thread."""
    programs = [Simulated(pid, first) for pid, first in ((100, 0), (200, 1))]
    for program in programs:
        for items, marked, threaded in steps:
            tid = program.pid + threaded
            if marked:
                with program.range("step", program.pid):
                    program.backward([*program.forward(items, None)], tid)
            else:
                program.backward([*program.forward(items, None)], tid)
            program.optimize()
    ranges, calls, kernels = _joined(programs)
    found = attribute(calls, ranges, Columns())
    places = places_of(ranges, found, Names(ranges.names))
    for kernel, row in zip(kernels, found.innermost.tolist(), strict=True):
        codes = [-1] * 4 if row == NONE else [
            int(own[row]) for own in (places.module, places.operator, places.phase, places.how)
        ]  # fmt: skip
        known: tuple[Sequence[Any], ...] = (places.modules, places.operators, PHASES, HOW)
        place = tuple(
            None if code == NONE else of[code] for code, of in zip(codes, known, strict=True)
        )
        assert place == kernel.place


@pytest.fixture
def capture(expand: Callable[[str], Path], tmp_path: Path) -> Path:
    """A capture of four training steps with --pytorch=functions-trace,autograd-nvtx."""
    path = tmp_path / "capture.sqlite"
    shutil.copyfile(expand("stacks/modules.sqlite"), path)
    return path


def test_a_capture_of_nsys_alone_has_paths_of_classes(capture: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    outcome = ingest(capture, store)
    with Session.open(store, [outcome.report_id]) as session:
        rows = session.execute(
            "SELECT phase, how, 100.0 * sum(dur_ns) / sum(sum(dur_ns)) OVER () FROM kernel_modules "
            "GROUP BY ALL"
        ).fetchall()
        shares = {(phase, how): pct for phase, how, pct in rows}
        assert shares["backward", "sequence"] == pytest.approx(45.4, abs=0.3)
        assert shares["forward", "range"] == pytest.approx(20.6, abs=0.3)
        assert shares["optimizer", "outside"] == pytest.approx(33.4, abs=0.3)
        assert (None, "unplaced") not in shares
        modules = session.execute(
            "SELECT DISTINCT model, module FROM kernel_modules ORDER BY ALL"
        ).fetchall()
        inner = ["", ".Dropout", ".LayerNorm", ".Linear", ".MultiheadAttention"]
        layer = "TransformerEncoderLayer"
        assert modules == [*(("TransformerEncoder", layer + part) for part in inner), (None, None)]
        # It is a timeline like any other, whose steps are not the calls of modules.
        (source,) = session.execute("SELECT source FROM analysis_windows").fetchone() or ("none",)
        assert source is None


def test_a_launch_for_modules_has_paths_and_is_no_timeline(capture: Path, tmp_path: Path) -> None:
    name_calls(capture)
    store = Store(tmp_path / "store")
    outcome = ingest(capture, store)
    (manifest,) = store.manifests()
    assert (manifest.kind, [*manifest.tables]) == ("modules", ["launch_modules", "module_calls"])
    with Session.open(store, [outcome.report_id]) as session:

        def rows(sql: str) -> list[tuple[Any, ...]]:
            return session.execute(sql).fetchall()

        times = rows(
            "SELECT module, class, gpu_time_ns, own_gpu_time_ns, forward_ns, backward_ns FROM module_times "
            "WHERE part = 'module' ORDER BY tree_order"
        )
        # The container of the layers is not called.
        called = [*CALLS[:1], ("layers", None), *CALLS[1:]]
        assert [(module, kind) for module, kind, *_ in times] == called
        of = {module: numbers for module, _, *numbers in times}
        for layer in range(6):
            own = [of[f"layers.{layer}{part}"] for part in ("", ".self_attn", ".norm1", ".linear1")]
            assert all(forward > 0 and backward > 0 for *_, forward, backward in own)
        assert of[""][0] == of["layers"][0] == sum(of[f"layers.{layer}"][0] for layer in range(6))
        assert of[""][1] == 0
        ((whole, own, every),) = rows(
            "SELECT sum(gpu_time_ns) FILTER (depth = 0), sum(own_gpu_time_ns), "
            "(SELECT sum(dur_ns) FROM launch_modules) FROM module_times"
        )
        assert whole == own == every, "fewer than four steps are known: all kernels count"
        assert rows("SELECT part FROM module_times WHERE depth = 0 ORDER BY tree_order") == [
            ("module",), ("outside",)
        ]  # fmt: skip
        classes = rows("SELECT class, modules FROM module_classes ORDER BY class")
        assert ("MultiheadAttention", 6) in classes and ("LayerNorm", 12) in classes
        for view in ("gpu_time_budget", "analysis_windows", "launches", "step_summary", "findings",
                     "kernel_times", "nvtx_tree", "timeline_bottleneck", "gpu_idle_gaps"):  # fmt: skip
            assert rows(f"SELECT count(*) FROM {view}") == [(0,)], view


def test_paths_and_classes_place_the_same_time(capture: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    sql = "SELECT class, sum(dur_ns) FROM kernel_modules GROUP BY ALL ORDER BY ALL"
    found = []
    for _ in range(2):
        outcome = ingest(capture, store)
        with Session.open(store, [outcome.report_id]) as session:
            found.append(session.execute(sql).fetchall())
        name_calls(capture) if len(found) < 2 else None
    assert found[0] == found[1]


def test_scrubbed_copies_keep_their_use(capture: Path, tmp_path: Path, cli: Cli) -> None:
    name_calls(capture)
    assert cli("scrub", str(capture), "--to", "scrubbed.sqlite") == 0, cli.err
    ingest(tmp_path / "scrubbed.sqlite", store := Store(tmp_path / "store"))
    assert [manifest.kind for manifest in store.manifests()] == ["modules"]


def _module(op: int, step: int | None, **more: Any) -> dict[str, Any]:
    where = {"model": "Net", "module": "a", "class": "Linear", "phase": "forward", "how": "range"}
    return {"op_id": op, "device": 0, "start_ns": 10 * op, "dur_ns": 8, "name": "k", "step": step,
            **where, **more}  # fmt: skip


def _of_modules(*rows: dict[str, Any]) -> Tiny:
    tiny = Tiny()
    tiny.con.execute("UPDATE reports SET kind = 'modules'")
    for row in rows:
        tiny.add("launch_modules", row)
    return tiny


@pytest.mark.parametrize(("steps", "counted"), [(3, 3), (4, 2), (9, 7)])
def test_the_first_steps_are_left_out(steps: int, counted: int) -> None:
    tiny = _of_modules(*(_module(step, step) for step in range(1, steps + 1)))
    assert tiny.rows("SELECT kernels, tree_order FROM module_times ORDER BY tree_order") == [
        (0, 0),
        (counted, 1),
    ]


def test_kernels_that_are_not_placed_are_a_row() -> None:
    nowhere = {"model": None, "module": None, "class": None, "phase": None, "how": None}
    tiny = _of_modules(
        _module(1, None),
        _module(2, None, **{**nowhere, "how": "outside", "phase": "optimizer"}),
        _module(3, None, **nowhere),
        _module(4, None, module="", phase="backward"),
        _module(5, None, module="a.b", model="Big", dur_ns=80),
    )
    sql = """
        SELECT part, model, module, depth, own_gpu_time_ns, gpu_time_ns, forward_ns, backward_ns, optimizer_ns
        FROM module_times ORDER BY tree_order
    """
    assert tiny.rows(sql) == [
        ("module", "Big", "", 0, 0, 80, 80, 0, 0),
        ("module", "Big", "a", 1, 0, 80, 80, 0, 0),
        ("module", "Big", "a.b", 2, 80, 80, 80, 0, 0),
        ("module", "Net", "", 0, 8, 16, 8, 8, 0),
        ("module", "Net", "a", 1, 8, 8, 8, 0, 0),
        ("outside", None, None, 0, 8, 8, 0, 0, 8),
        ("unplaced", None, None, 0, 8, 8, 0, 0, 0),
    ]


def test_the_page_of_modules_alone_has_no_verdict(
    capture: Path, tmp_path: Path, cli: Cli, opened: Opened
) -> None:
    name_calls(capture)
    assert cli("ingest", str(capture)) == 0, cli.err
    assert cli("report", "--md", "page.md", "--html", "page.html") == 0, cli.err
    page = (tmp_path / "page.md").read_text()
    assert "No verdict: the GPU time by module was recorded alone, without a timeline" in page
    assert 'class="icicle"' in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", ["graphs", "accumulate", "compiled"])
def test_captures_of_the_injected_hook(name: str, opened: Opened) -> None:
    """Captures on an H100: CUDA graphs by node, checkpointing with accumulation, torch.compile."""
    with opened(f"stacks/modules_{name}.sqlite") as con:
        ((kernels, unplaced_pct, without_path),) = con.execute(
            """
            SELECT count(*), 100 * coalesce(sum(dur_ns) FILTER (how = 'unplaced'), 0) / sum(dur_ns),
                count(*) FILTER (how IN ('range', 'sequence') AND module IS NULL)
            FROM kernel_modules
            """
        ).fetchall()
        phases = {
            phase
            for (phase,) in con.execute("SELECT DISTINCT phase FROM kernel_modules").fetchall()
        }
        ((total, rows),) = con.execute(
            """
            SELECT (SELECT sum(dur_ns) FROM kernel_modules),
                sum(gpu_time_ns) FILTER (module = '' OR part != 'module') FROM module_times
            """
        ).fetchall()
    assert kernels > 500
    assert unplaced_pct < 1
    assert without_path == 0
    assert phases >= {"forward", "backward", "optimizer"}
    assert rows <= total
