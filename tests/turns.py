"""What makes a run of many tests take less time, and changes nothing that they see."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

#: Objects that come before a garbage collection: tests leave few cycles.
_OBJECTS = 100_000

#: Fixtures of tests that wait for most of their time; those with a cluster of their own are long.
WAITING = {"slurm", "accounted_slurm", "own_slurm", "sshd"}


def pytest_configure() -> None:
    """Collect garbage rarely: what tests import is looked through again and again meanwhile.

    No program that a test starts gets the allocator of this process (see the Makefile).
    """
    gc.set_threshold(_OBJECTS)
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.pop("LD_PRELOAD", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker begin with the tests that wait, the longest first: others compute meanwhile.

    What it has left when they are ready they take from it, the shortest first; they then share its
    clusters.
    """

    def turn(item: pytest.Item) -> tuple[bool, bool]:
        names = getattr(item, "fixturenames", ())
        return WAITING.isdisjoint(names), "own_slurm" not in names

    items.sort(key=turn)


def pytest_collection_finish() -> None:
    """Keep what is loaded by now out of garbage collections: it stays."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let what is loaded be collected in the end, as packages expect."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _views_in_turn() -> Iterator[None]:
    """Make one view at a time: workers fill all cores.  test_parallel_views makes them side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfpipe.analysis.session.cores", lambda: 1)
        yield
