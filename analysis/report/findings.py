"""Findings and recommendations in words, from the views of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from perfpipe.analysis.finding_files import FindingFile
from perfpipe.analysis.knowledge import techniques
from perfpipe.analysis.questions import question
from perfpipe.analysis.report import tried
from perfpipe.analysis.report.profiled import limiter
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import records_of, rows_of
from perfpipe.analysis.sentences import rendered
from perfpipe.analysis.words import assumption, finding_files, says, word
from perfpipe.database import quote, same
from perfpipe.units import counted, format_bytes, format_ns, gpu_name, words
from perfpipe.viewmodel import Finding, Recommendation, Source, with_bound

#: Views that are read here.
VIEWS = (
    "findings",
    "recommendations",
    "_report_pairs",
    "_labels",
    "_step_kernels",
    "analysis_windows",
    "step_times",
    *(file.view for file in finding_files().values()),
    *tried.VIEWS,
)

#: Maximum number of recommendations on kernels; letters of a configuration in a sentence.
_MOST, _LABEL = 10, 40


#: The whole of which a part of the timeline is a share.
_PARTS = {
    "steady": "the steady steps",
    "whole": "the time from the first to the last GPU operation",
    "startup": "start-up and warm-up",
    "step": "the step",
    "capture": "the capture (not of the steps)",
    "window": "the captured window of the load",
    "loop": "the steps after warm-up",
    "between": (
        "the time from the first steady step to the last (steps lengthened by this idle time are "
        "excluded)"
    ),
}

#: The whole of a share, by share_of.
_WHOLES = {
    "step": "the step",
    "steps": "the total step time of all timelines",
    "timeline": "the GPU's time",
    "timed": "the timed part of the benchmark",
    "capture": "the capture",
    "between": "the time from the first steady step to the last",
    "loop": "the steps after warm-up",
    "profile": "profiled time",
    "window": "the captured window of the load",
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
    idle_line: str | None
    idle_in: str | None
    causes: str | None
    largest_gap: str | None
    ncu_verdict: str | None
    explanation: str | None
    notable: str | None
    bound_pct: float | None
    most_pct: float
    floor: str | None
    nvidia_pct: float | None
    confidence: str
    technique: str | None
    reports: list[str]
    whole: str = ""

    @property
    def of(self) -> str:
        """The whole of its shares."""
        return self.whole or _WHOLES[self.share_of]


def findings_of(scope: Scope) -> list[Finding]:
    """Return the findings, those on timelines first."""
    sql = f"SELECT {', '.join(_Found._fields[:-1])} FROM findings ORDER BY rank"
    found = [_Found(*row) for row in rows_of(scope.con, sql)]
    if any(one.share_of == "steps" for one in found):
        found = _of_own_steps(scope, found)
    several = len(scope.reports) > 1
    known = tried.tried_of(scope.con, scope.reports)
    told = []
    for one in found:
        finding = _of_kernel(one) if one.subject == "kernel" else _of_gpu(scope, one, several)
        outcome = tried.outcome(known, one.reports, one.technique)
        if outcome is not None:
            finding = replace(
                finding,
                tried=outcome.sentence(),
                tried_pct=outcome.gained.gain_pct if outcome.measured else None,
                helped=outcome.helps,
            )
        told.append(
            replace(finding, command=_command(one, scope.run.run_id if scope.run else None))
        )
    return told


def _of_own_steps(scope: Scope, found: Sequence[_Found]) -> list[_Found]:
    """Return findings on kernels with the step of their configuration as the whole.

    The view refers to the steps of all timelines, so that findings can be compared; the step of a
    configuration is what a reader knows.  Kernels of several configurations are left as they are.
    """
    sql = """
        SELECT p.ncu_report_id, any_value(l.label), list(DISTINCT p.report_id)
        FROM _report_pairs AS p JOIN _labels AS l ON l.report_id = p.report_id
        GROUP BY p.ncu_report_id
    """
    pairs = {ncu: (label, {*own}) for ncu, label, own in rows_of(scope.con, sql)}
    sql = """
        SELECT report_id, sum((w.end_ns - w.start_ns) / coalesce(work_scale, 1))
        FROM analysis_windows AS w LEFT JOIN step_times USING (report_id, device)
        SEMI JOIN _step_kernels USING (report_id, device)
        GROUP BY report_id
    """
    windows = dict(rows_of(scope.con, sql))
    told = []
    for one in found:
        timelines = set().union(*(pairs[r][1] for r in one.reports if r in pairs))
        if one.share_of == "steps" and len(timelines) == 1 and timelines <= windows.keys():
            times = sum(windows.values()) / windows[next(iter(timelines))]
            label = next(pairs[report][0] for report in one.reports if report in pairs)
            whole = label if len(label) <= _LABEL else "its configuration"
            one = _scaled(one, times)._replace(whole=f"the step of {whole}")
        told.append(one)
    return told


def _scaled(found: _Found, times: float) -> _Found:
    """Return a finding with its shares multiplied."""

    def scaled(pct: float | None) -> float | None:
        return None if pct is None else pct * times

    return found._replace(
        share_pct=scaled(found.share_pct),
        headroom_pct=scaled(found.headroom_pct),
        bound_pct=scaled(found.bound_pct),
        most_pct=found.most_pct * times,
    )


def _command(found: _Found, run_id: str | None) -> str:
    about = {"kernel": found.kernel_name or "", "bound": found.bound}
    of = ("code", "idle_line") if found.idle_line else (found.subject, found.claim)
    return question(*of, found.reports, run_id, **about)


def _finding(found: _Found, claim: str, evidence: str, subject: str, kernel: str) -> Finding:
    return Finding(
        claim=claim,
        evidence=evidence,
        bound_pct=found.bound_pct,
        bound=_bound(found.bound_pct, found.of, [found.floor] if found.floor else []),
        confidence=found.confidence,
        subject=subject,
        advice=techniques()[found.technique].technique if found.technique else "",
        source=Source("findings", tuple(found.reports)),
        kernel=kernel,
        share_pct=found.share_pct,
        most_pct=found.most_pct,
        share=_share(found.share_pct, found.of),
        setup=found.claim == "setup",
    )


def whole(share_of: str) -> str:
    """Return the whole of a share (findings, kernel_classes)."""
    return _WHOLES[share_of]


def _share(share_pct: float | None, of: str) -> str:
    return "" if share_pct is None else f"{share_pct:.1f} % of {of}"


def _bound(gain_pct: float | None, of: str, floors: Sequence[str]) -> str:
    """Return a bound on a gain with its assumptions, empty if there is none."""
    if gain_pct is None:
        return ""
    assumed = ", or if ".join(assumption(floor) for floor in floors)
    return f"up to {gain_pct:.1f} % of {of}, if {assumed}"


def _of_kernel(found: _Found) -> Finding:
    detail = ", ".join(words(part) for part in (found.subclass, found.cause) if part)
    detail = f" ({detail})" if detail else ""
    limit = ""
    if found.claim == "near_limit":
        detail, limit = "", f", bound by {limiter(found.bound, found.subclass)}"
    says, colon, why = word("kernel", found.claim, "says").partition(": ")
    claim = f"{found.short_name} {says}{limit}{detail}{colon}{why}"
    if found.subclass == "dram_unknown":
        claim = f"{found.short_name} is bound by {limiter(found.bound, found.subclass)}"
    launches = f"{counted(found.launches, 'launch')} profiled"
    share = f"{launches}, durations were not collected"
    if found.share_pct is not None:
        share = f"the kernel takes {found.share_pct:.1f} % of {found.of} "
        share += f"({launches}, {format_ns(found.time_ns)})"
    sol = {"compute SOL": found.compute_sol_pct, "memory SOL": found.memory_sol_pct}
    if found.notable:
        share = f"{found.notable}, and {share}"
    known = [f", {name} {pct:.1f} %" for name, pct in sol.items() if pct is not None]
    evidence = [share + "".join(known)]
    if found.headroom_pct is not None and found.subclass != "dram_unknown":
        evidence[0] += f"; SOL headroom {found.headroom_pct:.1f} % of {found.of}"
    if found.nvidia_pct is not None:
        evidence.append(
            f"NVIDIA's estimate for the first technique: "
            f"{found.nvidia_pct:.0f} % of the kernel's time"
        )
    evidence += [f"NVIDIA's verdict: {found.ncu_verdict}"] if found.ncu_verdict else []
    evidence += [found.explanation] if found.explanation else []
    subject = f"{found.short_name} <<<{found.grid}; {found.block}>>>"
    subject += f" in {found.nvtx_path}" if found.nvtx_path else ""
    return _finding(found, claim, "; ".join(evidence), subject, found.short_name)


def _of_gpu(scope: Scope, found: _Found, several: bool) -> Finding:
    share = f"{found.share_pct:.1f} % of {_PARTS[found.part or 'whole']}"
    own = finding_files().get(found.claim)
    if own is not None:
        claim, evidence = _of_file(scope, own, found, share)
    else:
        claim = says(found.claim, found.share_pct)
        late = found.last_rank if found.last_cause is not None else found.for_rank
        if late is not None and found.claim == "ranks_wait":
            claim = word("timeline", found.claim, "says_rank").format(rank=late)
        evidence = "; ".join(_of_category(found, share))
    if found.confidence == "low":
        evidence += "; low confidence: the trace lost events or hides kernels in CUDA graphs"
    label = found.label if found.label != "-" else None
    claim = f"{gpu_name(found.device)} {claim}" + (f" ({label})" if several and label else "")
    subject = gpu_name(found.device) + (f" in {label}" if label else "")
    return _finding(found, claim, evidence, subject, "")


def _of_file(scope: Scope, file: FindingFile, found: _Found, share: str) -> tuple[str, str]:
    """Return the claim of a finding with a file of its own, and its evidence, from its view."""
    each = f"AND {file.each} = {quote(found.subclass or '')}" if file.each else ""
    sql = (
        f"FROM {file.view} WHERE report_id = {quote(found.reports[0])} "
        f"AND {same('device', found.device)} {each} ORDER BY {file.largest} DESC LIMIT 1"
    )
    (row,) = records_of(scope.con, sql)
    names = {**row, "share": share, "words": file.words}
    return rendered(file.says, names), rendered(file.evidence, names)


def _of_category(found: _Found, share: str) -> list[str]:
    """Return the evidence of a finding about a category of the budget."""
    # A bound on all idle time is more than the share: say of what.
    of_idle = found.floor in ("busy", "synced", "unsynced")
    where = found.idle_line or found.idle_in
    joint = ", " if where or found.for_rank is not None else ", and "
    idle = f"{joint}removable idle time is {found.bound_pct:.1f} %" if of_idle else ""
    lies = f", and {where}" if where else ""
    if found.for_rank is not None:
        lies = f", because rank {found.for_rank} is late (the advice is for rank {found.for_rank})"
    evidence = [f"{_part(found.bound)} takes {share}{_prepared(found)}{idle}{lies}"]
    if found.readbacks is not None:
        evidence = [_readbacks(found), f"the GPU then idles for {share}"]
    evidence = [*([found.causes] if found.causes else []), *evidence]
    evidence += _waiting(found)
    evidence += [f"longest interval: {found.largest_gap}"] if found.largest_gap else []
    return evidence


def _part(bound: str) -> str:
    """Return the name of a category of the budget, or of another cause, in a sentence."""
    try:
        return word("category", bound, "part")
    except KeyError:
        own = (file.words for file in finding_files().values() if bound in file.words)
        return next(own, {}).get(bound) or words(bound)


def _prepared(found: _Found) -> str:
    """Return how much of launch overhead is before one launch that the host prepares repeatedly."""
    if found.slow_pct is None:
        return ""
    return (
        f" ({found.slow_pct:.1f} % in long intervals before one recurring launch, "
        "which a CUDA graph removes only if shapes are static)"
    )


def _readbacks(found: _Found) -> str:
    size = format_bytes(found.readback_bytes or 0)
    many = f"the host waits for {counted(found.readbacks or 0, 'copy')} of up to {size}"
    if found.readbacks_per_step is not None:
        many += f" ({found.readbacks_per_step:.1f} per step)"
    return f"{many}, and {found.idle_line}" if found.idle_line else many


def _waiting(found: _Found) -> list[str]:
    """Return how much of communication is waiting, for which rank, and why that rank is late."""
    if found.waiting_pct is None:
        return []
    told = [f"{found.waiting_pct:.1f} % of the time in collectives is waiting"]
    if found.claim == "start_skew":
        return [f"{told[0]}, and {found.start_pct:.0f} % of the waiting is in the first collective"]
    if found.last_rank is not None:
        told.append(
            f"rank {found.last_rank} arrives last in {found.last_pct:.0f} % of the collectives"
        )
        if found.last_cause is not None and found.last_excess_ns is not None:
            more = format_ns(found.last_excess_ns) + " more"
            more += " per step" if found.part == "steady" else ""
            told.append(
                f"rank {found.last_rank} spends {more} on {words(found.last_cause)} "
                "than the rank of this GPU"
            )
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
    known = tried.tried_of(scope.con, scope.reports)
    return [_recommendation(scope, number + 1, item, known) for number, item in enumerate(kept)]


def _recommendation(
    scope: Scope, number: int, advice: _Advice, known: tried.Tried
) -> Recommendation:
    item = techniques()[advice.technique]
    reason, gain = _on_kernels(advice) if advice.subject == "kernel" else _on_gpus(advice)
    outcome = tried.outcome(known, scope.reports, advice.technique)
    if outcome is not None:
        measured = outcome.gained.gain_pct if outcome.measured else None
        gain = with_bound(outcome.sentence(), measured, gain)
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
    return f"{_part(advice.bound)}{gpus} ({share})", _gain(advice)


def _gain(advice: _Advice) -> str:
    return (
        _bound(advice.gain_pct, _WHOLES[advice.share_of], advice.floors or [])
        or "no known bound on the gain"
    )


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
        gain += f"; NVIDIA's estimate for the longest launch: {advice.nvidia_pct:.0f} % of its time"
    if advice.saved_bytes and advice.share_of == "profile":
        gain += f", {format_bytes(advice.saved_bytes)} less traffic"
    if advice.secondary:
        gain += "; secondary, because little can be gained"
    return reason, gain


#: The parts of a kernel's class.
_CLASS = ("bound", "subclass", "cause")
