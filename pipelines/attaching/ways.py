"""What the ways to look at a running program have in common."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfpipe.pipelines.attaching.target import Target
from perfpipe.pipelines.attaching.window import Window

#: Why a timeline cannot be used, if nothing was done for it when the program was started.
UNPREPARED = "the program was not prepared for it"


@dataclass(frozen=True)
class Prepared:
    """How a program was prepared when it was started: an nsys session, with the TMPDIR of nsys."""

    session: str | None = None
    tmpdir: str | None = None


@dataclass(frozen=True)
class Subject:
    """The program: its first process, all its processes at the start, how it was prepared."""

    target: Target
    processes: Sequence[Target]
    prepared: Prepared


@dataclass
class Recording:
    """What a timeline records: `files` are those to ingest, known when it has stopped.

    `exports` are .nsys-rep files that are exported first.
    """

    files: list[Path] = field(default_factory=list)
    exports: list[Path] = field(default_factory=list)


class Timeline(Protocol):
    """A way that records GPU work; `prepare` says how to start a program for it.

    Without `prepare`, the way is for programs that are prepared already, and not recommended.
    """

    name: str
    sees: str
    lacks: str
    prepare: str

    def why_not(self, subject: Subject) -> str | None:
        """Return why this way cannot be used on a program, such as UNPREPARED; None if it can."""

    def recording(self, subject: Subject, window: Window) -> AbstractContextManager[Recording]:
        """Record while the block runs; raises PerfpipeError if it cannot begin.

        The block is entered when the recording has begun.  However the block is left, the program
        continues and nothing records any more.
        """


@dataclass(frozen=True)
class Way:
    """A way in the answer: whether it was used, what it sees and lacks, or why it was not used."""

    name: str
    used: bool
    sees: str
    lacks: str
    why_not: str | None = None
    prepare: str = ""
