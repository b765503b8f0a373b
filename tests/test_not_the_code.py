"""What is not the code is not blamed on it: clocks, neighbors, other hardware; how it is recorded."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_explain import a_side

from perfpipe.analysis.facts import ECC, MACHINE, NEIGHBORS, SM, Facts, facts_of
from perfpipe.analysis.gate.compare.comparison import pairs_of
from perfpipe.analysis.gate.compare.differences import settings
from perfpipe.analysis.gate.compare.explain import explain
from perfpipe.analysis.gate.decision import Action, Verdict, decide
from perfpipe.analysis.gate.sides import ITERATION, Key
from perfpipe.pipelines.collectors.nvml import Samples, sampling
from perfpipe.pipelines.place import packages, variables
from perfpipe.pipelines.workload import CollectNvml
from perfpipe.ranrecord import Ran
from perfpipe.runrecord import TaskResult


def _facts(conditions: Mapping[str, float] | None = None, **machine: str) -> Facts:
    named_ = {name.replace("_", " "): (value,) for name, value in machine.items()}
    return Facts({MACHINE: named_}, {name: (v,) * 5 for name, v in (conditions or {}).items()})


SLOWER = {Key("", "-", ITERATION): 11.0}
USUAL = {Key("", "-", ITERATION): 10.0}


def test_a_lower_clock_is_not_a_regression_of_the_code() -> None:
    a = a_side("A", USUAL, _facts({SM: 1980}), 1980)
    b = a_side("B", SLOWER, _facts({SM: 1800}), 1800)
    pairs = pairs_of(a, b)
    found = decide(pairs, confirmed=True)
    assert (found.verdict, found.action) == (Verdict.NOT_COMPARABLE, Action.INVESTIGATE)
    assert "the clock, not the code: SM clock 1,980 MHz before, 1,800 MHz after" in found.reason
    assert "time x clock changed by +0.0 %" in found.reason
    why = explain(pairs, a, b)
    assert why.title == "Why it changed"
    assert why.text.startswith("The clock, not the code: SM clock 1,980 MHz")
    same = a_side("B", USUAL)
    assert explain(pairs_of(a, same), a, same).title == "Differences"
    assert "the change itself may lower the clock" in why.text
    assert "SM clock 1,980 MHz -> 1,800 MHz" in why.text
    slower = a_side("B", {Key("", "-", ITERATION): 13.0}, _facts({SM: 1800}), 1800)
    assert decide(pairs_of(a, slower)).verdict == Verdict.REGRESSED, "a part only"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            NEIGHBORS,
            "other processes used the GPU in 5 of 5 runs after, but in 0 of 5 runs on the other side",
        ),
        (ECC, "the GPU's memory had ECC errors in 5 of 5 runs after"),
    ],
)
def test_what_disturbs_one_side_only(name: str, sentence: str) -> None:
    quiet, disturbed = _facts({name: 0}), _facts({name: 2})
    a, b = a_side("A", USUAL, quiet), a_side("B", SLOWER, disturbed)
    found = decide(pairs_of(a, b), confirmed=True)
    assert (found.verdict, found.action) == (Verdict.INCONCLUSIVE, Action.INVESTIGATE)
    assert f"not the code alone: {sentence}" in found.reason
    for facts in ((disturbed, disturbed), (disturbed, quiet), (quiet, quiet)):
        sides = a_side("A", USUAL, facts[0]), a_side("B", SLOWER, facts[1])
        assert decide(pairs_of(*sides)).verdict == Verdict.REGRESSED


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (_facts(node="a"), _facts(node="b"), "different nodes (a before, b after)"),
        (_facts(GPU="GPU-1"), _facts(GPU="GPU-2"), "different GPUs (GPU-1 before, GPU-2 after)"),
        (_facts(driver="580.1"), _facts(driver="580.2"), "different drivers"),
        (_facts(power_limit="700 W"), _facts(power_limit="500 W"), "different power limits"),
        (_facts({"temperature": 40}), _facts({"temperature": 85}), "40 °C before, 85 °C after"),
        (
            _facts({"throttled": 0}),
            replace(_facts({"throttled": 1}), throttled_by=("power cap",)),
            "clocks throttled by power cap (0 of 5 runs before, 5 of 5 after)",
        ),
    ],
)
def test_what_may_be_part_of_it_is_said_and_nothing_is_reverted(
    before: Facts, after: Facts, sentence: str
) -> None:
    a, b = a_side("A", USUAL, before), a_side("B", SLOWER, after)
    pairs = pairs_of(a, b)
    found = decide(pairs, confirmed=True)
    assert (found.verdict, found.action) == (Verdict.REGRESSED, Action.INVESTIGATE)
    assert sentence in found.reason
    assert sentence in explain(pairs, a, b).text
    assert decide(pairs_of(a, a_side("B", SLOWER, before)), confirmed=True).action == Action.REVERT


def test_models_and_driver_majors_are_not_mixed() -> None:
    for before, after in (
        (_facts(driver="570.1"), _facts(driver="580.1")),
        (_facts(GPU_model="H100"), _facts(GPU_model="H200")),
        (_facts(machine_model="EPYC 9654"), _facts(machine_model="Xeon 8480")),
    ):
        a, b = a_side("A", USUAL, before), a_side("B", SLOWER, after)
        found = decide(pairs_of(a, b))
        assert found.verdict == Verdict.NOT_COMPARABLE
        assert re.search(
            r"(570\.1|H100|EPYC 9654) before, (580\.1|H200|Xeon 8480) after", found.reason
        )
        assert decide(pairs_of(a, b, allow_mixed=True)).verdict == Verdict.REGRESSED
    one, two = (_facts(GPU_model="H200", machine_model=all_) for all_ in ("H200", "A2 and H200"))
    a, b = a_side("A", USUAL, one), a_side("B", SLOWER, two)
    found = decide(pairs_of(a, b))
    assert found.verdict == Verdict.REGRESSED, "the same GPU, of several"
    assert "different machine models (H200 before, A2 and H200 after)" in found.reason


# What is recorded


def test_the_environment_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NVIDIA_API_KEY", "s3cret")
    monkeypatch.setenv("UNRELATED", "x")
    found = variables({"MY_SWITCH": "1", "HF_TOKEN": "s3cret", "DB_PASSWORD": "s3cret"})
    assert found["NCCL_ALGO"] == "Ring"
    assert found["MY_SWITCH"] == "1"
    assert "s3cret" not in found.values()
    assert "UNRELATED" not in found


def test_packages_that_were_not_listed_are_not_absent() -> None:
    at = "2026-11-22T10:00:00Z"

    def side(torch: str, packages: dict[str, str] | None) -> Facts:
        ran = Ran(at, at, 1.0, "node1", ("GPU-1",), packages=packages)
        return facts_of([[TaskResult(0, "-", {}, software={"torch": torch}, ran=ran)]])

    listed = side("2.11", {"torch": "2.11", "triton": "3.6"})
    wrapped = side("2.12", None)
    assert [found.name for found in settings(listed, wrapped)] == ["torch"]
    other = side("2.11", {"torch": "2.11"})
    (found,) = settings(listed, other)
    assert (found.name, found.before, found.after) == ("triton", "3.6", "absent")


def test_the_packages_of_an_interpreter(tmp_path: Path) -> None:
    assert packages("/bin/sh") is None
    assert packages(str(tmp_path / "python3")) is None
    fake = tmp_path / "python3.11"
    fake.write_text(
        """#!/bin/sh\necho '{"torch": "2.11", "Flask": "3", "nvidia-nccl-cu13": "2"}'\n"""
    )
    fake.chmod(0o755)
    assert packages(str(fake)) == {"nvidia-nccl-cu13": "2", "torch": "2.11"}


