"""Starts and continues searches."""

from __future__ import annotations

import hashlib
import json
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfpipe import searchrecord
from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.console import progress, say
from perfpipe.pipelines.evaluate.describing import problem_data
from perfpipe.pipelines.evaluate.device import device_name, device_of, pytorch
from perfpipe.pipelines.evaluate.judge import Judge, Options
from perfpipe.pipelines.evaluate.load import Loaded, loaded
from perfpipe.pipelines.evaluate.profiling import case_of
from perfpipe.pipelines.evaluate.profiling import profile as profile_of
from perfpipe.pipelines.evaluate.result import Judgement
from perfpipe.pipelines.runs import new_id
from perfpipe.pipelines.searching.confirming import confirm
from perfpipe.pipelines.searching.disk import SearchDirectory
from perfpipe.pipelines.searching.proposing import Agent, Given, Parameters, Person, Proposer
from perfpipe.pipelines.searching.session import Clock, Profiler, Session
from perfpipe.pipelines.selection import by_prefix
from perfpipe.pipelines.signals import Ended
from perfpipe.pipelines.tools import find_tool
from perfpipe.pipelines.workload import load_workload
from perfpipe.provenance import provenance, utc_now
from perfpipe.scratch import scratch
from perfpipe.searchrecord import Search, Settings
from perfpipe.secrets import HIDDEN
from perfpipe.store import Store

