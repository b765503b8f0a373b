"""An input file or directory, with everything already known about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: State of files: name, size, time of the last change in ns, inode, first bytes of each.
State = tuple[tuple[str, int, int, int, bytes], ...]


@dataclass(frozen=True)
class Input:
    """An input file or directory, with everything already known about it.

    `kind` is that of its format.  `file_sha256` is the checksum of the file as stored; `sha256` and
    `size` (bytes) are those of its content at `content`, for a compressed file only after it is
    opened.  `state` is the state of its files when they were hashed.
    """

    path: Path
    format: str
    kind: str
    content: Path
    compressed: bool = False
    file_sha256: str = ""
    sha256: str = ""
    size: int = 0
    state: State = ()

    @property
    def report_id(self) -> str:
        """The report id: the first 16 hex digits of the content's sha256."""
        return self.sha256[:16]
