"""The first screen: what each kind of report leads with."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest
from conftest import DATA, Cli

from perfpipe.analysis.report.opening.actions import actions_of
from perfpipe.analysis.report.opening.steps import _rates
from perfpipe.analysis.report.profiled import of_steps
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.runrecord import TaskResult
from perfpipe.store import Store
from perfpipe.viewmodel import Finding, Source

Pages = Callable[..., Path]

#: What replays of the recordings lead with, and the table that stands there; none where a step does.
LEADS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "gemm": (("758 TFLOP/s (77 % of peak) at size 4096", "66.5 % at size 16384: power cap, 1,672 MHz"),
             "Problem sizes"),
    "vector_add": (("block=1024 is 1.73 times faster than block=128",), "Problem sizes"),
    "transformer_step": (("mode=graph is 6.05 times faster than mode=eager", "launch-bound"), ""),
    "fused_matmul_tuning": (("685 TFLOP/s (69 % of the fp16 peak): group_m=4 warps=4",
                             "201 us against 207 us by default, within noise"),
                            "Tuning: all valid configurations"),
    "ddp_step": (("GPU 1 waits 14.7 ms of it for rank 0, whose host launches too slowly",), ""),
}  # fmt: skip


def _opening(folder: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())["opening"]
    return found


@pytest.mark.parametrize("name", LEADS)
def test_what_recordings_lead_with(name: str, pages: Pages) -> None:
    opening = _opening(pages(name))
    said, lead = LEADS[name]
    text = opening["verdict"]["text"]
    assert all(part in text for part in said), text
    assert len(text.split()) <= 25
    assert opening["lead"] == lead
    assert len(opening["tiles"]) == 4
    gains = [tile for tile in opening["tiles"] if tile["name"] == "Potential gain"]
    assert len(gains) == any(action["bound"] for action in opening["actions"])
    assert 1 <= len(opening["actions"]) <= 3
    for action in opening["actions"]:
        assert action["command"].startswith(("perfpipe show ", "perfpipe run "))
        assert action["evidence"]
    what = [action["what"] for action in opening["actions"]]
    assert len({*what}) == len(what), "each technique once"


def test_the_slowest_configuration_comes_first(pages: Pages) -> None:
    """Launch gaps of a kernel of 4 us are not what a sweep of matrix products is about."""
    actions = _opening(pages("gemm"))["actions"]
    assert "CUDA graph" not in actions[0]["what"]
    assert any("CUDA graph" in action["what"] for action in actions[1:])


def _tried(*found: tuple[str, float | None]) -> list[str]:
    """Return what is tried first of findings: of each the technique, and what it saves at most."""
    findings = [
        Finding("", "", None, "", "high", "", what, Source("findings", ()), most_pct=most)
        for what, most in found
    ]
    scope = cast(Scope, SimpleNamespace(run=None, timeline=False))
    return [action.what for action in actions_of(scope, findings)]


def test_what_is_a_small_part_of_the_step_is_no_action() -> None:
    assert _tried(("a", 0.3), ("b", 0.2), ("c", 2), ("d", 3), ("e", None)) == ["c", "d", "e"]


def test_what_is_little_beside_the_largest_lever_is_no_action() -> None:
    """A kernel with 2 % of a step is nothing to try where a CUDA graph could save most of it."""
    kernel, unknown = ("suit", 2), ("fuse", None)
    assert _tried(("graph", 92), kernel, unknown) == ["graph", "fuse"]
    assert _tried(("graph", 30), kernel, unknown) == ["graph", "suit", "fuse"]
    # What has no advice saves nothing.
    assert _tried(("", 92), kernel) == ["suit"]


def test_budgets_are_those_of_the_table(pages: Pages) -> None:
    folder = pages("transformer_step")
    document = json.loads((folder / "report.json").read_text())
    budgets = {b["name"]: dict(b["shares"]) for b in document["opening"]["budgets"]}
    assert [*budgets] == ["mode=eager, GPU 0", "mode=graph, GPU 0"]
    (table,) = [t for t in document["sections"][0]["tables"] if t["title"] == "GPU time budget"]
    at = [column["name"] for column in table["columns"]]
    for row in table["rows"]:
        own = dict(zip(at, row, strict=True))
        # The profiler makes steps longer, and the share of the work smaller.
        scale = budgets[f"{own['label']}, GPU 0"][own["category"]] / own["share_pct"]
        assert scale > 1 if own["category"] in ("compute", "transfer") else scale < 1
    assert all(sum(shares.values()) == pytest.approx(100) for shares in budgets.values())


def test_profiled_kernels_lead_with_their_rows(pages: Pages) -> None:
    folder = pages("ncu/visible.ncu-rep")
    opening = _opening(folder)
    assert opening["lead"] == "Profiled kernels"
    assert re.fullmatch(
        r"Kernels that are limited by .+ take \d+ % of the profiled kernel time "
        r"\(\d+ launches, .+\) and run at \d+ % of SOL",
        opening["verdict"]["text"],
    )
    page = (folder / "report.html").read_text()
    first = page[page.index('id="opening"') : page.index('id="summary"')]
    document = json.loads((folder / "report.json").read_text())
    tables = [table for section in document["sections"] for table in section["tables"]]
    (lead,) = (table for table in tables if table["title"] == "Profiled kernels")
    assert first.count("<tr") == 1 + len(lead["rows"])


def test_without_evidence_nothing_is_claimed(cli: Cli, tmp_path: Path) -> None:
    names = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"'
    (tmp_path / "x.csv").write_text(f'{names}\n"","","","","us"\n"0","1","p","k","2.5"\n')
    assert cli("ingest", "x.csv") == 0
    assert cli("report", "--json") == 0
    opening = json.loads(cli.out)["opening"]
    assert opening["verdict"]["text"].startswith("No verdict")
    assert opening["tiles"] == opening["actions"] == []


def test_a_comparison_leads_with_the_change(
    cli: Cli, replayed: Callable[[str], Path], tmp_path: Path
) -> None:
    store = str(replayed("transformer_step"))
    reports = {}
    assert cli("query", "--store", store, "--format", "json",
               "SELECT label, report_id FROM _labels JOIN reports USING (report_id) WHERE kind = 'nsys'",
               ) == 0  # fmt: skip
    for row in json.loads(cli.out)["rows"]:
        reports[row["label"]] = row["report_id"]
    eager, graph = reports["mode=eager"], reports["mode=graph"]
    page = tmp_path / "difference.html"
    data = tmp_path / "difference.json"
    asked = ("--baseline", eager, "--json", data, "--html", page, "--store", store)
    assert cli("report", graph, *asked) == 0
    drawn = page.read_text()
    assert drawn.index("Before: mode=eager, GPU 0") < drawn.index("After: mode=graph, GPU 0")
    opening = json.loads(data.read_text())["opening"]
    text = opening["verdict"]["text"]
    assert re.fullmatch(
        r"A step takes 1\.59 ms instead of 13\.3 ms: 8\.3 times faster; launch gap is gone "
        r"\(-8\.88 ms\)\. With one run on a side, the direction is certain "
        r"\(steps vary by \d %\), the digits are not",
        text,
    )
    assert [t["name"] for t in opening["tiles"]] == [
        "Before", "After", "Change", "Largest part of the change",
    ]  # fmt: skip
    assert opening["lead"] == "Change of the step by category"


def test_the_change_adds_up(cli: Cli, replayed: Callable[[str], Path]) -> None:
    """From the step before over the changes of its categories to the step after."""
    store = str(replayed("ddp_step"))
    assert cli("query", "--store", store, "--format", "json", "SELECT report_id FROM reports") == 0
    after, before = [row["report_id"] for row in json.loads(cli.out)["rows"]]
    assert cli("report", after, "--baseline", before, "--json", "-", "--store", store) == 0
    sections = json.loads(cli.out)["sections"]
    (table,) = [t for s in sections for t in s["tables"] if t["figure"] == "change"]
    first, *changes, last = [
        dict(zip(("part", "change", "so_far"), row, strict=True)) for row in table["rows"]
    ]
    assert (first["part"], last["part"]) == ("before", "after")
    so_far = first["so_far"]
    for row in changes:
        so_far += row["change"]
        assert row["so_far"] == pytest.approx(so_far)
    assert last["so_far"] == pytest.approx(so_far)


def test_what_bounds_a_step_is_named_once() -> None:
    """Kernels limited by small grids may be of two bounds, which read alike."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE step_coverage AS SELECT 'r' AS report_id, 0 AS device, 'steady' AS window_kind, "
        "184 AS configurations, 30 AS profiled_configurations, 60.0 AS profiled_pct, "
        "0.0 AS otherwise_pct, 80 AS kernel_time_ns"
    )
    con.execute(
        "CREATE TABLE analysis_windows AS SELECT 'r' AS report_id, 0 AS device, 100 AS time_ns"
    )
    con.execute(
        "CREATE TABLE benchmark_loops AS "
        "SELECT 'r' AS report_id, 0 AS device, NULL::BIGINT AS repetitions LIMIT 0"
    )
    con.execute(
        "CREATE TABLE step_bounds AS FROM (VALUES ('r', 1, 'unknown', 'not_profiled', 40.0), "
        "('r', 2, 'memory', 'dram', 25.0), ('r', 3, 'latency', 'small_grid', 18.0), "
        "('r', 4, 'launch', 'small_grid', 17.0)) AS t(report_id, rank, bound, subclass, share_pct)"
    )
    assert of_steps(Scope(con, ("r",), {"nsys": 1, "ncu": 1})) == (
        "35 % of the step's kernel time is bound by small grids, 25 % by DRAM, 40 % is unknown; "
        "30 of 184 kernels were profiled (60 % of kernel time)"
    )


