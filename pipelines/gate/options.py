"""Options for the outputs of a decision, which several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

#: Rounds if nothing says how many are needed.
ROUNDS = 5


@dataclass(frozen=True)
class Outputs:
    """Files to write, as given; `-` is stdout, None is not requested."""

    json: str | None = None
    md: str | None = None
    html: str | None = None
    junit: str | None = None
    bmf: str | None = None
    openmetrics: str | None = None


_HELP = {
    "json": ("-", "Write the decision as JSON"),
    "md": ("-", "Write Markdown for a comment on a pull request"),
    "html": ("comparison.html", "Write a self-contained HTML page"),
    "junit": (
        "junit.xml",
        "Write JUnit XML: a regression is a failure, an inconclusive verdict is skipped",
    ),
    "bmf": ("-", "Write Bencher Metric Format: times with their 95 % intervals"),
    "openmetrics": ("-", "Write OpenMetrics text"),
}


allow_mixed_option = click.option(
    "--allow-mixed",
    is_flag=True,
    help="Compare runs even if their GPU models (without GPUs: machine models) or major driver "
    "versions differ.",
)


allow_not_comparable_option = click.option(
    "--allow-not-comparable",
    is_flag=True,
    help="Exit with 0 instead of 4 if the two sides cannot be compared.",
)


def gate_outputs(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of Outputs, which the command receives as `outputs`."""

    @wraps(command)
    def with_outputs(**given: Any) -> None:
        chosen = {item.name: given.pop(f"as_{item.name}") for item in fields(Outputs)}
        command(outputs=Outputs(**chosen), **given)

    made: Callable[..., None] = with_outputs
    for name, (default, text) in reversed(_HELP.items()):
        usual = "stdout" if default == "-" else default
        made = click.option(
            f"--{name}",
            f"as_{name}",
            is_flag=False,
            flag_value=default,
            metavar="[FILE]",
            help=f"{text} [default: {usual}].",
        )(made)
    return made
