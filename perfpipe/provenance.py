"""Provenance of a file: version, interpreter, time; kept with every report and run."""

from __future__ import annotations

import hashlib
import platform
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from perfpipe import __version__


def version() -> str:
    """Return perfpipe's version."""
    return __version__


#: The folders with perfpipe's code, of which some are links, and the suffixes of its files.
_FOLDERS = (".", "ingest", "analysis", "templates", "pipelines")
_SUFFIXES = frozenset((".py", ".sql", ".toml", ".j2", ".css", ".js"))


@cache
def code_digest() -> str:
    """Return a digest of perfpipe's code, which changes without the version during development."""
    root = Path(__file__).parent
    paths = {path for folder in _FOLDERS for path in (root / folder).rglob("*")}
    digest = hashlib.sha256(version().encode())
    for path in sorted(path for path in paths if path.suffix in _SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def utc_now() -> str:
    """Return the time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime(_FORMAT)


def utc(seconds: float) -> str:
    """Return a time since 1970 in UTC, ISO 8601, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_FORMAT)


def age_of(at: str) -> float | None:
    """Return how long ago a time of `utc_now` was, s; None if it has another form."""
    try:
        then = datetime.strptime(at, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (datetime.now(UTC) - then).total_seconds()


def provenance() -> dict[str, str]:
    """Return a record of the perfpipe version, the Python version and the time."""
    return {
        "perfpipe": version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "written_at": utc_now(),
    }
