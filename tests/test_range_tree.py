"""Ranges own the work of their backward pass: the tree and `budget --nvtx` against each kernel."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import DATA, Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attribution import Call, Thread, calls_in_order, launching, nested_ranges

from perfpipe.analysis.session import Session
from perfpipe.analysis.windows import VIEWS_USED, choose_ranges
from perfpipe.ingest.arrays import NONE
from perfpipe.ingest.columns import Columns
from perfpipe.ingest.nsys.attribution import REASONS, SOURCES, Projection, attribute
from perfpipe.ingest.nsys.autograd import Numbers, forward_ranges
from perfpipe.ingest.nsys.launches import Calls
from perfpipe.ingest.nsys.range_tree import RangeTree
from perfpipe.ingest.nsys.ranges import PUSH_POP, Ranges
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

#: The process, whose main thread has the same number.
PID = 1


class Span(NamedTuple):
    """A range of a thread."""

    start: int
    end: int
    tid: int


def _process(threads: list[Thread]) -> tuple[list[Span], Ranges, Calls]:
    """Return the ranges and calls of the threads of a process, the main thread first."""
    spans = sorted(
        (Span(*span, tid) for tid, (own, _) in enumerate(threads, 1) for span in own),
        key=lambda span: (span.start, -span.end, span.tid),
    )
    count = len(spans)
    none = np.full(count, NONE, np.int32)
    ranges = Ranges(
        start=np.array([span.start for span in spans], np.int64),
        end=np.array([span.end for span in spans], np.int64),
        style=np.full(count, PUSH_POP, np.int8),
        thread=np.array([span.tid - 1 for span in spans], np.int32),
        threads=[(PID, tid) for tid in range(1, len(threads) + 1)],
        name=np.arange(count, dtype=np.int32),
        names=[f"r{number}" for number in range(count)],
        domain=np.zeros(count, np.int32),
        domains=[None],
        end_thread=none,
        category=none,
        categories=[],
    )
    parts = [launching(calls, tid) for tid, (_, calls) in enumerate(threads, 1)]
    calls = parts[0]
    for name in ("pid", "tid", "start", "end", "gpu_start", "gpu_end", "gpu_time", "time"):
        setattr(calls, name, np.concatenate([getattr(part, name) for part in parts]))
    calls.name = calls.recorded_name = np.zeros(len(calls.pid), np.int32)
    return spans, ranges, calls


class _Oracle:
    """Where each kernel belongs, found by looking at every range."""

    def __init__(self, threads: list[Thread], spans: list[Span], ranges: Ranges) -> None:
        self.spans, self.threads = spans, threads
        self.enclosing = ranges.enclosing.tolist()
        self.calls = [(tid, call) for tid, (_, own) in enumerate(threads, 1) for call in own]
        self.launching = {tid for tid, _ in self.calls} | {PID}
        # What lends a range to calls without one of their own thread, and to outermost ranges.
        self.lent: dict[int, int] = {}
        self.several: set[int] = set()
        for number, (tid, call) in enumerate(self.calls):
            if tid != PID and not self.own(tid, call):
                self._lend(self.lent, number, tid, (call[0], call[0]))
        self._drop_busy(self.lent, [(tid, call[0], call[0]) for tid, call in self.calls])
        self.caller: dict[int, int] = {}
        for number, span in enumerate(spans):
            if span.tid != PID and self.enclosing[number] == NONE:
                self._lend(self.caller, number, span.tid, (span.start, span.end), number)
        self._drop_busy(self.caller, [(span.tid, span.start, span.end) for span in spans])

    def own(self, tid: int, call: Call) -> list[int]:
        """Return the ranges of a thread that contain a call, outermost first."""
        return [
            number
            for number, span in enumerate(self.spans)
            if span.tid == tid and span.start <= call[0] and call[1] <= span.end
        ]

    def _lend(
        self,
        lent: dict[int, int],
        number: int,
        tid: int,
        when: tuple[int, int],
        before: int | None = None,
    ) -> None:
        waiting = {
            span.tid
            for span in self.spans
            if span.start <= when[0] <= span.end and span.tid != tid and span.tid in self.launching
        }
        if len(waiting) > 1 and lent is self.lent:
            self.several.add(number)
        around = [
            at
            for at, span in enumerate(self.spans[:before])
            if {span.tid} == waiting and span.start <= when[0] and when[1] <= span.end
        ]
        if around:
            lent[number] = around[-1]

    def _drop_busy(self, lent: dict[int, int], work: list[tuple[int, int, int]]) -> None:
        together = defaultdict(list)
        for number, lender in lent.items():
            together[lender, work[number][0]].append(number)
        for (lender, _), numbers in together.items():
            first = min(work[number][1] for number in numbers)
            last = max(work[number][2] for number in numbers)
            waiting = self.spans[lender].tid
            if waiting != PID and any(
                tid == waiting and first < call[0] < last for tid, call in self.calls
            ):
                for number in numbers:
                    del lent[number]
                    if lent is self.lent:
                        self.several.add(number)

    def holders(self, number: int) -> set[int]:
        """Return all ranges to which the kernel of a call belongs."""
        tid, call = self.calls[number]
        found = self.own(tid, call)
        held = set(found)
        # Above its thread: from the innermost range around it, or directly.
        at = found[-1] if found else self.lent.get(number, NONE)
        while at != NONE:
            held.add(at)
            at = self.enclosing[at] if self.enclosing[at] != NONE else self.caller.get(at, NONE)
        return held


def _stored(db: Tiny, threads: list[Thread]) -> tuple[_Oracle, Ranges]:
    """Put what the reader makes of a process into a database."""
    spans, ranges, calls = _process(threads)
    found = attribute(calls, ranges, Columns())
    projection = Projection(calls, ranges, Columns())
    tree = RangeTree(calls, ranges, found, projection, Columns())
    rows = slice(0, len(ranges))
    columns = ranges.columns(rows) | projection.columns(rows) | tree.columns(rows)
    values = {name: column.to_pylist() for name, column in columns.items()}
    for number in range(len(ranges)):
        db.add("nsys_nvtx_ranges", {name: column[number] for name, column in values.items()})

    def text(codes: Any, number: int, texts: tuple[str, ...]) -> str | None:
        return None if codes[number] == NONE else texts[codes[number]]

    for number in range(len(calls)):
        inside = int(found.innermost[number])
        db.add(
            "launches",
            {
                "kind": "kernel", "name": "k", "pid": PID, "tid": int(calls.tid[number]), "device": 0,
                "start_ns": int(calls.gpu_start[number]), "end_ns": int(calls.gpu_end[number]),
                "api_start_ns": int(calls.start[number]), "api_end_ns": int(calls.end[number]),
                "call_id": number, "range_id": None if inside == NONE else inside,
                "range_source": text(found.source, number, SOURCES),
                "no_range_reason": text(found.reason, number, REASONS),
            },
        )  # fmt: skip
    return _Oracle(threads, spans, ranges), ranges


THREADS = st.lists(st.tuples(nested_ranges(), calls_in_order()), min_size=1, max_size=4)


@pytest.mark.usefixtures("few_rows")
@settings(max_examples=60)
@given(THREADS)
def test_the_work_of_each_range(threads: list[Thread]) -> None:
    """Sums of the reader against the places of each kernel."""
    spans, ranges, calls = _process(threads)
    oracle = _Oracle(threads, spans, ranges)
    found = attribute(calls, ranges, Columns())
    projection = Projection(calls, ranges, Columns())
    tree = RangeTree(calls, ranges, found, projection, Columns())
    times = tree.columns(slice(0, len(ranges)))["tree_time_ns"].to_pylist()
    held = defaultdict(list)
    for number in range(len(calls)):
        for holder in oracle.holders(number):
            held[holder].append(int(calls.time[number]))
        several = found.reason[number] != NONE and REASONS[found.reason[number]] == REASONS[1]
        assert several == (number in oracle.several)
        assert (found.innermost[number] == NONE) == (not oracle.holders(number))
    assert times == [sum(held[n]) if n in held else None for n in range(len(ranges))]


@settings(max_examples=20, deadline=None)
@given(THREADS.filter(lambda threads: any(spans for spans, _ in threads)))
def test_the_tree_and_the_budget_have_one_definition(threads: list[Thread]) -> None:
    """The views against the places of each kernel."""
    db = Tiny()
    oracle, ranges = _stored(db, threads)
    work = defaultdict(list)
    for number, (_, call) in enumerate(oracle.calls):
        for holder in oracle.holders(number):
            work[holder].append(call[2:])
    found = db.rows("SELECT range, gpu_time_ns FROM nvtx_tree WHERE range NOT LIKE '(%'")
    depth = {number: len(_path(number, oracle)) for number in work}
    assert dict(found) == {
        f":r{number}": sum(end - start for start, end in of)
        for number, of in work.items()
        if depth[number] <= 8
    }
    if work:
        total = sum(call[3] - call[2] for _, call in oracle.calls)
        ((sum_of_outermost,),) = db.rows(
            "SELECT coalesce(sum(gpu_time_ns), 0) FROM nvtx_tree WHERE range LIKE '(%'"
        )
        inside = sum(
            call[3] - call[2] for n, (_, call) in enumerate(oracle.calls) if oracle.holders(n)
        )
        assert sum_of_outermost == total - inside
    db.session.use(*VIEWS_USED)
    for number in range(min(len(ranges), 6)):
        choose_ranges(db.con, f"r{number}", 1)
        windows = db.rows("SELECT start_ns, end_ns FROM _chosen_windows")
        db.con.execute("DELETE FROM _chosen_windows")
        of = work.get(number, [])
        extent = (min(s for s, _ in of), max(e for _, e in of)) if of else (0, 0)
        assert windows == ([extent] if extent[0] < extent[1] else [])


def _path(number: int, oracle: _Oracle) -> list[int]:
    path = []
    while number != NONE:
        path.append(number)
        around = oracle.enclosing[number]
        number = around if around != NONE else oracle.caller.get(number, NONE)
    return path


#: Captures with ranges around forward, backward and optimizer.
TRAINING = (
    "nsys/eager_small.sqlite", "nsys/compute.sqlite", "nsys/h2d.sqlite", "nsys/gpumetrics.sqlite",
    "nsys/ddp_single.sqlite", "nsys/ddp_comm_rank0.sqlite", "nsys/ddp_comm_rank1.sqlite",
    "real/llama_train.sqlite", "field/nsys/32_one_long_kernel.sqlite",
    "field/nsys/33_gpu_table_2021.sqlite", "field/nsys/34_kernels_lost.sqlite",
)  # fmt: skip


@pytest.mark.parametrize("name", TRAINING)
def test_nothing_of_a_training_loop_is_unplaced(opened: Opened, name: str) -> None:
    """Most of the time is the backward pass, which autograd's threads launch."""
    with opened(name) as con:
        tree = dict(con.execute("SELECT path, gpu_time_ns FROM nvtx_tree").fetchall())
        # What precedes the first range, such as copying the model, is in none.
        ((inside, unplaced),) = con.execute(
            """
            SELECT sum(end_ns - start_ns),
                coalesce(sum(end_ns - start_ns) FILTER (range_id IS NULL), 0)
            FROM launches
            WHERE api_start_ns >= (SELECT min(start_ns) FROM nsys_nvtx_ranges)
            """
        ).fetchall()
        ((total, backward),) = con.execute(
            """
            SELECT sum(end_ns - start_ns), sum(end_ns - start_ns) FILTER (EXISTS (
                FROM nsys_nvtx_ranges AS r
                WHERE r.name = 'backward' AND r.pid = l.pid
                    AND l.api_start_ns BETWEEN r.start_ns AND r.end_ns
            ))
            FROM launches AS l
            """
        ).fetchall()
    assert unplaced <= 0.02 * inside
    assert sum(time for path, time in tree.items() if " > " not in path) == total
    assert tree[":step * > :backward"] == backward > 0.15 * total


