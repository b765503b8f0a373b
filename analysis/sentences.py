"""Sentences from the Jinja templates of findings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from perfpipe.units import counted, format_bytes, format_ns, request_rate, words

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, names: Mapping[str, Any]) -> str:
    """Return a template with its names replaced.

    Filters are ns, bytes, request_rate (numbers with units), counted(noun), words (of identifiers).
    Raises jinja2.UndefinedError for a name that is not there.
    """
    return environment().from_string(template).render(names)


@cache
def environment() -> Environment:
    """Return the templates' environment."""
    from jinja2 import Environment, StrictUndefined

    made = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701  plain text
    made.filters |= {"ns": format_ns, "bytes": format_bytes, "request_rate": request_rate}
    made.filters |= {"counted": counted, "words": words}
    return made
