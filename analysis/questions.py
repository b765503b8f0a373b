"""The queries that show more about a finding: what `perfpipe show` shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from perfpipe.analysis.views import views
from perfpipe.analysis.words import finding_files, shown_of, shows
from perfpipe.errors import InputError, did_you_mean

#: What an argument of a query names, by its placeholder.
_ARGUMENTS = {"bound": "CAUSE", "kernel": "KERNEL"}


@dataclass(frozen=True)
class Show:
    """An entry of `perfpipe show`: what it shows, and its query, which may have one placeholder."""

    name: str
    about: str
    sql: str

    @property
    def placeholder(self) -> str:
        """The placeholder of the query: bound, kernel, or empty."""
        return next((name for name in _ARGUMENTS if f"{{{name}}}" in self.sql), "")

    @property
    def argument(self) -> str:
        """What the argument names; empty if there is none."""
        return _ARGUMENTS.get(self.placeholder, "")

    def query(self, of: str) -> str:
        """Return the query for the cause or kernel `of`."""
        return self.sql.format_map({self.placeholder: of.replace("'", "''")})


@cache
def entries() -> dict[str, Show]:
    """Return everything that `perfpipe show` shows, by name, in the order of its list."""
    own = [Show(name, entry["about"], entry["sql"]) for name, entry in shows().items()]
    files = [
        Show(_name(file.view), _about(file.view), file.question)
        for file in sorted(finding_files().values(), key=lambda file: file.view)
    ]
    return {entry.name: entry for entry in (*own, *files)}


def query_of(name: str, of: str | None) -> str:
    """Return the query of an entry; InputError for no such entry, or a wrong number of words."""
    entry = entries().get(name)
    if entry is None:
        raise InputError(f"nothing named {name!r} to show{did_you_mean(name, entries())}")
    if entry.argument and of is None:
        raise InputError(f"'perfpipe show {name}' needs a {entry.argument.lower()}")
    if not entry.argument and of is not None:
        raise InputError(f"'perfpipe show {name}' takes no other word: {of!r}")
    return entry.query(of or "")


def question(
    subject: str, claim: str, reports: Sequence[str], run_id: str | None, *, kernel: str, bound: str
) -> str:
    """Return a command line to paste; `subject` is kernel or timeline, as in the view findings."""
    own = finding_files() if subject == "timeline" else {}
    name = _name(own[claim].view) if claim in own else shown_of(subject, claim)
    of = {"kernel": kernel, "bound": bound}.get(entries()[name].placeholder)
    target = reports[0] if len(reports) == 1 else run_id
    words = [name, *([of] if of is not None else []), *(["-r", target] if target else [])]
    return f"perfpipe show {shlex.join(words)}"


def query_of_command(command: str) -> str:
    """Return the query that a command of `question` shows."""
    _, _, name, *words = shlex.split(command)
    return query_of(name, words[0] if entries()[name].argument else None)


def _about(view: str) -> str:
    """Return the first clause of what a view is."""
    return re.split("[.:,] ", views()[view].doc)[0].rstrip(".")


def _name(view: str) -> str:
    """Return the name of a finding's file: few_blocks_findings becomes few-blocks."""
    return re.sub("_findings$", "", view).replace("_", "-")
