"""Why it changed: known causes are named, and what is not the code is not blamed on it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.facts import Facts, facts_of
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.differences import counters, settings
from perfpipe.analysis.gate.compare.explain import Explanation, explain
from perfpipe.analysis.gate.compare.story import compare
from perfpipe.analysis.gate.sides import ITERATION, KERNEL, STEP, Key, Measured, Side
from perfpipe.pipelines.gate.sides import named
from perfpipe.ranrecord import Git, Ran
from perfpipe.runrecord import GpuState, OneGpu, RunRecord, Spread, TaskResult
from perfpipe.store import Store
from perfpipe.viewmodel import Source

NS = 1e6
SCATTER = (1.0, 1.001, 0.999, 1.0005, 0.9995)


def a_side(
    name: str, times: Mapping[Key, float], facts: Facts | None = None, mhz: float = 0
) -> Side:
    """Return a side of five runs, which take turns with the other side's; times in ms."""

    def measured(ms: float) -> Measured:
        own = [NS * ms * factor for factor in SCATTER]
        clocks = [mhz or None] * len(own)
        return Measured(own, own, [1] * len(own), clocks, [None] * len(own))

    found = {key: measured(ms) for key, ms in times.items()}
    began = tuple(f"2026-11-22T10:0{at}:{'00' if name == 'A' else '30'}Z" for at in range(5))
    return Side(
        found, frozenset({"H200"}), (name,), began, {"": 1, "nsys": 1}, facts=facts or Facts()
    )


def _part(part: str) -> Key:
    return Key("nsys", "-", part)


def _kernel(name: str, block: str = "128, 1, 1") -> Key:
    return Key("nsys", "-", KERNEL, name, "132, 1, 1", block)


BASE = {
    Key("", "-", ITERATION): 10.0,
    _part(STEP): 10.0,
    _part("compute"): 8.0,
    _part("launch_gap"): 2.0,
    _kernel("gemm<float>(int)"): 5.0,
    _kernel("softmax(float)"): 3.0,
}


def _why(after: Mapping[Key, float], **counted: Mapping[str, float]) -> Explanation:
    a, b = a_side("A", BASE), a_side("B", after)
    for side in (a, b):
        own = counted.get(side.names[0])
        if own:
            key = _kernel("gemm<float>(int)")._replace(profiler="ncu")
            side.counters[key] = dict(own)
    return explain(pairs_of(a, b), a, b)


def test_a_slower_kernel_is_named_with_what_its_counters_say() -> None:
    slower = {
        **BASE,
        Key("", "-", ITERATION): 12.0,
        _part(STEP): 12.0,
        _part("compute"): 10.0,
        _kernel("gemm<float>(int)"): 7.0,
    }
    found = _why(
        slower,
        A={
            "registers per thread": 64,
            "achieved occupancy, %": 60,
            "L2 hit rate, %": 80,
            "waves": 1,
        },
        B={
            "registers per thread": 255,
            "achieved occupancy, %": 22,
            "L2 hit rate, %": 81,
            "waves": 1,
        },
    )
    assert "A step changed by +2 ms: compute +2 ms, 100 % of the change." in found.text
    assert "gemm<float> is slower: +2 ms, 100 % of the change" in found.text
    assert "softmax" not in found.text
    assert (
        "gemm<float> under ncu: registers per thread 64 -> 255; "
        "achieved occupancy, % 60 -> 22." in found.text
    )
    assert [row.name for row in found.rows if row.kind == "counter"] == [
        "registers per thread of gemm<float>",
        "achieved occupancy, % of gemm<float>",
    ]
    assert "No counters" not in found.text
    assert "No counters show why the kernels changed" in _why(slower).text


def test_a_launch_gap_is_no_kernels_fault() -> None:
    slower = {**BASE, _part(STEP): 13.0, _part("launch_gap"): 5.0}
    found = _why(slower)
    assert "launch gap +3 ms, 100 % of the change" in found.text
    assert "No kernel accounts for the change" in found.text


