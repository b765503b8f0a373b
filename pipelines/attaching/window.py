"""The time for which a program is looked at, and where the files go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.pipelines.attaching.target import Target

#: How often to check whether the program has ended, s.
_EVERY_S = 0.05


@dataclass
class Window:
    """A time of some seconds in which ways look at a program; `into` is for their files.

    `began_ns` is its start (CLOCK_REALTIME) and `lasted_s` how long it was, both 0 before they are
    known.  `notes` are sentences on what went wrong.
    """

    target: Target
    seconds: float
    into: Path
    say: Callable[[str], None]
    began_ns: int = 0
    lasted_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a sentence, once."""
        if text not in self.notes:
            self.notes.append(text)

    def begin(self) -> None:
        """Start the time."""
        self.began_ns = time.time_ns()

    def wait(self) -> None:
        """Wait until the time is over, or the program has ended."""
        began = time.monotonic()
        self.until(lambda: False, self.seconds)
        self.lasted_s = time.monotonic() - began

    def until(self, happened: Callable[[], bool], patience_s: float) -> bool:
        """Wait until something has happened; return False if it did not, or the program ended."""
        late = time.monotonic() + patience_s
        while not (done := happened()) and self.target.alive:
            left = late - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_EVERY_S, left))
        return done or happened()
