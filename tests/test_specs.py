from __future__ import annotations

import math

import pytest
from conftest import Opened

from perfpipe.specs import GpuSpec, find_spec, gpu_specs, search_specs, tensor_rates


@pytest.mark.parametrize(
    ("name", "sms", "key"),
    [
        ("Tesla V100-SXM2-16GB", 80, "v100_sxm"),
        ("Tesla V100-PCIE-32GB", 80, "v100_pcie"),
        ("NVIDIA A100-SXM4-40GB", 108, "a100_sxm_40"),
        ("NVIDIA A100-PCIE-40GB", 108, "a100_pcie_40"),
        ("NVIDIA A100-SXM4-80GB", 108, "a100_sxm_80"),
        ("NVIDIA A100 80GB PCIe", 108, "a100_pcie_80"),
        ("NVIDIA H100 80GB HBM3", 132, "h100_sxm"),
        ("NVIDIA H100 PCIe", 114, "h100_pcie"),
        ("NVIDIA H200", 132, "h200"),
        ("NVIDIA B200", 148, "b200"),
        ("NVIDIA L4", 58, "l4"),
        ("NVIDIA L40S", 142, "l40s"),
        ("NVIDIA GeForce RTX 3090 Ti", 84, "rtx_3090_ti"),
        ("NVIDIA GeForce RTX 4090", 128, "rtx_4090"),
        ("NVIDIA GeForce RTX 5090", 170, "rtx_5090"),
        ("Tesla T4", 40, "t4"),
        ("NVIDIA A10", 72, "a10"),
        ("NVIDIA A30", 56, "a30"),
        ("NVIDIA H100 NVL", 132, "h100_nvl"),
        ("NVIDIA H200 NVL", 132, "h200_nvl"),
        ("NVIDIA GH200 480GB", 132, "gh200_96"),
        ("NVIDIA GH200 144G HBM3e", 132, "gh200_144"),
        ("NVIDIA GB200", 152, "gb200"),
        ("NVIDIA B300 SXM6 AC", 148, "b300"),
        ("NVIDIA GB300", 152, "gb300"),
        ("NVIDIA L40", 142, "l40"),
        ("NVIDIA RTX 6000 Ada Generation", 142, "rtx_6000_ada"),
        ("NVIDIA GeForce RTX 3090", 82, "rtx_3090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, "rtx_pro_6000_workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 188, "rtx_pro_6000_server"),
    ],
)
def test_device_names_of_drivers_are_recognised(name: str, sms: int, key: str) -> None:
    spec = find_spec(name, sms)
    assert spec is not None
    assert spec.key == key


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("NVIDIA H200", 60),  # a MIG slice
        ("NVIDIA GB200", 148),
        ("Tesla V100-SXM3-32GB", 80),  # its peaks are not the SXM2's
        ("NVIDIA A10G", 80),
        ("NVIDIA H20", 78),
        ("NVIDIA A10-24Q", 72),  # vGPUs
        ("GRID A100-40C", 108),
        ("NVIDIA L40S-24C", 142),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("NVIDIA A100-SXM-64GB", 124),
        ("NVIDIA GH200", 114),
        ("NVIDIA GeForce RTX 4090 D", 114),
        ("NVIDIA GeForce RTX 3090 Laptop GPU", 82),
        ("NVIDIA RTX 6000 Ada Generation Laptop GPU", 76),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188),
    ],
)
def test_other_devices_get_no_peaks(name: str, sms: int | None) -> None:
    assert find_spec(name, sms) is None


def test_a_name_means_one_gpu() -> None:
    names = [spec.name for spec in gpu_specs()]
    assert len(set(names)) == len(names)
    same = [(spec.match, spec.sms) for spec in gpu_specs()]
    assert len(set(same)) == len(same)


#: FP32 lanes of an SM.
LANES = {"7.0": 64, "7.5": 64, "8.0": 64}

each = pytest.mark.parametrize("spec", gpu_specs(), ids=lambda spec: spec.key)


def _per_cycle(spec: GpuSpec, dtype: str, mhz: float) -> float:
    """Return FLOP per cycle and SM."""
    return spec.dense[dtype] * 1e6 / (spec.sms * mhz)


def _power_of_two(value: float) -> float:
    """Return how far a value is from a power of two, as a ratio."""
    return float(2 ** abs(math.log2(value) - round(math.log2(value))))


