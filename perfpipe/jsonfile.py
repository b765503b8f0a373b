"""JSON files that are either whole or not there."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from perfpipe.errors import StoreError, os_error_sentence


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a temporary file, flushed to disk, then renamed."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object; StoreError with one sentence when it cannot be."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(os_error_sentence(error, f"cannot read the {what}")) from error
    except ValueError as error:
        raise StoreError(f"{path}: not a {what} ({error})") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path}: not a {what} (no JSON object)")
    return value
