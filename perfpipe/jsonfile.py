"""JSON files: written whole, read with a sentence for every fault."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from perfpipe.errors import StoreError, os_error_sentence
from perfpipe.files import replacing


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, flushed to disk before it is renamed."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


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
