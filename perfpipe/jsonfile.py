"""JSON files: written atomically, read with a sentence for every error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, OtherVersion, StoreError, os_error_sentence
from perfpipe.files import replacing, text_of
from perfpipe.model import SCHEMA_VERSION


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, flushed to disk before it is renamed; objects by their attributes.

    Bytes that are not UTF-8 (in arguments, paths) are written as escapes, which JSON reads back.
    """
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        json.dump(value, file, indent=1, ensure_ascii=False, default=vars)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def json_lines(path: Path, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a JSON lines file with its place, FILE:LINE; blank lines are skipped.

    Raises InputError if the file cannot be read, or a line is not a `what`.
    """
    try:
        lines = text_of(path).splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read")) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: not a {what} ({error})") from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InputError(f"{path}:{number}: not a {what} ({kind} instead of an object)")
        yield f"{path}:{number}", value


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object; raises StoreError with one sentence on failure."""
    try:
        value = json.loads(text_of(path))
    except OSError as error:
        raise StoreError(os_error_sentence(error, f"cannot read the {what}")) from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: cannot read the {what} ({error})") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path}: cannot read the {what} (not a JSON object)")
    return value


def read_versioned(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object of the store; StoreError also if its schema version is unknown."""
    content = read_json(path, what)
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise OtherVersion(
            f"{path}: schema version {version!r}, but this perfpipe reads {SCHEMA_VERSION}; "
            "use the perfpipe version that wrote it"
        )
    return content
