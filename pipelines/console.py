"""Progress and messages on stderr: a progress bar on a terminal, else one line per step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from perfpipe.visible import visible, visible_line

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    """Receives a known number of steps."""

    def step(self, text: str) -> None:
        """Report that a step is done, with its result."""

    def note(self, text: str) -> None:
        """Print a message between steps."""

    def detail(self, text: str) -> None:
        """Show activity within a step, if the display can erase it again."""


class _Lines:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def step(self, text: str) -> None:
        self._done += 1
        say(f"[{self._done}/{self._total}] {text}")

    def note(self, text: str) -> None:
        say(text)

    def detail(self, text: str) -> None: ...


class _Quiet:
    def step(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def detail(self, text: str) -> None: ...


def say(text: str) -> None:
    """Print a line to stderr."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201


def stdout(*, highlight: bool = False, width: int | None = None) -> Console:
    """Return a console for results; a closed pipe is left to the command line.

    `width` is that of lines in files and pipes, unless COLUMNS is set.
    """
    from rich.console import Console

    class Results(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else width
    return Results(highlight=highlight, width=wide)


@contextmanager
def progress(title: str, total: int, *, quiet: bool = False) -> Iterator[Progress]:
    """Open a progress display for `total` steps."""
    if quiet:
        yield _Quiet()
    elif not sys.stderr.isatty():
        yield _Lines(total)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
        )
        with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total)

            class _Bar:
                def step(self, text: str) -> None:
                    bar.console.print(visible(text), markup=False, highlight=False)
                    bar.update(task, advance=1, description=title)

                def detail(self, text: str) -> None:
                    bar.update(task, description=visible_line(text))

                def note(self, text: str) -> None:
                    bar.console.print(visible(text), markup=False, highlight=False)

            yield _Bar()
