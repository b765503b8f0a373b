"""Samples clocks, power, temperature and throttle reasons of the GPUs, through NVML."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfpipe.pipelines.collectors.pinned import pinned_gb
from perfpipe.pipelines.workload import CollectNvml
from perfpipe.runrecord import GpuState, OneGpu, Spread

#: Reasons for lower clocks: (bit, name), as nvmlClocksEventReasons; without idle and settings.
REASONS = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
)

#: Properties and counters of a GPU, read once before and once after each launch.
_STILL = ("name", "power_limit_w")

#: When to read the pinned memory of processes: at growing intervals, because each time all
#: processes of the machine are inspected.
_PINNED_S, _PINNED_TIMES = 1.0, 1.3

#: Why GPUs are not read although NVML may respond.
NOT_READ = "not requested, or the program ran on another machine"

_QUANTITIES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "gpu_pct")


class Samples:
    """Samples of the GPUs' state, one mapping each; empty if NVML was not available."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []
        self.reason: str | None = None
        self.driver: str | None = None
        self.pinned_gb = 0.0
        self._about: dict[int, list[dict[str, Any]]] = {}

    def note(self, before: Mapping[int, Mapping[str, Any]], after: Mapping[int, Any]) -> None:
        """Add the properties of GPUs before and after a launch, by GPU number."""
        for gpu, old in before.items():
            errors = [old["ecc_errors"], after[gpu]["ecc_errors"]]
            new = None if None in errors else errors[1] - errors[0]
            self._about.setdefault(gpu, []).append({**old, "ecc_errors": new})

    def summary(self) -> GpuState:
        """Return min, median and max of each quantity by GPU, and the clock limiters.

        Only active GPUs count, and only their active samples, if there are any.
        """
        if not self.samples:
            return GpuState(missing=self.reason or "no samples were taken")
        gpus = []
        worked = {sample["gpu"] for sample in self.samples if sample.get("gpu_pct")}
        for gpu in sorted(worked or {sample["gpu"] for sample in self.samples}):
            own = [sample for sample in self.samples if sample["gpu"] == gpu]
            busy = [sample for sample in own if sample.get("gpu_pct")] or own
            spreads: dict[str, Any] = {name: _spread(busy, name) for name in _QUANTITIES}
            bits = 0
            for sample in own:
                bits |= sample.get("reasons") or 0
            held = tuple(name for bit, name in REASONS if bits & bit)
            about = {**self._of(gpu), "program_gb": self._taken_gb(gpu, own)}
            gpus.append(OneGpu(gpu, busy_samples=len(busy), **spreads, throttled_by=held, **about))
        return GpuState(
            len(self.samples), tuple(gpus), driver=self.driver, pinned_gb=self.pinned_gb
        )

    def _taken_gb(self, gpu: int, samples: list[dict[str, Any]]) -> float | None:
        """Return the largest increase in used memory since the first launch, GB."""
        used = [sample["used_gb"] for sample in samples if sample.get("used_gb") is not None]
        before = next((own.get("used_gb") for own in self._about.get(gpu, ())), None)
        return None if before is None or not used else max(max(used) - before, 0.0)

    def _of(self, gpu: int) -> dict[str, Any]:
        """Return the properties of a GPU over all launches: errors add up, others are the last.

        Other processes: the largest number.
        """
        told = self._about.get(gpu)
        if not told:
            return {}
        errors = [own["ecc_errors"] for own in told if own["ecc_errors"] is not None]
        beside = [own["neighbors"] for own in told if own["neighbors"] is not None]
        return {
            **{name: told[-1][name] for name in _STILL},
            "ecc_errors": sum(errors) if errors else None,
            "neighbors": max(beside) if beside else None,
        }


def _spread(samples: list[dict[str, Any]], name: str) -> Spread | None:
    values = [sample[name] for sample in samples if sample.get(name) is not None]
    return Spread(min(values), statistics.median(values), max(values)) if values else None


