"""Sections: what is declared is shown, what is not declared is refused."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import DATA, ROOT, Cli
from hanging import RAS, ddp, dumps_of, write
from rank_traces import write_traces
from simulated_ranks import Training, simulate

from perfpipe import trialrecord
from perfpipe.analysis.report.declare import Col, GpuTable, Missing, TableSpec
from perfpipe.analysis.report.sections import ORDER, SECTIONS
from perfpipe.analysis.views import views
from perfpipe.store import Store
from perfpipe.templates.gallery import FIGURES
from perfpipe.templates.renderers import render_html, render_markdown
from perfpipe.trialrecord import Gained, LeverTrial, Trial
from perfpipe.viewmodel import Report, Section, Source, Table

Expand = Callable[[str], Path]

SPECS = [part for section in SECTIONS for part in section.parts if isinstance(part, TableSpec)]


def _hang(cli: Cli, folder: Path) -> str:
    """Ingest a job in which a rank skips a call, with what RAS reports; returns the report."""
    write(dict(enumerate(dumps_of(ddp(3, 3, lambda programs: programs[1].pop(2))))), folder)
    (folder / "ras.txt").write_text(RAS)
    assert cli("ingest", folder) == 0
    return cli.out.split()[0]


def _try(store: Store, report: str) -> None:
    """Store a trial whose lever followed a finding of a report."""
    lever = LeverTrial(
        "compile", "t", "gain", Gained(38.0, 36.0, 40.0), launches=3, finding="launch_overhead"
    )
    plain = Gained(0.0, -1.0, 1.0)
    trialrecord.write(
        store.root,
        Trial("t-1", "p", "2026", "step", 9.0, 3, plain, "identical", (lever,), reports=(report,)),
    )


def test_every_declared_table_is_shown(
    cli: Cli,
    pages: Callable[..., Path],
    stored: Callable[..., list[str]],
    store: Store,
    tmp_path: Path,
) -> None:
    """One run with steps and profiled kernels, and captures with metrics, ranks and memory in use."""
    titles = _titles((pages("transformer_step") / "report.json").read_text())
    captures = ("ncu/visible.ncu-rep", "nsys/gpumetrics.sqlite", "nsys/ddp_straggler_rank0.sqlite")
    jobs = [
        f"nsys/{name}_rank{rank}.sqlite" for name in ("ddp_comm", "collectives") for rank in (0, 1)
    ]
    more = (
        "nsys/graph_node.sqlite",
        "nsys/memory_pool.sqlite",
        "stacks/modules.sqlite",
        "stacks/json_step.sqlite",
        "serving/loads.jsonl",
        "snapshot/training.pickle",
    )
    ids = stored(*captures, *jobs, *more)
    trace = DATA / "torch" / "train_step.kineto.json.gz"
    assert cli("ingest", trace) == 0
    ids.append(cli.out.split()[0])
    # The machine of this capture has no GPU.
    content = json.loads(lzma.decompress((DATA / "attached/pool.json.xz").read_bytes()))
    content["gpus"] = [[0, 0, "NVIDIA H200", 31.0, 10**9, 10**8, 300.5, 1980.0]]
    (tmp_path / "attached.json").write_text(json.dumps(content))
    assert cli("ingest", tmp_path / "attached.json") == 0
    ids.append(cli.out.split()[0])
    # A pipeline with experts, whose tokens change.
    training = Training(
        data=2, pipeline=2, expert=2, tokens=lambda source, target, step: 9 + source * step
    )
    assert cli("ingest", *write_traces(simulate(training.programs()), tmp_path)) == 0
    ids += [line.split()[0] for line in cli.out.splitlines()]
    ids.append(_hang(cli, tmp_path / "dumps"))
    _try(store, ids[2])
    file = tmp_path / "report.json"
    assert cli("report", *ids, "--window", "whole", "--json", file) == 0
    titles |= _titles(file.read_text())
    assert {spec.title for spec in SPECS} <= titles


def _titles(document: str) -> set[str]:
    tables = [t for section in json.loads(document)["sections"] for t in section["tables"]]
    assert all(not table["figure"] or table["figure"] in FIGURES for table in tables)
    return {table["title"] for table in tables}


def test_declarations_name_what_there_is() -> None:
    assert {spec.view for spec in SPECS} <= {view.name for view in views().values() if view.public}
    for kind in ("id", "title"):
        names = [getattr(section, kind) for section in SECTIONS]
        assert len({*names}) == len(names) == len(ORDER)
    assert len({spec.title for spec in SPECS}) == len(SPECS)
    # The figures of searches, of a batch, of a comparison and of a trial are those of tables that no
    # view holds.
    assert {spec.figure for spec in SPECS} - {""} == FIGURES.keys() - {
        "search",
        "places",
        "change",
        "history",
        "tried",
        "speedups",
    }


@pytest.mark.parametrize(
    ("path", "before", "after", "message"),
    [
        ("__init__.py", '    "roofline",\n', "", "without a module, or not in ORDER: roofline"),
        (
            "nvtx.py",
            "        NVTX_TREE,\n",
            "",
            "nvtx omits the tables: GPU time by NVTX range and operator, as a tree",
        ),
        (
            "budget.py",
            'hover_of="category"',
            'hover_of="level"',
            "columns that do not exist: level",
        ),
    ],
)
def test_what_would_not_be_shown_is_refused(
    tmp_path: Path, path: str, before: str, after: str, message: str
) -> None:
    """In a copy of the package, whose declarations are read as ours are."""
    # Links in it become folders.
    shutil.copytree(ROOT / "perfpipe", tmp_path / "perfpipe")
    file = tmp_path / "perfpipe" / "analysis" / "report" / "sections" / path
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import perfpipe.analysis.report.sections"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert message in done.stderr


def test_a_table_without_its_figure_is_refused() -> None:
    """A name that no figure has, and a figure whose columns the table lacks."""
    table = Table("T", "", (Col("size", "Size").made(""),), (("x",),), 1, Source("v", ()), "none")
    section = Section("s", "S", (table,), "")
    report = Report("R", None, (), (), (section,), (), 0, "", (), (), (), ())
    with pytest.raises(KeyError, match="none"):
        render_html(report)
    wrong = replace(section, tables=(replace(table, figure="sizes"),))
    with pytest.raises(ValueError, match="the figure of 'T' lacks the columns"):
        render_html(replace(report, sections=(wrong,)))
    assert "| Size |" in render_markdown(replace(report, sections=(wrong,)))


def test_a_column_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="duplicate column"):
        GpuTable("gpu_time_budget", "T", (Col("a", "A"), Col("a", "B")), order="a")


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({}, "no x; all, or by nsys, or by ncu, or by torch"),
        ({"nsys": 1}, "no x; all, or by nsys, or by ncu, or by torch"),
        ({"ncu": 1}, "no x; all, or by nsys, or by ncu, or by torch"),
        ({"torch": 2}, "no x; all, or by torch"),
        ({"torch": 1, "ncu": 1}, "no x; all, or by nsys, or by ncu, or by torch"),
        ({"rocprof": 1}, "no x; all"),
    ],
)
def test_what_to_collect_depends_on_the_tool(kinds: dict[str, int], expected: str) -> None:
    missing = Missing("no x", nsys="by nsys", ncu="by ncu", torch="by torch", perfpipe="all")
    assert missing.sentence(kinds) == expected
    assert Missing("no x", ncu="by ncu").sentence({"torch": 1}) == "no x"


@pytest.mark.parametrize("name", ["train_step", "memory"])
def test_a_trace_of_torch_is_not_advised_to_run_nsight(name: str, cli: Cli, tmp_path: Path) -> None:
    pages = {kind: tmp_path / f"page.{kind}" for kind in ("html", "md", "json")}
    options = [word for kind, path in pages.items() for word in (f"--{kind}", str(path))]
    assert cli("report", str(DATA / "torch" / f"{name}.kineto.json.gz"), *options) == 0
    for path in pages.values():
        advised = re.findall(
            r"[^.\n]*(?:\bncu --|\bnsys (?:profile|--)|prints the ncu command)[^.\n]*",
            path.read_text(encoding="utf-8"),
        )
        assert not advised, path.suffix
