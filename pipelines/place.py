"""The machine and the GPUs that programs run on, as results state them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

from perfpipe.provenance import utc_now
from perfpipe.runrecord import Ran
from pipelines.collectors.nvml import handles_of
from pipelines.launcher import Launcher


def stopwatch(launcher: Launcher, env: Mapping[str, str]) -> Callable[[], Ran]:
    """Return what says, when called, where and how long something ran since now."""
    started_at, began = utc_now(), time.monotonic()

    def ran() -> Ran:
        seconds = round(time.monotonic() - began, 3)
        here = launcher.here
        return Ran(
            started_at=started_at,
            ended_at=utc_now(),
            seconds=seconds,
            host=host_name() if here else None,
            gpus=gpu_uuids(env) if here else None,
        )

    return ran


def host_name() -> str:
    """Return the name of this machine, as a scheduler calls it where there is one."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def gpu_uuids(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a program with more environment sees; empty if none."""
    import pynvml

    found, _ = handles_of({**os.environ, **env})
    uuids = (pynvml.nvmlDeviceGetUUID(handle) for handle in found.values())
    return tuple(u.decode() if isinstance(u, bytes) else u for u in uuids)
