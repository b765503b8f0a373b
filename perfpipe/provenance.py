"""Provenance of a file: version, interpreter, time; kept with every report and run."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return perfpipe's version."""
    return metadata.version("perfpipe")


_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def utc_now() -> str:
    """Return the time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime(_FORMAT)


def utc(seconds: float) -> str:
    """Return a time since 1970 in UTC, ISO 8601, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_FORMAT)


def provenance() -> dict[str, str]:
    """Return a record of the perfpipe version, the Python version and the time."""
    return {
        "perfpipe": version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "written_at": utc_now(),
    }
