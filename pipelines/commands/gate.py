"""perfpipe gate."""

from __future__ import annotations

import click

from perfpipe.pipelines.lazy import LazyGroup

_COMMANDS = {
    "baseline": "Save runs as a baseline for 'perfpipe check', and export baselines.",
    "calibrate": "Measure how small a change can be detected.",
    "comment": "Post a comment on the pull request of a CI job, or update it.",
}


@click.group("gate", cls=LazyGroup, sections={"Commands": _COMMANDS})
def gate_command() -> None:
    """Manage baselines, calibrate the gate, and comment on pull requests.

    'perfpipe check' and 'perfpipe ab' decide whether a program became slower.

    \b
    perfpipe gate baseline set main run1 run2 run3
    perfpipe gate calibrate workloads/gemm.yaml
    perfpipe gate comment comment.md
    """