def test_the_backward_pass_leads_to_the_forward_operators(captures: Store) -> None:
    """In a trace, each range of the backward pass states the number of its forward operator."""
    report = ingest(DATA / "torch" / "train_step.kineto.json.gz", captures).report_id
    with Session.open(captures, [report]) as con:
        tree = {
            path: (time, backward)
            for path, time, backward in con.execute(
                "SELECT path, gpu_time_ns, backward_time_ns FROM nvtx_tree"
            ).fetchall()
        }
        ((autograd,),) = con.execute(
            """
            SELECT sum(end_ns - start_ns) FROM launches
            WHERE (pid, tid) IN (SELECT (pid, tid) FROM nsys_nvtx_ranges WHERE forward IS NOT NULL)
            """
        ).fetchall()
        pairs = con.execute(
            """
            SELECT replace(b.name, 'autograd::engine::evaluate_function: ', ''), list(DISTINCT f.name)
            FROM nsys_nvtx_ranges AS b
            JOIN nsys_nvtx_ranges AS f ON f.range_id = b.forward AND f.start_ns < b.start_ns
            GROUP BY ALL
            """
        ).fetchall()
    step = ":ProfilerStep#*"
    assert tree[step][1] == autograd > 0.5 * tree[step][0]
    linear = tree[f"{step} > cpu_op:aten::linear"]
    assert linear[1] > 2 * linear[0]
    found = dict(pairs)
    assert found["AddmmBackward0"] == ["aten::addmm"]
    assert found["NativeLayerNormBackward0"] == ["aten::native_layer_norm"]
    assert found["GeluBackward0"] == ["aten::gelu"]
    assert "torch::autograd::AccumulateGrad" not in found


