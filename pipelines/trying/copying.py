"""A copy of a directory for a launch, without what is too large and only read.

Files are cloned where the file system can (reflink).  Virtual environments, and large files of data
beyond the limit, become symbolic links to the originals.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.errors import InputError, os_error_sentence
from perfpipe.files import printable
from perfpipe.units import format_bytes

#: Limits of a copy: bytes, and number of files.
MOST_BYTES, MOST_FILES = 2 << 30, 50_000

#: Size from which a file of data is not copied beyond the limit, bytes.
LARGE = 64 << 20

#: Space on the disk that a copy leaves free, bytes.
_SPARE = 256 << 20

#: Endings of files of data, which programs read.  Checkpoints and logs are not among them: programs
#: write these again, through a link into the user's file.
_DATA = frozenset(
    ".arrow .parquet .tfrecord .tar .tgz .zip .gz .xz .zst .bz2 .csv .tsv .npy .npz .mat .idx .mdb "
    ".jpg .jpeg .png .mp4 .avi .mkv .wav .flac .mp3 .hdf5 .h5 .gguf .bag .las .dcm .nii".split()
)

#: Files that mark the directory of a virtual environment.
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")

#: ioctl that makes a file share its blocks with another one.
_FICLONE = 0x40049409

#: Errors of a file that was removed meanwhile, or cannot be read by the program either.
_PASSED_OVER = (errno.ENOENT, errno.EACCES, errno.ENXIO)


@dataclass
class Copied:
    """A copy: its directory, what links to the originals, and what was not copied (relative)."""

    source: Path
    target: Path
    shared: list[Path] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)

    def shares(self, relative: Path) -> bool:
        """Return whether a path in the copy leads to the original."""
        return any(relative.is_relative_to(one) for one in self.shared)


@dataclass(frozen=True)
class _Entry:
    """A part of the copy, relative to the source: directory, file, link or environment."""

    relative: Path
    kind: str
    size: int = 0


def copy(
    source: Path,
    target: Path,
    *,
    names: Collection[Path] = (),
    skipped: Collection[Path] = (),
    most_bytes: int = MOST_BYTES,
    most_files: int = MOST_FILES,
) -> Copied:
    """Copy a directory; raises InputError if it is too large, or the disk is full.

    `names` are other absolute paths of the source: links that point below them point into the copy
    instead.  `skipped` are absolute paths that are not copied.
    """
    made = Copied(source, target)
    try:
        entries = [*_entries(made, frozenset(skipped), most_files)]
        target.mkdir(parents=True)
        clones = _clones(source, target, entries)
        share = set() if clones else _too_large(source, entries, most_bytes)
        if not clones:
            _check_space(source, target, entries, share)
        for entry in entries:
            try:
                _copy_entry(made, entry, (source, *names), clones, entry.relative in share)
            except OSError as error:
                if error.errno not in _PASSED_OVER:
                    raise
                if error.errno != errno.ENOENT:
                    made.unreadable.append(entry.relative)
        # Last, since a directory may not be writable, and its time changes with its files.
        folders = [entry.relative for entry in entries if entry.kind == "directory"]
        for folder in [*reversed(folders), Path()]:
            with contextlib.suppress(OSError):
                shutil.copystat(source / folder, target / folder)
    except OSError as error:
        sentence = os_error_sentence(error, "cannot copy the working directory:")
        raise InputError(printable(sentence)) from error
    return made


def _copy_entry(
    made: Copied, entry: _Entry, names: Collection[Path], clones: bool, share: bool
) -> None:
    there, here = made.source / entry.relative, made.target / entry.relative
    if entry.kind == "directory":
        here.mkdir()
        if _is_objects(entry.relative):
            # New commits go into the copy, known ones are read from the original.
            (here / "info").mkdir()
            (here / "info" / "alternates").write_bytes(os.fsencode(there) + b"\n")
    elif entry.kind == "link":
        here.symlink_to(_aimed(there, names, made.target))
    elif entry.kind == "environment" or share:
        here.symlink_to(there)
        made.shared.append(entry.relative)
    else:
        _copy_file(there, here, clones)


def _is_objects(relative: Path) -> bool:
    return relative.name == "objects" and relative.parent.name == ".git"


def _entries(made: Copied, skipped: frozenset[Path], most_files: int) -> Iterator[_Entry]:
    """Yield what to copy, directories before what is in them."""
    pending, count, per_top = [Path()], 0, Counter[str]()
    while pending:
        folder = pending.pop()
        try:
            found = sorted(os.scandir(made.source / folder), key=lambda one: one.name)
        except OSError as error:
            if folder == Path() or error.errno not in _PASSED_OVER:
                raise
            made.unreadable.append(folder)
            continue
        for one in found:
            relative = folder / one.name
            if made.source / relative in skipped:
                continue
            count += 1
            per_top[relative.parts[0]] += 1
            if count > most_files:
                busiest = per_top.most_common(1)[0][0]
                raise InputError(
                    f"{_named(made.source)} has more than {most_files:,} files, most of them in "
                    f"{printable(busiest)}, which are too many to copy for each launch"
                )
            if one.is_symlink():
                yield _Entry(relative, "link")
            elif one.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    yield _Entry(relative, "file", one.stat(follow_symlinks=False).st_size)
            elif one.is_dir(follow_symlinks=False):
                if any((made.source / relative / mark).exists() for mark in _ENVIRONMENT):
                    yield _Entry(relative, "environment")
                else:
                    yield _Entry(relative, "directory")
                    if not _is_objects(relative):
                        pending.append(relative)


def _too_large(source: Path, entries: Collection[_Entry], most_bytes: int) -> set[Path]:
    """Return the files that the copy links to, to stay within the limit; the largest first."""
    total = sum(entry.size for entry in entries)
    shared = set()
    files = sorted((entry for entry in entries if entry.kind == "file"), key=lambda e: -e.size)
    for entry in files:
        if total <= most_bytes:
            break
        if entry.size >= LARGE and entry.relative.suffix.lower() in _DATA:
            shared.add(entry.relative)
            total -= entry.size
    if total > most_bytes:
        largest = next(entry for entry in files if entry.relative not in shared)
        raise InputError(
            f"{_named(source)} has {format_bytes(total)} of files that a program may write "
            f"again (the largest: {_named(largest.relative)}), more than the limit of "
            f"{format_bytes(most_bytes)} for a copy"
        )
    return shared


def _check_space(
    source: Path, target: Path, entries: Collection[_Entry], share: Collection[Path]
) -> None:
    total = sum(entry.size for entry in entries if entry.relative not in share)
    free = shutil.disk_usage(target).free
    if total + _SPARE > free:
        raise InputError(
            f"no space for a copy of {_named(source)} ({format_bytes(total)}): "
            f"{target.parent} has {format_bytes(free)} free; set TMPDIR to a larger disk"
        )


def _aimed(link: Path, names: Collection[Path], target: Path) -> Path:
    """Return where the copy of a link points to."""
    aim = link.readlink()
    whole = Path(os.path.normpath(link.parent / aim))
    for name in names:
        if whole.is_relative_to(name):
            return target / whole.relative_to(name) if aim.is_absolute() else aim
    return whole


def _named(path: Path) -> str:
    return printable(str(path))


def _clones(source: Path, target: Path, entries: Collection[_Entry]) -> bool:
    """Return whether files can share their blocks with the originals."""
    first = next((entry for entry in entries if entry.kind == "file" and entry.size), None)
    if first is None:
        return False
    trial = target / ".perfpipe-clone"
    try:
        _clone(source / first.relative, trial)
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)
    return True


def _clone(there: Path, here: Path) -> None:
    with there.open("rb") as source, here.open("wb") as target:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())


def _copy_file(there: Path, here: Path, clones: bool) -> None:
    if clones:
        try:
            _clone(there, here)
        except OSError as error:
            if error.errno in _PASSED_OVER:
                raise
            shutil.copyfile(there, here)
    else:
        shutil.copyfile(there, here)
    shutil.copystat(there, here)


def state(path: Path) -> tuple[int, ...] | None:
    """Return what shows whether a file was written: its kind, size, time and number."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns, found.st_ino)


def states(top: Path) -> dict[Path, tuple[int, ...]]:
    """Return what shows whether each file below a directory was written."""
    found = {}
    pending = [top]
    while pending:
        try:
            entries = [*os.scandir(pending.pop())]
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif (known := state(path)) is not None:
                found[path.relative_to(top)] = known
    return found
