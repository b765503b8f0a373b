"""Projects a step to another GPU: each part of its budget scales with what bounds it.

Kernels scale with their roofs, communication and copies with their links or not at all; host
parts, launches and gaps stay as they are.  A step is never shorter than the host needs to issue it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfpipe.analysis.gate.project.scaling import LEAST_PCT, Ratios, Scaled, Span, Use, hull, scale
from perfpipe.analysis.gate.project.totals import (
    COMMUNICATION,
    COMPUTE,
    DEVICE_COPY,
    HOST_COPY,
    HOST_PARTS,
    MIGRATION,
    PEER_COPY,
    TRANSFER,
    KernelTime,
    Moved,
    Whole,
)


@dataclass(frozen=True)
class Links:
    """How communication and copies change; None if a GPU has no figure for the link."""

    communication: float | None
    host: float | None
    peer: float | None
    device: float


def project_step(
    label: str,
    kind: str,
    budget: Mapping[str, float],
    kernels: Sequence[KernelTime],
    copies: Mapping[str, float],
    host: Span | None,
    to: Ratios,
    links: Links,
    *,
    runs_ahead: bool = False,
) -> Whole:
    """Project a step: `budget` are its parts, ns, and `copies` the time of copies by kind.

    `kernels` are those of its compute part, without communication.  A host that runs ahead never
    waits for the GPU, so its work is hidden as long as the GPU is slower.
    """
    total = sum(budget.values())
    moved = tuple(_moved(kernel, to) for kernel in _filled(kernels, budget.get(COMPUTE, 0.0)))
    parts: list[Moved] = []
    for name, time in budget.items():
        if time <= 0:
            continue
        if name == COMPUTE:
            parts += _summed(name, time, moved)
        elif name == COMMUNICATION:
            only = {COMMUNICATION: links.communication}
            parts += _linked(name, time, {COMMUNICATION: time}, only, total)
        elif name == TRANSFER:
            factors = {HOST_COPY: links.host, PEER_COPY: links.peer, DEVICE_COPY: links.device}
            parts += _linked(name, time, copies, factors, total)
        elif name == MIGRATION:
            parts += _linked(name, time, {HOST_COPY: time}, {HOST_COPY: links.host}, total)
        else:
            parts.append(Moved(name, time, Span(time, time), time, "unchanged"))
    known = [part for part in parts if part.span is not None]
    if not known:
        return Whole(label, kind, total, 0.0, None, None, tuple(parts), moved)
    now = sum(part.now_ns for part in known)
    of_gpu = [part for part in known if part.name not in HOST_PARTS]
    gpu = _total(of_gpu)
    idle = sum(part.now_ns for part in known if part.name in HOST_PARTS)

    def with_host(time: float, shrunk: float) -> float:
        """Return the shortest step with so much work on the GPU, `shrunk` if no kernel grew."""
        # Kernels that grow fill time in which the GPU waits now; those that shrink leave as much.
        found = max(time, shrunk + idle)
        if host is not None and len(known) == len(parts):
            found = max(found, min(host.low, total))
        return found

    leasts = [part.least_ns for part in of_gpu]
    least = None
    if None not in leasts:
        shrunk = _extreme(of_gpu, moved, lambda one: min(one.least_ns or 0.0, one.now_ns))
        least = with_host(sum(one or 0.0 for one in leasts), shrunk)
    shrunk = _extreme(of_gpu, moved, lambda one: min(_span(one).low, one.now_ns))
    # No step gets longer by more than its kernels do; host work may become exposed.
    most = idle + _extreme(of_gpu, moved, lambda one: max(_span(one).high, one.now_ns))
    if host is not None:
        most = min(most, host.high + (idle if runs_ahead else gpu.high))
    span = Span(with_host(gpu.low, shrunk), max(gpu.high + idle, most))
    ordered = tuple(sorted(parts, key=lambda part: (-part.now_ns, part.name)))
    return Whole(label, kind, total, now, span, least, ordered, moved, gpu, host)


def _extreme(
    parts: Sequence[Moved], kernels: Sequence[Moved], pick: Callable[[Moved], float]
) -> float:
    """Return the sum of a field over the parts; for the compute part, over its kernels."""
    total = 0.0
    for part in parts:
        if part.name == COMPUTE:
            known = [kernel for kernel in kernels if kernel.span is not None]
            picked = sum(pick(kernel) for kernel in known)
            total += part.now_ns * picked / sum(kernel.now_ns for kernel in known)
        else:
            total += pick(part)
    return total


def _span(one: Moved) -> Span:
    return one.span if one.span is not None else Span(one.now_ns, one.now_ns)


def project_alone(
    label: str,
    kind: str,
    now_ns: float,
    kernels: Sequence[KernelTime],
    to: Ratios,
    *,
    launches: bool = False,
) -> Whole:
    """Project a time of which only the kernels are known: it scales with their sum.

    With `launches` the time contains launch overhead, of unknown length, which does not change.
    """
    moved = tuple(_moved(kernel, to) for kernel in kernels)
    parts = tuple(_summed(kind, now_ns, moved))
    if not parts:
        parts = (Moved(kind, now_ns, None, None, "unknown", "ncu did not profile its kernels"),)
    if launches:
        parts = tuple(_with_launches(part) for part in parts)
    known = [part for part in parts if part.span is not None]
    if not known:
        return Whole(label, kind, now_ns, 0.0, None, None, parts, moved)
    now = sum(part.now_ns for part in known)
    leasts = [part.least_ns for part in known]
    least = None if None in leasts else sum(one or 0.0 for one in leasts)
    span = _total(known)
    return Whole(label, kind, now_ns, now, span, least, parts, moved, span)


def _with_launches(part: Moved) -> Moved:
    """Return a part that may consist of launch overhead, which does not change."""
    if part.span is None:
        return part
    span = hull([part.span, Span(part.now_ns, part.now_ns)])
    return replace(part, span=span, least_ns=None, by="its kernels, or unchanged")


def _moved(kernel: KernelTime, to: Ratios) -> Moved:
    scaled: Scaled = scale(kernel.use, to)
    time = kernel.time_ns
    return Moved(
        kernel.name,
        time,
        None if scaled.kept is None else scaled.kept * time,
        None if scaled.least is None else scaled.least * time,
        scaled.by,
        scaled.reason,
        kernel,
    )


def _filled(kernels: Sequence[KernelTime], compute_ns: float) -> list[KernelTime]:
    """Return the kernels, and one more for hidden work: graphs traced as a whole."""
    seen = sum(kernel.time_ns for kernel in kernels)
    rest = compute_ns - seen
    if rest * 100 < LEAST_PCT * compute_ns:
        return [*kernels]
    hidden = KernelTime("work in CUDA graphs traced as a whole", "", "", rest, Use(None, None, {}))
    return [*kernels, hidden]


def _summed(name: str, time: float, kernels: Sequence[Moved]) -> Iterable[Moved]:
    """Yield the compute part: the known share and the unknown one.

    Kernels that overlap on the GPU take less of the step than their times add up to: they shrink as
    the sum does.
    """
    total = sum(kernel.now_ns for kernel in kernels)
    if total <= 0:
        return
    share = time / total
    known = [kernel for kernel in kernels if kernel.span is not None]
    if known:
        leasts = [kernel.least_ns for kernel in known]
        least = None if None in leasts else share * sum(one or 0.0 for one in leasts)
        now = share * sum(kernel.now_ns for kernel in known)
        yield Moved(name, now, _total(known) * share, least, "its kernels")
    unknown: dict[str, float] = {}
    for kernel in kernels:
        if kernel.span is None:
            reason = kernel.reason or ""
            unknown[reason] = unknown.get(reason, 0.0) + share * kernel.now_ns
    for reason, now in unknown.items():
        yield Moved(name, now, None, None, "unknown", reason)


#: Why the change of a link is unknown.
_NO_LINK = {
    COMMUNICATION: "one of the GPUs has no vendor figure for the link between GPUs",
    HOST_COPY: "one of the GPUs has no vendor figure for the link to the host",
    PEER_COPY: "one of the GPUs has no vendor figure for the link between GPUs",
}


def _linked(
    name: str,
    time: float,
    kinds: Mapping[str, float],
    factors: Mapping[str, float | None],
    total: float,
) -> Iterable[Moved]:
    """Yield a part that keeps its time or scales with its link, by kind of copy."""
    everything = sum(kinds.values())
    for kind, own in kinds.items() if everything > 0 else [(name, time)]:
        now = time * own / everything if everything > 0 else time
        factor = factors.get(kind)
        title = name if len(kinds) < 2 else f"{name} ({kind})"
        if factor is not None:
            span = hull([Span(1, 1), Span(factor, factor)]) * now
            yield Moved(title, now, span, min(factor, 1.0) * now, "its link, or unchanged")
        elif now * 100 < LEAST_PCT * total:
            why = f"{_NO_LINK.get(kind, 'its copies are unknown')}; too short to matter"
            yield Moved(title, now, Span(now, now), now, "unchanged", why)
        else:
            why = _NO_LINK.get(kind, "its copies are unknown")
            yield Moved(title, now, None, None, "unknown", why)


def _total(parts: Iterable[Moved]) -> Span:
    spans = [part.span for part in parts if part.span is not None]
    return Span(sum(span.low for span in spans), sum(span.high for span in spans))