def test_samples_and_tokens_of_an_iteration() -> None:
    task = TaskResult(0, "-", {}, samples=32, tokens=4096.0)
    assert [*_rates(task, 16.0)] == ["2,000 samples/s", "256,000 tokens/s"]
    assert [*_rates(TaskResult(0, "-", {}), 16.0)] == []
    assert [*_rates(None, 16.0)] == []


def test_copies_stand_beside_the_busy_time(cli: Cli, captures: Store) -> None:
    """A blocking copy takes a fifth of each step; nothing overlaps."""
    path = DATA / "torch" / "copying.kineto.json.gz"
    made = ingest(path, captures)
    with Session.open(captures, [made.report_id]) as con:
        ((busy, copying, first, last),) = con.execute(
            "SELECT busy_pct, copying_pct, start_ns, end_ns FROM step_times"
            " JOIN analysis_windows USING (report_id, device)"
        ).fetchall()
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    zero = min(event["ts"] for event in events)
    sums = {"kernel": 0.0, "gpu_memcpy": 0.0, "gpu_memset": 0.0}
    for event in events:
        if event["cat"] in sums and first <= round(1000 * (event["ts"] - zero)) < last:
            sums[event["cat"]] += 1000 * event["dur"]
    assert busy == pytest.approx(100 * sums.pop("kernel") / (last - first), abs=0.01)
    assert copying == pytest.approx(100 * sum(sums.values()) / (last - first), abs=0.01)
    assert cli("report", path) == 0, cli.err
    said = " ".join(cli.out.split())
    assert "the GPU is busy for 78 % of that time and copying for 21 %" in said
    assert "GPU busy 78 % of the steady steps; copying: 21 %" in said


