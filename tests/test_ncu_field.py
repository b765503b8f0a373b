"""ncu CSV as it is met in public: metric lists, locales, old pages, launchers' output, failures."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.ncu.csv_text import read_csv_text
from perfpipe.ingest.ncu.wrapped import unwrapped
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

FIELD = DATA / "field" / "ncu"


def _file(name: str) -> Path:
    (path,) = FIELD.glob(f"{name}.*")
    return path


def _text(name: str) -> str:
    return lzma.decompress(_file(name).read_bytes()).decode()


def _sols(store: Store, path: Path) -> list[tuple[object, ...]]:
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        return con.execute(
            "SELECT s.duration_ns, compute_sol_pct, memory_sol_pct, dram_sol_pct, bound, subclass "
            "FROM kernel_sol AS s JOIN kernel_bottleneck USING (report_id, launch_id) "
            "ORDER BY launch_id"
        ).fetchall()


TRIAD = (1_515_000.0, 12.5, 91.2, 91.2, "memory", "dram")
LOCALE = (117_344.0, 12.5, 65.77, 65.77, "memory", "dram")
OLD = (2_535_000.0, 12.5, 91.2, 91.2, "memory", "dram")


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("01_metrics_option_a100", [TRIAD]),
        ("01_metrics_option_rtx5070_windows", [(292_928.0, 22.3, None, None, "unknown", None)]),
        ("01_print_metric_name_label_name", [TRIAD]),
        ("01_print_metric_name_name", [TRIAD]),
        ("02_locale_ch", [LOCALE]),
        ("02_locale_control_en", [LOCALE]),
        ("02_locale_es", [LOCALE]),
        ("02_locale_fr_nnbsp", [LOCALE]),
        ("03_partial_rtx4090_dram_only", [(43_520.0, None, None, None, "unknown", None)]),
        ("03_partial_w1_sm_dram", [(320_000.0, 18.5, None, 92.4, "memory", "dram")]),
        ("03_partial_w3_bytes_time", [(320_000.0, None, None, None, "memory", "dram")]),
        ("03_partial_w4_sm_only", [(320_000.0, 94.5, None, None, "compute", None)]),
        ("04_old_labels_o1_2019_details", [OLD]),
        ("04_old_labels_o2_2020_details", [OLD]),
        ("04_old_labels_o3_2021_details", [OLD]),
        ("10_ansi_colour", [TRIAD]),
        ("10_indented", [TRIAD]),
        ("10_mpirun_tag_output", [TRIAD, TRIAD]),
        ("10_program_prints_json", [TRIAD]),
        ("10_program_prints_quote", [TRIAD]),
        ("10_srun_label", [TRIAD, TRIAD]),
        ("10_utf16_powershell", [LOCALE]),
        ("12_two_ranks_interleaved", [TRIAD, TRIAD]),
    ],
)
def test_pages_that_are_read(name: str, launches: list[tuple[object, ...]], store: Store) -> None:
    assert _sols(store, _file(name)) == launches


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("09_log_exit_code", r"ncu printed 'The application returned .* \(1\).': the program fail"),
        ("09_log_no_permission", "ncu printed 'ERR_NVGPUCTRPERM .*': only administrators .* root"),
        ("09_log_nothing_profiled", "'No kernels were profiled.': .* --target-processes all"),
        ("10_git_lfs_pointer", "a Git LFS pointer .* 'git lfs pull'"),
        ("11_source_page_cuda_view", "CUDA C.. or PTX view.* --print-source sass"),
        ("12_columns_dropped", "another program removed columns such as Process ID.* --page raw"),
        ("12_raw_without_units_row", "second row of a raw page, which has the units, is missing"),
    ],
)
def test_inputs_that_are_refused(name: str, sentence: str, store: Store) -> None:
    with pytest.raises(InputError) as caught:
        ingest(_file(name), store)
    assert re.search(sentence, str(caught.value))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("01_metrics_option_rtx5070_windows", "compute SOL is 22.3 %; DRAM transfers 607 GB/s"),
        ("03_partial_rtx4090_dram_only", "DRAM read throughput is 78.5 %"),
        ("03_partial_w1_sm_dram", "is bound by DRAM and runs at 92 % of SOL"),
        ("03_partial_w3_bytes_time", "is bound by DRAM and runs at 87 % of SOL"),
        ("03_partial_w4_sm_only", "is bound by compute and runs at 94 % of SOL"),
    ],
)
def test_a_part_of_the_metrics_gives_a_verdict_or_what_is_known(
    name: str, said: str, cli: Cli
) -> None:
    assert cli("ingest", _file(name)) == 0
    assert cli("report", "--md", "-") == 0
    first = cli.out.split("\n## ")[0]
    assert said in first
    assert ("No verdict" in first) == ("bound by" not in said)


def _first_screen(name: str, cli: Cli) -> str:
    assert cli("ingest", _file(name)) == 0
    assert cli("report", "--md", "-") == 0
    return " ".join(cli.out.split("\n## Details")[0].split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "05_local_memory_curand_rtx3080",
            "91 % of the sectors of loads and stores are in local memory (arrays or spills)",
        ),
        (
            "06_four_threads_per_block_a100",
            "is bound by idle lanes of narrow blocks and runs at 47 % of SOL",
        ),
        ("06_four_threads_per_block_a100", "Use blocks of whole warps"),
        ("06_four_threads_per_block_a100", "Blocks of 4 threads leave 28 of 32 lanes idle"),
        (
            "07_no_dram_counters_gb10",
            "triad (1 launch, 320 us) is bound by memory latency or DRAM, which ncu cannot measure",
        ),
        ("08_basic_set_fp64_rtx4070tis", "Avoid double-precision arithmetic"),
        (
            "08_basic_set_fp64_rtx4070tis",
            "The FP64 pipe is 85 % busy although the arguments are float",
        ),
        (
            "07_no_dram_counters_gb10",
            "SOL does not include DRAM, which may be the limit; L2 transfers 245 GB/s, 90 %",
        ),
        (
            "08_basic_set_rtx5060",
            "Collect what limits render: ncu --section WarpStateStats --section SchedulerStats",
        ),
        ("08_basic_set_registers_rtx3090", "Collect the stall reasons of calculate: ncu --section"),
        ("08_basic_set_registers_rtx3090", "is bound by too few warps"),
        ("08_basic_set_registers_rtx3090", "Trade registers for occupancy"),
        (
            "08_basic_set_registers_rtx3090",
            "Theoretical occupancy is 16.7 % (limited by registers)",
        ),
    ],
)
def test_the_first_screen_names_the_cause(name: str, said: str, cli: Cli) -> None:
    assert said in _first_screen(name, cli)


@pytest.mark.parametrize(
    "name", ["01_metrics_option_rtx5070_windows", "03_partial_rtx4090_dram_only"]
)
def test_a_page_without_a_timeline_says_what_is_missing(name: str, cli: Cli) -> None:
    assert cli("ingest", _file(name)) == 0
    assert cli("report", "--md", "-") == 0
    assert "category" not in cli.out and "timeline" not in cli.out
    assert "None: no kernel was classified: " in cli.out
    assert "SOL was not collected" in cli.out or "SOL were not collected" in cli.out


@pytest.mark.parametrize("name", ["07_no_dram_counters_gb10", "07_no_dram_counters_orin"])
def test_a_gpu_without_dram_counters(name: str, store: Store) -> None:
    report = ingest(_file(name), store).report_id
    with Session.open(store, [report]) as con:
        (verdict,) = con.execute(
            "SELECT bound, subclass, confidence, explanation FROM kernel_bottleneck"
        ).fetchall()
        assert verdict[:3] == ("latency", "dram_unknown", "low")
        assert "ncu has no DRAM counters on this GPU" in verdict[3]
        assert "L2 transfers 245 GB/s" in verdict[3]
        assert con.execute("SELECT gain_pct FROM kernel_findings").fetchall() == []
        floors = con.execute("SELECT floor FROM kernel_floors").fetchall()
        assert not {("work",), ("memory",)} & set(floors)


def test_idle_lanes_have_no_bound_by_sol(store: Store) -> None:
    report = ingest(_file("06_four_threads_per_block_a100"), store).report_id
    with Session.open(store, [report]) as con:
        sql = "SELECT technique, gain_pct FROM kernel_findings WHERE rank = 1"
        assert con.execute(sql).fetchall() == [("whole_warps", None)]


@pytest.mark.parametrize(
    ("kernel", "technique"),
    [
        ("add(int, float *, float *)", "float_literals"),
        ("void scale<float>(const float *, float4 *, unsigned long)", "float_literals"),
        ("add(int, double *, double *)", "narrower_types"),
        ("add(int, float *, double *)", "narrower_types"),
        ("void add<double>(const float *, float *)", "narrower_types"),
        ("add(Body *, float)", "narrower_types"),
        ("add(int *, int)", "narrower_types"),
        ("add", "narrower_types"),
    ],
)
def test_fp64_in_a_kernel_of_floats(
    kernel: str, technique: str, tmp_path: Path, store: Store
) -> None:
    path = tmp_path / "named.csv"
    path.write_text(
        _text("08_basic_set_fp64_rtx4070tis").replace("add(int, float *, float *)", kernel)
    )
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        sql = "SELECT technique FROM kernel_findings WHERE rank = 1"
        assert con.execute(sql).fetchall() == [(technique,)]


def test_a_value_that_is_no_number_is_named(store: Store) -> None:
    (warning,) = ingest(_file("10_srun_label"), store).warnings
    assert warning == (
        "ncu printed nan or infinity for l1tex__t_sector_hit_rate.pct, in up to 2 of 2 launches: "
        "these values are NULL"
    )


def test_traffic_that_is_no_number_is_not_told_to_be_collected(
    tmp_path: Path, store: Store
) -> None:
    text = _text("03_partial_w3_bytes_time").replace('"120.0"', '"nan"')
    path = tmp_path / "nan.csv"
    path.write_text(text)
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        sql = "SELECT note FROM kernel_roofline WHERE level = 'dram'"
        assert con.execute(sql).fetchall() == [("ncu printed nan",)]


@pytest.mark.parametrize("speedup", ["9.454", "9,454"])
def test_speedups_of_rules_have_no_thousands(speedup: str, tmp_path: Path, store: Store) -> None:
    """ncu prints them with four digits, whatever the locale of its other numbers."""
    columns = ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type"'
    columns += ',"Estimated Speedup"\n'
    rule = '"SpeedOfLight","","","","SOLBottleneck","OPT","Busy.","global"'
    lines = _text("02_locale_es").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    rows = [f"{line}," for line in lines[start + 1 :]]
    identity = rows[0].partition('"GPU Speed')[0]
    path = tmp_path / "x.csv"
    path.write_text(
        "\n".join(
            [lines[start] + columns + rows[0], *rows[1:], f'{identity}{rule},"{speedup}"', ""]
        )
    )
    assert _sols(store, path) == [LOCALE]
    with Session.open(store) as con:
        assert con.execute("SELECT speedup_pct FROM ncu_rules").fetchall() == [(9.454,)]


def _details(*rows: str) -> str:
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Section Name",'
    head += '"Metric Name","Metric Unit","Metric Value"\n'
    return head + "".join(f'"0","7","p","h","k",{row}\n' for row in rows)


def _metrics(text: str, tmp_path: Path, store: Store) -> tuple[dict[str, float], tuple[str, ...]]:
    path = tmp_path / "x.csv"
    path.write_text(text)
    outcome = ingest(path, store)
    with Session.open(store, [outcome.report_id]) as con:
        rows = con.execute("SELECT metric, value FROM ncu_metrics").fetchall()
    return dict(rows), tuple(outcome.warnings)


BUSY = '"Compute Workload Analysis","SM Busy","%","50.00"'
REGISTERS = '"Launch Statistics","Registers Per Thread","register/thread","40"'
STACK = '"Launch Statistics","Stack Size","","1024"'


@pytest.mark.parametrize(
    ("rows", "metric"),
    [
        ((BUSY, REGISTERS), "sm__instruction_throughput.avg.pct_of_peak_sustained_active"),
        ((BUSY, REGISTERS, STACK), "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed"),
        ((BUSY,), "Compute Workload Analysis:SM Busy"),
    ],
)
def test_a_label_whose_metric_changed(
    rows: tuple[str, ...], metric: str, tmp_path: Path, store: Store
) -> None:
    values, _ = _metrics(_details(*rows), tmp_path, store)
    assert values[metric] == 50


def test_a_label_whose_metric_depends_on_the_unit(tmp_path: Path, store: Store) -> None:
    interval = '"PM Sampling","Maximum Sampling Interval"'
    values, _ = _metrics(_details(f'{interval},"cycle","40,000"'), tmp_path, store)
    assert values == {"profiler__pmsampler_interval_cycles": 40_000}
    values, _ = _metrics(_details(f'{interval},"us","2"'), tmp_path, store)
    assert values == {"profiler__pmsampler_interval_time": 2_000}


def test_unknown_labels_of_known_sections_are_named(tmp_path: Path, store: Store) -> None:
    new = '"Occupancy","Dream Occupancy","%","90.00"'
    own = '"My Section","My Label","%","90.00"'
    values, (warning,) = _metrics(_details(REGISTERS, new, own), tmp_path, store)
    assert values["Occupancy:Dream Occupancy"] == values["My Section:My Label"] == 90
    assert "Dream Occupancy" in warning
    assert "My Label" not in warning


def test_a_log_whose_errors_hide_the_cause(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "ncu.log"
    vague = "==ERROR== Failed to prepare kernel for profiling\n"
    end = "==ERROR== The application returned an error code (9).\n"
    for cause, said in (
        ("Unknown Error on device 0.", "ncu printed 'Unknown Error on device 0.'"),
        ("Cuda driver is not compatible with Nsight Compute.", "the NVIDIA driver is too old"),
        ("Cannot lock GPU clock frequencies on MIG!", "add --clock-control none"),
    ):
        path.write_text(f"{vague}==ERROR== {cause}\n{end}==WARNING== No kernels were profiled.\n")
        with pytest.raises(InputError, match=re.escape(said)):
            ingest(path, store)
    header = _details().replace("\n", "\r\n")
    path.write_text(f"{header}==ERROR== Unknown Error on device 0.\n{end}")
    with pytest.raises(InputError, match=r"no launches .ncu printed 'Unknown Error on device 0.'"):
        ingest(path, store)


@pytest.mark.parametrize(
    "page", ["    Section: GPU Speed Of Light Throughput\n", "Section: Launch Statistics\n"]
)
def test_a_text_page_says_how_to_export_it(page: str, tmp_path: Path, store: Store) -> None:
    path = tmp_path / "ncu.txt"
    path.write_text(f"==WARNING== Backing up device memory.\n{page}")
    with pytest.raises(InputError, match=r"a text page of ncu.*--csv --page raw"):
        ingest(path, store)


@pytest.mark.parametrize(
    "tag",
    [
        lambda rank, line: f"[1,{rank}]<stdout>:",
        lambda rank, line: f"[prterun-node{rank}-77@1,{rank}]<stdout>: ",
        lambda rank, line: f"{rank * 9:>2}: ",
        lambda rank, line: f"gpu-{'ab'[rank]} | ",
        lambda rank, line: f"2026-01-02T03:04:{line:02}.5Z ",
        lambda rank, line: "//  ",
    ],
)
def test_tags_of_launchers_are_removed(tag: Callable[[int, int], str]) -> None:
    """Rows of ranks are put together again where tags name the rank."""
    header = '"ID","Process ID","Process Name","m"'
    ranks = [[header, '"","","","ns"', f'"0","{7 + rank}","p","1"'] for rank in (0, 1)]
    mixed = [(rank, ranks[rank][place]) for place in range(3) for rank in (0, 1)]
    lines = [f"{tag(rank, line)}{row}\n" for line, (rank, row) in enumerate(mixed)]
    found = [line.rstrip() for line in unwrapped(["program output\n", *lines])]
    assert found[0] == "program output"
    assert sorted(found[1:]) == sorted(ranks[0] + ranks[1])
    if "T03" not in lines[0] and not lines[0].startswith("//"):
        assert found[1:] == ranks[0] + ranks[1]


RAW = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"\n'


def test_ranks_that_print_raw_pages_at_the_same_time(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "ranks.csv"
    rows = '"0","7","p","k","2.50"\n"0","8","p","k","3.50"\n'
    path.write_text(f'{RAW}{RAW}"","","","","us"\n"","","","","us"\n{rows}')
    assert [row[0] for row in _sols(store, path)] == [2500, 3500]
    path.write_text(f'{RAW}"","","","","ms"\n{RAW}"","","","","us"\n{rows}')
    with pytest.raises(InputError, match=r"processes whose units differ.*--log-file name_%p.csv"):
        ingest(path, store)
    path.write_text(f'{RAW}"","","","","ms"\n"","","","","us"\n{rows}')
    with pytest.raises(InputError, match="a row without a launch ID"):
        ingest(path, store)


def test_a_damaged_process_id_is_no_other_rank(tmp_path: Path, store: Store) -> None:
    lines = _text("02_locale_control_en").splitlines(keepends=True)
    lines[-3] = lines[-3].replace('"4711"', '"4717"')
    path = tmp_path / "x.csv"
    path.write_text("".join(lines))
    with pytest.raises(InputError, match="scattered rows of launch 0"):
        ingest(path, store)


def test_lines_of_the_program_among_the_rows(tmp_path: Path) -> None:
    """Quotes, JSON and dates of it are no rows; a part of a row is no output of the program."""
    rows = _text("02_locale_control_en").splitlines(keepends=True)
    output = ['"loss: 0.5\n', '{"a":"1","b":"2","c":["x","y"]}\n', '"b": "x, y",\n', "[1, 2]},\n"]
    path = tmp_path / "x.csv"
    path.write_text("".join([*output, *rows[:5], *output, *rows[5:], *output]))
    assert read_csv_text(path, path).lines == [row for row in rows if row.startswith('"')]
    for part in (rows[5][20:], '"0', '"0",', rows[5][: len(rows[5]) // 2]):
        path.write_text("".join([*rows[:5], part.rstrip("\n") + "\n", *rows[5:]]))
        with pytest.raises(InputError, match=r"damaged CSV|truncated"):
            ingest(path, Store(tmp_path / "store"))


def test_a_source_page_of_2022(tmp_path: Path, store: Store) -> None:
    """Its columns have other names, one of them occurs twice, addresses have a space."""
    text = _text("11_source_page_2022")
    text = text.replace('"# Samples",', '"Instructions Executed","# Samples",')
    text = text.replace('"2","4","8192"', '"2","8192","4","8192"')
    text = text.replace('"60","96","8192"', '"60","8192","96","8192"')
    path = tmp_path / "x.csv"
    path.write_text(text)
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        rows = con.execute(
            "SELECT pc, sass, samples, samples_not_issued, executions, stall_long_scoreboard "
            "FROM ncu_source ORDER BY pc"
        ).fetchall()
    assert rows == [
        (0, "MOV R1, c[0x0][0x28]", 4, 2, 8192, 4),
        (16, "LDG.E.64 R2, [R2]", 96, 60, 8192, 96),
    ]


def test_sass_next_to_another_view_is_read(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "x.csv"
    path.write_text(_text("11_source_page_cuda_view") + _text("11_source_page_2022"))
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        assert con.execute("SELECT count(*) FROM ncu_launches").fetchall() == [(1,)]
        assert con.execute("SELECT count(*) FROM ncu_source").fetchall() == [(2,)]


def test_a_summary_over_launches_is_refused(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"Process ID","Kernel Name","Metric Name","Minimum","Maximum","Average"\n')
    with pytest.raises(InputError, match="without --print-summary"):
        ingest(path, store)
