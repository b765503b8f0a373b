"""A stand-in of NVML with GPUs whose power is known at every time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest


@dataclass
class Gpu:
    """A GPU: watts at a time of time.perf_counter, s since it was made; its counter's period, s.

    `lacks` are the functions of NVML that it does not support, `counted` is what its counter said.
    """

    watts: Callable[[float], float] = lambda _: 100.0
    load_pct: Callable[[float], int] = lambda _: 0
    period_s: float = 0.02
    offset_mj: int = 10**9
    mig: int = 0
    lacks: tuple[str, ...] = ()
    counted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def now(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self.began

    def energy_mj(self) -> int:
        """The counter: energy of whole periods, in steps of 1 ms."""
        until = self.now // self.period_s * self.period_s
        ms = round(until * 1e3)
        said = self.offset_mj + round(sum(self.watts(at / 1e3) for at in range(ms)))
        self.counted.append(said)
        return said


def install(monkeypatch: pytest.MonkeyPatch, gpus: Sequence[Gpu]) -> None:
    """Let pynvml answer for some GPUs, whose handles are their numbers."""
    import pynvml

    def instant(gpu: Gpu, fields: Sequence[int]) -> list[Any]:
        value = SimpleNamespace(uiVal=round(1e3 * gpu.watts(gpu.now)))
        return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, value=value) for _ in fields]

    answers: dict[str, Callable[..., Any]] = {
        "nvmlDeviceGetTotalEnergyConsumption": Gpu.energy_mj,
        "nvmlDeviceGetPowerUsage": lambda gpu: round(1e3 * gpu.watts(gpu.now)),
        "nvmlDeviceGetFieldValues": instant,
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.load_pct(gpu.now)),
        "nvmlDeviceGetMigMode": lambda gpu: [gpu.mig, gpu.mig],
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpus.index(gpu)}",
        "nvmlDeviceGetName": lambda gpu: b"NVIDIA H200",
    }
    others = (
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature", "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlSystemGetDriverVersion",
    )  # fmt: skip

    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def answer(name: str) -> Callable[..., Any]:
        def ask(handle: int, *more: Any) -> Any:
            gpu = gpus[handle]
            return unsupported() if name in gpu.lacks else answers[name](gpu, *more)

        return ask

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(gpus))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    for name in answers:
        monkeypatch.setattr(pynvml, name, answer(name))
    for name in others:
        monkeypatch.setattr(pynvml, name, unsupported)
