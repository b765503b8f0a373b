from __future__ import annotations

import pytest

from perfpipe.specs import find_spec, gpu_specs, search_specs


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
        ("NVIDIA H200 NVL", 132),
        ("NVIDIA GeForce RTX 3090", 82),
        ("NVIDIA GeForce RTX 4090 D", 114),
        ("NVIDIA L40", 142),
    ],
)
def test_other_devices_get_no_peaks(name: str, sms: int) -> None:
    assert find_spec(name, sms) is None


def test_fp32_peaks_follow_from_sms_and_clock() -> None:
    """CUDA-core FP32: 2 FLOP x lanes x SMs x boost clock, within the datasheets' rounding."""
    for spec in gpu_specs():
        lanes = 64 if spec.cc in ("7.0", "8.0") else 128
        computed = 2 * lanes * spec.sms * spec.clock_mhz / 1e6
        assert spec.dense["fp32"] == pytest.approx(computed, rel=0.02), spec.name


def test_sparse_peaks_are_twice_the_dense_ones() -> None:
    for spec in gpu_specs():
        assert spec.source
        for dtype, sparse in spec.sparse.items():
            assert sparse == pytest.approx(2 * spec.dense[dtype], rel=0.02), (spec.name, dtype)


def test_search_by_part_of_a_name() -> None:
    assert [spec.key for spec in search_specs("h200")] == ["h200"]
    assert len(search_specs("a100")) == 4
    assert search_specs("tpu") == []
