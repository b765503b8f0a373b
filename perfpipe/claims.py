"""Claims: empty files whose names say which process works on the run or batch of a directory."""

from __future__ import annotations

from pathlib import Path

from perfpipe.owner import has_ended

#: Name prefix of a claim.
CLAIM = "claim"


def is_abandoned(directory: Path) -> bool:
    """Return whether all processes that claimed a directory have ended; False without a claim.

    A claim stays until the end of its work is recorded.
    """
    claims = [path.name for path in directory.glob(f"{CLAIM}@*")]
    return bool(claims) and all(map(has_ended, claims))
