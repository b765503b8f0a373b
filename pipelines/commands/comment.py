"""perfpipe comment."""

from __future__ import annotations

from pathlib import Path

import click

from perfpipe.errors import InputError, os_error_sentence


@click.command("comment")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--number", type=int, help="Pull or merge request [default: that of this CI job].")
@click.option(
    "--name",
    default="perfpipe",
    show_default=True,
    help="Whose comment it is, where a repository has several gates.",
)
def comment_command(file: Path, number: int | None, name: str) -> None:
    """Post FILE to the pull request of a CI job, or update the comment that is there.

    FILE is Markdown, as 'perfpipe check --md FILE' writes it.  An earlier comment is found by its
    marker line.  On GitHub this needs GITHUB_TOKEN, on GitLab GITLAB_TOKEN; the rest comes from
    variables that every CI job has.

    \b
    perfpipe check RUN... --baseline baseline.json --md comment.md
    perfpipe comment comment.md
    """
    from perfpipe.pipelines.gate.posting import forge, post

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(os_error_sentence(error, "comment")) from error
    click.echo(post(forge(number), text, name))
