from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Opened
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError, ToolMissing
from perfpipe.ingest.ncu.container import read_container
from perfpipe.ingest.ncu.csv_tables import Cell, extent, parse_cell
from perfpipe.ingest.ncu.names import function_name, nvtx_path_from_csv, plain_message, stall_reason
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Expand = Callable[[str], Path]
Ingested = Callable[[str], str]


@pytest.mark.parametrize(("name", "launches"), [("visible", 15), ("ops", 41), ("block", 95)])
def test_the_container_states_every_launch(name: str, launches: int, expand: Expand) -> None:
    container = read_container(expand(f"ncu/{name}.ncu-rep"))
    assert len(container.process_ids) == launches
    assert len(set(container.process_ids)) == 1
    assert container.versions["CUDA Version"] == "13.0"


@pytest.mark.parametrize("kept", [5, 40, 200, 0.3, 0.9, 0.9999])
def test_a_report_cut_short_is_refused(
    kept: float, expand: Expand, tmp_path: Path, store: Store
) -> None:
    content = expand("ncu/visible.ncu-rep").read_bytes()
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    with pytest.raises(InputError, match=r"truncated|no launch"):
        ingest(cut, store)
    assert store.report_ids() == []
    assert store.leftovers() == []


def test_a_report_with_a_damaged_block_header_is_refused(
    expand: Expand, tmp_path: Path, store: Store
) -> None:
    content = bytearray(expand("ncu/visible.ncu-rep").read_bytes())
    content[10:14] = b"\xff\xff\xff\x7f"
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(InputError, match="truncated or damaged"):
        ingest(path, store)


