"""Divides the memory of queries among those that run at a time."""

from __future__ import annotations

import os

from perfpipe.database import MEMORY_VARIABLE, open_database


def share_memory(parts: int) -> None:
    """Let each later connection use a part of the memory that queries may use in all.

    Raises InputError if PERFPIPE_MEMORY is invalid.
    """
    with open_database() as con:
        ((limit,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = str(limit).split()
    os.environ[MEMORY_VARIABLE] = f"{float(number) / parts:.3f}{unit}"
