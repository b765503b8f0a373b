"""Jobs of agents on workloads that the server allows: judging a kernel, trying the advice."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from perfpipe.errors import InputError, PerfpipeError, did_you_mean
from perfpipe.pipelines.agents import trying
from perfpipe.pipelines.agents.envelope import Answer, Evidence, Next, Status
from perfpipe.pipelines.agents.wording import captured, plain, sentence, value, values
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.process import run
from perfpipe.pipelines.workload import Workload, load_workload

#: Most files of a candidate, and characters of one.
_FILES, _CHARACTERS = 50, 400_000

#: Time limit of a job, s; most jobs that wait, and that are remembered.
_LIMIT_S, _WAITING, _REMEMBERED = 1800.0, 8, 50

#: Time limit for reading a problem, s.
_DESCRIBING_S = 120.0

#: Result of a job, as the command prints it in JSON.
Result = dict[str, Any]

#: States of a job.
QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"


@dataclass
class Job:
    """A requested command, with its state.

    `words` returns the words after perfpipe, and may write into an empty directory first.
    `read` returns the result in the JSON that the command prints, and `tell` answers with it.
    `files` are those of a candidate; a job that judges none has no files.
    """

    name: str
    workload: str
    words: Callable[[Path], list[str]]
    read: Callable[[Any], Result]
    tell: Callable[[Result, str, str], Answer]
    limit_s: float = _LIMIT_S
    files: Mapping[str, str] = field(default_factory=dict)
    state: str = QUEUED
    result: Result | None = None
    reason: str = ""
    stop: Callable[[], None] | None = None
    over: threading.Event = field(default_factory=threading.Event)


class Jobs:
    """Runs commands on some workloads, one at a time, to keep their times undisturbed."""

    def __init__(self, workloads: Mapping[str, Path]) -> None:
        self.workloads = workloads
        self._jobs: dict[str, Job] = {}
        self._described: dict[tuple[Path, int], Result] = {}
        self._one = threading.Lock()
        self._changing = threading.Lock()
        self._closed = False

    @classmethod
    def of(cls, paths: tuple[Path, ...]) -> Jobs | None:
        """Return jobs on workload files, None without files; raises InputError if invalid."""
        found: dict[str, Path] = {}
        for path in paths:
            workload = load_workload(path)
            if workload.name in found:
                raise InputError(f"{path}: another workload is also named {workload.name}")
            found[workload.name] = path.resolve()
        return cls(found) if found else None

    def evaluate(
        self,
        workload: str,
        files: Mapping[str, str],
        baseline: str | None = None,
        profiles: Path | None = None,
    ) -> Answer:
        """Begin to judge a candidate's files, and return its job.

        A correct one is profiled into the store `profiles`, if that is given.
        """
        path = self.path(workload)
        read = load_workload(path)
        if read.evaluate is None:
            raise InputError(
                f"{workload} has no 'evaluate' block, which defines what a candidate computes"
            )
        words = _baseline(read, path, baseline)
        if profiles is not None:
            words += ["--profile", "--store", str(profiles)]
        _check(files, read)

        def command(folder: Path) -> list[str]:
            into = folder / "candidate"
            for name, text in files.items():
                at = into / name
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_text(text, encoding="utf-8")
            return ["evaluate", str(path), "--json", "--candidate", str(into), *words]

        job = Job("", workload, command, _only_result, _judged, files=dict(files))
        return self._begin(job)

    def try_levers(
        self, workload: str, store: Path, budget_s: int, levers: Sequence[str]
    ) -> Answer:
        """Begin to try the advice on a workload, and return the job; the trial is stored."""
        words = trying.command(self.path(workload), store, budget_s, levers)
        limit_s = _LIMIT_S + budget_s
        return self._begin(Job("", workload, lambda _: words, trying.result, trying.told, limit_s))

    def described(self, workload: str) -> Result | None:
        """Return the problem of a workload as data; None if it has none.

        It is read in a process of its own, since reading it runs the module of the reference.
        """
        path = self.path(workload)
        if load_workload(path).evaluate is None:
            return None
        key = path, path.stat().st_mtime_ns
        if key not in self._described:
            words = ["evaluate", str(path), "--describe", "--json"]
            done = run([sys.executable, "-m", "perfpipe", *words], timeout=_DESCRIBING_S)
            if done.timed_out or done.returncode != 0:
                raise InputError(f"cannot read the problem of {workload}: {done.complaint()}")
            self._described[key] = json.loads(done.stdout)["problem"]
        return self._described[key]

    def judged(self, workload: str) -> list[Job]:
        """Return the jobs that judge candidates of a workload, oldest first."""
        return [job for job in [*self._jobs.values()] if job.workload == workload and job.files]

    def _begin(self, job: Job) -> Answer:
        job.name = f"job-{uuid.uuid4().hex[:8]}"
        with self._changing:
            waiting = sum(one.state in (QUEUED, RUNNING) for one in self._jobs.values())
            if waiting >= _WAITING:
                raise InputError(
                    f"{waiting} jobs are already waiting; get the results of these jobs first"
                )
            for old in [key for key, one in self._jobs.items() if one.over.is_set()][:-_REMEMBERED]:
                del self._jobs[old]
            self._jobs[job.name] = job
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        return _told(job)

    def job(self, name: str, wait_s: float, cancel: bool) -> Answer:
        """Return the state of a job, and its result if there is one."""
        if name not in self._jobs:
            raise InputError(f"no job {plain(name, 60)}{did_you_mean(name, self._jobs)}")
        job = self._jobs[name]
        if cancel:
            self._cancel(job)
        job.over.wait(wait_s)
        return _told(job)

    def close(self) -> None:
        """Cancel every job, and wait until their processes have ended."""
        self._closed = True
        for job in [*self._jobs.values()]:
            self._cancel(job)
        for job in [*self._jobs.values()]:
            job.over.wait(60)

    def path(self, workload: str) -> Path:
        """Return the file of an allowed workload; raises InputError for another one."""
        if workload not in self.workloads:
            known = ", ".join(sorted(self.workloads))
            raise InputError(f"workload {plain(workload, 60)} is not allowed here, only {known}")
        return self.workloads[workload]

    def _cancel(self, job: Job) -> None:
        with self._changing:
            if job.state in (QUEUED, RUNNING):
                job.state = CANCELLED
                if job.stop is not None:
                    job.stop()

    def _work(self, job: Job) -> None:
        try:
            with self._one, tempfile.TemporaryDirectory(prefix="perfpipe-job-") as folder:
                self._run(job, Path(folder))
        except (PerfpipeError, OSError) as error:
            self._end(job, FAILED, str(error))
        finally:
            job.over.set()

    def _run(self, job: Job, folder: Path) -> None:
        words = job.words(folder)
        with self._changing:
            if job.state != QUEUED or self._closed:
                return
            job.state = RUNNING
        done = run(
            [sys.executable, "-m", "perfpipe", *words],
            timeout=job.limit_s,
            started=lambda stop: self._started(job, stop),
        )
        if done.timed_out:
            self._end(job, FAILED, f"the job took longer than {job.limit_s:.0f} s")
            return
        try:
            job.result = job.read(json.loads(done.stdout))
        except (ValueError, KeyError, TypeError):
            self._end(job, FAILED, done.complaint() or exit_sentence(done.returncode))
            return
        self._end(job, DONE)

    def _started(self, job: Job, stop: Callable[[], None]) -> None:
        with self._changing:
            job.stop = stop
            if job.state == CANCELLED:
                stop()

    def _end(self, job: Job, state: str, reason: str = "") -> None:
        with self._changing:
            job.stop = None
            if job.state != CANCELLED:
                job.state, job.reason = state, reason


def _baseline(workload: Workload, path: Path, name: str | None) -> list[str]:
    known = workload.evaluate.baselines if workload.evaluate else {}
    if name is None:
        return []
    if name not in known:
        raise InputError(f"no baseline {plain(name, 60)}{did_you_mean(name, known)}")
    return ["--baseline", f"{name}={path.parent / known[name]}"]


def _check(files: Mapping[str, str], workload: Workload) -> None:
    """Raise InputError for files that cannot be a candidate."""
    block = workload.evaluate
    if block is not None and block.module not in files:
        raise InputError(f"files must contain {block.module} with the function {block.entry}")
    if len(files) > _FILES:
        raise InputError(f"a candidate has at most {_FILES} files")
    for name, text in files.items():
        parts = PurePosixPath(name).parts
        wrong = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
        if wrong or len(name) > 200:
            raise InputError(
                f"{plain(name, 60)}: file names must be relative and must not use '..'"
            )
        if len(text) > _CHARACTERS:
            raise InputError(f"{plain(name, 60)}: longer than {_CHARACTERS:,} characters")


def _only_result(printed: Any) -> Result:
    """Return the only result that `perfpipe evaluate` prints."""
    (result,) = printed["results"]
    found: Result = result
    return found


def _told(job: Job) -> Answer:
    data: dict[str, Any] = {"job": job.name, "state": job.state}
    if job.state in (QUEUED, RUNNING):
        return Answer(data, next=Next("job", {"id": job.name, "wait_s": 30}))
    if job.state != DONE or job.result is None:
        reason = plain(job.reason) or "the job was cancelled"
        return Answer(data, Status.ABSTAINED, f"the job has no result: {reason}")
    return job.tell(job.result, job.name, job.state)


def _judged(made: Result, job: str, state: str) -> Answer:
    """Return the judgement of a candidate."""
    data: dict[str, Any] = {"job": job, "state": state}
    data["result"] = {
        "status": made["status"],
        "reason": sentence(made["reason"]),
        "evidence": [
            {key: one if key in ("kind", "line") else sentence(one) for key, one in row.items()}
            for row in made["evidence"][:10]
        ],
        "deterministic": made["deterministic"],
        "checked": made["checked"],
        "max_scaled_error": value(made["max_scaled_error"]),
        "no_scores": made["no_scores"],
        "isolation": made["isolation"],
        "device": captured(made["device"]),
        "printed": sentence(made["output"][-500:] or None),
    }
    data["scores"] = _rows(made["scores"])
    proofs = tuple(
        Evidence(
            "evaluate", {"case": row["case"], "against": row["against"]},
            "speedup", value(row["speedup"]), "x", len(row["candidate_ms"]),
        )
        for row in made["scores"]
    )  # fmt: skip
    profile = made["profile"]
    if profile is not None:
        data["profile"] = _profile(profile)
    report = profile and profile["report"]
    return Answer(
        data,
        evidence=proofs,
        warnings=tuple(made["warnings"]),
        rows="scores",
        next=Next("overview", {"target": report}) if report else None,
    )


#: Texts of a score or a profiled kernel that perfpipe or the workload wrote.
_OURS = (
    *("case", "against", "verdict", "cache", "attainable_why"),
    *("bound", "subclass", "confidence", "technique"),
)


def _rows(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return scores or kernels, with marks around texts from a candidate."""
    return [values(row, _OURS) for row in found]


def _profile(made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile of a call: the report in the store, its kernels, or why it is missing."""
    return {
        "case": made["case"], "report": made["report"], "kernels": _rows(made["kernels"]),
        "isolation": made["isolation"], "why": sentence(made["why"]),
    }  # fmt: skip
