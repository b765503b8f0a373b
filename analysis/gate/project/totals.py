"""Projected total of a step (or of the whole run without steps), with its parts and kernels."""

from __future__ import annotations

from dataclasses import dataclass

from perfpipe.analysis.gate.project.scaling import Span, Use

#: Parts of a budget that are work on the GPU.
COMPUTE, COMMUNICATION, TRANSFER = "compute", "communication", "transfer"
MIGRATION = "migration"

#: Parts in which the GPU waits for the host.
HOST_PARTS = (
    *("host", "launch_gap", "launch_api", "queued", "sync"),
    *("loading", "profiler_overhead"),
)

#: Kinds of copies: between host and device, between devices, within a device.
HOST_COPY, PEER_COPY, DEVICE_COPY = "host", "peer", "device"

#: Kinds of a whole.
STEP, CAPTURE, ITERATION, KERNELS = "step", "capture", "iteration", "profiled kernels"


@dataclass(frozen=True)
class KernelTime:
    """The time of a kernel in a step, ns, and how it uses its GPU."""

    name: str
    grid: str
    block: str
    time_ns: float
    use: Use


@dataclass(frozen=True)
class Moved:
    """A part, or a kernel, now and on the other GPU; times in ns.

    `span` is the time on the other GPU if it uses both equally well, `least_ns` the same work at
    100 % of the other GPU's roofs; both are None if unknown, with the `reason`.
    """

    name: str
    now_ns: float
    span: Span | None
    least_ns: float | None
    by: str
    reason: str | None = None
    kernel: KernelTime | None = None


@dataclass(frozen=True)
class Whole:
    """A step (or the whole that replaces it) with its parts and kernels.

    `span` covers the known parts, which take `known_ns` now.  `gpu` is the projected time of the
    GPU's own work and gaps; `host` is the time to issue it, None if unknown.
    """

    label: str
    kind: str
    now_ns: float
    known_ns: float
    span: Span | None
    least_ns: float | None
    parts: tuple[Moved, ...]
    kernels: tuple[Moved, ...]
    gpu: Span | None = None
    host: Span | None = None

    @property
    def faster(self) -> Span | None:
        """How many times as fast the known parts would be."""
        if self.span is None or self.span.low <= 0:
            return None
        return Span(self.known_ns / self.span.high, self.known_ns / self.span.low)

    @property
    def host_decides(self) -> bool:
        """Whether the host is slower than the GPU would be, even at its slowest."""
        if self.gpu is None or self.host is None or self.known_ns < self.now_ns * (1 - 1e-9):
            return False
        return self.host.low > self.gpu.high

    @property
    def profiled_pct(self) -> float | None:
        """Share of the kernel time that ncu profiled, %; None without kernels."""
        total = sum(kernel.now_ns for kernel in self.kernels)
        of = (k.now_ns for k in self.kernels if k.kernel is not None and k.kernel.use.profiled)
        return 100 * sum(of) / total if total > 0 else None
