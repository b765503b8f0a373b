"""Overlays of directories: what a launch changes there goes to another directory.

pipelines/trying/overlaid.py mounts them for one program; nobody else sees them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import PerfpipeError, os_error_sentence
from perfpipe.pipelines.process import run

_HELPER = Path(__file__).with_name("overlaid.py")

#: How long a trial of an overlay may take, s.
_TRIAL_S = 30.0

#: Attribute of a directory of which nothing below is seen: with rights, and without.
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")

#: Creates a file; its name is an argument.
_CREATE = "import os, sys; os.close(os.open(os.fsencode(sys.argv[1]), os.O_CREAT | os.O_EXCL))"


@dataclass(frozen=True)
class Layer:
    """An overlay: the directory, what is seen below it, and where changes go.

    `lowers` ends with the directory.  If `optional`, launches go on without it; `covered` is
    whether another overlay hides the directory then.
    """

    directory: Path
    lowers: tuple[Path, ...]
    room: Path
    optional: bool = False
    covered: bool = False

    @property
    def upper(self) -> Path:
        """The directory with the changes."""
        return self.room / "upper"

    def make(self) -> None:
        """Make the directories for the changes, with the permissions of the original."""
        self.upper.mkdir(parents=True)
        (self.room / "work").mkdir()
        mode = stat.S_IMODE(self.directory.stat().st_mode)
        # A directory that cannot be written is not written here either, whoever owns it.
        writable = os.access(self.directory, os.W_OK)
        self.upper.chmod(mode if writable else mode & ~0o222)

    def below(self, relative: Path) -> Path | None:
        """Return what is seen at a path without the changes."""
        for lower in self.lowers:
            path = lower
            for part in relative.parts:
                path = path / part
                if _is_gone(path):
                    return None
                if _is_opaque(path) and not os.path.lexists(lower / relative):
                    return None
            if os.path.lexists(path):
                return path
        return None


@dataclass
class Overlaid:
    """What one launch sees: overlays, and mounts that stay visible below them."""

    directory: Path
    layers: list[Layer]
    room: Path
    through: Sequence[Path] = ()

    @property
    def wrapper(self) -> tuple[str, ...]:
        """The words in front of the program."""
        return (sys.executable, "-I", "-S", str(_HELPER), str(self._spec))

    @property
    def _spec(self) -> Path:
        return self.room / "overlay.json"

    @property
    def _said(self) -> Path:
        return self.room / "overlaid.json"

    def write(self) -> None:
        """Write what the helper reads."""
        layers = [
            {
                "directory": _text(layer.directory),
                "lowers": [_text(lower) for lower in layer.lowers],
                "upper": _text(layer.upper),
                "work": _text(layer.room / "work"),
                "optional": layer.optional,
                "covered": layer.covered,
            }
            for layer in self.layers
        ]
        known = {layer.directory for layer in self.layers}
        uncovered = [
            path
            for path in dict.fromkeys([*mounts(), *self.through])
            if path not in known and self._covers(path) and path.exists()
        ]
        content = {
            "directory": _text(self.directory),
            "layers": layers,
            "uncovered": [_text(path) for path in uncovered],
            "said": _text(self._said),
        }
        self._spec.write_text(json.dumps(content), encoding="utf-8")

    def _covers(self, path: Path) -> bool:
        return any(path.is_relative_to(layer.directory) for layer in self.layers)

    def failure(self) -> str | None:
        """Return why the overlays failed in the last launch; None if they did not."""
        failed = self._answer().get("failed")
        return str(failed) if failed is not None else None

    def unprotected(self) -> list[Path]:
        """Return the directories whose optional overlay failed in the last launch."""
        found = self._answer().get("unprotected", ())
        return [Path(os.fsdecode(str(text).encode("latin-1"))) for text in found]

    def _answer(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._said.read_bytes())
        except (OSError, ValueError):
            return {}
        return found


def impossible(directory: Path, room: Path) -> str | None:
    """Return why a directory cannot be overlaid with changes in a room; None if it can.

    The trial creates a file in the overlay, and looks where the file is.
    """
    layer = Layer(directory, (directory,), room / "trial")
    overlaid = Overlaid(directory, [layer], room)
    name = f".perfpipe-{uuid.uuid4().hex}"
    try:
        layer.make()
        overlaid.write()
        if not _has_attributes(layer.upper):
            return f"the file system of {room.parent} has no extended attributes"
        writable = os.access(directory, os.W_OK)
        code = _CREATE if writable else "import sys"
        words = [*overlaid.wrapper, sys.executable, "-I", "-S", "-c", code, name]
        done = run(words, cwd=directory, timeout=_TRIAL_S)
    except OSError as error:
        return os_error_sentence(error, "cannot prepare")
    except PerfpipeError as error:
        return str(error)
    if (failed := overlaid.failure()) is not None:
        return _explained(failed)
    if (directory / name).exists():
        (directory / name).unlink()
        return "files created in an overlay appear in the directory itself"
    if not done.ok or (writable and not (layer.upper / name).exists()):
        return f"a trial failed: {done.complaint() or 'its file is nowhere'}"
    return None


def _has_attributes(path: Path) -> bool:
    """Return whether a file system can mark a directory that was deleted and made again."""
    try:
        os.setxattr(path, "user.perfpipe", b"y")
    except OSError:
        return False
    return True


def _explained(failed: str) -> str:
    if (
        failed.startswith(("unshare", "uid_map", "gid_map", "setgroups"))
        or os.strerror(errno.EPERM) in failed
    ):
        return f"user namespaces are not allowed here ({failed})"
    return failed


def mounts(table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Return all mount points."""
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return []
    points = [line.split(b" ")[4] for line in lines if line.count(b" ") > 4]
    return [Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", _character, point))) for point in points]


def _character(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def mounted_below(directory: Path) -> list[Path]:
    """Return the directories below one that are other mounts, which an overlay would hide."""
    found = dict.fromkeys(
        path for path in mounts() if path != directory and path.is_relative_to(directory)
    )
    return [path for path in found if path.is_dir()]


def changes(layer: Layer) -> Iterator[tuple[Path, Path | None]]:
    """Yield what a launch wrote, by relative path, with the file; None if it was deleted."""
    for relative, entry in _walk(layer.upper, own=True):
        here = layer.upper / relative
        below = layer.below(relative)
        if entry.is_dir(follow_symlinks=False):
            if below is not None and _is_opaque(here):
                for inside in _files(below):
                    if not os.path.lexists(here / inside):
                        yield relative / inside, None
        elif _is_gone(here):
            if below is None:
                continue
            if below.is_dir() and not below.is_symlink():
                yield from ((relative / inside, None) for inside in _files(below))
            else:
                yield relative, None
        elif below is None or _differ(here, below):
            yield relative, here


def _differ(one: Path, other: Path) -> bool:
    """Return whether a file was written: opening it for writing only copies it, with its time."""
    found, known = one.lstat(), other.lstat()
    return (stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns) != (
        stat.S_IFMT(known.st_mode),
        known.st_size,
        known.st_mtime_ns,
    )


def _walk(top: Path, *, own: bool = False) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    """Yield all entries below a directory, with relative paths; `own` ones are made readable."""
    pending = [Path()]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(OSError):
            if own and not os.access(top / folder, os.R_OK | os.X_OK):
                (top / folder).chmod(stat.S_IRWXU)
            for entry in sorted(os.scandir(top / folder), key=lambda one: one.name):
                yield folder / entry.name, entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(folder / entry.name)


def _files(top: Path) -> Iterator[Path]:
    """Yield the files below a directory, with relative paths."""
    for relative, entry in _walk(top):
        if not entry.is_dir(follow_symlinks=False):
            yield relative


def _is_gone(path: Path) -> bool:
    """Return whether this marks a deleted file: a character device with the number 0."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _is_opaque(path: Path) -> bool:
    for name in _OPAQUE:
        with contextlib.suppress(OSError):
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
    return False


def _text(path: Path) -> str:
    """Return the bytes of a path as text."""
    return os.fsencode(path).decode("latin-1")
