"""Copies candidates: only the copies run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from perfpipe.errors import InputError, os_error_sentence

#: Most files of a candidate, and most bytes of all together.
MOST_FILES, MOST_BYTES = 200, 64 << 20

#: Names that are not part of a candidate.
_LEFT_OUT = {"__pycache__", ".git"}

#: File in which a candidate may state its parameters, for `perfpipe report --tuning`.
PARAMETERS_FILE = "params.json"


def parameters(directory: Path) -> dict[str, int | float | str]:
    """Return the parameters that a copied candidate states; raises InputError if invalid."""
    path = directory / "files" / PARAMETERS_FILE
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{PARAMETERS_FILE}: not JSON ({error})") from error
    if not isinstance(found, dict) or not all(
        isinstance(one, (int, float, str)) for one in found.values()
    ):
        raise InputError(f"{PARAMETERS_FILE}: expected an object of numbers and strings")
    return found


def copied(source: Path, into: Path) -> str:
    """Copy a candidate's files into `into`/files, and return the digest of names and contents.

    Links are skipped.  Raises InputError if the directory does not exist or is too large.
    """
    if not source.is_dir():
        raise InputError(f"{source}: no such candidate directory")
    target = into / "files"
    target.mkdir(parents=True)
    whole, count, size = hashlib.sha256(), 0, 0
    try:
        for path in sorted(source.rglob("*")):
            parts = path.relative_to(source).parts
            if _LEFT_OUT & {*parts} or path.is_symlink() or not path.is_file():
                continue
            count, size = count + 1, size + path.stat().st_size
            if count > MOST_FILES or size > MOST_BYTES:
                raise InputError(
                    f"{source}: a candidate may have at most {MOST_FILES} files and "
                    f"{MOST_BYTES >> 20} MiB"
                )
            content = path.read_bytes()
            name = path.relative_to(source).as_posix()
            whole.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
            at = target / name
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)
    except OSError as error:
        shutil.rmtree(into, ignore_errors=True)
        raise InputError(os_error_sentence(error, "cannot copy")) from error
    return whole.hexdigest()[:16]