def test_packages_are_told_as_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = packages(sys.executable)
    assert listed is not None
    assert listed["numpy"] == metadata.version("numpy")
    assert "pytest" not in listed
    for place, name, own, told in (
        (
            "first",
            "flash_attn-2.8.dist-info",
            "METADATA",
            "Name: flash-attn\nVersion: 2.8\n\nVersion: 9\n",
        ),
        (
            "first",
            "numpy-0.1.dist-info",
            "METADATA",
            "Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n",
        ),
        ("second", "numpy-0.2.dist-info", "METADATA", "Name: numpy\nVersion: 0.2\n"),
        ("second", "CuPy_cuda13x-14.egg-info", "PKG-INFO", "Name: CuPy-cuda13x\nVersion: 14\n"),
        ("second", "jaxlib-1.dist-info", "RECORD", ""),
    ):
        (tmp_path / place / name).mkdir(parents=True)
        (tmp_path / place / name / own).write_text(told)
    (tmp_path / "second" / "vllm-3.egg-info").write_text("Name: vllm\nVersion: 3\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/first:{tmp_path}/none:{tmp_path}/second")
    packages.cache_clear()
    told_apart = {"flash-attn": "2.8", "numpy": "0.1", "CuPy-cuda13x": "14", "vllm": "3"}
    assert packages(sys.executable) == {**listed, **told_apart}
    packages.cache_clear()


def test_what_gpus_say_before_and_behind_launches() -> None:
    samples = Samples()
    samples.samples = [{"ms": 0, "gpu": 0, "gpu_pct": 90}]
    about = {"name": "H200", "power_limit_w": 700.0, "neighbors": 0}
    for neighbors, errors in ((0, (1, 1)), (2, (1, 4))):
        before, after = ({0: {**about, "neighbors": neighbors, "ecc_errors": e}} for e in errors)
        samples.note(before, after)
    state = samples.summary()
    assert (state.gpu_model, state.power_limit_w) == ("H200", 700)
    assert (state.ecc_errors, state.neighbors) == (3, 2)
    samples.note({0: {**about, "ecc_errors": None}}, {0: {**about, "ecc_errors": None}})
    assert samples.summary().ecc_errors == 3


def test_what_nvml_says_of_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in of NVML: a GPU that another process uses, and whose memory has an error."""
    import pynvml

    errors = iter([10, 0, 10, 1])  # corrected and uncorrected, before and behind the launch
    busy = type("Use", (), {"gpu": 90})()
    used = chain([1e9], repeat(3.5e9))
    said = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: "GPU-1",
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
        "nvmlSystemGetDriverVersion": lambda: "580.159.04",
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: next(errors),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["other"],
        "nvmlDeviceGetUtilizationRates": lambda handle: busy,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=next(used)),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1755,
        "nvmlDeviceGetPowerUsage": lambda handle: 512_000,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4,
    }
    for name, answer in said.items():
        monkeypatch.setattr(pynvml, name, answer)
    with sampling(CollectNvml(), tmp_path, {}) as samples:
        time.sleep(0.01)
    state = samples.summary()
    assert (state.driver, state.gpu_model, state.power_limit_w) == (
        "580.159.04",
        "NVIDIA H200",
        700,
    )
    assert (state.ecc_errors, state.neighbors, state.program_gb) == (1, 1, 2.5)
    assert (state.sm_mhz, state.temperature_c, state.throttled_by) == (1755, 61, ("power cap",))

    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetComputeRunningProcesses"):
        monkeypatch.setattr(pynvml, name, unsupported)
    with sampling(CollectNvml(), tmp_path, {}) as samples:
        time.sleep(0.01)
    state = samples.summary()
    assert (state.ecc_errors, state.neighbors) == (None, None), "not known is not none"
