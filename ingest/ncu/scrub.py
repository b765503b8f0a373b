"""Copies an .ncu-rep without what tells who made it where.

The container states lengths of its parts, so everything is replaced by as many bytes.
"""

from __future__ import annotations

from pathlib import Path

from ingest.masking import mask_bytes, names_in
from ingest.ncu.container import read_container
from perfpipe.errors import InputError

#: Around a path that begins with a home directory.
_LONGEST_PATH = 200


def scrub_ncu_rep(source: Path, target: Path) -> None:
    """Write a scrubbed copy of a report to `target`.

    Raises InputError where `source` is cut short, or a name that it gives away would remain.
    """
    container = read_container(source)
    content = source.read_bytes()
    names = names_in(_homes(content), container.host)
    scrubbed = mask_bytes(content, names)
    for name in sorted(names):
        if name.encode() in scrubbed:
            raise InputError(f"{source}: '{name}' would remain in the copy; nothing was written")
    target.write_bytes(scrubbed)


def _homes(content: bytes) -> list[str]:
    found = []
    for sign in (b"/home/", b"/Users/", b"USER=", b"LOGNAME=", b"HOSTNAME="):
        at = content.find(sign)
        while at >= 0:
            found.append(content[at : at + _LONGEST_PATH].decode("ascii", "replace"))
            at = content.find(sign, at + 1)
    return found