def test_symmetric_memory_is_communication_and_paired(tmp_path: Path, cli: Cli) -> None:
    """Two ranks reduce with NCCL and with kernels of PyTorch's symmetric memory."""
    store = Store(tmp_path / "store")
    paths = [DATA / "torch" / f"symm_rank{rank}.kineto.json.gz" for rank in (0, 1)]
    reports = [ingest(path, store).report_id for path in paths]
    with Session.open(store, reports, window="whole") as con:
        found = con.execute(
            "SELECT r.rank, communication_ns FROM comm_overlap JOIN job_ranks AS r"
            " USING (report_id, device) ORDER BY rank"
        ).fetchall()
        pairs = con.execute(
            "SELECT operation, communicator IS NULL, count(*), bool_and(together)"
            " FROM paired_collectives GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    for (rank, communication), path in zip(found, paths, strict=True):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        assert trace["distributedInfo"]["rank"] == rank
        assert communication == sum(
            round(1000 * event["dur"])
            for event in trace["traceEvents"]
            if event.get("cat") == "kernel"
            and re.match(r"nccl|.*::(one|two)_shot_all_reduce_kernel", event["name"])
        )
    assert pairs == [
        ("AllReduce", False, 10, True),
        ("AllReduce", True, 20, True),
        ("AllToAll", False, 10, True),
    ]
    assert cli("report", *paths) == 0, cli.err
    assert "of it is communication that no kernel overlaps" in " ".join(cli.out.split())


_COVERED = {
    # Another program on another GPU.
    "public/mistic_node.ncu-rep.xz": "mistic_node.ncu-rep.xz profiled another program or GPU than "
    "the timeline shows, so its kernels do not count as part of the step",
    # A CSV page names no program: of its kernels, one takes a little of the step.
    "ncu/block.raw.csv.xz": "ncu profiled 0.077 % of the kernel time on the timeline, so the "
    "classes of the profiled kernels say little about it",
    "public/copy_blocked.csv.xz": "ncu profiled none of the kernel time on the timeline",
}


@pytest.mark.parametrize("name", _COVERED)
def test_profiles_of_other_kernels_are_told_first(name: str, cli: Cli, tmp_path: Path) -> None:
    paths = [DATA / "nsys" / "eager_small.sqlite.xz", DATA / name]
    assert cli("report", *paths, "--md", "report.md", "--html", "report.html") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    warning = f"**Warning: {_COVERED[name]}"
    assert 0 < page.index(warning) < page.index("A step takes")
    assert _COVERED[name] in (tmp_path / "report.html").read_text()
    assert cli("report") == 0, cli.err
    assert f"Warning: {_COVERED[name]}" in " ".join(cli.out.split())
    assert "Mean SOL unknown" in " ".join(cli.out.split())
    numbered = re.findall(r"^\d\. (.*)$", cli.out, re.MULTILINE)
    assert [what.partition(":")[0] for what in numbered] == [
        "Launch the step as a CUDA graph, or compile it"
    ]
    # Kernel findings come after all findings on the timeline.
    assert cli("query", "SELECT subject FROM findings ORDER BY rank", "--format", "csv") == 0
    subjects = cli.out.split()[1:]
    assert subjects == sorted(subjects, reverse=True)


def test_profiles_of_the_step_need_no_warning(pages: Pages) -> None:
    report = json.loads((pages("transformer_step") / "report.json").read_text())
    assert "Warning: " not in report["notice"]
