"""Finds the error of a failed program in the output of the program and its launcher.

torchrun, accelerate, mpirun and srun print a banner after the errors of their ranks, and ranks that
wait for a failed rank fail as well.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: Characters of an error that are kept, and lines if no exception was printed.
_LONGEST, _LAST = 500, 3

#: Prefixes of the lines of a rank: torchrun, its --tee, mpirun --tag-output, srun -l.
_TAG = re.compile(r"\[[a-z]+\d+\]:|\[\d+,\d+\]<std(?:out|err)>:|\d+: ")

_COLOR = re.compile(r"\x1b\[[0-9;]*m")

_HEADER = re.compile(r"(?:traceback : )?Traceback \(most recent call last\):?")
_FRAME = re.compile(r'File "(?P<path>[^"]+)", line \d+')
_RAISED = re.compile(
    r"(?:\w+\.)*[A-Z]\w*: *\S.*|(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Iteration)"
)
_DIRECT = "The above exception was the direct cause"
_CHAINED = ("During handling of the above exception", _DIRECT)

#: Code of launchers, which raises an exception when a rank fails.
_LAUNCHER = re.compile(
    r"torch/distributed/(run|launch)\.py|torch/distributed/(launcher|elastic)/"
    r"|accelerate/commands/|deepspeed/launcher/|horovod/runner/"
)

#: Exceptions of launchers that say only that a rank failed.
_BANNERS = ("ChildFailedError", "CalledProcessError")

#: Lines of launchers and loggers, which are not output of the program.
_NOISE = re.compile(
    r"[WEI]\d{4} |[-=*~^ ]*$|Setting OMP_NUM_THREADS|Primary job |a non-zero exit code"
    r"|srun: |slurmstepd: |mpirun (detected|noticed)|prterun |the job to be terminated"
    r"|  (Process name|Exit code):"
)
_OF_LAUNCHER = re.compile(r"mpirun (detected|noticed)|prterun |Primary job |srun: error: ")

#: torchrun's summary of the rank that failed first.
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?rank +: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)"
    r"\s+exitcode +: (?P<code>-?\d+) \(pid: \d+\) *(?:\((?P<signal>SIG\w+)\))?",
    re.DOTALL,
)

#: The process that failed first, as mpirun and srun name it.
_FIRST_PROCESS = re.compile(
    r"Process name: \[\[\d+,\d+\],(?P<mpi>\d+)\]|srun: error: .*task (?P<slurm>\d+): "
)


@dataclass(frozen=True)
class _Line:
    """A line without what a launcher put before it."""

    number: int
    tag: str
    text: str


@dataclass(frozen=True)
class _Raised:
    """An exception that was printed; `last` is the file of its innermost frame."""

    first_line: int
    last_line: int
    tag: str
    text: str
    last: str

    @property
    def of_launcher(self) -> bool:
        return bool(_LAUNCHER.search(self.last))

    @property
    def is_banner(self) -> bool:
        return self.of_launcher and any(name in self.text for name in _BANNERS)


def complaint(stdout: str, stderr: str) -> str:
    """Return the exception that ended a program, or else its last lines of output, as one line.

    With several processes, it is the exception of the process that failed first.
    """
    for text in (stderr, stdout):
        if found := _exception(text):
            return found[:_LONGEST]
    text = stderr or stdout
    lines = [line.text.strip() for line in _lines(text) if not _NOISE.match(line.text)]
    if root := _ROOT_CAUSE.search(text):
        own = text[: text.find("Traceback (most recent call last)")]
        lines = [line.text.strip() for line in _lines(own) if not _NOISE.match(line.text)]
        ended = f"ended by {root['signal']}" if root["signal"] else f"exit code {root['code']}"
        lines.append(f"rank {root['rank']}: {ended}")
    return " | ".join([line[:_LONGEST] for line in lines if line][-_LAST:])


def exit_sentence(code: int) -> str:
    """Return how a process ended: its exit code, or the signal that ended it.

    >>> exit_sentence(3), exit_sentence(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"exit code {code}"


def ended(code: int) -> str:
    """Return the same as a verb.

    >>> ended(3), ended(-9)
    ('exited with code 3', 'was killed by SIGKILL')
    """
    how = exit_sentence(code)
    return f"was {how}" if how.startswith("killed") else f"exited with code {code}"


def _exception(text: str) -> str | None:
    """Return the exception of the first process that failed; None if none was printed."""
    lines = list(_lines(text))
    every = list(_raised(lines))
    own = [one for one in every if not one.of_launcher]
    if not own:
        others = [one.text for one in every if not one.is_banner]
        return others[-1] if others else None
    of_many = len(own) < len(every) or any(_OF_LAUNCHER.match(line.text) for line in lines)
    # PyTorch tags the exception that ends a rank; untagged exceptions were logged earlier.
    own = [one for one in own if one.tag] or own
    tags = dict.fromkeys(one.tag for one in own)
    # The last exception of a process ended it: it continued after the earlier ones.
    last = [[one for one in own if one.tag == tag][-1] for tag in tags]
    if named := [one for one in last if one.tag in _tags_of_first(text)]:
        return named[0].text
    first = min(last, key=lambda one: one.first_line)
    if of_many and not first.tag:
        first = _first_of_burst(own, lines)
    return first.text


def _tags_of_first(text: str) -> tuple[str, ...]:
    """Return what may stand before lines of the rank that a launcher says failed first."""
    if root := _ROOT_CAUSE.search(text):
        return f"[rank{root['rank']}]:", f"[default{root['local']}]:"
    if root := _FIRST_PROCESS.search(text):
        rank = root["mpi"] or root["slurm"]
        return f"[rank{rank}]:", f"[1,{rank}]<stderr>:", f"[1,{rank}]<stdout>:", f"{rank}: "
    return ()


def _first_of_burst(raised: list[_Raised], lines: list[_Line]) -> _Raised:
    """Return the first of the exceptions at the end with nothing of the program between them."""
    first = raised[-1]
    for before in reversed(raised[:-1]):
        between = lines[before.last_line + 1 : first.first_line]
        if any(line.text.strip() and not _NOISE.match(line.text) for line in between):
            break
        first = before
    return first


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(_COLOR.sub("", text).splitlines()):
        match = _TAG.match(line)
        tag = match[0] if match else ""
        rest = line.removeprefix(tag)
        # mpirun puts a tag before each piece of output of a rank.
        yield _Line(number, tag, rest.replace(tag, "") if "<std" in tag else rest)


def _raised(lines: Iterable[_Line]) -> Iterator[_Raised]:
    """Yield the exceptions of tracebacks as they end; of chained ones the last, with its cause."""
    open_: dict[str, tuple[_Line, str]] = {}  # header and innermost file, by tag
    found: list[_Raised] = []
    chained: dict[str, str] = {}  # what is said between them, by tag
    for line in lines:
        words = line.text.strip()
        if _HEADER.match(words):
            open_[line.tag] = line, ""
        elif words.startswith(_CHAINED):
            chained[line.tag] = words
        elif line.tag in open_:
            header, last = open_[line.tag]
            if frame := _FRAME.match(words):
                open_[line.tag] = header, frame["path"]
            elif last and _indent(line) == _indent(header) and _RAISED.fullmatch(words):
                del open_[line.tag]
                first = header.number
                earlier = [one for one in found if one.tag == line.tag]
                if line.tag in chained and earlier:
                    direct = chained.pop(line.tag).startswith(_DIRECT)
                    found.remove(earlier[-1])
                    first = earlier[-1].first_line
                    if direct and ": " in earlier[-1].text:
                        words = f"{words} (caused by {earlier[-1].text})"
                found.append(_Raised(first, line.number, line.tag, words, last))
    yield from found


def _indent(line: _Line) -> int:
    return len(line.text) - len(line.text.lstrip())
