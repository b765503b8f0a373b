"""Reads rows of squeue and sacct as states of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """States of a Slurm job, as far as perfpipe distinguishes them."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out of memory"
    CANCELLED = "cancelled"
    NODE_FAIL = "node failure"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether a job in this state will not run any more."""
        return self not in (State.PENDING, State.RUNNING, State.UNKNOWN)


#: Slurm's other names, by equivalent state.
_ALIASES = {
    State.PENDING: "CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT",
    State.RUNNING: "COMPLETING RESIZING SIGNALING STAGE_OUT STOPPED SUSPENDED",
    State.FAILED: "LAUNCH_FAILED RECONFIG_FAIL",
    State.TIMEOUT: "DEADLINE",
    State.CANCELLED: "REVOKED",
    State.NODE_FAIL: "BOOT_FAIL",
}
_STATES = {state.name: state for state in State} | {
    word: state for state, words in _ALIASES.items() for word in words.split()
}

#: Slurm's output for a missing value.
_NOTHING = {"", "(null)", "N/A", "None", "None assigned", "Unknown", "n/a"}

_JOB = re.compile(r"(?P<job>\d+)(?:\+\d+)?(?:_(?:(?P<index>\d+)|\[(?P<range>[^\]]*)\]))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@dataclass(frozen=True)
class JobState:
    """A job, or an array element; `signal` is the one that ended it, times are epoch s."""

    job: str
    array_index: int | None
    state: State
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    node: str | None = None
    started: int | None = None
    ended: int | None = None

    @property
    def element(self) -> tuple[str, int | None]:
        """The job id and the array index."""
        return self.job, self.array_index


#: Fields of squeue -O and of sacct -o, in the order in which rows are read.
SQUEUE_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "State", "exit_code", "StartTime", "EndTime", "NodeList", "Reason"
)  # fmt: skip
SACCT_FIELDS = ("JobID", "State", "ExitCode", "Start", "End", "NodeList", "Reason")


def parse_squeue(text: str) -> list[JobState]:
    """Return the states in the output of squeue -O with SQUEUE_FIELDS, each followed by '|'."""
    rows = []
    for job, index, *rest in _rows(text, len(SQUEUE_FIELDS)):
        if index not in _NOTHING:
            job += f"_{index}" if index.isdigit() else f"_[{index}]"
        rows.append((job, *rest))
    return _settled(rows)


def parse_sacct(text: str) -> list[JobState]:
    """Return the states in the output of sacct -P -o with SACCT_FIELDS."""
    return _settled(_rows(text, len(SACCT_FIELDS)))


def indices(text: str) -> list[int]:
    """Return the array indices of Slurm's notation.

    >>> indices("3-5,9,20-26:3%2")
    [3, 4, 5, 9, 20, 23, 26]
    """
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        if match := _RANGE.fullmatch(part.strip()):
            first, last, step = match.groups()
            found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def _rows(text: str, width: int) -> Iterator[list[str]]:
    """Yield the fields of each row; other output of a site is ignored."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.strip().split("|")]
        # Reasons come last, because they may contain the field separator.
        if len(fields) >= width and fields[0][:1].isdigit():
            yield fields[:width]


def _settled(rows: Iterable[Iterable[str]]) -> list[JobState]:
    """Return one state for each element.

    For a canceled array, accounting keeps a row for all pending elements next to rows of single
    elements: an element's own row takes precedence, then a row with a final state.
    """
    best: dict[tuple[str, int | None], tuple[tuple[bool, bool], JobState]] = {}
    for name, *fields in rows:
        for own, state in _states(name, *fields):
            rank = (own, state.state.final)
            if state.element not in best or best[state.element][0] <= rank:
                best[state.element] = rank, state
    return [state for _, state in best.values()]


def _states(
    name: str, state: str, code: str, start: str, end: str, node: str, reason: str
) -> Iterator[tuple[bool, JobState]]:
    """Yield the state of each element in a row, and whether it is the element's own row."""
    match = _JOB.fullmatch(name.partition(";")[0])
    word = _STATES.get((state.split() or [""])[0].rstrip("+"), State.UNKNOWN)
    if not match:
        return  # a step, such as 12.batch
    found: list[int | None] = [int(match["index"]) if match["index"] else None]
    if match["range"] is not None:
        found = [*indices(match["range"])]
    exit_code, signal = _exit(code) if word.final else (None, None)
    for index in found:
        yield (
            match["range"] is None,
            JobState(
                match["job"],
                index,
                word,
                exit_code,
                signal,
                _stated(reason) if word is not State.UNKNOWN else f"unknown Slurm state {state!r}",
                _stated(node),
                _epoch(start) if word is not State.PENDING else None,
                _epoch(end) if word.final else None,  # for a running job, this is its time limit
            ),
        )


def _exit(code: str) -> tuple[int | None, int | None]:
    """Return exit code and signal from sacct's CODE:SIGNAL or squeue's raw wait status."""
    if code.isdigit():
        status = int(code)
        code = f"{status >> 8}:{status & 0x7F}"
    match = re.fullmatch(r"(\d+):(\d+)", code)
    return (int(match[1]), int(match[2]) or None) if match else (None, None)


def _stated(text: str) -> str | None:
    return None if text in _NOTHING else text


def _epoch(text: str) -> int | None:
    return int(text) if text.isdigit() and text != "0" else None
