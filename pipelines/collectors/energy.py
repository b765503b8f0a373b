"""Reads the energy counters and the power of the GPUs while a program runs, through NVML."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perfpipe.energyrecord import Energy
from perfpipe.pipelines.collectors.nvml import NOT_READ, ask, handles_of

if TYPE_CHECKING:
    from perfpipe.analysis.energy import Readings

#: Time between readings, s: shorter than the period of the counter, which is 20 to 100 ms.
INTERVAL_S = 0.05

_MIG = "the GPU is divided (MIG), and NVML counts the energy of the whole GPU only"


class Meter:
    """Reads some GPUs; `missing` is why there is nothing to read."""

    def __init__(self, handles: Mapping[int, Any], missing: str | None = None) -> None:
        self.missing = missing
        self._handles = [*handles.values()]
        if any((ask("nvmlDeviceGetMigMode", handle) or [0])[0] for handle in self._handles):
            self.missing, self._handles = _MIG, []
        self._instant = bool(handles) and all(_instant_mw(h) is not None for h in self._handles)
        self._times_ns: list[int] = []
        self._read: list[tuple[list[Any], list[Any], list[Any]]] = [
            ([], [], []) for _ in self._handles
        ]

    def read(self) -> None:
        """Read all GPUs once; what a GPU does not report is None."""
        self._times_ns.append(time.perf_counter_ns())
        power: Callable[[Any], int | None] = _instant_mw if self._instant else _power_mw
        for handle, (counters, powers, loads) in zip(self._handles, self._read, strict=True):
            counters.append(ask("nvmlDeviceGetTotalEnergyConsumption", handle))
            powers.append(power(handle))
            use = ask("nvmlDeviceGetUtilizationRates", handle)
            loads.append(None if use is None else use.gpu)

    @property
    def reads(self) -> bool:
        """Whether there are GPUs to read."""
        return bool(self._handles)

    def readings(self) -> Readings:
        """Return what was read."""
        from perfpipe.analysis.energy import GpuReadings, Readings

        gpus = tuple(GpuReadings(*own) for own in self._read)
        return Readings(tuple(self._times_ns), gpus, self._instant, self.missing)

    def unread(self) -> Energy:
        """Return the energy of a launch without readings."""
        none = (None,)
        return Energy(
            None, none, none, none, none, missing=self.missing, steps_missing=self.missing
        )


@contextlib.contextmanager
def metering(
    env: Mapping[str, str], wanted: bool = True, interval_s: float = INTERVAL_S
) -> Iterator[Meter]:
    """Read the GPUs that a program may use before the block, in a thread during it, and after it.

    `env` are the additional variables of the program.
    """
    handles, missing = handles_of({**os.environ, **env}) if wanted else ({}, NOT_READ)
    meter = Meter(handles, missing)
    if not meter.reads:
        yield meter
        return
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(interval_s):
            meter.read()

    thread = threading.Thread(target=repeat, daemon=True)
    meter.read()
    thread.start()
    try:
        yield meter
    finally:
        ended.set()
        thread.join()
        meter.read()


def _power_mw(handle: Any) -> int | None:
    found: int | None = ask("nvmlDeviceGetPowerUsage", handle)
    return found


def _instant_mw(handle: Any) -> int | None:
    """Return the power of a GPU now, mW; None if the GPU or the driver does not report it."""
    import pynvml

    field = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", None)
    values = None if field is None else ask("nvmlDeviceGetFieldValues", handle, [field])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal) or None
