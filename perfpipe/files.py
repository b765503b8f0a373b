"""Reads files that come with perfpipe, and writes files atomically."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from io import BufferedReader
from pathlib import Path

from perfpipe.owner import own_name


def packaged(package: str, *path: str) -> str:
    """Return the text of a file that comes with a package, by its path there."""
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def text_of(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a regular file; OSError for anything else, such as a pipe without end."""
    with open_regular(path) as file:
        return file.read().decode(encoding)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; OSError for anything else, at once."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(opened, "rb")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` if the block succeeds.

    OSError if there is a device, pipe or socket, which a file would replace for all programs.
    """
    _check_replaceable(path)
    temporary = path.with_name(own_name(".tmp"))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_replaceable(path: Path) -> None:
    with suppress(FileNotFoundError):
        # /dev/stdout is a link to what this process has open, even if that is a regular file.
        opened = path.is_symlink() and path.readlink().is_relative_to("/proc")
        mode = path.stat().st_mode
        if opened or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "not a regular file", str(path))


def printable(name: str) -> str:
    r"""Return the name of a file as text, with bytes that are not UTF-8 as `\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