def test_instances_are_those_that_analyses_use(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        samples, total = con.execute(
            "SELECT sum(i.value), sum(DISTINCT m.value) FROM ncu_instances i "
            "JOIN ncu_metrics m USING (report_id, launch_id, metric) "
            "WHERE metric = 'smsp__pcsamp_sample_count' AND launch_id = 0"
        ).fetchall()[0]
        assert samples == total > 0
        opcodes = con.execute(
            "SELECT key_text, value FROM ncu_instances "
            "WHERE metric = 'sass__inst_executed_per_opcode' AND launch_id = 1 ORDER BY value DESC"
        ).fetchall()
        assert opcodes[0][0] == "FFMA"
        curve = con.execute(
            "SELECT count(*) FROM ncu_instances "
            "WHERE metric = 'launch__occupancy_per_register_count' AND launch_id = 0"
        ).fetchone()
        assert curve == (257,)


def test_source_lines_of_report_and_csv_are_the_same(ingested: Ingested, opened: Opened) -> None:
    """Addresses are rebased; ncu prints every table of the source page twice."""
    report, page = ingested("ncu/visible.ncu-rep"), ingested("ncu/visible.source.csv")
    columns = (
        "launch_id, pc, sass, samples, executions, thread_executions, stall_long_scoreboard, "
        "stall_barrier, stall_wait, stall_selected, stall_no_instruction"
    )
    with opened("ncu/visible.ncu-rep", "ncu/visible.source.csv") as con:
        rows = {
            i: con.execute(
                f"SELECT {columns} FROM ncu_source WHERE report_id = ? ORDER BY launch_id, pc", [i]
            ).fetchall()
            for i in (report, page)
        }
        lines = con.execute(
            "SELECT count(DISTINCT line), any_value(file) FROM ncu_source WHERE report_id = ?",
            [report],
        ).fetchall()[0]
    assert len(rows[page]) > 2000
    without_names = {i: [(*r[:2], *r[3:]) for r in found] for i, found in rows.items()}
    collected = {r[0] for r in rows[report]}
    assert [r for r in without_names[page] if r[0] in collected] == without_names[report]
    assert lines[0] > 15
    assert lines[1].endswith("labelled_kernels.cu")


def test_imported_sources_give_the_text_of_lines(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        (text,) = con.execute(
            "SELECT DISTINCT text FROM kernel_hotspots "
            "WHERE kind = 'line' AND rank = 1 AND kernel_name = 'dram_copy'"
        ).fetchall()[0]
    assert text.startswith("__global__ void dram_copy(const float4* a, float4* b, size_t n)")


def test_a_scrubbed_recording_keeps_its_source_lines(store: Store) -> None:
    """Its paths were shortened, in debug information otherwise than among the imported files."""
    folder = ROOT / "workloads" / "recordings" / "vector_add-h200"
    report = ingest(folder / "04-268435456-1024.ncu-rep.xz", store).report_id
    with Session.open(store, [report]) as con:
        row = con.execute(
            "SELECT file, text FROM kernel_hotspots WHERE kind = 'line' AND rank = 1"
        ).fetchone()
    assert row == ("workloads/vector_add.py", "tl.store(z_ptr + at, x + y, mask=at < count)")


def test_sampled_stalls_of_instructions_add_up(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        stalls = [
            c[0] for c in con.execute("DESCRIBE ncu_source").fetchall() if c[0].startswith("stall_")
        ]
        total = " + ".join(f"coalesce({name}, 0)" for name in stalls)
        wrong = con.execute(
            f"SELECT count(*) FROM ncu_source WHERE samples IS NOT NULL AND {total} != samples"
        ).fetchone()
    assert len(stalls) == 19
    assert wrong == (0,)


def test_live_output_with_other_lines_in_it(captures: Store, ingested: Ingested) -> None:
    report = ingested("ncu/live_stdout.csv")
    with Session.open(captures, [report]) as con:
        names = con.execute("SELECT kernel_name FROM ncu_launches ORDER BY launch_id").fetchall()
    assert len(names) == 15
    assert names[0] == ("dram_copy",)


CSV_HEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
CSV_HEAD += '"Block Size","Grid Size","Device","CC","m","device__attribute_display_name"\n'
CSV_UNITS = '"","","","","","","","","","","","Mbyte",""\n'


def _csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.csv"
    path.write_text(text)
    return path


def _row(number: int, name: str, value: str) -> str:
    place = '"1","7","(32, 1, 1)","(2, 1, 1)","0","9.0"'
    return f'"{number}","7","p","h","{name}",{place},"{value}","N"\n'


def test_lost_launches_and_profiler_errors_are_warned_of(tmp_path: Path, store: Store) -> None:
    text = '==PROF== Profiling "k" - 0: 0%\n==PROF== Profiling "k" - 1: 0%\n'
    text += "==ERROR== An error occurred while trying to profile.\nprogram output\n"
    path = _csv(tmp_path, text + CSV_HEAD + CSV_UNITS + _row(0, "k", "1,234.5"))
    outcome = ingest(path, store)
    assert any("found 1 launches" in w and "lists 2" in w for w in outcome.warnings)
    assert any("An error occurred" in w for w in outcome.warnings)
    with Session.open(store) as con:
        metric = con.execute("SELECT value, unit FROM ncu_metrics WHERE metric = 'm'").fetchone()
    assert metric == (1_234_500_000.0, "byte")


def test_the_sm_count_of_the_device_tells_models_apart(tmp_path: Path, store: Store) -> None:
    """As in a raw page of ncu 2022: an RTX 3080 with 10 GB has 68 SMs, with 12 GB 70."""
    head = CSV_HEAD.replace('"m"', '"device__attribute_multiprocessor_count"')
    row = _row(0, "k", "68").replace('"N"', '"GeForce RTX 3080"')
    ingest(_csv(tmp_path, head + CSV_UNITS.replace("Mbyte", "") + row), store)
    with Session.open(store) as con:
        rows = con.execute("SELECT DISTINCT gpu, bytes_per_s FROM gpu_peaks").fetchall()
    assert rows == [("GeForce RTX 3080 10 GB", 760e9)]


def test_two_tables_and_two_processes_restart_the_ids(tmp_path: Path, store: Store) -> None:
    second = _row(0, "b", "2").replace('"7","p"', '"8","p"')
    path = _csv(
        tmp_path,
        CSV_HEAD + CSV_UNITS + _row(0, "a", "1") + "noise\n" + CSV_HEAD + CSV_UNITS + second,
    )
    ingest(path, store)
    with Session.open(store) as con:
        rows = con.execute("SELECT launch_id, kernel_name, process_id FROM ncu_launches ORDER BY 1")
        assert rows.fetchall() == [(0, "a", 7), (1, "b", 8)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (CSV_HEAD + CSV_UNITS, "no launch"),
        (CSV_HEAD + CSV_UNITS + '"0","7","p"\n', "truncated"),
        (CSV_HEAD + CSV_UNITS + '"0","7","unclosed', "truncated"),
        (CSV_HEAD.replace('"m"', '"Metric Name","Minimum","Maximum"'), "summary"),
    ],
)
def test_damaged_csv_is_refused(text: str, sentence: str, tmp_path: Path, store: Store) -> None:
    with pytest.raises(InputError, match=sentence):
        ingest(_csv(tmp_path, text), store)
    assert store.report_ids() == []


def test_names_with_commas_newlines_and_markup_stay_whole(tmp_path: Path, store: Store) -> None:
    name = "void f<a, \n<script>alert(1)</script>>(int, T *)"
    ingest(_csv(tmp_path, CSV_HEAD + CSV_UNITS + _row(0, name, "1")), store)
    with Session.open(store) as con:
        assert con.execute("SELECT kernel_demangled FROM ncu_launches").fetchone() == (name,)


@pytest.mark.parametrize(
    ("cell", "unit", "expected"),
    [
        ("", "%", None),
        ("no data", "", Cell(None, None, None)),
        ("n/a", "%", Cell(None, None, "%")),
        ("nan", "", Cell(None, "nan", None)),
        ("(!) nan", "", Cell(None, "(!) nan", None)),
        ("inf", "", Cell(None, "inf", None)),
        ("-0.16", "%", Cell(-0.16, None, "%")),
        ("13,533,288,445,078,458", "", Cell(13533288445078458.0, None, None)),
        ("all", "", Cell(None, "all", None)),
        ("1.5", "Tbyte/s", Cell(1.5e12, None, "byte/s")),
    ],
)
def test_cells(cell: str, unit: str, expected: Cell | None) -> None:
    assert parse_cell("m", cell, unit) == expected


@given(st.integers(-(10**15), 10**15))
def test_thousands_separators_do_not_matter(number: int) -> None:
    cell = parse_cell("m", f"{number:,}", "")
    assert cell is not None
    assert cell.value == number


def test_text_metrics_stay_text_even_when_they_look_like_numbers() -> None:
    assert parse_cell("launch__tpc_enabled", "0", "") == Cell(None, "0", None)


def test_extents() -> None:
    assert extent("(384, 1, 1)") == (384, 1, 1)
    assert extent("(2147483647, 65535, 65535)") == (2147483647, 65535, 65535)
    for damaged in ("", "384", "(2147483648, 1, 1)", "(1, 65536, 1)", "(1, 1, -1)"):
        assert extent(damaged) is None


def test_function_names_equal_those_of_ncu(opened: Opened) -> None:
    with opened(*(f"ncu/{name}.ncu-rep" for name in ("visible", "ops", "block"))) as con:
        names = con.execute("SELECT DISTINCT kernel_demangled, kernel_name FROM ncu_launches")
        pairs = names.fetchall()
    assert len(pairs) > 50
    assert [(d, function_name(d)) for d, _ in pairs] == pairs


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("k(int)", "k"),
        ("nvjet_sm90_hsh", "nvjet_sm90_hsh"),
        ("void a::b<(int)4, c<d>>(T1 *)", "b"),
        ("void a::<unnamed>::k<x>(int)", "k"),
        ("A::operator()(int) const", "operator()"),
        ("bool a::operator<(a, b)", "operator<"),
        ("", ""),
    ],
)
def test_function_names(demangled: str, name: str) -> None:
    assert function_name(demangled) == name


