"""The command that shows more about a finding."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from perfpipe.analysis.words import question_of


def question(
    subject: str, claim: str, reports: Sequence[str], run_id: str | None, *, kernel: str, bound: str
) -> str:
    """Return a command line to paste; `subject` is kernel or timeline, as in the view findings."""
    names = {"kernel": kernel.replace("'", "''"), "bound": bound.replace("'", "''")}
    sql = question_of(subject, claim).format_map(names)
    of = reports[0] if len(reports) == 1 else run_id
    chosen = f"-r {shlex.quote(of)} " if of else ""
    return f"perfpipe query {chosen}{_quoted(sql)}"


def _quoted(text: str) -> str:
    """Quote for a shell; in double quotes, which SQL's own do not break, where that is enough."""
    if re.search(r'["$`\\!]', text):
        inner = text.replace("'", "'\\''")
        return f"'{inner}'"
    return f'"{text}"'
