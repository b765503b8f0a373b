"""Calls sbatch, squeue, sacct, scancel, scontrol and sinfo, each with a time limit."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from perfpipe.batchrecord import Usage
from perfpipe.errors import TaskFailed, ToolMissing, os_error_sentence
from perfpipe.pipelines.slurm.limits import SINFO_FIELDS, Limits, parse_limits
from perfpipe.pipelines.slurm.states import (
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    JobState,
    State,
    parse_sacct,
    parse_squeue,
)
from perfpipe.pipelines.slurm.usage import USAGE_FIELDS, parse_usage

#: Time limit of a command, s: it retries by itself if the controller does not respond.
_PATIENCE_S = 60.0

#: Variables that would change the commands' behavior or output; SLURM_CONF selects the cluster.
_MISLEADING = re.compile(r"(SBATCH|SQUEUE|SACCT|SACCTMGR|SCANCEL|SCONTROL|SINFO|SLURM)_\w+")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")

#: Messages that mean that the controller or the accounting did not answer, rather than refused.
_AWAY = re.compile(
    r"[Uu]nable to contact slurm|timed out|Connection refused|[Cc]onnection (timed out|reset)"
    r"|Zero Bytes were transmitted|Unable to connect|Problem talking to the database"
    r"|[Cc]ommunication (connection )?failure|backup mode|Transport endpoint"
)
_NO_ACCOUNTING = "accounting storage is disabled"
_UNKNOWN_JOB = "Invalid job id"
_ID = re.compile(r"(\d+)(?:;\S+)?")
_SAID_ID = re.compile(r"Submitted batch job (\d+)")
_PREFIX = re.compile(r"^s\w+: (?:(?:error|fatal): )?")


class Unreachable(TaskFailed):
    """The controller did not answer: the request may or may not have been carried out."""


@dataclass(frozen=True)
class Answer:
    """States of all requested elements; `trouble` says why some may be unknown."""

    states: Mapping[tuple[str, int | None], JobState]
    trouble: str | None = None

    def of(self, job: str, index: int | None = None) -> JobState:
        """Return the state of a job or of an element."""
        known = self.states.get((job, index))
        return known or JobState(job, index, State.UNKNOWN, reason=self.trouble or _NOT_LISTED)


_NOT_LISTED = "Slurm no longer knows the job and has no accounting record of it"


@dataclass(frozen=True)
class Cluster:
    """The cluster that Slurm's commands connect to."""

    patience_s: float = _PATIENCE_S

    def submit(self, script: Path) -> str:
        """Submit a script and return the job id; raises Unreachable if the outcome is unknown."""
        answer = self._call("sbatch", "--parsable", script)
        # Other output of a site's wrapper is ignored.
        for line in reversed(answer.splitlines()):
            if match := _ID.fullmatch(line.strip()) or _SAID_ID.search(line):
                return match[1]
        raise TaskFailed(f"sbatch did not print a job id: {_sentence(answer)}")

    def check(self, script: Path) -> str:
        """Return when and where a script would start, without submitting it."""
        done = self._run("sbatch", "--test-only", script)
        _require(done)
        return _sentence(done.stderr or done.stdout)

    def states(self, jobs: Mapping[str, Iterable[int]] | Iterable[str]) -> Answer:
        """Return the states of jobs, or of elements of arrays, by one call to the controller.

        Accounting is queried for jobs that the controller no longer knows.
        """
        asked = dict(jobs) if isinstance(jobs, Mapping) else dict.fromkeys(jobs, ())
        if not asked:
            return Answer({})
        ids = ",".join(asked)
        fields = ",".join(f"{name}:|" for name in SQUEUE_FIELDS)
        queue = self._query("squeue", "-h", "-a", "-r", "-t", "all", "-j", ids, "-O", fields)
        states = {row.element: row for row in parse_squeue(queue.stdout)}
        trouble = None if queue.ok or _UNKNOWN_JOB in queue.stderr else queue.complaint()
        missing = [job for job, wanted in asked.items() if _lacks(states, job, wanted)]
        if missing:
            rows, why = self._accounted(missing)
            for row in rows:
                states.setdefault(row.element, _trusted(row, trouble))
            if trouble and why:
                trouble = f"{trouble}; {why}"
            if trouble is None and any(_lacks(states, job, asked[job]) for job in missing):
                trouble = why
        return Answer(states, trouble)

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel jobs and elements, such as 12 or 12_[3-5]; ended ones are not an error."""
        words = list(ids)
        if words:
            self._call("scancel", "--quiet", *words)

    def find(self, comment: str) -> list[str]:
        """Return the ids of the user's jobs with a comment, even if sbatch's answer was lost."""
        user = _user()
        queue = self._call("squeue", "-h", "-a", "-t", "all", "-u", user, "-o", "%F|%k")
        found = {line.partition("|")[0] for line in _with(comment, queue)}
        past = ("sacct", "-X", "-P", "-n", "-u", user, "-S", "now-7days", "-o", "JobID,Comment")
        done = self._query(*past)
        if done.ok:
            found |= {re.split(r"[_+;|]", line)[0] for line in _with(comment, done.stdout)}
        return sorted(found, key=int)

    def nodes_of(self, job: str) -> list[str]:
        """Return the nodes of a job that runs; raises TaskFailed if it does not, and why."""
        queue = self._run("squeue", "-h", "-a", "-j", job, "-o", "%T|%N")
        if not queue.ok and _UNKNOWN_JOB not in queue.stderr:
            raise (Unreachable if queue.away else TaskFailed)(queue.complaint())
        rows = [line.partition("|") for line in queue.stdout.splitlines() if line.strip()]
        running = [nodes for state, _, nodes in rows if state == "RUNNING"]
        if not rows:
            raise TaskFailed(f"job {job} is not in the queue: it has ended, or does not exist")
        if not running:
            raise TaskFailed(f"job {job} does not run: it is {rows[0][0]}")
        return self._call("scontrol", "show", "hostnames", running[0]).split()

    def processes_of(self, job: str, node: str | None, step: str | None) -> list[int]:
        """Return the processes of a job on this node, without those of a step."""
        where = [node] if node else []
        answer = self._call("scontrol", "listpids", job, *where)
        rows = [line.split() for line in answer.splitlines()[1:]]
        # PID JOBID STEPID LOCALID GLOBALID
        return [int(row[0]) for row in rows if len(row) == 5 and row[2] != step]

    def limits(self) -> Limits:
        """Return the limits of the cluster."""
        config = self._call("scontrol", "show", "config")
        sinfo = self._call("sinfo", "-h", "-o", SINFO_FIELDS)
        who = f"user={_user()}"
        wanted = "format=MaxSubmitJobs,GrpSubmitJobs"
        limits = parse_limits(config, sinfo, "")
        if not limits.accounting:
            return limits
        done = self._query("sacctmgr", "-n", "-P", "show", "assoc", "where", who, wanted)
        return parse_limits(config, sinfo, done.stdout if done.ok else "")

    def usage(self, jobs: Iterable[str]) -> dict[str, Usage]:
        """Return what jobs or array elements used, by JOB or JOB_INDEX; nothing if unknown."""
        ids = ",".join(dict.fromkeys(jobs))
        fields = ",".join(USAGE_FIELDS)
        if not ids:
            return {}
        done = self._query("sacct", "-P", "-n", "-j", ids, "-o", fields)
        return parse_usage(done.stdout) if done.ok else {}

    def _accounted(self, jobs: list[str]) -> tuple[list[JobState], str | None]:
        """Return the accounting records of jobs, or why there are none."""
        fields = ",".join(SACCT_FIELDS)
        done = self._query("sacct", "-X", "-P", "-n", "-j", ",".join(jobs), "-o", fields)
        if done.ok:
            return parse_sacct(done.stdout), None
        return [], None if _NO_ACCOUNTING in done.stderr else done.complaint()

    def _call(self, *words: str | Path) -> str:
        """Return the output of a command that must succeed."""
        done = self._run(*words)
        _require(done)
        return done.stdout

    def _query(self, *words: str | Path) -> _Done:
        """Run a command; any failure is returned."""
        try:
            return self._run(*words)
        except ToolMissing as error:
            return _Done(str(words[0]), 127, "", str(error))

    def _run(self, *words: str | Path) -> _Done:
        program = str(words[0])
        try:
            done = subprocess.run(
                [str(word) for word in words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=self.patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            # What it printed is bytes here, or text.
            printed = late.stderr or b""
            text = printed if isinstance(printed, str) else printed.decode("utf-8", "replace")
            said = _sentence(text)
            why = f"no answer within {self.patience_s:g} s"
            return _Done(program, None, "", f"{why}; it printed: {said}" if said else why)
        except FileNotFoundError as error:
            raise ToolMissing(
                f"{program} is not on PATH; is Slurm installed on this machine?"
            ) from error
        except OSError as error:
            raise TaskFailed(os_error_sentence(error, "cannot start")) from error
        return _Done(program, done.returncode, done.stdout, done.stderr)

    @cached_property
    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in _KEPT or not _MISLEADING.fullmatch(k)}
        # All indices of an array, and times in s since 1970.
        return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


@dataclass(frozen=True)
class _Done:
    """A finished command; without a code, it timed out."""

    program: str
    code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def away(self) -> bool:
        return self.code is None or bool(_AWAY.search(self.stderr))

    def complaint(self) -> str:
        return (
            f"{self.program}: {_sentence(self.stderr or self.stdout) or f'exit code {self.code}'}"
        )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _require(done: _Done) -> None:
    if not done.ok:
        raise (Unreachable if done.away else TaskFailed)(done.complaint())


def _sentence(text: str) -> str:
    """Return Slurm's last output lines as one line, without the names of its programs."""
    lines = [_PREFIX.sub("", line.strip()) for line in text.splitlines()]
    return "; ".join([line[:500] for line in lines if line][-3:])


def _with(comment: str, text: str) -> list[str]:
    # The user's own text follows.
    return [
        line
        for line in text.splitlines()
        if (said := line.partition("|")[2].strip()) == comment or said.startswith(f"{comment} ")
    ]


def _lacks(
    states: Mapping[tuple[str, int | None], JobState], job: str, wanted: Iterable[int]
) -> bool:
    """Return whether a state is missing: of an element, or of the job if no elements are named."""
    elements = list(wanted)
    if elements:
        return any((job, index) not in states for index in elements)
    return not any(known == job for known, _ in states)


def _trusted(row: JobState, trouble: str | None) -> JobState:
    """Return the accounting record of a job that the controller does not know.

    Accounting lags behind: only a final state is certain.
    """
    if row.state.final:
        return row
    why = trouble or "the controller no longer knows the job"
    reason = f"{why}; the job's last state in accounting is {row.state.value}"
    return JobState(row.job, row.array_index, State.UNKNOWN, reason=reason, node=row.node)
