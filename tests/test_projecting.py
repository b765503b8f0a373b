"""Projections of real captures, by the command too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, Opened

from perfpipe.analysis.gate.project.reading import VIEWS, _shortened, gpu_of, project
from perfpipe.analysis.gate.project.scaling import ratios
from perfpipe.errors import InputError
from perfpipe.pipelines.gate.project import gpu_named
from perfpipe.specs import GpuSpec, gpu_specs

SPECS = {spec.key: spec for spec in gpu_specs()}
H200, B300 = SPECS["h200"], SPECS["b300"]


@pytest.mark.parametrize("spec", gpu_specs(), ids=lambda spec: spec.key)
def test_every_gpu_has_a_name(spec: GpuSpec) -> None:
    for name in (spec.key, spec.name, spec.key.upper(), spec.name.lower()):
        assert gpu_named(name) == spec


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("b201", "unknown GPU; did you mean b200"),
        ("a100", "several GPUs (a100_sxm_40, a100_pcie_40, a100_sxm_80, a100_pcie_80)"),
        ("voodoo2", "unknown GPU ('perfpipe gpu' lists them)"),
    ],
)
def test_other_names_are_errors(name: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        gpu_named(name)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("rtx_2070", "GeForce RTX 2070: its clock is not known (a laptop GPU"),
        ("rtx_3060", "GeForce RTX 3060: its bandwidth is not known (360 GB/s with 12 GB"),
    ],
)
def test_no_projection_without_clock_or_bandwidth(key: str, sentence: str) -> None:
    for gpus in ((H200, SPECS[key]), (SPECS[key], H200)):
        with pytest.raises(InputError) as error:
            ratios(*gpus)
        assert sentence in str(error.value)


CAPTURES = (
    *(("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep"), ("ncu/visible.ncu-rep",)),
    ("nsys/ddp_comm_rank0.sqlite",),
)


@pytest.mark.parametrize("names", CAPTURES, ids=lambda names: names[0])
def test_real_captures(opened: Opened, names: tuple[str, ...]) -> None:
    with opened(*names) as session:
        session.use(*VIEWS)
        ids = [report for (report,) in session.execute("SELECT report_id FROM reports").fetchall()]
        gpu = gpu_of(session.con, ids)
        assert gpu == H200
        for target in (H200, B300):
            for whole in project(session.con, [], ids, gpu, target):
                assert whole.span is not None
                assert 0 < whole.span.low <= whole.span.high
                for part in (*whole.parts, *whole.kernels):
                    assert (part.span is None) <= (part.reason is not None), part
                if target == gpu:
                    assert whole.span.low == pytest.approx(whole.now_ns, rel=1e-6)
                    assert whole.span.high == pytest.approx(whole.now_ns, rel=1e-6)


def test_how_long_the_host_takes(opened: Opened) -> None:
    """Eager steps take as long as the host needs; a graph hardly keeps it busy."""
    shares = {}
    for name in ("eager_small", "graph_whole", "compute"):
        with opened(f"nsys/{name}.sqlite") as con:
            ((least, most, time),) = con.execute(
                "SELECT least_ns, most_ns, time_ns FROM _host_work JOIN analysis_windows USING (report_id)"
            ).fetchall()
            assert 0 < least <= most <= time * 1.01
            shares[name] = (least / time, most / time)
    assert shares["eager_small"][0] > 0.95
    assert shares["graph_whole"][1] < 0.1
    assert shares["compute"][1] < 0.5


def test_roofs_of_known_kernels(opened: Opened) -> None:
    """The nearest roof of kernels that were built to be limited by one thing."""
    nearest = {
        "fp32_fma": {"sm", "fp32"},
        "fp64_fma": {"fp64"},
        "int_alu": {"sm"},
        "bank_conflict": {"sm"},
        "l2_resident": {"l2"},
        "dram_copy": {"l2", "dram"},
    }
    with opened("ncu/visible.ncu-rep") as con:
        rows = con.execute(
            "SELECT kernel_name, roof, pct, peak_per_s FROM kernel_roofs "
            "JOIN ncu_launches USING (report_id, launch_id) WHERE rank = 1"
        ).fetchall()
        ((dram, peak),) = con.execute(
            "SELECT r.pct, r.peak_per_s FROM kernel_roofs AS r JOIN kernel_sol AS s "
            "USING (report_id, launch_id) WHERE s.kernel_name = 'dram_copy' AND r.roof = 'dram'"
        ).fetchall()
    found = {name: roof for name, roof, *_ in rows}
    assert {name for name in nearest if found[name] not in nearest[name]} == set()
    assert dram == pytest.approx(82.6, abs=0.1)
    assert peak == pytest.approx(4.8e12, rel=0.05)


def test_project_end_to_end(cli: Cli, stored: Callable[..., list[str]], tmp_path: Path) -> None:
    ids = stored("nsys/gpumetrics.sqlite", "ncu/block.ncu-rep")
    assert cli("project", *ids, "--to", "b200", "--json") == 0
    found = json.loads(cli.out)
    assert (found["from"], found["to"]) == ("H200 SXM 141 GB", "B200 SXM 180 GB")
    (step,) = found["configurations"]
    assert step["kind"] == "step"
    parts = {part["name"]: part for part in step["parts"]}
    assert sum(part["now_ns"] for part in parts.values()) == pytest.approx(step["now_ns"])
    assert parts["launch_gap"]["span"]["low"] == parts["launch_gap"]["now_ns"]
    assert parts["compute"]["span"]["high"] < parts["compute"]["now_ns"]
    # Eager PyTorch: the host issues the step, whatever the GPU.
    assert step["span"]["low"] == pytest.approx(step["host"]["low"])
    assert step["faster"]["high"] == pytest.approx(step["known_ns"] / step["span"]["low"])
    assert step["faster"]["high"] < 1.03, "all of a copy may be waiting"
    page = tmp_path / "p.html"
    assert cli("project", *ids, "--to", "NVIDIA B200", "--html", page, "--md") == 0
    assert "the host needs 3.19 ms to issue this work on any GPU" in cli.out.replace("\\", "")
    assert "Nothing was measured on B200" in page.read_text()
    assert cli("project", *ids, "--to", "b201") == 2
    assert "did you mean b200" in cli.err


def test_a_run_is_projected_by_configuration(cli: Cli, replayed: Callable[[str], Path]) -> None:
    root = replayed("vector_add")
    assert cli("project", "--to", "b200", "--json", "--store", root) == 0
    found = json.loads(cli.out)["configurations"]
    assert len({one["label"] for one in found}) == len(found) > 1
    assert all(one["span"]["low"] <= one["span"]["high"] for one in found)


def test_the_host_part_of_a_step_without_the_profiler() -> None:
    """The step takes 6 ms instead of 10 ms without the profiler; the GPU works for 4 ms in both."""
    times = {"compute": 3.0, "transfer": 1.0, "launch_gap": 4.0, "host": 2.0}
    found = _shortened(times, 0.6)
    assert (found["compute"], found["transfer"]) == (3.0, 1.0)
    assert found["launch_gap"] == pytest.approx(4 / 3)
    assert sum(found.values()) == pytest.approx(6)
    assert _shortened(times, 0.3)["host"] == 0
    assert _shortened({"compute": 1.0}, 0.5) == {"compute": 1.0}
