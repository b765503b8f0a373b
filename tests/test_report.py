from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe.store import Store
from perfpipe.templates.formats import format_value, shorten
from perfpipe.templates.markdown import markdown_code, markdown_text
from perfpipe.units import format_ns
from perfpipe.visible import visible

Pages = Callable[..., Path]
Stored = Callable[..., list[str]]

#: One step of a model: its kernels, and its timeline.
STEP = ("ncu/block.ncu-rep", "nsys/gpumetrics.sqlite")

HOSTILE = "k</script><script>alert(1)</script>\"'`|*_[x](javascript:x) \u202e\n<b>"


class _Page(HTMLParser):
    """Collects tags, links and text, hover texts included."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]
        self.text += "".join(value for name, value in attrs if name == "title" and value)

    def handle_data(self, data: str) -> None:
        self.text += data


def _tables(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [table for section in document["sections"] for table in section["tables"]]


def _page(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def test_a_report_of_ingested_files(cli: Cli, stored: Stored, pages: Pages, tmp_path: Path) -> None:
    assert cli("report", *stored(*STEP), "--html", "--md", "--json", "report.json") == 0
    said = cli.out.splitlines()
    assert said[-1] == "Report: report.html, report.md, report.json"
    assert "A step takes" in cli.out, "the verdict is printed too"
    for name in ("report.html", "report.md"):
        same = (tmp_path / name).read_bytes() == (pages(*STEP) / name).read_bytes()
        assert same, "byte for byte that of another store"
    page = _page(tmp_path / "report.html")
    for part in ("Summary", "Metrics", "Findings", "Recommendations", "Provenance"):
        assert part in page.text
        assert f"## {part}" in (tmp_path / "report.md").read_text()
    assert page.tags.count("script") == 3, "perfpipe's own, and the data of the step"
    assert all(
        link.startswith("#") or link.startswith("https://docs.nvidia.com/") for link in page.links
    )
    assert "passes disagree: the stall reasons do not add up to the warp latency" in page.text
    assert "Not all CUDA events might have been collected" in page.text
    assert "Call the library with shapes, layouts and data types for which the" in page.text
    assert "88 of 95" in page.text, "three busy in L2, four with all but four SMs at work"
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["schema_version"] == 1
    tables = {table["title"]: table for table in _tables(document)}
    assert next(iter(tables)) == "GPU time budget"
    assert len(tables["Profiled kernels"]["rows"]) == 95


def test_the_figure_has_a_mark_and_a_text_for_each_kernel(pages: Pages) -> None:
    page = (pages("ncu/visible.ncu-rep") / "report.html").read_text()
    titles = re.findall(r'id="f\d+-kernel-\d+" class="mark" [^>]*><title>([^<]*)</title>', page)
    assert len(titles) == 15
    assert "dram_copy: compute 6.0 %, memory 82.6 %, memory" in titles
    assert "http://www.w3.org" in page, "the SVG name space is the only address"
    assert not re.search(r'(src|href)="http:', page)


def test_figures_stand_beside_markdown(
    cli: Cli, stored: Stored, tmp_path: Path, made_once: None
) -> None:
    """What is drawn is the same each time; that it holds the same is tested below."""
    stored("ncu/visible.ncu-rep", "nsys/memcpy.sqlite")
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        assert cli("report", "--md", "pr.md", "--figures", kind) == 0
        shown = re.findall(
            r"!\[[^]]+\]\((pr-figures/[a-z0-9-]+\.\w+)\)", (tmp_path / "pr.md").read_text()
        )
        assert len(shown) >= 5
        before = [(tmp_path / name).read_bytes() for name in shown]
        assert all(content.startswith(start) for content in before)
        assert cli("report", "--md", "pr.md", "--figures", kind) == 0
        assert [(tmp_path / name).read_bytes() for name in shown] == before
    assert cli("report", "--figures", "svg") == 2
    assert cli("report", "--md", "-", "--figures", "svg") == 2
    assert "needs --md FILE" in cli.err


def test_sections_come_in_order_and_say_what_to_collect(pages: Pages) -> None:
    folder = pages("ncu/visible.ncu-rep")
    found = json.loads((folder / "report.json").read_text())["sections"]
    assert [section["id"] for section in found] == [
        "budget", "critical", "tried", "serving", "running", "hangs", "categories", "bounds", "kernels",
        "details", "roofline", "stalls", "occupancy", "memory", "source", "launches", "host",
        "device_memory", "snapshot", "communication", "groups", "modules", "nvtx", "operators", "sizes",
        "tuning", "regression",
    ]  # fmt: skip
    for section in found:
        assert bool(section["tables"] or section["cards"]) != bool(section["missing"]), section[
            "id"
        ]
    missing = {section["id"]: section["missing"] for section in found if section["missing"]}
    assert "nsys profile" in missing["budget"]
    assert f"Not collected: {missing['budget']}." in (folder / "report.html").read_text()


def test_a_page_is_small(pages: Pages) -> None:
    assert (pages(*STEP) / "report.html").stat().st_size < 1.5e6


def test_every_table_and_finding_names_its_source(
    pages: Pages, ingested: Callable[[str], str]
) -> None:
    reports = set(map(ingested, STEP))
    document = json.loads((pages(*STEP) / "report.json").read_text())
    for item in [*_tables(document), *document["findings"]]:
        assert set(item["source"]["reports"]) <= reports
        assert item["source"]["view"]
    assert document["findings"]


def test_an_index_links_to_a_page_for_each_run(
    cli: Cli,
    stored: Stored,
    store: Store,
    replayed: Callable[[str], Path],
    tmp_path: Path,
    made_once: None,
    undrawn: None,
) -> None:
    """A run that stands in two indexes is reported once: what is asked is which runs stand where."""
    (report,) = stored("nsys/memcpy.sqlite")
    assert cli("report", "--index", "pages") == 2
    assert "no runs to list" in cli.err
    for name in ("vector_add", "ddp_step"):
        shutil.copytree(replayed(name), tmp_path / "store", dirs_exist_ok=True)
    assert cli("report", "--index", "pages") == 0
    assert cli.out.strip() == "pages/index.html"
    page = _page(tmp_path / "pages" / "index.html")
    assert len(page.links) == 2
    # Which was replayed first depends on which test asked first.
    runs = sorted(store.runs(), key=lambda run: run.started_at, reverse=True)
    newest_first = [run.workload for run in runs]
    assert sorted(newest_first) == ["ddp_step", "vector_add"]
    for link, name in zip(page.links, newest_first, strict=True):
        assert link.startswith(name)
        assert (tmp_path / "pages" / link).is_file()
    assert "replayed" in page.text
    assert cli("report", "vector", "--index", "one") == 0
    assert len(_page(tmp_path / "one" / "index.html").links) == 1
    assert cli("report", report, "--index", "two") == 2
    assert "is not a run, and an index lists only runs" in cli.err


#: What is not measured: names, texts of ours, and what is known of the file by itself.
UNMEASURED = {"schema_version", "title", "notice", "findings_total", "priority", "first_rows"}


def _without_source(value: Any, path: str, sourced: bool) -> Iterator[str]:
    """Yield where numbers stand, as such or in texts, under nothing that names its source."""
    if isinstance(value, dict):
        inside = sourced or bool((value.get("source") or {}).get("view"))
        for key, below in value.items():
            if key not in UNMEASURED:
                yield from _without_source(below, f"{path}.{key}", inside or key == "source")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _without_source(below, f"{path}[{index}]", sourced)
    elif not sourced and (
        (isinstance(value, (int, float)) and not isinstance(value, bool))
        or (isinstance(value, str) and re.search(r"\d", value))
    ):
        yield path


@pytest.mark.parametrize("names", [STEP, ("gemm",), ("fused_matmul_tuning",), ("ddp_step",)])
def test_every_number_has_a_source(names: tuple[str, ...], pages: Pages) -> None:
    document = json.loads((pages(*names) / "report.json").read_text())
    assert list(_without_source(document, "", False)) == []
    assert document["statements"]


def test_no_verdict_without_evidence(cli: Cli, tmp_path: Path) -> None:
    names = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"'
    (tmp_path / "x.csv").write_text(f'{names}\n"","","","","us"\n"0","1","p","k","2.5"\n')
    assert cli("ingest", "x.csv") == 0
    assert cli("report", "--md", "-") == 0
    assert "No verdict" in cli.out
    assert "no kernel was classified" in cli.out


def test_what_was_not_collected_is_no_zero(cli: Cli, tmp_path: Path, made_once: None) -> None:
    names = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"'
    (tmp_path / "x.csv").write_text(
        f'{names}\n"","","","","us"\n"0","1","p","k","2.5"\n"1","1","p","k",""\n'
    )
    assert cli("ingest", "x.csv") == 0
    assert cli("report", "--json") == 0
    table = _tables(json.loads(cli.out))[0]
    row = dict(zip([c["name"] for c in table["columns"]], table["rows"][0], strict=True))
    assert row["duration_ns"] == 2500
    assert row["compute_sol_pct"] is None
    assert row["headroom_ns"] is None
    assert row["registers"] is None
    assert row["bound"] == "unknown"
    assert cli("report", "--md", "-") == 0
    assert "| - |" in cli.out
    assert "Compute SOL" not in cli.out
    assert "No verdict" in cli.out
    assert cli("report", "--html", "-") == 0
    assert re.search("Columns without values: [^.]*Compute SOL", cli.out)


def test_hostile_names_are_shown_and_never_executed(
    cli: Cli, tmp_path: Path, made_once: None
) -> None:
    names = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"'
    name = HOSTILE.replace('"', '""')
    (tmp_path / "x.csv").write_text(f'{names}\n"","","","","us"\n"0","1","p","{name}","2.5"\n')
    assert cli("ingest", "x.csv") == 0
    assert cli("report", "--html", "--md") == 0
    page = _page(tmp_path / "report.html")
    assert page.tags.count("script") == 1, "perfpipe's own"
    assert "b" not in page.tags
    assert visible(HOSTILE, "\n") in page.text
    assert "alert(1)" in page.text
    markdown = (tmp_path / "report.md").read_text()
    assert "<script" not in re.sub(r"\\.", "", markdown)
    assert "](javascript" not in re.sub(r"\\.", "", markdown)
    assert "\u202e" not in markdown
    assert cli("report") == 0
    assert "\u202e" not in cli.out
    assert cli("report", "--all") == 0
    assert "│ k " in cli.out, "the short name, without the template"
    assert "\u202e" not in cli.out


def test_a_damaged_store_is_said_in_a_sentence(cli: Cli, stored: Stored, tmp_path: Path) -> None:
    (report,) = stored("nsys/memcpy.sqlite")
    (tmp_path / "store" / "reports" / report / "nsys_kernels.parquet").write_bytes(b"PAR1garbage")
    assert cli("report", "--html") == 2
    assert f"report {report} cannot be read" in cli.err and "'perfpipe store verify'" in cli.err
    assert len(cli.err.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_names_choose_reports(cli: Cli, stored: Stored) -> None:
    first, _ = stored("nsys/memcpy.sqlite", "nsys/ops.sqlite")
    assert cli("report", first[:6], "--json") == 0
    document = json.loads(cli.out)
    assert {r for t in _tables(document) for r in t["source"]["reports"]} == {first}
    assert cli("report", "zzz") == 2
    assert "no run, report or batch 'zzz' in the store" in cli.err
    for command in ("report", "plan"):
        assert cli(command, "typo.sqlite") == 2
        assert "typo.sqlite: no such file, and no such run, report or batch" in cli.err
    assert cli("report", "") == 2
    assert "is ambiguous" in cli.err


def test_long_tables_are_cut_and_say_so(pages: Pages) -> None:
    assert "showing 10 of 95" in (pages(*STEP) / "report.md").read_text()


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "pct", "-"),
        (0, "pct", "0.0"),
        (1234567, "int", "1,234,567"),
        (1.5e6, "ns", "1.5 ms"),
        ("k", "text", "k"),
        (12345.6, "number", "12,346"),
        (0.123456, "number", "0.1235"),
    ],
)
def test_values(value: float | str | None, kind: str, text: str) -> None:
    assert format_value(value, kind) == text  # type: ignore[arg-type]


def test_texts_are_cut_in_the_middle() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("a" * 50 + "z" * 50, 20) == "a" * 12 + "…" + "z" * 7


def test_markdown_escapes_every_sign() -> None:
    assert markdown_text("a|b*c\n<d>") == r"a\|b\*c \<d\>"
    assert markdown_text("[a](javascript:x) ![b](c)") == r"\[a\](javascript:x) !\[b\](c)"
    assert markdown_text("# head") == r"\# head"
    assert markdown_text("1. no list") == r"1\. no list"


def test_markdown_leaves_plain_names_alone() -> None:
    for name in ("add_kernel", "size=4096 (fp16)", "sm90_xmma_gemm{2}!", "a-b # 3.5 %", "27.4 ms"):
        assert markdown_text(name) == name
    assert markdown_text("__global__") == r"\_\_global\_\_"


def test_markdown_code_is_fenced() -> None:
    assert markdown_code("a `b` c") == "``a `b` c``"
    assert markdown_code("`") == "`` ` ``"


def test_times_are_short() -> None:
    assert all(len(format_ns(10**n)) <= 7 for n in range(12))