def _named(rows: list[tuple[str, int, int, int]]) -> Ranges:
    """Return push/pop ranges: name, start, end, thread."""
    rows = sorted(rows, key=lambda row: (row[1], -row[2]))
    none = np.full(len(rows), NONE, np.int32)
    return Ranges(
        start=np.array([start for _, start, _, _ in rows], np.int64),
        end=np.array([end for _, _, end, _ in rows], np.int64),
        style=np.full(len(rows), PUSH_POP, np.int8),
        thread=np.array([tid - 1 for *_, tid in rows], np.int32),
        threads=[(PID, tid) for tid in range(1, 5)],
        name=np.arange(len(rows), dtype=np.int32),
        names=[name for name, *_ in rows],
        domain=np.zeros(len(rows), np.int32),
        domains=[None],
        end_thread=none,
        category=none,
        categories=[],
    )


def _pairs(ranges: Ranges) -> dict[str | None, str | None]:
    forward = forward_ranges(ranges)
    assert forward is not None
    return {
        ranges.names[at]: ranges.names[to] for at, to in enumerate(forward.tolist()) if to != NONE
    }


def test_sequence_numbers_in_names_of_ranges() -> None:
    """emit_nvtx: the latest operator with the number, whichever version wrote the names."""
    outer = "autograd::engine::evaluate_function: "
    assert _pairs(
        _named(
            [
                ("aten::linear, seq = 4", 0, 20, 1),
                ("aten::t, seq = 4, op_id = 2", 1, 5, 1),
                ("aten::addmm, seq = 5, op_id = 3", 6, 19, 1),
                ("aten::relu, seq = 6", 21, 30, 1),
                (f"{outer}ReluBackward0, seq = 6", 40, 50, 2),
                ("ReluBackward0, seq = 6, op_id = 9", 41, 49, 2),
                # The number of a range inside of the backward pass has no meaning.
                ("aten::threshold_backward, seq = 5", 42, 48, 2),
                (f"{outer}AddmmBackward0, seq = 5", 50, 60, 2),
                (f"{outer}TBackward0, seq = 4, op_id = 12", 60, 70, 2),
                (f"{outer}torch::autograd::AccumulateGrad, op_id = 13", 70, 80, 2),
                ("aten::add, seq = 4", 90, 95, 1),
            ]
        )
    ) == {
        f"{outer}ReluBackward0, seq = 6": "aten::relu, seq = 6",
        f"{outer}AddmmBackward0, seq = 5": "aten::addmm, seq = 5, op_id = 3",
        f"{outer}TBackward0, seq = 4, op_id = 12": "aten::t, seq = 4, op_id = 2",
    }
    assert _pairs(_named([("mm, seq=7", 0, 9, 1), ("MmBackward, stashed seq=7", 20, 30, 2)])) == {
        "MmBackward, stashed seq=7": "mm, seq=7"
    }


