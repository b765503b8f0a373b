"""Counts events of one kind in a program, and delays each of them by a known time.

The handicaps in this folder share this file.  An event is counted where the program's unit of work
needs it, so counts and times of units are those of the same process.  Counts are kept together with
times of time.perf_counter_ns, because a program also has events outside of the units that count.
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Number of counts that are kept.  Every other one is dropped when there are more.
MOST_COUNTS = 1024

#: Time between two counts that are kept, at first, ns.
EVERY_NS = 1_000_000

#: The end of a sleep is a busy wait, because the system ends sleeps late, ns.
LATE_NS = 300_000

_clock = time.perf_counter_ns


class Events:
    """Counts events, and reports some of the counts, each with the time at which it was reached.

    `more` returns what else to report.
    """

    def __init__(self, own: "Any", more: "Callable[[], dict[str, Any]]" = dict) -> None:
        self.count = 0
        self._more = more
        self._times: "list[int]" = []
        self._counts: "list[int]" = []
        self._every = EVERY_NS
        self._due = 0
        own.at_end(self.counters)

    def add(self) -> None:
        """Count an event."""
        self.reached(self.count + 1)

    def reached(self, count: int) -> None:
        """Keep the number of events so far."""
        self.count = count
        now = _clock()
        if now < self._due:
            return
        self._times.append(now)
        self._counts.append(count)
        if len(self._times) > MOST_COUNTS:
            del self._times[1::2], self._counts[1::2]
            self._every *= 2
        self._due = now + self._every

    def counters(self) -> "dict[str, Any]":
        """Return what was counted."""
        counts = {"events": self.count, "time_ns": [*self._times], "counts": [*self._counts]}
        return {**counts, **self._more()}


class Delay:
    """Waits for a known time; with `sleeps`, the processor is free meanwhile."""

    def __init__(self, own: "Any", sleeps: bool = False) -> None:
        self.ns = int(1000 * own.options.get("us", 0))
        self._sleeps = sleeps

    def __call__(self) -> None:
        """Wait."""
        if not self.ns:
            return
        end = _clock() + self.ns
        if self._sleeps and self.ns > LATE_NS:
            time.sleep((self.ns - LATE_NS) / 1e9)
        while _clock() < end:
            pass
