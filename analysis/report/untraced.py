"""Why a timeline has no GPU work, in the words of nsys or the program."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Any

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.errors import brief
from perfpipe.files import packaged
from perfpipe.units import counted

#: Views that are read here.
VIEWS = ("nsys_api_calls", "nsys_diagnostics", "nsys_environment", "_printed", "reports")

#: The reason if nothing else is known.
_NO_CALL = (
    "no CUDA call was recorded: the program makes no CUDA calls, or nsys did not trace the "
    "process that makes them (--trace=cuda)"
)

_NO_OPERATION = (
    "the trace contains no kernel and no copy that ran on a GPU: the program used only the CPU, or "
    "the profiler did not record the GPU"
)

#: Maximum number of named calls, and of characters of a printed line.
_CALLS, _LINE = 3, 200

_DIRECTORIES = re.compile(r"(?<![\w.:/])(/[^\s/:]+)+/")


def why_untraced(scope: Scope) -> str:
    """Return why timelines have no GPU work: messages, the system, or the CUDA calls."""
    if not scope.timeline:
        return "the GPU time by module was recorded alone, without a timeline"
    if not scope.kinds.get("nsys"):
        return _NO_OPERATION
    calls = _calls(scope)
    return _caused(scope, called=calls is not None) or calls or _NO_CALL


def _caused(scope: Scope, *, called: bool) -> str:
    """Return the first known cause, and what helps."""
    chosen = in_list(scope.reports)
    said = f"""
        SELECT DISTINCT text FROM nsys_diagnostics
        WHERE report_id IN {chosen} AND severity IN ('Warning', 'Error') ORDER BY 1
    """
    systems = f"""
        SELECT DISTINCT value FROM nsys_environment
        WHERE report_id IN {chosen} AND name = 'SoftwareReleaseVersion' ORDER BY 1
    """
    printed = f"SELECT line FROM _printed WHERE report_id IN {chosen}"
    texts, releases, lines = (
        [str(row[0]) for row in rows_of(scope.con, sql)] for sql in (said, systems, printed)
    )
    nothing = "nsys recorded no GPU work"
    for cause in _causes():
        if called and cause.get("without_calls"):
            continue
        for text in texts:
            if "says" in cause and re.search(cause["says"], text):
                return f"{nothing}: {' '.join(text.split()).rstrip('.')} ({cause['helps']})"
        for line in reversed(lines):
            if "prints" in cause and re.search(cause["prints"], line):
                told = brief(_DIRECTORIES.sub("", line), _LINE)
                return f"{nothing}, and the program printed: {told} ({cause['helps']})"
        for release in releases:
            if "runs_under" in cause and re.search(cause["runs_under"], release):
                return f"{nothing} under {cause['name']} ({release}): {cause['helps']}"
    return ""


def _calls(scope: Scope) -> str | None:
    """Return which CUDA calls there are; None without any."""
    sql = f"""
        SELECT
            count(*),
            count(*) FILTER (regexp_matches(name, 'Launch|[mM]emcpy|[mM]emset')),
            list(DISTINCT regexp_replace(name, '_v[0-9]+$', '') ORDER BY 1)[:{_CALLS}]
        FROM nsys_api_calls WHERE report_id IN {in_list(scope.reports)}
    """
    ((calls, working, names),) = rows_of(scope.con, sql)
    if not calls:
        return None
    if not working:
        made = counted(calls, "CUDA call")
        return f"the program made {made} ({', '.join(names)}), but no call that launches or copies"
    return (
        f"the program made {counted(working, 'launch or copy call')}, but nsys recorded nothing on "
        "the GPU (vGPU, no permission, or a driver that nsys does not support)"
    )


@cache
def _causes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(packaged("perfpipe.analysis", "untraced.toml"))[
        "cause"
    ]
    return found
