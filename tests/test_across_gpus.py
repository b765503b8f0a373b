"""The same work on two GPU models: matching, what was got, what holds back, and the commands."""

from __future__ import annotations

import csv
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.gate.across_gpus.progress import Pair, Profiled, host_share, matched, reach
from perfpipe.analysis.gate.project.scaling import Use, ratios
from perfpipe.ingest.reading import ingest
from perfpipe.runrecord import GpuState, OneGpu, RunRecord, Spread, TaskResult
from perfpipe.specs import gpu_specs
from perfpipe.store import Store

SPECS = {spec.key: spec for spec in gpu_specs()}
A100, H100 = SPECS["a100_sxm_80"], SPECS["h100_sxm"]
DRAM = Use("memory", "dram", {"dram": 100.0}, 10_000, 8)
MATMUL = Use("compute", "tensor", {"fp16": 80.0}, 10_000, 1)


def kernel(name: str, use: Use = DRAM, **given: Any) -> Profiled:
    plain = Profiled("", "", name, name, "1,1,1", "1,1,1", 1, 1000.0, use)
    return replace(plain, **given)


def names_of(pairs: list[Pair]) -> list[tuple[str, str, str]]:
    return [(pair.before.name, pair.after.name, pair.how) for pair in pairs]


def test_kernels_are_matched_by_their_work() -> None:
    before = [
        kernel("add"),
        kernel("scale", grid="108,1,1"),
        kernel("ampere_gemm", nvtx="layer/qkv", category="gemm", flop=1e9),
        kernel("ampere_gemm_small", nvtx="layer/out", category="gemm", flop=1e8),
        kernel("only_here", category="sort"),
    ]
    after = [
        kernel("scale", grid="132,1,1"),
        kernel("add"),
        kernel("nvjet_out", nvtx="layer/out", category="gemm", flop=1.02e8),
        kernel("nvjet_qkv", nvtx="layer/qkv", category="gemm", flop=1e9),
        kernel("new_here", category="softmax"),
        kernel("another_new", category="softmax"),
    ]
    pairs, left, new = matched(before, after)
    assert names_of(pairs) == [
        ("add", "add", "same kernel"),
        ("scale", "scale", "same kernel, another grid or block"),
        ("ampere_gemm", "nvjet_qkv", "different kernel, same range"),
        ("ampere_gemm_small", "nvjet_out", "different kernel, same range"),
    ]
    assert [one.name for one in left] == ["only_here"]
    assert [one.name for one in new] == ["new_here", "another_new"]


def test_other_work_is_not_matched() -> None:
    one, other = kernel("a", flop=1e9), kernel("a", flop=2e9)
    assert matched([one], [other]) == ([], [one], [other])
    two = [kernel("a", category="gemm"), kernel("b", category="gemm")]
    # Two kernels became one: which is which is not known.
    assert matched(two, [kernel("c", category="gemm")])[0] == []
    # Configurations are matched with their own.
    assert matched([kernel("a", label="n=1")], [kernel("a", label="n=2")])[0] == []
    assert names_of(matched([kernel("a")], [kernel("b")])[0]) == [
        ("a", "b", "different kernel, the only one")
    ]


def reached(old: Profiled, new: Profiled, **options: Any) -> Any:
    gpus = options.get("gpus", (A100, H100))
    return reach(Pair(old, new, "same kernel"), gpus, ratios(*gpus))


def test_what_was_got() -> None:
    """A kernel that is as much faster as DRAM got all; one that is no faster got the rest."""
    faster = 3350 / 2039
    all_of_it = reached(kernel("k"), kernel("k", time_ns=1000 / faster))
    assert all_of_it.got_pct == pytest.approx(100)
    assert all_of_it.possible.high == pytest.approx(faster)
    assert all_of_it.roofs == pytest.approx(faster)
    assert (all_of_it.held_by, all_of_it.lost_ns) == ((), pytest.approx(0))
    none = reached(kernel("k"), kernel("k"))
    assert none.got_pct == pytest.approx(100 / faster)
    assert none.lost_ns == pytest.approx(1000 - 1000 / faster)
    tensor = reached(kernel("k", MATMUL), kernel("k", MATMUL, time_ns=500))
    assert tensor.got_pct == pytest.approx(100 * 2 / (989.4 / 312))
    unknown = reached(kernel("k", Use(None, None, {})), kernel("k"))
    assert unknown.reason == "not profiled by ncu: any roof may bound it"


