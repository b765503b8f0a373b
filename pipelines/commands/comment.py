"""perfpipe gate comment."""

from __future__ import annotations

from pathlib import Path

import click

from perfpipe.errors import InputError, os_error_sentence


@click.command("comment")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--number",
    type=int,
    help="Number of the pull request or merge request [default: from the CI job].",
)
@click.option(
    "--name",
    default="perfpipe",
    show_default=True,
    help="Name of the gate; each gate of a repository has its own comment.",
)
def comment_command(file: Path, number: int | None, name: str) -> None:
    """Post FILE as a comment on the pull request of a CI job, or update the comment.

    FILE is Markdown, as written by 'perfpipe check --md FILE'.  perfpipe finds an existing comment
    by its marker line.  GitHub needs GITHUB_TOKEN and GitLab needs GITLAB_TOKEN; all other settings
    come from the standard environment variables of a CI job.

    \b
    perfpipe check RUN... --baseline baseline.json --md comment.md
    perfpipe gate comment comment.md
    """
    from perfpipe.pipelines.gate.comment import forge, post

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(os_error_sentence(error, "comment")) from error
    click.echo(post(forge(number), text, name))
