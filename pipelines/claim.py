"""Lets only one process at a time work on a run: the process leaves a claim in its directory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from perfpipe.claims import CLAIM
from perfpipe.directories import storing
from perfpipe.errors import InputError
from perfpipe.inuse import changing_claims
from perfpipe.owner import has_ended, is_at_work, own_mark, owner_of


@contextlib.contextmanager
def claimed(directory: Path, unfinished: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Claim a run's directory; InputError names the process that already works on it.

    The claim of `unfinished` work stays, so that the next command notices when this process ends.

    A claim is an empty file whose name identifies its owner.  It is made before other claims are
    checked, so that at most one of two processes continues.  Claims of ended processes are removed.
    """
    own = directory / f"{CLAIM}{own_mark()}"
    with storing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    try:
        with changing_claims(directory):
            with storing(directory):
                own.touch()
            _check_others(directory, own)
        yield
    finally:
        if not unfinished():
            with contextlib.suppress(OSError):
                own.unlink(missing_ok=True)
                # Nothing remains where nothing could be written.
                directory.rmdir()


def _check_others(directory: Path, own: Path) -> None:
    """Remove the claims of ended processes; InputError for one of a process that may be running."""
    for other in directory.glob(f"{CLAIM}@*"):
        owner = owner_of(other.name)
        if other == own or owner is None:
            continue
        if has_ended(other.name):
            other.unlink(missing_ok=True)
            continue
        end = "" if is_at_work(other.name) else f"; if it has ended, remove {other}"
        raise InputError(f"{directory.name}: in use by process {owner[1]} on {owner[0]}{end}")
