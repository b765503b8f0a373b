"""Errors that are reported as one sentence and an exit code, never as a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class PerfpipeError(Exception):
    """Base of every expected failure; `exit_code` is what the command line returns."""

    exit_code = 1


class TaskFailed(PerfpipeError):
    """A launched program, a profiler or a validation failed."""


class InputError(PerfpipeError):
    """A usage error, a configuration error, or an unreadable input file."""

    exit_code = 2


class StoreError(PerfpipeError):
    """The store cannot be read or written (permission, space, unknown schema version)."""

    exit_code = 2


class OtherVersion(StoreError):
    """A file of the store has a schema version that this perfpipe cannot read."""


class QueryFailed(PerfpipeError):
    """A query of perfpipe itself failed, which is a bug in perfpipe; `sql` repeats it."""

    def __init__(self, text: str, sql: str = "") -> None:
        super().__init__(text)
        self.sql = sql


class Regressed(PerfpipeError):
    """A gate found that something became slower."""

    exit_code = 3


class Inconclusive(PerfpipeError):
    """The sides of a gate cannot be compared, or the result is inconclusive and must fail."""

    exit_code = 4


class ToolMissing(PerfpipeError):
    """A required program is not installed."""

    exit_code = 5


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests a name; empty if none is close."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


#: Maximum characters of a foreign message or text that an error repeats.
_BRIEF = 120


def brief(said: object, most: int = _BRIEF) -> str:
    """Return a foreign message or text as a few printable words on one line.

    >>> brief("malformed\\n  schema")
    'malformed schema'
    """
    words = " ".join(str(said)[: 4 * most].split())
    plain = "".join(char if char.isprintable() else "\ufffd" for char in words)
    return plain if len(plain) <= most else f"{plain[:most]}..."


def os_error_sentence(error: OSError, what: str) -> str:
    """Return one sentence for an operating-system error, with the path and the reason."""
    where = f"{what} {error.filename}" if error.filename else what.rstrip(":")
    return f"{where}: {error.strerror or error}"
