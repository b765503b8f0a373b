from __future__ import annotations

import math

import pytest
from conftest import Opened, Tiny

from perfpipe.specs import (
    GpuSpec,
    documents,
    find_spec,
    gpu_specs,
    search_specs,
    tensor_rates,
)


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
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, "rtx_pro_6000_max_q"),
        ("Tesla P100-PCIE-16GB", 56, "p100_pcie_16"),
        ("Tesla V100S-PCIE-32GB", 80, "v100s_pcie"),
        ("NVIDIA T4G", 40, "t4g"),
        ("NVIDIA A2", 10, "a2"),
        ("NVIDIA A16", 10, "a16"),
        ("NVIDIA A10G", 80, "a10g"),
        ("NVIDIA A40", 84, "a40"),
        ("NVIDIA A800-SXM4-80GB", 108, "a800_sxm_80"),
        ("NVIDIA A800 80GB PCIe", 108, "a800_pcie_80"),
        ("NVIDIA H800", 132, "h800"),
        ("NVIDIA H20", 78, "h20"),
        ("NVIDIA L20", 92, "l20"),
        ("NVIDIA GB10", 48, "gb10"),
        ("NVIDIA Thor", 20, "thor"),
        ("Orin", 16, "orin_agx_64"),
        ("NVIDIA TITAN V", 80, "titan_v"),
        ("TITAN RTX", 72, "titan_rtx"),
        ("Quadro RTX 6000", 72, "quadro_rtx_6000"),
        ("NVIDIA RTX A6000", 84, "rtx_a6000"),
        ("NVIDIA RTX A5000", 64, "rtx_a5000"),
        ("NVIDIA RTX A4000", 48, "rtx_a4000"),
        ("NVIDIA RTX A2000 12GB", 26, "rtx_a2000"),
        ("NVIDIA RTX 5000 Ada Generation", 100, "rtx_5000_ada"),
        ("GeForce GTX 1080", 20, "gtx_1080"),
        ("GeForce GTX 1080 Ti", 28, "gtx_1080_ti"),
        ("NVIDIA GeForce GTX 1660 SUPER", 22, "gtx_1660_super"),
        ("NVIDIA GeForce GTX 1660 Ti", 24, "gtx_1660_ti"),
        ("NVIDIA GeForce RTX 2060", 30, "rtx_2060"),
        ("NVIDIA GeForce RTX 2060 SUPER", 34, "rtx_2060_super"),
        ("NVIDIA GeForce RTX 2070", 36, "rtx_2070"),
        ("NVIDIA GeForce RTX 2070 SUPER", 40, "rtx_2070_super"),
        ("NVIDIA GeForce RTX 2080 Ti", 68, "rtx_2080_ti"),
        ("NVIDIA GeForce RTX 3050 Laptop GPU", 16, "rtx_3050_laptop"),
        ("NVIDIA GeForce RTX 3060", 28, "rtx_3060"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", 30, "rtx_3060_laptop"),
        ("NVIDIA GeForce RTX 3060 Ti", 38, "rtx_3060_ti"),
        ("NVIDIA GeForce RTX 3070", 46, "rtx_3070"),
        ("GeForce RTX 3080", 68, "rtx_3080_10"),
        ("NVIDIA GeForce RTX 3080", 70, "rtx_3080_12"),
        ("NVIDIA GeForce RTX 3080 Ti", 80, "rtx_3080_ti"),
        ("NVIDIA GeForce RTX 4060 Ti", 34, "rtx_4060_ti"),
        ("NVIDIA GeForce RTX 4070", 46, "rtx_4070"),
        ("NVIDIA GeForce RTX 4070 Ti", 60, "rtx_4070_ti"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 66, "rtx_4070_ti_super"),
        ("NVIDIA GeForce RTX 4080 SUPER", 80, "rtx_4080_super"),
        ("NVIDIA GeForce RTX 5060", 30, "rtx_5060"),
        ("NVIDIA GeForce RTX 5060 Laptop GPU", 26, "rtx_5060_laptop"),
        ("NVIDIA GeForce RTX 5070", 48, "rtx_5070"),
        ("NVIDIA GeForce RTX 5070 Ti", 70, "rtx_5070_ti"),
        ("NVIDIA GeForce RTX 5080", 84, "rtx_5080"),
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
        ("NVIDIA A40-48Q", 84),  # vGPUs
        ("GRID A100-40C", 108),
        ("NVIDIA L40S-24C", 142),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("NVIDIA GeForce RTX 3080", None),  # 10 GB or 12 GB
        ("NVIDIA GeForce RTX 3050", 18),  # 6 GB
        ("NVIDIA GeForce RTX 2070 Super", 40),  # a laptop GPU
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", 36),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 48),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", 36),
        ("NVIDIA RTX A5000 Laptop GPU", 48),
        ("NVIDIA A100-SXM-64GB", 124),
        ("NVIDIA H20-3e", 78),
        ("Orin", 8),  # Orin NX or Nano
        ("NVIDIA GH200", 114),
        ("NVIDIA GeForce RTX 4090 D", 114),
        ("NVIDIA GeForce RTX 3090 Laptop GPU", 82),
        ("NVIDIA RTX 6000 Ada Generation Laptop GPU", 76),
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
LANES = {"6.0": 64, "7.0": 64, "7.5": 64, "8.0": 64}

each = pytest.mark.parametrize("spec", gpu_specs(), ids=lambda spec: spec.key)


