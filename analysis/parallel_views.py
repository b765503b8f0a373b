"""Runs steps that need one another, several in parallel, each on a connection to one database.

Where data are small, the time of a query is that of planning it, which DuckDB does on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING

from perfpipe.database import another

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Most steps at a time: plans that wait for one another leave no work for more.
_MOST = 4


def in_parallel(
    con: DuckDBPyConnection,
    at_once: int,
    steps: Mapping[str, frozenset[str]],
    step: Callable[[str, DuckDBPyConnection], None],
) -> None:
    """Run each step after those that it needs, on one of `at_once` connections to a database.

    Steps are given in an order in which they could run one by one.  The first error ends it:
    nothing more begins, and what runs is waited for.
    """
    waiting = {name: {*steps[name]}.intersection(steps) for name in _longest_first(steps)}
    running: dict[Future[None], tuple[str, DuckDBPyConnection]] = {}
    with ExitStack() as opened:
        free = [opened.enter_context(another(con)) for _ in range(min(_MOST, at_once))]
        pool = opened.enter_context(ThreadPoolExecutor(len(free)))
        while waiting or running:
            ready = [name for name, before in waiting.items() if not before]
            for name in ready[: len(free)]:
                own = free.pop()
                running[pool.submit(step, name, own)] = name, own
                del waiting[name]
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                name, own = running.pop(future)
                free.append(own)
                future.result()
                for before in waiting.values():
                    before.discard(name)


def _longest_first(steps: Mapping[str, frozenset[str]]) -> list[str]:
    """Return steps by how many others wait for them one behind the other, most first."""
    behind = dict.fromkeys(steps, 0)
    for name in reversed([*steps]):
        for before in steps[name] & steps.keys():
            behind[before] = max(behind[before], behind[name] + 1)
    return sorted(steps, key=behind.__getitem__, reverse=True)