def test_a_number_of_several_forward_threads_pairs_nothing() -> None:
    ranges = _named(
        [
            ("mm, seq = 7", 0, 9, 1),
            ("add, seq = 7", 0, 8, 2),
            ("MmBackward0, seq = 7", 20, 30, 3),
            ("mul, seq = 8", 10, 11, 2),
            ("MulBackward0, seq = 8", 31, 33, 3),
        ]
    )
    assert _pairs(ranges) == {"MulBackward0, seq = 8": "mul, seq = 8"}
    # PyTorch numbers its threads: the one that has both numbers is thread 1.
    number = np.array([int((name or "").rpartition(" ")[2]) for name in ranges.names])
    backward = np.array(["Backward" in (name or "") for name in ranges.names])
    ranges.numbers = Numbers(number, backward, np.where(backward, 1, 0))
    assert _pairs(ranges) == {
        "MmBackward0, seq = 7": "add, seq = 7",
        "MulBackward0, seq = 8": "mul, seq = 8",
    }


def test_names_without_numbers_have_no_pairs() -> None:
    assert forward_ranges(_named([("step 3", 0, 9, 1), ("backward", 1, 2, 1)])) is None


def test_the_forward_thread_waits_although_others_have_open_ranges() -> None:
    """Sequence numbers lead to the thread that called the backward pass."""
    threads: list[Thread] = [
        ([(0, 100)], [(1, 2, 1, 2)]),
        ([(0, 100), (1, 9), (20, 90)], [(2, 3, 5, 6)]),
        ([(30, 40)], [(31, 32, 50, 60)]),
    ]
    spans, ranges, calls = _process(threads)
    place = {span: number for number, span in enumerate(spans)}
    assert attribute(calls, ranges, Columns()).caller[place[Span(30, 40, 3)]] == NONE
    number = np.full(len(spans), NONE)
    number[[place[Span(1, 9, 2)], place[Span(30, 40, 3)]]] = 5
    backward = np.zeros(len(spans), bool)
    backward[place[Span(30, 40, 3)]] = True
    ranges.numbers = Numbers(number, backward, np.where(backward, 1, 0))
    found = attribute(calls, ranges, Columns())
    assert found.caller[place[Span(30, 40, 3)]] == place[Span(20, 90, 2)]
    tree = RangeTree(calls, ranges, found, Projection(calls, ranges, Columns()), Columns())
    columns = tree.columns(slice(0, len(spans)))
    assert columns["backward_time_ns"].to_pylist()[place[Span(1, 9, 2)]] == 10
    assert columns["tree_time_ns"].to_pylist()[place[Span(20, 90, 2)]] == 10
    # The main thread waits for that thread.
    assert columns["tree_time_ns"].to_pylist()[place[Span(0, 100, 1)]] == 1 + 1 + 10


def test_a_loader_thread_does_not_wait() -> None:
    """Threads that launch no work are no callers of the backward pass."""
    loader: Thread = ([(0, 100)], [])
    _, ranges, calls = _process([([(10, 90)], [(11, 12, 0, 1)]), loader, ([], [(20, 21, 30, 40)])])
    found = attribute(calls, ranges, Columns())
    assert (found.innermost >= 0).all()
    assert found.source.tolist() == [0, 1]
