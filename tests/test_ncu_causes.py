"""Kernels written to have one cause each, profiled on an H200 with ncu's default set or a metric list."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import DATA, Cli, Opened, Tiny

#: Capture -> (kernel, block) -> (bound, subclass, cause, first technique, what is notable).
CAPTURES: dict[str, dict[tuple[str, int], tuple[str | None, ...]]] = {
    # An array with dynamic indices, 96 values in 40 registers, and neither; spills were not counted.
    "localmem_sectors": {
        ("histogram_in_array", 256): (
            "latency", None, "local_memory", "local_memory",
            "94 % of the sectors of loads and stores are in local memory (arrays or spills)",
        ),
        ("many_values", 256): (
            "memory", None, "local_memory", "local_memory",
            "100 % of the sectors of loads and stores are in local memory (arrays or spills)",
        ),
        ("scale", 256): ("latency", None, None, None, None),
    },
    # The same sum in blocks of different sizes, and whole warps of which one thread works.
    "narrow_lanes": {
        ("row_sum", 1): (
            "memory", None, "narrow_blocks", "whole_warps",
            "blocks of 1 thread leave 31 of 32 lanes idle",
        ),
        ("row_sum", 4): (
            "memory", None, "narrow_blocks", "whole_warps",
            "blocks of 4 threads leave 28 of 32 lanes idle",
        ),
        ("row_sum", 31): (
            "memory", None, None, "tail_removal", "blocks of 31 threads leave 1 of 32 lanes idle",
        ),
        ("row_sum", 48): (
            "memory", None, "narrow_blocks", "whole_warps",
            "blocks of 48 threads leave 16 of 64 lanes idle",
        ),
        ("row_sum", 256): ("memory", None, None, "fewer_bytes", None),
        ("divergent", 256): ("compute", "divergence", None, "divergence", None),
    },
    "narrow_basic": {
        ("row_sum", 1): (
            "memory", "l2", "narrow_blocks", "whole_warps",
            "blocks of 1 thread leave 31 of 32 lanes idle",
        ),
        ("row_sum", 4): (
            "memory", "l2", "narrow_blocks", "whole_warps",
            "blocks of 4 threads leave 28 of 32 lanes idle",
        ),
        # DRAM is busy, whatever the lanes do.
        ("row_sum", 31): (
            "memory", "dram", None, "fusion", "blocks of 31 threads leave 1 of 32 lanes idle",
        ),
        ("row_sum", 48): (
            "memory", "dram", None, "fusion", "blocks of 48 threads leave 16 of 64 lanes idle",
        ),
        ("row_sum", 256): ("memory", "dram", None, "fusion", None),
        ("divergent", 256): ("compute", "fma", None, "fewer_instructions", None),
    },
    # Double literals, float literals, and arguments that are double.
    "fp64_literal_basic": {
        ("polynomial", 256): (
            "compute", "xu", "fp64_for_floats", "float_literals",
            "the FP64 pipe is 12 % busy although the arguments are float",
        ),
        ("polynomial_float", 256): ("compute", "fma", None, "fewer_instructions", None),
        ("polynomial_double", 256): ("compute", "fp64", None, "narrower_types", None),
    },
    # 255 registers, 160 KB of shared memory, and one warp per block.
    "occupancy_basic": {
        ("by_registers", 256): (
            "latency", "occupancy", "registers", "launch_bounds",
            "theoretical occupancy is 12.5 % (limited by registers)",
        ),
        ("by_shared", 128): (
            "latency", "occupancy", "shared_mem", "shared_occupancy",
            "theoretical occupancy is 6.2 % (limited by shared memory)",
        ),
        ("by_shared", 32): ("memory", "l2", None, "larger_tiles", None),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
def test_a_kernel_has_the_cause_that_it_was_written_for(name: str, opened: Opened) -> None:
    sql = """
        SELECT s.kernel_name, split_part(s.block, ',', 1)::BIGINT,
            b.bound, b.subclass, b.cause, f.technique, b.notable
        FROM kernel_bottleneck AS b
        JOIN kernel_sol AS s USING (report_id, launch_id)
        LEFT JOIN kernel_findings AS f
            ON f.report_id = s.report_id AND f.launch_id = s.launch_id AND f.rank = 1
    """
    with opened(f"real/{name}.ncu-rep") as con:
        found = {
            (kernel, block): tuple(rest) for kernel, block, *rest in con.execute(sql).fetchall()
        }
    assert found == CAPTURES[name]


#: Function and full name of a kernel -> what it prepares or checks.
NAMES = {
    "distribution_elementwise_grid_stride_kernel": "inputs",
    "ReferenceGemm_kernel": "check",
    "verifyResult": "check",
    "check_result": "check",
    "flush_l2": "flush",
    "clearCache": "flush",
    "initRNG": "states",
    "setup_curand": "states",
    "curand_init_kernel": "states",
    "rand_init": "states",
    "fill_random": "none",
    "initMatrix": "none",
    "init_data": "none",
    # work, also because nothing else was profiled
    "countPoints": "none",
    "monte_carlo": "none",
    "randomWalk": "none",
    "fused_dropout_kernel_vec": "none",
    "reference_frame_transform": "none",
    "checkpoint_weights": "none",
    "compare_exchange": "none",
    "init_and_simulate": "none",
    "fill_bins": "none",
    "initial_conditions_solver": "none",
    "verify_tree_greedy": "none",
}
FULL_NAMES = {
    "setup_kernel(curandStateXORWOW *)": "states",
    "render_init(int, int, curandStateXORWOW *)": "states",
    "render(float3 *, int, int, curandStateXORWOW *)": "none",
    "init_and_simulate(curandStateXORWOW *, float *)": "none",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)": "inputs",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)": "none",
    "void cutlass::reference::device::kernel::TensorForEach<float>(int)": "check",
    "cutlass::Kernel<MmaTensorOp>(Params)": "none",
}


def _setups(*launches: tuple[int, str, str]) -> list[tuple[int, str]]:
    """Return the set-up launches of a report of some launches: number, function and full name."""
    db = Tiny(
        [
            {"launch_id": number, "duration_ns": 1e5, "kernel_name": name, "kernel_demangled": full}
            for number, name, full in launches
        ],
        {number: {} for number, *_ in launches},
    )
    return db.rows("SELECT launch_id, setup FROM _setup_launches ORDER BY launch_id")


@pytest.mark.parametrize(
    ("function", "full", "setup"),
    [
        *((name, f"{name}(float *)", setup) for name, setup in NAMES.items()),
        *((name.split("(")[0].split("<")[0].split("::")[-1], name, setup)
          for name, setup in FULL_NAMES.items()),
    ],
)  # fmt: skip
def test_names_of_set_up_and_reference_kernels(function: str, full: str, setup: str) -> None:
    assert _setups((0, function, full)) == ([] if setup == "none" else [(0, setup)])


def test_inputs_are_set_up_only_before_the_first_other_kernel() -> None:
    rand, work, seed = "distribution_elementwise_grid_stride_kernel", "step", "initRNG"
    found = _setups(
        *(
            (n, name, f"{name}(float *)")
            for n, name in enumerate((rand, seed, rand, work, rand, seed))
        )
    )
    assert found == [(0, "inputs"), (1, "states"), (2, "inputs"), (5, "states")]


@pytest.mark.parametrize("name", ["fill_random", "initMatrix", "init_data"])
def test_a_filling_kernel_is_set_up_unless_it_takes_most_of_the_time(name: str) -> None:
    fill, work = (0, name, f"{name}(float *)"), (1, "step", "step(float *)")
    more = (2, "other", "other(float *)")
    assert _setups(fill, work) == []
    assert _setups(fill, work, more) == [(0, "inputs")]


def test_a_report_of_set_up_kernels_says_so(cli: Cli) -> None:
    assert cli("ingest", DATA / "field" / "ncu" / "05_local_memory_curand_rtx3080.csv.xz") == 0
    assert cli("report", "--md", "-") == 0
    first = " ".join(cli.out.split("<details>")[0].split())
    assert "Only set-up or reference kernels were profiled: initRNG (1 launch, 77.7 ms)" in first
    assert "Profile the kernels that do the work" in first


def test_set_up_kernels_do_not_hide_why_the_work_has_no_verdict(cli: Cli, tmp_path: Path) -> None:
    """Only the set-up kernel has a speed of light; ncu could not measure the other one."""
    columns = (
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
        "Block Size", "Grid Size", "Device", "CC", "gpu__time_duration.sum",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    )  # fmt: skip
    launch = ("1", "7", "(256, 1, 1)", "(792, 1, 1)", "0", "9.0")
    random = "distribution_elementwise_grid_stride_kernel(int)"
    rows = (
        columns,
        ("",) * 11 + ("ns", "%", "%"),
        ("0", "1", "python", "a", random, *launch, "33000", "69.8", "18.7"),
        ("1", "1", "python", "a", "flash_fwd_kernel(int)", *launch, "", "nan", "nan"),
    )
    capture = tmp_path / "raw.csv"
    capture.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows))
    assert cli("ingest", capture) == 0, cli.err
    assert cli("report") == 0
    first = " ".join(cli.out.split())
    assert "No verdict: ncu printed nan for compute SOL" in first
    assert "(flash_fwd_kernel)" in first
    assert "not collected" not in first


def test_inputs_of_a_pytorch_program_do_not_lead(cli: Cli) -> None:
    """torch.rand, torch.randn and fills come first, then a normalization and a product."""
    assert cli("ingest", DATA / "real" / "torch_setup.csv.xz") == 0
    assert cli("report", "--md", "-") == 0
    first = " ".join(cli.out.split("<details>")[0].split())
    assert "of the other kernels' time (7 launches, 5.69 ms)" in first
    assert "excluded: set-up and reference kernels (vectorized" in first
    assert "1. **Call the library with shapes" in first
