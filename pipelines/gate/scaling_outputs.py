"""Writes pages about two GPUs: a table, or the requested formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from perfpipe.pipelines.options import json_document
from perfpipe.pipelines.writing import write_text
from perfpipe.templates.renderers import print_terminal, render_html, render_markdown
from perfpipe.viewmodel import Report


def write(
    page: Report,
    as_data: Callable[[], dict[str, Any]],
    *,
    as_json: str | None,
    md: str | None,
    html: str | None,
) -> None:
    """Print a page, or write the requested files; - is stdout."""
    from rich.console import Console

    made: tuple[tuple[str | None, Callable[[], str]], ...] = (
        (as_json, lambda: json_document(**as_data()) + "\n"),
        (md, lambda: render_markdown(page)),
        (html, lambda: render_html(page)),
    )
    for target, make in made:
        if target == "-":
            click.echo(make(), nl=False)
        elif target is not None:
            write_text(Path(target), make())
    if not any(target == "-" for target, _ in made):
        print_terminal(page, Console(), most=1)
