r"""Removes what terminals and launchers add to the lines of ncu's CSV.

Colors, indentation, and what `mpirun --tag-output`, `srun -l` or a CI log writes before each line:

>>> list(unwrapped(['0: "ID","Process ID"\n', '1: "ID","Process ID"\n', '0: "0","7"\n']))
['"ID","Process ID"\n', '"0","7"\n', '"ID","Process ID"\n']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

#: A header of a table, with what precedes it on its line.
HEADER = r'([^"\r\n]{0,200})"(?:ID","Process ID|Kernel Name)",'
_HEADER = re.compile(HEADER)

#: Parts of a tag: numbers and spaces differ between lines.
_PARTS = re.compile(r"[0-9]+|\s+|[^0-9\s]+")


def unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without colors and tags; lines of several processes, process by process.

    A tag is what precedes a header of a table.
    """
    plain = (_COLOR.sub("", line) if "\x1b" in line else line for line in lines)
    before: list[str] = []
    for line in plain:
        before.append(line)
        if header := _HEADER.match(line):
            tagged = chain(before, plain)
            yield from _untagged(list(tagged)) if header[1] else tagged
            return
    yield from before


def _untagged(lines: list[str]) -> list[str]:
    headers = [header[1] for line in lines if (header := _HEADER.match(line))]
    patterns = dict.fromkeys(_pattern(tag) for tag in headers if tag)
    tag = re.compile("|".join(patterns))
    found = [(match[0] if (match := tag.match(line)) else "", line) for line in lines]
    tags = list(dict.fromkeys(tag for tag, _ in found))
    # A process prints its own header.  Other tags, such as times, do not name a process.
    of_rows = {tag for tag, line in found if line.startswith('"', len(tag))}
    if of_rows <= set(headers):
        place = {tag: at for at, tag in enumerate(tags)}
        found.sort(key=lambda pair: place[pair[0]])
    # A terminal may pad lines.
    return [f"{line[len(tag) :].rstrip()}\n" for tag, line in found]


def _pattern(tag: str) -> str:
    """Return a regular expression for a tag and the same tag of another process or line."""
    parts = (
        r"[0-9]+" if part[0] in "0123456789" else r"\s*" if part.isspace() else re.escape(part)
        for part in _PARTS.findall(tag)
    )
    return rf"\s*{''.join(parts)}"
