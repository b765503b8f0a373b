"""The bodies of the requests of perfpipe's load: JSON, or a file of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, os_error_sentence
from perfpipe.jsonfile import json_lines
from perfpipe.pipelines.serving.block import Serve


def bodies_of(serve: Serve, directory: Path) -> list[dict[str, Any]]:
    """Return the bodies to send in turn; files are relative to `directory`.

    Raises InputError if a file is none of them.
    """
    if serve.body is None:
        return [{}]
    if isinstance(serve.body, dict):
        return [serve.body]
    path = directory / serve.body
    if path.suffix == ".jsonl":
        found = [body for _, body in json_lines(path, "body of a request")]
        if not found:
            raise InputError(f"{path}: there are no bodies in this file")
        return found
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read")) from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(body, dict):
        raise InputError(f"{path}: not a JSON object")
    return [body]