def _per_cycle(spec: GpuSpec, dtype: str) -> float:
    """Return FLOP per cycle and SM."""
    mhz = spec.quoted(dtype)
    assert mhz is not None
    return spec.dense[dtype] * 1e6 / (spec.sms * mhz)


def _power_of_two(value: float) -> float:
    """Return how far a value is from a power of two, as a ratio."""
    return float(2 ** abs(math.log2(value) - round(math.log2(value))))


@each
def test_peaks_of_cuda_cores_follow_from_sms_and_clock(spec: GpuSpec) -> None:
    """FP32: 2 FLOP x lanes x SMs x clock; FP64 a power of two, within the documents' rounding."""
    if "fp32" in spec.dense:
        lanes = LANES.get(spec.cc, 128)
        assert _per_cycle(spec, "fp32") == pytest.approx(2 * lanes, rel=0.01)
    for dtype in {"fp64", "fp64_tensor"} & spec.dense.keys():
        assert _power_of_two(_per_cycle(spec, dtype)) < 1.02, dtype
    for mhz in spec.quoted_mhz.values():
        assert spec.clock_mhz is None or mhz <= spec.clock_mhz


@each
def test_tensor_cores_do_a_power_of_two_per_cycle(spec: GpuSpec) -> None:
    for dtype in spec.dense.keys() - {"fp64", "fp64_tensor", "fp32"}:
        found = _per_cycle(spec, dtype)
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
    for dtype, sparse in spec.sparse.items():
        # Blackwell Ultra added dense fp4 only.
        times = 4 / 3 if (spec.cc, dtype) == ("10.3", "fp4") else 2
        assert sparse == pytest.approx(times * spec.dense[dtype], rel=0.02), dtype


@each
def test_no_type_is_absent_without_a_reason(spec: GpuSpec) -> None:
    assert not spec.missing.keys() & spec.dense.keys()
    assert all(spec.missing.values())
    assert spec.source.startswith(("NVIDIA ", "AWS "))
    assert (spec.clock_mhz is None) == ("clock" in spec.missing)
    assert (spec.bandwidth_gbs is None) == ("bandwidth" in spec.missing)
    if float(spec.cc) >= 7:
        assert {"fp32"} <= spec.dense.keys() | spec.missing.keys()
    if float(spec.cc) >= 10:
        types = {"tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"}
        assert types <= spec.dense.keys() | spec.missing.keys()


@each
def test_wgmma_is_what_the_peaks_of_hopper_are_of(spec: GpuSpec) -> None:
    for rate in tensor_rates():
        # The tensor cores of the H20 are slower.
        if rate.cc == spec.cc and rate.dtype in spec.dense and spec.key != "h20":
            times = 2 / 3 if rate.instruction == "mma" and rate.dtype != "fp64_tensor" else 1
            found = times * _per_cycle(spec, rate.dtype)
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


#: Peaks that the documents state of GPUs whose peaks are computed.
STATED: dict[str, dict[str, float]] = {
    "rtx_2080_super": {"fp16_acc16": 89},
    "rtx_3080_10": {"fp32": 29.8, "fp16": 59.5, "fp16_acc16": 119, "int8": 238},
    "rtx_3070": {"fp32": 20.3, "fp16": 40.6, "int8": 162.6},
    "rtx_a4000": {"fp32": 19.2, "fp16": 76.7, "int8": 153.4},
    "rtx_6000_ada": {"fp32": 91.1, "fp8": 728.5},
    "rtx_4080": {"fp32": 48.7, "fp16": 97.5, "fp8_acc16": 389.9},
    "rtx_pro_6000_max_q": {"fp32": 110, "fp4": 3511 / 2},
    "rtx_5070": {"fp32": 30.9, "fp16": 61.7, "fp4": 988 / 2},
    "rtx_5080": {"fp32": 56.3, "fp16": 112.6, "fp4": 900.4},
}


@pytest.mark.parametrize("key", STATED)
def test_peaks_like_those_of_another_gpu(key: str) -> None:
    (spec,) = (spec for spec in gpu_specs() if spec.key == key)
    for dtype, peak in STATED[key].items():
        assert spec.dense[dtype] == pytest.approx(peak, rel=0.005), dtype


def test_every_address_belongs_to_a_source() -> None:
    for title in documents():
        assert any(title in spec.source for spec in gpu_specs()), title


def test_figures_that_are_not_known_have_a_reason() -> None:
    """A laptop GPU, and one whose bandwidth depends on its memory."""
    db = Tiny()
    db.add(
        "reports",
        {"report_id": "laptop", "gpu": "NVIDIA GeForce RTX 3060 Laptop GPU", "sm_count": 30},
        {"report_id": "desktop", "gpu": "NVIDIA GeForce RTX 3060", "sm_count": 28},
    )
    rows = db.rows(
        "SELECT flop_per_s, bytes_per_s, missing FROM gpu_peaks WHERE report_id = 'laptop'"
    )
    assert rows
    assert all(row[:2] == (None, None) and "power limit" in row[2] for row in rows)
    assert db.rows(
        "SELECT gpu, flop_per_s, bytes_per_s, missing FROM gpu_peaks "
        "WHERE report_id = 'desktop' AND dtype = 'fp32'"
    ) == [
        (
            "GeForce RTX 3060", 12.74e12, None,
            "bandwidth: 360 GB/s with 12 GB, 240 GB/s with 8 GB",
        )
    ]  # fmt: skip