@contextlib.contextmanager
def sampling(
    options: CollectNvml | None,
    into: Path,
    env: Mapping[str, str] | None = None,
    state: Samples | None = None,
) -> Iterator[Samples]:
    """Sample in a separate thread while the block runs; samples go to nvml.jsonl.

    `env` has the additional variables of the program: only GPUs that it can see are sampled.
    Samples are added to a `state` of earlier launches.
    """
    state = Samples() if state is None else state
    handles: dict[int, Any] = {}
    if options is not None:
        handles, state.reason = handles_of({**os.environ, **(env or {})})
    if options is None or not handles:
        state.reason = state.reason or NOT_READ
        yield state
        return
    before = {index: _about(handle) for index, handle in handles.items()}
    state.driver = _driver()
    ended = threading.Event()
    interval = options.interval_ms / 1e3
    thread = threading.Thread(target=_sample, args=(handles, state, ended, interval), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        ended.set()
        thread.join()
        state.note(before, {index: _about(handle) for index, handle in handles.items()})
        lines = "".join(json.dumps(sample) + "\n" for sample in state.samples)
        # A full disk is reported when the result is written.
        with contextlib.suppress(OSError):
            (into / "nvml.jsonl").write_text(lines, encoding="utf-8")


def handles_of(env: Mapping[str, str]) -> tuple[dict[int, Any], str | None]:
    """Return NVML's handles of the GPUs that a program sees in an environment, by number.

    With the reason if it sees none.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
        uuids = {index: _text(pynvml.nvmlDeviceGetUUID(of)) for index, of in handles.items()}
        names = {_text(pynvml.nvmlDeviceGetName(of)) for of in handles.values()}
    except pynvml.NVMLError as error:
        return {}, f"NVML does not respond ({error})"
    # NVML numbers GPUs in bus order; by default CUDA begins with the fastest.
    same_order = len(names) == 1 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    visible = visible_gpus(env.get("CUDA_VISIBLE_DEVICES"), uuids, same_order)
    why = None if visible else "the program sees no GPU (CUDA_VISIBLE_DEVICES)"
    return {index: handles[index] for index in visible}, why


def visible_gpus(variable: str | None, uuids: Mapping[int, str], same_order: bool) -> list[int]:
    """Return the numbers of the GPUs in CUDA_VISIBLE_DEVICES; all if it is ambiguous.

    As in CUDA, the list ends at the first invalid entry.  An entry is a UUID prefix or a number; a
    number is ambiguous unless CUDA counts GPUs in the `same_order`.
    """
    if variable is None:
        return [*uuids]
    found: list[int] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.startswith("MIG") or (entry.isdigit() and not same_order):
            return [*uuids]
        if entry.isdigit():
            index = int(entry) if int(entry) in uuids else None
        else:
            alike = [at for at, uuid in uuids.items() if entry and uuid.startswith(entry)]
            index = alike[0] if len(alike) == 1 else None
        if index is None:
            break
        found.append(index)
    return list(dict.fromkeys(found))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _sample(
    handles: Mapping[int, Any], state: Samples, ended: threading.Event, interval: float
) -> None:
    started, look_s = time.monotonic(), 0.0
    while True:
        if time.monotonic() - started >= look_s:
            look_s = _PINNED_S + _PINNED_TIMES * look_s
            state.pinned_gb = max(state.pinned_gb, pinned_gb())
        for index, handle in handles.items():
            at_ms = round((time.monotonic() - started) * 1e3, 1)
            state.samples.append({"ms": at_ms, "gpu": index, **_read(handle)})
        if ended.wait(interval):
            return


def ask(name: str, *arguments: Any) -> Any:
    """Return the result of an NVML function; None if the GPU or library does not support it."""
    import pynvml

    function = getattr(pynvml, name, None)
    try:
        return function(*arguments) if function else None
    except pynvml.NVMLError:
        return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3


def _read(handle: Any) -> dict[str, Any]:
    """Return the state of a GPU; quantities that it does not support are None."""
    import pynvml

    use = ask("nvmlDeviceGetUtilizationRates", handle)
    return {
        "sm_mhz": ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM),
        "power_w": _watts(ask("nvmlDeviceGetPowerUsage", handle)),
        "temperature_c": ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        "gpu_pct": None if use is None else use.gpu,
        "used_gb": _used_gb(handle),
        "reasons": ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
    }


def _about(handle: Any) -> dict[str, Any]:
    """Return slowly changing properties: model, power limit, ECC errors so far, processes."""
    import pynvml

    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    counts = [
        ask("nvmlDeviceGetTotalEccErrors", handle, kind, pynvml.NVML_VOLATILE_ECC) for kind in kinds
    ]
    known = [count for count in counts if count is not None]
    using = ask("nvmlDeviceGetComputeRunningProcesses", handle)
    name = ask("nvmlDeviceGetName", handle)
    return {
        "name": None if name is None else _text(name),
        "power_limit_w": _watts(ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
        "ecc_errors": sum(known) if known else None,
        "neighbors": None if using is None else len(using),
        "used_gb": _used_gb(handle),
    }


def _used_gb(handle: Any) -> float | None:
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else memory.used / 1e9


def _driver() -> str | None:
    version = ask("nvmlSystemGetDriverVersion")
    return None if version is None else _text(version)