def test_l2_changes_as_ncu_measured_it() -> None:
    cached = Use("memory", "l2", {"l2": 100.0}, 10_000, 8)
    measured = reached(kernel("k", cached, l2_bytes_per_s=4e12), kernel("k", l2_bytes_per_s=5e12))
    assert measured.possible.low == measured.possible.high == pytest.approx(1.25)
    taken = reached(kernel("k", cached), kernel("k"))
    assert taken.possible.low < taken.possible.high


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            {"occupancy_pct": 100.0},
            {"occupancy_pct": 50.0, "limiters": ("registers", "shared_mem")},
            "occupancy 50 %, limited by registers and shared mem (A: 100 %)",
        ),
        ({"waves": 1.2}, {"waves": 0.98}, "the grid fills 98 % of the GPU (A: 1.20 waves)"),
        (
            {"sm_clock_hz": 1.41e9},
            {"sm_clock_hz": 0.99e9},
            "SM clock 990 of 1980 MHz (A: 100 % of the maximum)",
        ),
        ({}, {"features": ("tensor", "mma_sync")}, "no wgmma"),
        ({}, {"features": ("product",), "uses_tma": False}, "no TMA"),
        ({}, {"features": ("half",)}, "no FP8, which A100 SXM4 80 GB lacks"),
        ({}, {"features": ("spills",)}, "register spills"),
        ({}, {"use": Use("latency", "tail", {"dram": 30.0})}, "bound by latency (tail) on B, by"),
    ],
)
def test_what_holds_back(old: dict[str, Any], new: dict[str, Any], sentence: str) -> None:
    found = reached(kernel("k", **old), kernel("k", **new))
    assert len(found.held_by) == 1
    assert found.held_by[0].startswith(sentence)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"occupancy_pct": 50.0}, {"occupancy_pct": 50.0}),
        ({"occupancy_pct": 50.0}, {"occupancy_pct": None}),
        ({"waves": 0.5}, {"waves": 0.6}),
        ({"sm_clock_hz": 1.1e9}, {"sm_clock_hz": 1.55e9}),
        ({}, {"features": ("product",), "uses_tma": True}),
        ({}, {"features": ("product",), "uses_tma": None}),
        ({"features": ("spills",)}, {"features": ("spills",)}),
    ],
)
def test_what_is_alike_or_not_known_does_not_hold_back(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert reached(kernel("k", **old), kernel("k", **new)).held_by == ()


def test_older_gpus_have_nothing_to_use() -> None:
    new = kernel("k", features=("product", "half"), uses_tma=False)
    assert reached(kernel("k"), new, gpus=(H100, A100)).held_by == ()


def test_launches_that_did_not_shrink() -> None:
    old = {"compute": 9e6, "launch_gap": 1e6}
    (told,) = host_share(old, {"compute": 3e6, "launch_gap": 1e6})
    assert told == "host and launches leave the GPU idle for 1 of 4 ms (A: 1 of 10)"
    assert [*host_share(old, {"compute": 3e6, "launch_gap": 0.3e6})] == []
    assert [*host_share({}, old)] == []


#: What becomes of a capture of an H200 to be one of another GPU that is half as fast.
SLOWER = 2.0
OTHER = {
    "CC": "8.0",
    "device__attribute_display_name": "NVIDIA A100-SXM4-80GB",
    "device__attribute_multiprocessor_count": "108",
    "launch__sm_count": "108",
}


def as_a100(text: str) -> str:
    """Return ncu's raw page with the device replaced, and all times longer."""
    header, units, *rows = csv.reader(text.splitlines())
    at = {name: header.index(name) for name in (*OTHER, "gpu__time_duration.sum")}
    for row in rows:
        for name, value in OTHER.items():
            row[at[name]] = value
        time = at["gpu__time_duration.sum"]
        row[time] = repr(SLOWER * float(row[time]))
    lines: list[str] = []
    for row in (header, units, *rows):
        lines.append(",".join('"' + value.replace('"', '""') + '"' for value in row))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A store with the same kernels on an A100 and an H200, and the ids of both reports."""
    folder = tmp_path_factory.mktemp("two")
    text = lzma.decompress((DATA / "ncu/visible.rawbase.csv.xz").read_bytes()).decode()
    ids = []
    store = Store(folder / "store")
    for name, content in (("a100", as_a100(text)), ("h200", text)):
        path = folder / f"{name}.csv"
        path.write_text(content)
        ids.append(ingest(path, store).report_id)
    return store.root, ids[0], ids[1]


def test_across_gpus_end_to_end(cli: Cli, two_gpus: tuple[Path, str, str]) -> None:
    root, a100, h200 = two_gpus
    assert cli("compare", a100, h200, "--across-gpus", "--json", "--store", root) == 0, cli.err
    found = json.loads(cli.out)
    assert found["gpus"] == ["A100 SXM4 80 GB", "H200 SXM 141 GB"]
    assert (found["only_before"], found["only_after"]) == ([], [])
    kernels = {one["pair"]["before"]["name"]: one for one in found["kernels"]}
    assert len(kernels) == 15
    assert {one["ratio"] for one in kernels.values()} == {SLOWER}
    # Shared memory and integer pipes are as many times as fast as SMs x clock.
    more = 132 * 1980 / (108 * 1410)
    for name in ("bank_conflict", "int_alu"):
        assert kernels[name]["got_pct"] == pytest.approx(100 * SLOWER / more, rel=0.02)
    # FP64 is 3.45 times as fast, but by then the issue slots, 56 % busy on A, are the limit.
    roofs = kernels["fp64_fma"]["pair"]["before"]["use"]["roofs"]
    fp64, issue = roofs["fp64"] / 100, roofs["sm"] / 100
    by_hand = max(fp64 * 9.7 / 33.5, issue / more) + (1 - fp64) * 9.7 / 33.5
    assert kernels["fp64_fma"]["got_pct"] == pytest.approx(100 * SLOWER * by_hand)
    for one in kernels.values():
        if one["possible"]:
            assert one["got_pct"] == pytest.approx(100 * SLOWER / one["possible"]["high"])
    lost = [
        (one["pair"]["after"]["time_ns"] - one["pair"]["before"]["time_ns"] * kept["low"], 0)
        for one in found["kernels"]
        if (kept := one["scaled"]["kept"])
    ]
    assert [max(pair) for pair in lost] == sorted((max(pair) for pair in lost), reverse=True)


def test_pages_and_errors_across_gpus(
    cli: Cli, two_gpus: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, a100, h200 = two_gpus
    where = ("--store", root)
    html, md = tmp_path / "page.html", tmp_path / "page.md"
    outputs = ("--html", html, "--md", md)
    assert cli("compare", a100, h200, "--across-gpus", *outputs, *where) == 0
    assert "Kernels" in cli.out
    text = md.read_text().replace("\\", "")
    assert "A100 SXM4 80 GB" in text
    assert "15 matched profiled kernels: one launch of each takes" in text
    assert "2.00 times as fast" in text
    assert "<script src" not in html.read_text()
    for words, sentence in (
        ((a100, a100), "is on both sides"),
        ((a100, h200, "--junit"), "--junit: a comparison across GPUs has no verdict"),
    ):
        assert cli("compare", *words, "--across-gpus", *where) == 2
        assert sentence in cli.err


def test_configurations_across_gpus(cli: Cli, two_gpus: tuple[Path, str, str]) -> None:
    """Two runs with a time each, and the clocks at which it was measured."""
    root, a100, h200 = two_gpus
    for name, report, ms, mhz in (("run-a", a100, 3.0, 1410.0), ("run-b", h200, 3.0, 990.0)):
        state = GpuState(1, (OneGpu(0, 1, Spread(mhz, mhz, mhz)),))
        task = TaskResult(
            0, "n=1", {"n": 1}, reports=(report,), timing_method="queued", times_ms=(ms,) * 3
        )
        task = replace(task, gpu_state=state)
        run = RunRecord(name, "w", "all", "2026-01-01T00:00:00Z", "done", (report,), (task,))
        Store(root).write_run(run)
    words = ("compare", "run-a", "run-b", "--across-gpus", "--json", "found.json")
    assert cli(*words, "--store", root) == 0
    found = json.loads(Path("found.json").read_text())
    (work,) = found["configurations"]
    assert (work["label"], work["part"], work["ratio"]) == ("n=1", "iteration", 1.0)
    kernels = [one for one in found["kernels"] if one["scaled"]["kept"]]
    assert len(kernels) == 15
    assert work["got_pct"] == pytest.approx(100 / work["possible"]["high"])
    assert work["held_by"] == ["SM clock 990 of 1980 MHz (A: 100 % of the maximum)"]
    told = " ".join(cli.out.split())
    assert "n=1: a iteration" not in told
    assert "n=1: an iteration is 1.00 times as fast on B as on A (3 ms instead of 3 ms)" in told
    assert "SM clock 990 of 1980 MHz" in told
    # Projecting the first run says what was possible.
    assert cli("project", "run-a", "--to", "h200", "--json", "--store", root) == 0
    (whole,) = json.loads(cli.out)["configurations"]
    assert (whole["kind"], whole["now_ns"]) == ("iteration", 3e6)
    assert cli("project", "run-a", "--to", "h200", "--store", root) == 0
    assert "3 ms an iteration on A100 SXM4 80 GB" in " ".join(cli.out.split())


def test_steps_across_gpus(
    cli: Cli, edited: Callable[..., Path], expand: Callable[[str], Path], store: Store
) -> None:
    """The same timeline, of an A100 by its name: nothing was got, and the host is why."""
    as_named = "UPDATE TARGET_INFO_GPU SET name = 'NVIDIA A100-SXM4-80GB', smCount = 108"
    old = ingest(edited("eager_small", as_named), store).report_id
    new = ingest(expand("nsys/eager_small.sqlite"), store).report_id
    assert cli("compare", old, new, "--across-gpus", "--json") == 0
    found = json.loads(cli.out)
    assert found["gpus"] == ["A100 SXM4 80 GB", "H200 SXM 141 GB"]
    (work,) = found["configurations"]
    assert (work["part"], work["ratio"], work["reason"]) == ("step", 1.0, None)
    # Nine tenths of the step are the host's: its kernels could not make it faster.
    assert 0.9 < work["possible"]["low"] <= work["possible"]["high"] < 1.02
    assert work["got_pct"] == pytest.approx(100 / work["possible"]["high"])
