"""Findings and recommendations in words, from the views of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.questions import question
from perfpipe.analysis.report.assumed import assumption
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.units import counted, format_bytes, format_ns, gpu_name, words
from perfpipe.viewmodel import Finding, Recommendation, Source

#: Views that are read here.
VIEWS = ("findings", "recommendations")

#: Claims about a kernel.
_OF_KERNEL = {
    "compute": "is compute-bound",
    "memory": "is memory-bound",
    "latency": "is latency-bound: neither compute nor memory is busy",
    "launch": "is too small to fill the GPU",
    "balanced": "is balanced between compute and memory",
}

#: Claims about a GPU.
_OF_GPU = {
    "launch_overhead": "idles, launch-bound (CPU-limited): the host issues work too slowly",
    "sync": "idles: the host synchronized with it before issuing more work",
    "host": "idles, host-bound: the host launches nothing",
    "loading": "idles while the driver loads code: first uses of kernels, modules",
    "kernel_gap": "idles between operations that were already launched",
    "transfer": "copies or clears memory without overlapping compute",
    "communication": "communicates without overlapping compute",
    "ranks_wait": "waits for other ranks in collectives",
    "start_skew": "waits once, in the first collective: the ranks started apart",
    "readback": "runs dry for small copies to the host",
    "startup": "takes long to start",
    "process_starts": "idles between steps while the program starts processes, as for each epoch",
    "single_precision": "computes in FP32",
}

#: Operators of many kernels.
_OPERATORS = {
    "cross_entropy": "cross-entropy: from the logits to their gradient",
    "batch_norm": "batch norm and what surrounds it between convolutions",
    "fixed_batch_norm": "batch norm of inference and what surrounds it between convolutions",
    "normalization": "normalization and the pointwise kernels around it",
    "softmax": "softmax between two matrix products",
    "pointwise": "pointwise kernels between matrix products",
    "layout": "conversions between memory layouts",
    "optimizer": "an optimizer that launches a kernel for each operation",
}

#: Maximum number of recommendations on kernels in a report.
_MOST = 10


#: What a share of a part of the timeline is a share of.
_PARTS = {
    "steady": "the steady steps",
    "whole": "the time between first and last operation",
    "startup": "start-up and warm-up",
    "step": "the step",
    "capture": "the capture, not of the steps",
    "between": (
        "the time from the first steady step to the last (steps that it lengthens are left out)"
    ),
}

#: What a share is of, by share_of.
_WHOLES = {
    "step": "the step",
    "steps": "the steps of all timelines",
    "timeline": "the GPU's time",
    "timed": "what the benchmark times",
    "capture": "the capture",
    "between": "the time from the first steady step to the last",
    "profile": "profiled time",
}


class _Found(NamedTuple):
    """A row of the view findings."""

    subject: str
    claim: str
    bound: str
    subclass: str | None
    cause: str | None
    label: str | None
    device: int | None
    kernel_name: str
    short_name: str
    grid: str
    block: str
    nvtx_path: str | None
    part: str | None
    share_of: str
    share_pct: float | None
    time_ns: float
    launches: int
    compute_sol_pct: float | None
    memory_sol_pct: float | None
    headroom_pct: float | None
    waiting_pct: float | None
    start_pct: float | None
    last_rank: int | None
    last_pct: float | None
    last_cause: str | None
    last_excess_ns: float | None
    for_rank: int | None
    readbacks: int | None
    readbacks_per_step: float | None
    readback_bytes: int | None
    slow_pct: float | None
    idle_in: str | None
    causes: str | None
    largest_gap: str | None
    ncu_verdict: str | None
    explanation: str | None
    bound_pct: float | None
    most_pct: float
    floor: str | None
    nvidia_pct: float | None
    confidence: str
    technique: str | None
    reports: list[str]


def findings_of(scope: Scope) -> list[Finding]:
    """Return the findings, those on timelines first."""
    sql = f"SELECT {', '.join(_Found._fields)} FROM findings ORDER BY rank"
    found = (_Found(*row) for row in rows_of(scope.con, sql))
    several = len(scope.reports) > 1
    told = []
    for one in found:
        finding = _of_kernel(one) if one.subject == "kernel" else _of_gpu(one, several)
        told.append(
            replace(finding, command=_command(one, scope.run.run_id if scope.run else None))
        )
    return told


def _command(found: _Found, run_id: str | None) -> str:
    about = {"kernel": found.kernel_name or "", "bound": found.bound}
    return question(found.subject, found.claim, found.reports, run_id, **about)


def _finding(found: _Found, claim: str, evidence: list[str], subject: str, kernel: str) -> Finding:
    return Finding(
        claim=claim,
        evidence="; ".join(evidence),
        bound_pct=found.bound_pct,
        bound=_bound(found.bound_pct, found.share_of, [found.floor] if found.floor else []),
        confidence=found.confidence,
        subject=subject,
        advice=techniques()[found.technique].technique if found.technique else "",
        source=Source("findings", tuple(found.reports)),
        kernel=kernel,
        share_pct=found.share_pct,
        most_pct=found.most_pct,
    )


def whole(share_of: str) -> str:
    """Return what a share is of (findings, kernel_classes)."""
    return _WHOLES[share_of]


def _bound(gain_pct: float | None, share_of: str, floors: Sequence[str]) -> str:
    """Return a bound on a gain with its assumptions, empty if there is none."""
    if gain_pct is None:
        return ""
    assumed = " or ".join(assumption(floor) for floor in floors)
    return f"at most {gain_pct:.1f} % of {_WHOLES[share_of]}, assuming {assumed}"


def _of_kernel(found: _Found) -> Finding:
    detail = ", ".join(words(part) for part in (found.subclass, found.cause) if part)
    detail = f" ({detail})" if detail else ""
    if found.claim == "near_limit":
        claim = f"{found.short_name} is close to speed of light: {found.bound}{detail}"
    else:
        claim = f"{found.short_name} {_OF_KERNEL[found.claim]}{detail}"
    launches = f"{counted(found.launches, 'launch')} profiled"
    share = f"{launches}, durations were not collected"
    if found.share_pct is not None:
        of = _WHOLES[found.share_of]
        share = f"{found.share_pct:.1f} % of {of} ({launches}, {format_ns(found.time_ns)})"
    sol = {"compute SOL": found.compute_sol_pct, "memory SOL": found.memory_sol_pct}
    known = [f", {name} {pct:.1f} %" for name, pct in sol.items() if pct is not None]
    evidence = [share + "".join(known)]
    if found.headroom_pct is not None:
        evidence[0] += f"; SOL headroom at unchanged work {found.headroom_pct:.1f} %"
    if found.nvidia_pct is not None:
        evidence.append(
            f"NVIDIA's estimate for the first advice: {found.nvidia_pct:.0f} % of its time"
        )
    evidence += [f"NVIDIA: {found.ncu_verdict}"] if found.ncu_verdict else []
    evidence += [found.explanation] if found.explanation else []
    subject = f"{found.short_name} <<<{found.grid}; {found.block}>>>"
    subject += f" in {found.nvtx_path}" if found.nvtx_path else ""
    return _finding(found, claim, evidence, subject, found.short_name)


def _of_gpu(found: _Found, several: bool) -> Finding:
    claim = _OF_GPU.get(found.claim, f"spends time on {words(found.claim)}")
    share = f"{found.share_pct:.1f} % of {_PARTS[found.part or 'whole']}"
    # A bound on all idle time is more than the share: say of what.
    of_idle = found.floor in ("busy", "synced", "unsynced")
    idle = f", removable idle time {found.bound_pct:.1f} %" if of_idle else ""
    lies = f": {found.idle_in}" if found.idle_in else ""
    if found.for_rank is not None:
        lies = f", since rank {found.for_rank} is late: the advice is for rank {found.for_rank}"
    evidence = [f"{words(found.bound)} is {share}{_prepared(found)}{idle}{lies}"]
    if found.readbacks is not None:
        evidence = [_readbacks(found), f"the GPU is idle after them for {share}"]
    if found.claim == "operator":
        claim = f"spends time on {_OPERATORS[found.subclass or '']}"
        evidence = [_operator(found, share)]
    elif found.claim == "single_precision":
        evidence = [f"kernels whose names state FP32 or TF32 are {_operator(found, share)}"]
    elif found.claim == "process_starts":
        times = counted(found.launches, "time")
        evidence = [f"{times}, {format_ns(found.time_ns)} in all, {share}"]
    elif found.causes is not None:
        begun = f"{format_ns(found.time_ns)} between the first CUDA call and the first steady step"
        evidence = [f"{begun}, {share}", found.causes]
    evidence += _waiting(found)
    evidence += [f"longest interval: {found.largest_gap}"] if found.largest_gap else []
    if found.confidence == "low":
        evidence.append("low confidence: the trace misses events, or hides kernels in graphs")
    label = found.label if found.label != "-" else None
    claim = f"{gpu_name(found.device)} {claim}" + (f" ({label})" if several and label else "")
    subject = gpu_name(found.device) + (f" in {label}" if label else "")
    return _finding(found, claim, evidence, subject, "")


def _prepared(found: _Found) -> str:
    """Return how much of launch overhead is one launch that the host prepares each time anew."""
    if found.slow_pct is None:
        return ""
    return (
        f" ({found.slow_pct:.1f} % in long intervals before the same launch each time, "
        "which a CUDA graph removes only if shapes are static)"
    )


def _operator(found: _Found, share: str) -> str:
    """Return what an operator costs, and its kernels."""
    each = f": {counted(found.launches, 'launch')} a step" if found.launches else ""
    each += f", {format_ns(found.time_ns)}" if each else ""
    return f"{share}{each}; most of it {found.causes}"


def _readbacks(found: _Found) -> str:
    size = format_bytes(found.readback_bytes or 0)
    many = f"{found.readbacks:,} copies of up to {size} that the host waits for"
    if found.readbacks_per_step is not None:
        many += f", {found.readbacks_per_step:.1f} a step"
    return many


def _waiting(found: _Found) -> list[str]:
    """Return how much of communication is waiting, for which rank, and why that one is late."""
    if found.waiting_pct is None:
        return []
    told = [f"{found.waiting_pct:.1f} % of the time in collectives is waiting"]
    if found.claim == "start_skew":
        return [f"{told[0]}, {found.start_pct:.0f} % of that in the first one"]
    if found.last_rank is not None:
        told.append(f"rank {found.last_rank} arrives last in {found.last_pct:.0f} % of them")
        if found.last_cause is not None and found.last_excess_ns is not None:
            more = format_ns(found.last_excess_ns) + " more"
            more += " a step" if found.part == "steady" else ""
            told.append(f"it spends {more} on {words(found.last_cause)} than this one")
    return told


class _Advice(NamedTuple):
    """A row of the view recommendations."""

    subject: str
    technique: str
    difficulty: str
    bound: str
    share_of: str
    share_pct: float
    gain_pct: float | None
    floors: list[str] | None
    nvidia_pct: float | None
    saved_bytes: float | None
    secondary: bool | None
    instances: int
    kernels: list[dict[str, Any]]


def recommendations_of(scope: Scope) -> list[Recommendation]:
    """Return what to try: on timelines first, then on the first kernels."""
    sql = f"SELECT {', '.join(_Advice._fields)} FROM recommendations ORDER BY rank"
    advice = [_Advice(*row) for row in rows_of(scope.con, sql)]
    kept = [item for item in advice if item.subject != "kernel"]
    kept += [item for item in advice if item.subject == "kernel"][:_MOST]
    return [_recommendation(scope, number + 1, item) for number, item in enumerate(kept)]


def _recommendation(scope: Scope, number: int, advice: _Advice) -> Recommendation:
    item = techniques()[advice.technique]
    reason, gain = _on_kernels(advice) if advice.subject == "kernel" else _on_gpus(advice)
    return Recommendation(
        number,
        item.technique,
        reason,
        item.check_first,
        gain,
        advice.difficulty,
        item.link,
        item.detail,
        Source("recommendations", scope.reports),
    )


def _on_gpus(advice: _Advice) -> tuple[str, str]:
    """Return the reason for a recommendation, and its possible gain."""
    gpus = f" on {advice.instances} GPU timelines" if advice.instances > 1 else ""
    share = f"{advice.share_pct:.1f} % of {_WHOLES[advice.share_of]}"
    return f"{words(advice.bound)}{gpus}, {share}", _gain(advice)


def _gain(advice: _Advice) -> str:
    return _bound(advice.gain_pct, advice.share_of, advice.floors or []) or "no bound known"


def _on_kernels(advice: _Advice) -> tuple[str, str]:
    """Return the reason for a recommendation, and its possible gain."""
    names = sorted(
        f"{kernel['name']} ({', '.join(words(kernel[k]) for k in _CLASS if kernel[k])})"
        for kernel in advice.kernels
    )
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    reason = (
        f"{', '.join(names[:3])}{more}: {counted(advice.instances, 'launch')} profiled, "
        f"{advice.share_pct:.1f} % of {_WHOLES[advice.share_of]}"
    )
    gain = _gain(advice)
    if advice.nvidia_pct is not None:
        gain += f"; NVIDIA's estimate for the longest: {advice.nvidia_pct:.0f} % of its time"
    if advice.saved_bytes and advice.share_of == "profile":
        gain += f", {format_bytes(advice.saved_bytes)} less traffic"
    if advice.secondary:
        gain += "; secondary: it leaves little to gain"
    return reason, gain


#: The parts of a kernel's class.
_CLASS = ("bound", "subclass", "cause")
