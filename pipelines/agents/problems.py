"""The MCP tool `problem`: what a kernel has to compute, what was tried, and the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe import searchrecord
from perfpipe.analysis.search_decision import Speedup, ranked
from perfpipe.analysis.search_summary import Found, sentences
from perfpipe.errors import StoreError
from perfpipe.pipelines.agents.cutting import first
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.envelope import Answer, Next
from perfpipe.pipelines.agents.judging import DONE, Job, Jobs
from perfpipe.pipelines.agents.wording import captured, plain, sentence, value
from perfpipe.pipelines.searching.disk import SearchDirectory
from perfpipe.pipelines.workload import load_workload
from perfpipe.searchrecord import Attempt, Times, baseline_medians

#: Most judgements and searches of an answer, and characters of the best candidate's files.
_JUDGED, _SEARCHES, _SOURCE = 12, 3, 6_000


@dataclass(frozen=True)
class _Best:
    """A correct candidate with its speedup; `proven` by the confirmation of a search."""

    name: str
    speedup: Speedup
    against: str
    proven: bool
    files: Mapping[str, str]


def problem(desk: Desk, jobs: Jobs, workload: str | None) -> Answer:
    """Return the problem of a workload, or the workloads if there are several."""
    if workload is None and len(jobs.workloads) == 1:
        (workload,) = jobs.workloads
    if workload is None:
        told = [_listed(name, path) for name, path in sorted(jobs.workloads.items())]
        judging = next((one["workload"] for one in told if one["evaluate"]), told[0]["workload"])
        begin = Next("problem", {"workload": judging})
        return Answer({"workloads": told}, rows="workloads", next=begin)
    described = jobs.described(workload)
    if described is None:
        listed = _listed(workload, jobs.path(workload))
        following = Next("try", {"workload": workload}) if listed["try"] else None
        return Answer({"workloads": [listed]}, next=following)
    judged = jobs.judged(workload)
    searches, damaged = _searches(desk, workload)
    best = _best(judged, searches, described["device"])
    data = {
        "problem": _problem(described, _times(judged, searches, described["device"])),
        "best": None if best is None else _told(best),
        "judged": first([_judged(job) for job in reversed(judged)], _JUDGED),
        "searches": first([_searched(found) for _, found in searches], _SEARCHES),
    }
    return Answer(data, rows="judged", warnings=damaged)


def _listed(name: str, path: Path) -> dict[str, Any]:
    """Return what a workload may be run for."""
    workload = load_workload(path)
    return {
        "workload": name,
        "evaluate": workload.evaluate is not None,
        "try": bool(workload.command),
    }


def _times(
    judged: Sequence[Job], searches: Sequence[tuple[SearchDirectory, Found]], device: str
) -> dict[tuple[str, str], float]:
    """Return the latest median time of each baseline and case on this device, ms."""
    tried = [
        times
        for disk, found in reversed(searches)
        if disk.search.device_name == device
        for own in found.attempts
        for times in own.times
    ]
    tried += [times for job in judged for times in _attempt(job).times]
    return baseline_medians(tried)


def _problem(
    described: Mapping[str, Any], times: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    """Return a problem without repetitions, with the known times of baselines."""
    skeleton, reference = described["skeleton"], described["reference"]
    made = {
        **{key: one for key, one in described.items() if key not in ("checked", "workload")},
        "checked": [case["case"] for case in described["checked"]],
        "timed": [_rounded(case) for case in described["timed"]],
        "baselines": [
            {
                "name": own["name"],
                "times_ms": {
                    case: value(times.get((own["name"], case))) for case in own["times_ms"]
                },
            }
            for own in described["baselines"]
        ],
        "baseline_times": "medians of the latest job or search; null: not measured yet",
    }
    if reference is not None and skeleton.startswith(reference.rstrip()):
        made["reference"] = "the first part of skeleton"
    for name in ("skeleton", "reference"):
        if len(made[name] or "") > _SOURCE:
            made[f"{name}_missing"] = f"{len(made[name]):,} characters: too long for an answer"
            made[name] = None
    return made


def _rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _rounded(one) for key, one in found.items()}
    return value(found) if isinstance(found, float) else found


def _judged(job: Job) -> dict[str, Any]:
    """Return a job in short: its verdict, and its speedups by baseline and case."""
    made = job.result or {}
    return {
        "job": job.name,
        "state": job.state,
        "status": made.get("status"),
        "reason": sentence(made.get("reason") or job.reason or None),
        "speedups": {
            f"{row['case']} against {row['against']}": Speedup(
                row["speedup"], row["low"], row["high"], len(row["candidate_ms"])
            ).text
            for row in made.get("scores", ())
        },
    }


def _searches(
    desk: Desk, workload: str
) -> tuple[list[tuple[SearchDirectory, Found]], tuple[str, ...]]:
    """Return the searches of the store on a workload, the newest first, and what is damaged."""
    found, damaged = [], []
    for name in searchrecord.identifiers(desk.store.root):
        try:
            disk = SearchDirectory.read(desk.store, name)
            if disk.search.workload == workload:
                own = Found(tuple(disk.attempts()), disk.search.baseline, disk.search)
                found.append((disk, own))
        except StoreError:
            damaged.append(f"search {name} is skipped: it is damaged; run 'perfpipe store verify'")
    found.sort(key=lambda pair: searchrecord.age(pair[0].search), reverse=True)
    return found, tuple(map(plain, damaged))


def _searched(found: Found) -> dict[str, Any]:
    """Return a search in short, with the reasons of the last failures."""
    failed = [one for one in found.attempts if not one.correct and one.reason]
    search = found.search
    return {
        "search": search.search_id if search else None,
        "device": captured(search.device_name) if search else None,
        "found": [sentence(one) for one in sentences(found)],
        "failed": [
            {"candidate": captured(one.label), "status": one.status, "reason": sentence(one.reason)}
            for one in failed[-5:]
        ],
    }


def _best(
    judged: Sequence[Job], searches: Sequence[tuple[SearchDirectory, Found]], device: str
) -> _Best | None:
    """Return the candidate with the largest lower end of its speedup on this device."""
    found = [_winner(disk, own) for disk, own in searches if disk.search.device_name == device]
    jobs = {job.name: job for job in judged if job.state == DONE and job.result}
    attempts = [_attempt(job) for job in jobs.values()]
    baselines = {times.against for own in attempts for times in own.times}
    for against in sorted(baselines):
        for own, speedup in ranked(attempts, against)[:1]:
            found.append(_Best(own.name, speedup, against, False, jobs[own.name].files))
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: (one.proven, one.speedup.low or 0.0), default=None)


def _winner(disk: SearchDirectory, found: Found) -> _Best | None:
    decision = found.decision
    if decision is None or decision.winner is None:
        return None
    name = decision.winner
    files = {
        str(path.relative_to(disk.files(name))): path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(disk.files(name).rglob("*"))
        if path.is_file()
    }
    label = f"{name} of {disk.search.search_id}"
    return _Best(label, decision.speedups[name], found.baseline, True, files)


def _attempt(job: Job) -> Attempt:
    """Return the result of a job as a candidate, which is ranked by paired times."""
    made = job.result or {}
    times = tuple(
        Times(row["case"], row["against"], tuple(row["candidate_ms"]), tuple(row["baseline_ms"]))
        for row in made.get("scores", ())
    )
    return Attempt(job.name, 0, made.get("status", ""), times=times)


def _told(best: _Best) -> dict[str, Any]:
    whole = sum(map(len, best.files.values()))
    return {
        "candidate": captured(best.name),
        "speedup": best.speedup.text,
        "against": best.against,
        "proven": best.proven,
        "files": dict(best.files) if whole <= _SOURCE else None,
        "files_missing": None
        if whole <= _SOURCE
        else f"{whole:,} characters in {', '.join(map(plain, best.files))}",
    }
