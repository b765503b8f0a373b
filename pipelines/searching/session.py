"""The loop: candidates are proposed, judged and recorded, generation by generation.

Every step is on disk before the next one begins, so that a search that is killed continues where
it was.  Candidates may be written in parallel; judging, which times them, is never parallel.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfpipe.analysis.search_decision import FINALISTS, log_gains, speedup_of
from perfpipe.analysis.search_summary import Found
from perfpipe.errors import InputError
from perfpipe.jsonfile import write_json
from perfpipe.pipelines.console import Progress
from perfpipe.pipelines.evaluate.candidates import MOST_BYTES, MOST_FILES, parameters
from perfpipe.pipelines.evaluate.describing import problem_text
from perfpipe.pipelines.evaluate.history import attempt_of
from perfpipe.pipelines.evaluate.judge import Judge
from perfpipe.pipelines.evaluate.result import Judgement
from perfpipe.pipelines.searching.disk import SearchDirectory, copy_files
from perfpipe.pipelines.searching.normalising import digest_of, files_of, modules_used
from perfpipe.pipelines.searching.proposing import PROMPT_FILE, Proposal, Proposer, Task
from perfpipe.pipelines.searching.texts import PROMPT, feedback, feedback_text, history_text
from perfpipe.searchrecord import (
    BASELINE,
    DUPLICATE,
    FAILED,
    INCUMBENT,
    PROPOSED,
    UNCHANGED,
    Attempt,
    baseline_medians,
)

#: What is put beside a candidate for its proposer, and is no part of it.
GIVEN = frozenset({"PROBLEM.md", "FEEDBACK.md", "HISTORY.md", "feedback.json", "best", PROMPT_FILE})

#: Bits of the secret seed of a judgement.
_SEED_BITS = 40

#: Processes of a launch besides those of a candidate's baselines, or of the finalists: that without
#: calls, and the candidate or the baseline.
_BESIDE = 2

#: The least time limit of a proposer, s.
_LEAST_S = 1.0

#: Returns the profile of a correct candidate, as part of its judgement.
Profiler = Callable[[Judgement, Path], Judgement]


class Clock:
    """The time of a search: used before it was continued, and since."""

    def __init__(self, used_s: float, budget_s: float | None) -> None:
        self._before, self._budget, self._began = used_s, budget_s, time.monotonic()

    @property
    def used_s(self) -> float:
        """Time used so far, s."""
        return self._before + time.monotonic() - self._began

    def left_s(self, reserve_s: float) -> float:
        """Return how much of the budget is left beside a reserve, s."""
        return float("inf") if self._budget is None else self._budget - self.used_s - reserve_s


class Session:
    """A search at work."""

    def __init__(
        self,
        disk: SearchDirectory,
        judge: Judge,
        problem: dict[str, Any],
        proposer: Proposer,
        clock: Clock,
        progress: Progress,
        profiler: Profiler | None = None,
    ) -> None:
        self.disk, self._judge, self._problem = disk, judge, problem
        self._proposer, self.clock, self._progress = proposer, clock, progress
        self._profiler = profiler
        self._attempts = {one.name: one for one in disk.attempts()}
        self._judged: dict[str, Judgement] = {}

    @property
    def found(self) -> Found:
        """What was found so far."""
        search = self.disk.search
        done = [one for one in self._attempts.values() if one.status != PROPOSED]
        ordered = sorted(done, key=lambda one: (one.generation, one.variant))
        return Found(tuple(ordered), search.baseline, search)

    def generations(self) -> None:
        """Run the generations that are missing, until the budget is used up."""
        settings = self.disk.search.settings
        for one in self._open():
            if not self._has_time(one.name):
                return
            self._judge_attempt(one)
        first = self._begun()
        for generation in range(first, first + self._missing(first)):
            if not self._has_time(f"generation {generation}"):
                return
            count = self._proposer.count(self._before(generation), generation, settings.variants)
            if not count:
                self.disk.change(stopped="there is nothing else to propose")
                return
            self._generation(generation, count)
            if any(one.status == PROPOSED for one in self._attempts.values()):
                return
            self._profile(generation)
        self.disk.change(stopped="")

    def _missing(self, first: int) -> int:
        """Return how many generations are to be run from one on; given candidates are one more."""
        if self._proposer.kind == "given":
            return 1
        return max(0, self.disk.search.settings.generations - first + 1)

    def _begun(self) -> int:
        """Return the generation that is not complete, else the next one."""
        last = max((one.generation for one in self._attempts.values()), default=0)
        own = [one for one in self._attempts.values() if one.generation == last]
        others = self._proposer.kind == "given" or any(
            one.proposer != self._proposer.kind for one in own
        )
        complete = len(own) >= self.disk.search.settings.variants
        return last + 1 if complete or others or last == 0 else last

    def _before(self, generation: int) -> Found:
        """Return what was found before a generation: its variants start from the same results."""
        found = self.found
        earlier = tuple(one for one in found.attempts if one.generation < generation)
        return Found(earlier, found.baseline, found.search)

    def _open(self) -> list[Attempt]:
        return [one for one in self._attempts.values() if one.status == PROPOSED]

    def _generation(self, generation: int, count: int) -> None:
        """Propose the candidates of a generation that do not exist yet, and judge all of them."""
        names = {f"g{generation}v{number}": number for number in range(1, count + 1)}
        missing = {name: n for name, n in names.items() if name not in self._attempts}
        tasks = [self._task(name, generation, n) for name, n in missing.items()]
        limit = self.disk.search.settings.agent_timeout_s
        limit = max(_LEAST_S, min(limit, self.clock.left_s(self.reserve_s)))
        proposals = self._proposer.propose(tasks, limit) if tasks else iter(())
        for proposal in proposals:
            self._save(self._proposed(proposal))
        shutil.rmtree(self.disk.path / "work", ignore_errors=True)
        for name in names:
            attempt = self._attempts[name]
            if attempt.status == PROPOSED:
                if not self._has_time(name):
                    return
                self._judge_attempt(attempt)

    def _has_time(self, what: str) -> bool:
        """Return whether there is time for a judgement beside that for the confirmation."""
        if self.clock.left_s(self.reserve_s) > self._longest_s():
            return True
        self.disk.change(stopped=f"the budget was used up before {what}")
        return False

    def _longest_s(self) -> float:
        return max((one.seconds for one in self._attempts.values()), default=0.0)

    @property
    def reserve_s(self) -> float:
        """Time that the confirmation takes, s: by the time of a process in judgements so far."""
        confirm = self.disk.search.settings.confirm
        each = [_process_s(one) for one in self._attempts.values() if one.times]
        return max(each, default=0.0) * confirm * (FINALISTS + _BESIDE)

    def _task(self, name: str, generation: int, variant: int) -> Task:
        """Prepare the directory of a candidate."""
        search, folder = self.disk.search, self.disk.work(name)
        found = self._before(generation)
        best = [own.name for own, _ in found.ranking]
        # Variants start from different candidates, the first from the best.
        parent = (
            best[(variant - 1) % min(len(best), search.settings.variants)] if best else BASELINE
        )
        copy_files(self.disk.files(parent), folder)
        seed = int.from_bytes(hashlib.sha256(f"{search.seed} {name}".encode()).digest()[:4], "big")
        times = baseline_medians(times for own in found.attempts for times in own.times)
        about = {
            **self._problem,
            "baselines": [
                {
                    "name": search.baseline,
                    "times_ms": {
                        one["case"]: times.get((search.baseline, one["case"]))
                        for one in self._problem["timed"]
                    },
                }
            ],
        }
        told = feedback(found, parent, about)
        prompt = PROMPT.format(
            module=self._problem["module"], parent=parent, baseline=search.baseline,
            generation=generation, generations=search.settings.generations, variant=variant,
            variants=search.settings.variants, seed=seed,
        )  # fmt: skip
        for text, file in (
            (problem_text(about), "PROBLEM.md"),
            (feedback_text(told), "FEEDBACK.md"),
            (history_text(found), "HISTORY.md"),
            (prompt, PROMPT_FILE),
        ):
            (folder / file).write_text(text, encoding="utf-8", errors="backslashreplace")
        write_json(folder / "feedback.json", told)
        if best:
            copy_files(self.disk.files(best[0]), folder / "best")
        log = self.disk.log(name)
        return Task(name, generation, variant, seed, (parent,), folder, log)

    def _proposed(self, proposal: Proposal) -> Attempt:
        """Take what a proposer left, and return the candidate as it is before it is judged."""
        task, agent = proposal
        files = self.disk.files(task.name)
        copy_files(task.folder, files, GIVEN)
        made = Attempt(
            task.name, task.generation, PROPOSED, variant=task.variant, parents=task.parents,
            proposer=self._proposer.kind, agent=agent, digest=digest_of(files),
            uses=modules_used(files), params=_stated(files),
        )  # fmt: skip
        size = [path.stat().st_size for path in files_of(files)]
        if len(size) > MOST_FILES or sum(size) > MOST_BYTES:
            shutil.rmtree(files)
            why = f"it is more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB"
            return replace(made, status=FAILED, reason=why)
        failed = agent is not None and agent.exit_code != 0
        if made.digest == self._digest(task.parents[0]):
            why = f"the agent {_end_of(agent)}" if failed else f"it equals {task.parents[0]}"
            status = FAILED if failed else UNCHANGED
            return replace(made, status=status, reason=why, same_as=task.parents[0])
        return self._or_duplicate(made)

    def _or_duplicate(self, made: Attempt) -> Attempt:
        """Return a candidate with the verdict on an earlier one that it equals, if there is one."""
        if made.digest == self._digest(BASELINE):
            return replace(made, status=DUPLICATE, same_as=BASELINE, reason="it is the baseline")
        for other in self._attempts.values():
            if other.digest == made.digest and other.name != made.name and not other.same_as:
                why = f"it equals {other.name}"
                return replace(made, status=DUPLICATE, same_as=other.name, reason=why)
        return made

    def _digest(self, name: str) -> str:
        return digest_of(self.disk.files(name)) if name == BASELINE else self._attempts[name].digest

    def _save(self, attempt: Attempt) -> None:
        self._attempts[attempt.name] = attempt
        self.disk.save(attempt)
        self.disk.change(spent_s=self.clock.used_s)
        if attempt.status != PROPOSED:
            self._progress.step(self._told(attempt))

    def _told(self, attempt: Attempt) -> str:
        baseline = self.disk.search.baseline
        speedup = speedup_of(log_gains(attempt, baseline))
        if speedup is not None:
            return f"{attempt.label}: {attempt.status}: {speedup.text} as fast as {baseline}"
        why = attempt.no_times if attempt.correct else attempt.reason
        return f"{attempt.label}: {attempt.status}: {why}"

    def _judge_attempt(self, attempt: Attempt) -> None:
        """Judge a candidate beside the baseline and the best one before its generation."""
        found = self._before(attempt.generation)
        against = {self.disk.search.baseline: self.disk.baseline}
        best = next((own.name for own, _ in found.ranking), None)
        made = None
        if best is not None:
            both = {**against, INCUMBENT: self.disk.files(best)}
            try:
                made = self.judged(attempt.name, both)
            except InputError as error:
                self._progress.note(f"{best} cannot be timed again: {error}")
        made = made or self.judged(attempt.name, against)
        self._judged[attempt.name] = made
        own = attempt_of(made, attempt.name, attempt.generation, attempt.parents)
        self._save(
            replace(
                own, variant=attempt.variant, digest=attempt.digest, uses=attempt.uses,
                proposer=attempt.proposer, agent=attempt.agent,
            )
        )  # fmt: skip

    def judged(self, name: str, against: dict[str, Path], launches: int | None = None) -> Judgement:
        """Return the judgement on a candidate, on inputs that no one has seen."""
        launches = launches or self.disk.search.settings.launches
        judge = self._judge.again(secrets.randbits(_SEED_BITS), launches)
        made = judge.judge(self.disk.files(name), against, self._progress.detail)
        return replace(made, candidate=name)

    def _profile(self, generation: int) -> None:
        """Profile the best candidate if it is of this generation."""
        best = next((own for own, _ in self.found.ranking), None)
        if self._profiler is None or best is None or best.generation != generation:
            return
        if (made := self._judged.get(best.name)) is None or best.profile:
            return
        seen = attempt_of(self._profiler(made, self.disk.files(best.name)), best.name, generation)
        self._attempts[best.name] = replace(
            best, profile=seen.profile, profile_missing=seen.profile_missing, report=seen.report
        )
        self.disk.save(self._attempts[best.name])


def _process_s(attempt: Attempt) -> float:
    """Return how long a judgement took for each process that was timed, s; checks count as well."""
    launches = len(attempt.times[0].candidate_ms)
    others = len({times.against for times in attempt.times})
    return attempt.seconds / (launches * (others + _BESIDE))


def _stated(files: Path) -> dict[str, Any]:
    """Return the parameters that a candidate states; none if they are invalid."""
    try:
        return dict(parameters(files.parent))
    except InputError:
        return {}


def _end_of(agent: Any) -> str:
    if agent.exit_code is None:
        return f"did not finish: {agent.said or 'its time limit was reached'}"
    return f"ended with exit code {agent.exit_code}: {agent.said}"