@given(st.text(max_size=80))
def test_any_name_has_a_function_name(text: str) -> None:
    assert isinstance(function_name(text), str)


def test_nvtx_cells_with_several_ranges_domains_and_colons() -> None:
    item = '"<default domain>:{}:none:none:none:none:none:none"'
    assert (
        nvtx_path_from_csv(f"12  {item.format('step 0')}  {item.format('forward')} ")
        == "step 0/forward"
    )
    registered = '"CCCL:cub::Scan::Sum:none:none:none:none:REGISTERED:cub::Scan::Sum"'
    assert nvtx_path_from_csv(f"12  {registered} ") == "CCCL:cub::Scan::Sum"
    assert nvtx_path_from_csv("12 ") is None


def test_stall_reasons_have_one_spelling() -> None:
    assert {stall_reason(n) for n in ("no_instruction", "no_instructions", "no_inst")} == {
        "no_instruction"
    }
    assert stall_reason("warpgroup_arrive") == stall_reason("gmma") == "gmma"


def test_rule_markup_becomes_plain_text() -> None:
    text = "See @section:SourceCounters:Source Counters@ and @url:Guide:https://x.y/z#a@."
    assert plain_message(text) == "See Source Counters and Guide (https://x.y/z#a)."


def test_without_the_reader_of_nvidia_it_says_what_to_install(
    store: Store, expand: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(ToolMissing, match="pip install ncu-report"):
        ingest(expand("ncu/pm.ncu-rep"), store)
    assert not store.report_ids()