def test_kernels_that_are_new_gone_or_launched_otherwise() -> None:
    after = {
        **{key: ms for key, ms in BASE.items() if key.part != KERNEL},
        _part(STEP): 11.0,
        _part("compute"): 9.0,
        _kernel("gemm<float>(int)", "256, 1, 1"): 5.5,
        _kernel("extra(int)"): 3.5,
    }
    found = _why(after)
    text = "gemm<float> is launched differently (block 128, 1, 1 -> 256, 1, 1): +500 us, 50 %"
    assert text in found.text
    assert "extra is new: +3.5 ms, 350 % of the change" in found.text
    assert "softmax is gone: -3 ms, -300 % of the change" in found.text
    _, kernels = found.tables(Source("comparison", ()))
    assert kernels.title == "Kernels: new, gone, slower, faster"
    named_by = [column.name for column in kernels.columns]
    rows = {row[0]: dict(zip(named_by, row, strict=True)) for row in kernels.rows}
    assert (rows["extra"]["what"], rows["extra"]["before_ns"]) == ("new", None)
    assert rows["extra"]["change_ns"] == rows["extra"]["after_ns"] == 3.5 * NS
    assert (rows["softmax"]["what"], rows["softmax"]["after_ns"]) == ("gone", None)
    assert rows["gemm<float>"]["launch"] == "block 128, 1, 1 -> 256, 1, 1"


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=6), st.data())
def test_shares_of_the_parts_add_up(before: list[float], data: st.DataObject) -> None:
    after = data.draw(st.lists(st.floats(0.1, 10), min_size=len(before), max_size=len(before)))
    keys = [_part(f"part{at}") for at in range(len(before))]
    one, other = (
        a_side(name, {_part(STEP): sum(own), **dict(zip(keys, own, strict=True))})
        for name, own in (("A", before), ("B", after))
    )
    found = explain(pairs_of(one, other), one, other)
    change = sum(after) - sum(before)
    shares = [row.share_pct for row in found.rows if row.kind == "time"]
    if abs(change) > 0.021 * sum(before):
        known = [share for share in shares if share is not None]
        assert len(known) == len(shares)
        # Rows of less than 1 % are left out.
        assert sum(known) == pytest.approx(100, abs=1.01 * len(before))
    elif abs(change) < 0.015 * sum(before):
        assert not any(shares)


def test_eager_against_graph(captures: Store, ingested: Callable[[str], str]) -> None:
    """Real captures of the same step: the host's launches are gone, the kernels the same."""
    eager = ingested("nsys/eager_small.sqlite")
    for capture, graphs in (
        ("nsys/graph_node.sqlite", "CUDA graphs 0 % of the kernels -> 100 % of the kernels"),
        ("nsys/graph_whole.sqlite", "CUDA graphs 0 % of the kernels -> traced as a whole"),
    ):
        sides = named(captures, [eager], [ingested(capture)])
        why = compare(sides[0].side, sides[1].side).why
        assert re.search(r"A step changed by -7\.\d+ ms: launch gap -5\.37 ms, 6\d % of", why.text)
        assert graphs in why.text
        text = why.text
        assert "No kernel accounts for the change" in text or "are not visible" in text
        assert not [row for row in why.rows if row.kind == "kernel"]


def test_a_copy_before_each_step(captures: Store, ingested: Callable[[str], str]) -> None:
    sides = named(captures, [ingested("nsys/compute.sqlite")], [ingested("nsys/h2d.sqlite")])
    why = compare(sides[0].side, sides[1].side).why
    (transfer,) = (row for row in why.rows if row.name == "transfer")
    assert transfer.change == "+3.56 ms"
    assert why.text.startswith(
        "Settings that were changed on purpose: arguments compute -> h2d. A step changed"
    )
    assert why.rows[0].given and not any(row.given for row in why.rows[1:])


def test_more_work_is_told_before_more_time() -> None:
    """A larger problem takes longer: the size and the work lead, and arguments are not repeated."""
    sides = [
        Facts(facts_of([[TaskResult(0, f"n={n}", {"n": n}, flops=2.0 * n**3,
                                    command=("python", "gemm.py", "--n", str(n)))]]).settings)
        for n in (1000, 2000)
    ]  # fmt: skip
    a, b = (a_side(x, {k: ms for k, ms in BASE.items() if k.part == ITERATION}, facts)
            for x, facts in zip("AB", sides, strict=True))  # fmt: skip
    assert explain(pairs_of(a, b), a, b).text.startswith(
        "Settings that were changed on purpose: parameter n 1000 -> 2000, "
        "work of an iteration FLOPs 2 GFLOP -> 16 GFLOP."
    )


def test_settings_that_differ() -> None:
    before = Facts(
        {
            "parameter": {"mode": ("eager",)},
            "program": {"arguments": ("train.py --mode eager",)},
            "environment": {"A": ("1",), "B": ("2",)},
            "package": {"torch": ("2.10",)},
            "machine": {"driver": ("580",)},
        }
    )
    after = Facts(
        {
            "parameter": {"mode": ("graph",)},
            "program": {"arguments": ("train.py --mode graph",)},
            "environment": {"A": ("1",), "C": ("3",)},
            "package": {"torch": ("2.11",), "triton": ("3",)},
        }
    )
    told = [(d.kind, d.name, d.before, d.after) for d in settings(before, after)]
    assert told == [
        ("parameter", "mode", "eager", "graph"),
        ("environment", "B", "2", "unset"),
        ("environment", "C", "unset", "3"),
        ("package", "torch", "2.10", "2.11"),
        ("package", "triton", "absent", "3"),
    ]
    assert [d.name for d in settings(before, after) if d.given] == ["mode"]
    assert not [*settings(before, before)]
    none = Facts({"environment": {}})
    assert [(d.name, d.before) for d in settings(none, after)] == [("A", "unset"), ("C", "unset")]
    assert not [*settings(Facts(), after)], "not known is not unset"


