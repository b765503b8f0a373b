"""Finds the reports given as arguments: files, export directories, globs and folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from perfpipe.errors import InputError, os_error_sentence
from perfpipe.ingest.formats import FORMATS
from perfpipe.ingest.hangs.detecting import DUMPS, rank_of
from perfpipe.ingest.inputs import identify

#: Directories of the operating system, with endless files and links to all others.
_OF_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev")))

#: Memory below them that holds ordinary files.
_SHARED_MEMORY = Path("/dev", "shm")

_PACKED = (".xz", ".gz", ".zst")


def expand_paths(paths: list[str]) -> list[Path]:
    """Return the inputs that arguments select, without duplicates.

    A folder selects the reports in it and below it; other files are ignored.  Raises InputError if
    a name or a pattern matches nothing, or if a folder has no report or is of the operating system.
    """
    found = list(dict.fromkeys(chain.from_iterable(_expand_one(Path(text)) for text in paths)))
    return list(dict.fromkeys(_together(found)))


def _together(found: list[Path]) -> Iterator[Path]:
    """Yield the inputs; several dumps of a folder are one report, that of the folder."""
    dumps = Counter(path.parent for path in found if _is_dump(path))
    for path in found:
        yield path.parent if dumps[path.parent] > 1 and _is_dump(path) else path


def _expand_one(path: Path) -> list[Path]:
    if path.is_dir():
        if _is_of_system(path):
            raise InputError(f"{path}: a directory of the operating system, which has no reports")
        if form := _format_of(path):
            return [path, *_others_below(path, form)]
        if reports := _reports_below(path, set()):
            return reports
        raise InputError(f"{path}: no report in this directory or below it")
    if path.exists():
        return [path]
    if any(char in path.name for char in "*?["):
        matches = sorted(path.parent.glob(path.name))
        if matches:
            return [report for match in matches for report in _expand_one(match)]
    raise InputError(f"{path}: no such file or directory")


def _is_of_system(folder: Path) -> bool:
    real = folder.resolve()
    return not real.is_relative_to(_SHARED_MEMORY) and any(map(real.is_relative_to, _OF_SYSTEM))


def _others_below(folder: Path, form: str) -> list[Path]:
    """Return the reports in a folder that is a report of a format, besides its own files."""
    parts = FORMATS[form].parts
    if parts is None:
        return []
    own = {*parts(folder)}
    return [path for path in _reports_below(folder, set()) if path not in own]


def _is_dump(path: Path) -> bool:
    return rank_of(path.name) is not None and path.is_file() and _format_of(path) in DUMPS


def _reports_below(folder: Path, seen: set[Path]) -> list[Path]:
    """Return the reports in a folder and below it; visits each folder once despite link cycles."""
    real = folder.resolve()
    if real in seen or _is_of_system(real):
        return []
    seen.add(real)
    reports = []
    for entry in sorted(_entries(folder)):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            form = _format_of(entry)
            reports += [entry, *_others_below(entry, form)] if form else _reports_below(entry, seen)
        elif entry.is_file() and _has_name_of_report(entry):
            reports.append(entry)
    return reports


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read")) from error


def _has_name_of_report(path: Path) -> bool:
    """Return whether a file has the name of a report; ambiguous names are checked by content."""
    name = path.name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    forms = [form for form in FORMATS.values() if name.endswith(form.endings)]
    return any(not form.ambiguous for form in forms) or bool(forms and _format_of(path))


def _format_of(path: Path) -> str:
    """Return the format of a report; empty for what is no report."""
    try:
        return identify(path).format
    except InputError:
        return ""
