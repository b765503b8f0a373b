"""Directories of a program, as far as its command and its links show them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfpipe.pipelines.trying.outside import home

#: Variables that are lists of paths, in which a program reads.
PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")

#: Directories in which only the system writes.
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")

#: Free space with which a disk is not passed over for a later one, bytes.
_ENOUGH = 2 << 30


def named_directories(words: Sequence[str], cwd: Path) -> list[Path]:
    """Return the directories that a command names, or those in which it would create a path."""
    found: dict[Path, None] = {}
    for word in words[1:]:
        text = word.partition("=")[2] if word.startswith("-") else word
        if "/" not in text or "://" in text or "\0" in text:
            continue
        path = Path(os.path.normpath(cwd / text))
        with contextlib.suppress(OSError, RuntimeError):
            while not path.exists():
                path = path.parent
            path = path.resolve()
            found[path if path.is_dir() else path.parent] = None
    return [*found]


def of_variables(env: Mapping[str, str]) -> list[Path]:
    """Return the directories that variables name."""
    paths = [value for name, value in env.items() if name not in PATHS]
    return named_directories(["", *paths], Path("/"))


def linked(directory: Path) -> list[Path]:
    """Return the directories that links in the directory lead to, two levels deep."""
    found: dict[Path, None] = {}
    with contextlib.suppress(OSError):
        first = [*os.scandir(directory)]
        inner = [one for one in first if one.is_dir(follow_symlinks=False)][:200]
        entries = [*first]
        for one in inner:
            with contextlib.suppress(OSError):
                entries += os.scandir(one.path)
        for entry in entries:
            if entry.is_symlink():
                with contextlib.suppress(OSError, RuntimeError):
                    aim = Path(entry.path).resolve(strict=True)
                    if not aim.is_relative_to(directory):
                        found[aim if aim.is_dir() else aim.parent] = None
    return [*found]


def is_shared(directory: Path) -> bool:
    """Return whether other programs write there too: the system, caches and settings."""
    if len(directory.parts) > 1 and directory.parts[1] in _SYSTEM:
        return True
    own = home()
    if not directory.is_relative_to(own):
        return False
    return directory.relative_to(own).parts[0].startswith(".")


def temporary() -> list[Path]:
    """Return the directories for temporary files, the preferred one first."""
    given = [os.environ.get("SLURM_TMPDIR"), tempfile.gettempdir(), "/var/tmp"]  # noqa: S108
    return [*dict.fromkeys(Path(text).resolve() for text in given if text)]


def rooms(directory: Path) -> list[Path]:
    """Return the directories that can take what launches write, the preferred one first."""
    found = [
        path
        for path in temporary()
        if path.is_dir() and os.access(path, os.W_OK) and not path.is_relative_to(directory)
    ]
    return sorted(found, key=lambda path: shutil.disk_usage(path).free < _ENOUGH)