@given(st.dictionaries(st.sampled_from(["a", "b", "c, %"]), st.floats(0, 100)), st.data())
def test_counters_that_moved(before: dict[str, float], data: st.DataObject) -> None:
    after = {name: data.draw(st.floats(0, 100)) for name in before}
    moved = {row.name for row in counters(before, after)}
    for name, old in before.items():
        new = after[name]
        large = abs(new - old) > 0.1 * min(old, new) * (1 + 1e-9)
        points = abs(new - old) >= 5 or not name.endswith("%")
        if name in moved:
            assert new != old
            assert points
        elif large and points:
            assert abs(new - old) <= 0.1 * min(old, new) * (1 + 1e-6)


# Where it is told


def _run(store: Store, name: str, at: int, ms: float) -> None:
    spread = Spread(1980, 1980, 1980)
    gpu = OneGpu(0, 9, spread, spread, name="H200", power_limit_w=700.0, ecc_errors=0, neighbors=0)
    state = GpuState(9, (gpu,), driver="580.1")
    side = name[0]
    began = f"2026-11-22T10:{at:02}:00Z"
    git = Git(f"{side}12345678901", "main", dirty=side == "b")
    ran = Ran(began, began, 1.0, "node1", ("GPU-1",), git=git)
    ran = replace(ran, environment={"X": side}, packages={"torch": side})
    task = TaskResult(0, "-", {}, times_ms=(ms,), key="k", gpu_state=state, ran=ran)
    store.write_run(RunRecord(name, "w", "timing", began, "done", (), (task,)))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    store = Store(tmp_path / "store")
    for at, factor in enumerate(SCATTER):
        _run(store, f"a{at}", 2 * at, 10 * factor)
        _run(store, f"b{at}", 2 * at + 1, 11 * factor)
    return ",".join(f"a{at}" for at in range(5)), ",".join(f"b{at}" for at in range(5))


def test_every_output_says_the_same(sides: tuple[str, str], cli: Cli, tmp_path: Path) -> None:
    sentence = (
        "Differences: environment X a -> b, git commit a12345678 -> b12345678+, "
        "package torch a -> b."
    )
    assert cli("compare", *sides, "--json", "j", "--md", "m", "--html", "h") == 0, cli.err
    assert sentence in " ".join(cli.out.split())
    data = json.loads((tmp_path / "j").read_text())
    assert sentence in data["why"]["text"]
    (torch,) = (row for row in data["why"]["differences"] if row["name"] == "torch")
    assert (torch["kind"], torch["before"], torch["after"]) == ("package", "a", "b")
    assert re.sub("([>])", r"\\\1", sentence) in (tmp_path / "m").read_text()
    assert sentence.replace(">", "&gt;") in (tmp_path / "h").read_text()
    assert "Where the time went is unknown" in data["why"]["text"]
    page = (tmp_path / "h").read_text()
    first = page[page.index('id="opening"') : page.index('id="summary"')]
    assert "An iteration takes 11 ms instead of 10 ms: +10.0 % (regressed)" in first
    tiles = re.findall("<dt>(.*?)</dt><dd><b>(.*?)</b>", first)
    assert tiles == [
        ("Decision", "Investigate"), ("Before", "10 ms"), ("After", "11 ms"), ("Change", "+10.0 %"),
    ]  # fmt: skip


def test_the_index_links_to_what_changed(sides: tuple[str, str], cli: Cli, tmp_path: Path) -> None:
    assert cli("report", "a0", "b0", "a1", "--index", "pages") == 0, cli.err
    page = (tmp_path / "pages" / "index.html").read_text()
    rows = page.split("<tr data-bound")[1:]
    assert [re.findall('href="(.*?)"', row) for row in rows] == [
        ["a1.html", "a1-change.html"], ["b0.html", "b0-change.html"], ["a0.html"],
    ]  # fmt: skip
    assert all((tmp_path / "pages" / name).is_file() for name in re.findall('href="(.*?)"', page))
    assert "unreplicated</a> +10.0 %" in rows[1]
    assert "<title>10 ms -&gt; 11 ms -&gt; 10 ms</title>" in rows[0]
    assert "polyline" in rows[1] and "polyline" not in rows[2], "one run is no course"


def test_an_exported_baseline_keeps_what_explains(sides: tuple[str, str], cli: Cli) -> None:
    assert cli("gate", "baseline", "export", sides[0], "base.json") == 0, cli.err
    assert cli("check", *sides[1].split(","), "--baseline", "base.json", "--json") == 3
    found = json.loads(cli.out)
    assert "environment X a -> b, git commit a12345678 -> b12345678+" in found["why"]["text"]
    assert "node" not in found["why"]["text"]


def test_runs_say_where_they_ran(sides: tuple[str, str], cli: Cli) -> None:
    query = (
        "SELECT gpu_model, driver, power_limit_w, ecc_errors, neighbors, environment "
        "FROM run_tasks WHERE run_id = 'a0'"
    )
    assert cli("query", "--all", query) == 0, cli.err
    for value in ("H200", "580.1", "700", "X"):
        assert value in cli.out