#: Launches by which a baseline is chosen among several.
_CHOOSING = 3


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; `agent` has the words as given, with secrets."""

    settings: Settings
    agent: tuple[str, ...] = ()
    candidates: tuple[Path, ...] = ()
    device: str = "auto"
    baseline: str | None = None
    seed: int | None = None
    workloads: Path | None = None
    profile: bool | None = None


def start(store: Store, workload: Path, asked: Asked) -> SearchDirectory:
    """Search from the beginning, and return the search; raises InputError for invalid input."""
    began = time.monotonic()
    torch = pytorch()
    where = device_of(torch, asked.device)
    with scratch() as folder:
        own = loaded(torch, workload, where, folder, asked.workloads)
        _check(own)
        # Before anything is written or run.
        proposer = _proposer(asked, asked.settings, workload, own, folder)
        with Judge.opened(own.problem, own.work, _options(where, asked.settings)) as judge:
            name, speedups = _baseline(judge, own, asked.baseline)
            at = utc_now()
            search = Search(
                new_id(own.problem.name, at), own.problem.name, str(workload.resolve()), where,
                device_name(torch, where), name, at, _digest(problem_data(torch, own, where)),
                secrets.randbits(32) if asked.seed is None else asked.seed,
                asked.settings, speedups, spent_s=time.monotonic() - began,
                workloads=str(asked.workloads.resolve()) if asked.workloads else None,
                provenance=provenance(),
            )  # fmt: skip
            disk = SearchDirectory.create(store, search, own.baselines[name])
            say(f"search {search.search_id}: candidates are compared with {name} on {where}")
            with disk.claimed():
                _work(torch, store, disk, own, judge, proposer, asked)
    return disk


def resume(
    store: Store, search_id: str, asked: Asked, changed: Callable[[Settings], Settings]
) -> SearchDirectory:
    """Continue a search with changed settings, and return it."""
    disk = SearchDirectory.read(store, _named(store, search_id))
    with disk.claimed():
        disk.change(settings=changed(disk.search.settings))
        search = disk.search
        torch = pytorch()
        device = device_of(torch, "cpu" if search.device == "cpu" else "cuda")
        path = Path(search.path)
        words = asked.agent or search.settings.agent
        if any(HIDDEN in word for word in words) and not asked.candidates:
            raise InputError(
                f"{search.search_id}: the agent's command has a secret, which is not stored; give "
                "it again with --agent"
            )
        asked = replace(asked, agent=words)
        with scratch() as folder:
            workloads = Path(search.workloads) if search.workloads else None
            own = loaded(torch, path, device, folder, workloads)
            proposer = _proposer(asked, search.settings, path, own, folder)
            if _digest(problem_data(torch, own, device)) != search.problem:
                raise InputError(
                    f"{path}: the problem changed since {search.search_id} began; start a new "
                    "search"
                )
            with Judge.opened(own.problem, own.work, _options(device, search.settings)) as judge:
                _work(torch, store, disk, own, judge, proposer, asked)
    return disk


def _work(
    torch: Any,
    store: Store,
    disk: SearchDirectory,
    own: Loaded,
    judge: Judge,
    proposer: Proposer,
    asked: Asked,
) -> None:
    """Run what is missing of a search; everything that is done stays, whatever happens."""
    settings = disk.search.settings
    clock = Clock(disk.search.spent_s, settings.budget_s)
    total = settings.generations * settings.variants + 3
    disk.change(state="running")
    try:
        with progress(disk.search.workload, total) as steps:
            session = Session(
                disk, judge, problem_data(torch, own, disk.search.device), proposer, clock, steps,
                _profiler(torch, store, own, disk.search.device, asked.profile),
            )  # fmt: skip
            session.generations()
            confirm(session, steps)
            disk.change(state="done", spent_s=clock.used_s)
    except (Ended, KeyboardInterrupt) as end:
        disk.change(state="interrupted", spent_s=clock.used_s)
        advice = f"; everything is kept: perfpipe search --resume {disk.search.search_id}"
        if isinstance(end, Ended):
            end.advice = advice
        raise


def _named(store: Store, search_id: str) -> str:
    """Return the search that an id, or the beginning of one, names; raises InputError."""
    known = searchrecord.identifiers(store.root)
    if (meant := by_prefix(search_id, known)) is None:
        raise InputError(f"no search '{search_id}' in the store{did_you_mean(search_id, known)}")
    return meant


def _options(device: str, settings: Settings) -> Options:
    return Options(device, secrets.randbits(40), batches=settings.batches)


def _check(own: Loaded) -> None:
    name = own.problem.name
    if not own.baselines:
        raise InputError(f"{name}: a search needs a baseline; the workload defines none")
    if not own.problem.block.timing:
        raise InputError(f"{name}: a search needs sizes to time; the workload defines none")


def _proposer(asked: Asked, settings: Settings, path: Path, own: Loaded, into: Path) -> Proposer:
    """Return who writes candidates; raises InputError if nobody does.

    Given solutions of other tools are written below `into`.
    """
    if asked.candidates:
        return Given([own.candidate(one, into / "given") for one in asked.candidates])
    if asked.agent:
        return Agent(asked.agent, settings.parallel)
    if settings.by_hand:
        return Person()
    workload = load_workload(path) if path.suffix in (".yaml", ".yml") else None
    if workload is not None and workload.tune is not None:
        return Parameters(workload, path, settings.variants)
    raise InputError(
        f"{path}: nobody proposes candidates: give --agent, --by-hand or --candidate, or add "
        "'tune' to the workload"
    )


def _baseline(judge: Judge, own: Loaded, asked: str | None) -> tuple[str, dict[str, float]]:
    """Return the baseline to compare with, and the speedup of each other over the first.

    That is the fastest unless one is named: a gain over a slow one means little.
    """
    names = [*own.baselines]
    if asked is not None:
        if asked not in names:
            raise InputError(f"no baseline {asked}{did_you_mean(asked, names)}")
        return asked, {}
    found = {names[0]: 1.0}
    for name in names[1:]:
        against = {names[0]: own.baselines[names[0]]}
        fresh = judge.again(secrets.randbits(40), _CHOOSING)
        made = fresh.judge(own.baselines[name], against)
        if made.ok and made.scores:
            found[name] = statistics.geometric_mean(own.speedup for own in made.scores)
        else:
            say(f"the baseline {name} is not used: {made.status}: {made.no_scores or made.reason}")
    return max(found, key=lambda name: found[name]), found if len(names) > 1 else {}


def _digest(about: dict[str, Any]) -> str:
    """Return a digest of the problem, without the device and its attainable times."""
    fixed = {key: one for key, one in about.items() if key not in ("device", "timed")}
    cases = [one["case"] for one in about["timed"]]
    text = json.dumps([fixed, cases], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _profiler(
    torch: Any, store: Store, own: Loaded, device: str, asked: bool | None
) -> Profiler | None:
    """Return what profiles a correct candidate with ncu; None without a GPU or ncu."""
    if asked is False or (asked is None and (device == "cpu" or find_tool("ncu") is None)):
        return None

    def profile(made: Judgement, files: Path) -> Judgement:
        case = case_of(own.problem, made)
        return replace(made, profile=profile_of(torch, own, files, case, device, store))

    return profile
