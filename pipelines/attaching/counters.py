"""What the system says about a running program: /proc about its processes, NVML about its GPUs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfpipe.pipelines.attaching.target import stat_of
from perfpipe.pipelines.attaching.ways import Subject
from perfpipe.pipelines.attaching.window import Window
from perfpipe.pipelines.collectors.nvml import ask, handles_of

NAME = "/proc and NVML"
SEES = "CPU time, threads, memory and storage of each process; load, memory, power of its GPUs"
LACKS = "which code, and which kernels"

#: Time between two samples, s.
_EVERY_S = 0.25

_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Counters:
    """Rows of process_samples and of gpu_samples; `no_gpu` is why there are none of the latter."""

    processes: list[list[Any]] = field(default_factory=list)
    gpus: list[list[Any]] = field(default_factory=list)
    no_gpu: str | None = None


@contextlib.contextmanager
def sampling(subject: Subject, window: Window) -> Iterator[Counters]:
    """Sample while the block runs."""
    found = Counters()
    handles, found.no_gpu = handles_of(subject.target.environment())
    over = threading.Event()
    thread = threading.Thread(
        target=_sample, args=(subject, window, handles, found, over), daemon=True
    )
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
    _keep_used(found)


def _sample(
    subject: Subject,
    window: Window,
    handles: Mapping[int, Any],
    into: Counters,
    over: threading.Event,
) -> None:
    while subject.target.alive:
        at_ns = time.time_ns() - window.began_ns
        pids = [process.pid for process in subject.target.tree()]
        into.processes += [row for pid in pids if (row := _process(at_ns, pid))]
        into.gpus += [_gpu(at_ns, device, handle, pids) for device, handle in handles.items()]
        if over.is_set():
            return
        # One more sample follows at the end.
        over.wait(_EVERY_S)


def _process(at_ns: int, pid: int) -> list[Any] | None:
    """Return a row of process_samples; None for a process that has ended."""
    stat = stat_of(pid)
    if stat is None or stat.ended:
        return None
    running, blocked = _states(pid)
    read, written = _storage(pid)
    return [
        *(at_ns, pid, stat.parent, stat.name, stat.threads, running, blocked),
        *(stat.cpu_ticks * _NS_PER_TICK, stat.resident_pages * _PAGE, read, written),
    ]


def _states(pid: int) -> tuple[int, int]:
    """Return how many threads run, and how many are in uninterruptible waits."""
    states = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError):
                text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
                states.append(text.rpartition(")")[2].split()[0])
    return states.count("R"), states.count("D")


def _storage(pid: int) -> tuple[int | None, int | None]:
    """Return the bytes that a process read from storage and wrote to it so far."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()
        values = dict(line.split(": ") for line in lines)
        return int(values["read_bytes"]), int(values["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None, None


def _gpu(at_ns: int, device: int, handle: Any, pids: list[int]) -> list[Any]:
    """Return a row of gpu_samples; quantities that the GPU does not support are None."""
    import pynvml

    use = ask("nvmlDeviceGetUtilizationRates", handle)
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    power = ask("nvmlDeviceGetPowerUsage", handle)
    clock = ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM)
    name = ask("nvmlDeviceGetName", handle)
    return [
        *(at_ns, device, name.decode() if isinstance(name, bytes) else name),
        *(None if use is None else float(use.gpu), None if memory is None else int(memory.used)),
        _of_program(handle, pids),
        *(None if power is None else power / 1e3, None if clock is None else float(clock)),
    ]


def _of_program(handle: Any, pids: list[int]) -> int | None:
    """Return the memory of processes on a GPU, bytes; None if none of them uses it."""
    using = ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
    own = [one.usedGpuMemory for one in using if one.pid in pids]
    known = [used for used in own if used is not None]
    return sum(known) if known else None


def _keep_used(found: Counters) -> None:
    """Leave out GPUs that the program does not use, if NVML shows which ones it uses."""
    used = {row[1] for row in found.gpus if row[5] is not None}
    if used:
        found.gpus = [row for row in found.gpus if row[1] in used]