@each
def test_peaks_of_cuda_cores_follow_from_sms_and_clock(spec: GpuSpec) -> None:
    """FP32: 2 FLOP x lanes x SMs x clock; FP64 a power of two, within the documents' rounding."""
    found = _per_cycle(spec, "fp32", spec.cuda_mhz)
    assert found == pytest.approx(2 * LANES.get(spec.cc, 128), rel=0.01)
    for dtype in {"fp64", "fp64_tensor"} & spec.dense.keys():
        assert _power_of_two(_per_cycle(spec, dtype, spec.cuda_mhz)) < 1.02, dtype
    assert spec.cuda_mhz <= spec.clock_mhz
    assert spec.tensor_mhz <= spec.clock_mhz


@each
def test_tensor_cores_do_a_power_of_two_per_cycle(spec: GpuSpec) -> None:
    for dtype in spec.dense.keys() - {"fp64", "fp64_tensor", "fp32"}:
        found = _per_cycle(spec, dtype, spec.tensor_mhz)
        # 10.3 does three times as much fp4 as fp8.
        assert _power_of_two(found / 3 if (spec.cc, dtype) == ("10.3", "fp4") else found) < 1.02, (
            dtype
        )


@each
def test_narrower_types_are_a_multiple_of_wider_ones(spec: GpuSpec) -> None:
    dense = spec.dense
    narrow = dense.get("fp8_acc16", dense.get("fp8"))
    for dtype, base, times in (
        ("fp16", dense.get("tf32"), 2),
        ("bf16", dense.get("fp16"), 1),
        ("fp8", dense.get("fp16"), 2),
        ("fp6", narrow, 1),
        ("fp4", narrow, 3 if spec.cc == "10.3" else 2),
        ("fp16_acc16", dense.get("fp16"), 2),
        ("fp8_acc16", dense.get("fp8"), 2),
    ):
        if dtype in dense and base:
            assert dense[dtype] == pytest.approx(times * base, rel=0.02), dtype


@each
def test_sparse_peaks_are_twice_the_dense_ones(spec: GpuSpec) -> None:
    assert spec.source
    for dtype, sparse in spec.sparse.items():
        # Blackwell Ultra added dense fp4 only.
        times = 4 / 3 if (spec.cc, dtype) == ("10.3", "fp4") else 2
        assert sparse == pytest.approx(times * spec.dense[dtype], rel=0.02), dtype


@each
def test_no_type_is_absent_without_a_reason(spec: GpuSpec) -> None:
    assert not spec.missing.keys() & spec.dense.keys()
    assert all(spec.missing.values())
    if float(spec.cc) >= 10:
        types = {"tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"}
        assert types <= spec.dense.keys() | spec.missing.keys()


@each
def test_wgmma_is_what_the_peaks_of_hopper_are_of(spec: GpuSpec) -> None:
    for rate in tensor_rates():
        if rate.cc == spec.cc:
            clock = spec.cuda_mhz if rate.dtype == "fp64_tensor" else spec.tensor_mhz
            times = 2 / 3 if rate.instruction == "mma" and rate.dtype != "fp64_tensor" else 1
            found = times * _per_cycle(spec, rate.dtype, clock)
            assert found == pytest.approx(rate.flop_per_cycle, rel=0.02), rate


def test_rates_of_tensor_instructions_are_those_that_ncu_reports(opened: Opened) -> None:
    sql = """
        SELECT any_value(r.cc),
            CASE WHEN regexp_matches(metric, '_(hg|ig)mma_|src_fp8') THEN 'wgmma' ELSE 'mma' END,
            regexp_extract(metric, 'src_([a-z0-9]+)', 1) AS dtype,
            max(value) / any_value(r.sm_count)
        FROM ncu_metrics
        JOIN (SELECT report_id, sm_count, '9.0' AS cc FROM reports) AS r USING (report_id)
        WHERE regexp_matches(metric, 'ops_path_tensor_(op_(hg|h|ig|i)mma_src_|src_fp(8|64)).*peak_sustained$')
            AND metric LIKE '%.sum.%' AND metric NOT LIKE '%sparsity_on%'
        GROUP BY 2, 3
    """
    with opened("ncu/visible.raw.csv") as session:
        rows = session.execute(sql).fetchall()
    names = {"fp64": "fp64_tensor"}
    reported = {(cc, how, names.get(dtype, dtype)): rate for cc, how, dtype, rate in rows}
    known = {(r.cc, r.instruction, r.dtype): r.flop_per_cycle for r in tensor_rates()}
    assert reported == pytest.approx(known, rel=1e-6)


def test_search_by_part_of_a_name() -> None:
    assert [spec.key for spec in search_specs("h200")] == ["h200"]
    assert len(search_specs("a100")) == 4
    assert [spec.key for spec in search_specs("gh200")] == ["gh200_96", "gh200_144"]
    assert search_specs("tpu") == []
