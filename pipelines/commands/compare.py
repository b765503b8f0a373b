"""perfpipe compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perfpipe.pipelines.gate.options import allow_mixed_option, gate_outputs
from perfpipe.pipelines.options import resolve_store, step_range_option, store_option, window_option

if TYPE_CHECKING:
    from perfpipe.pipelines.gate.options import Outputs


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@allow_mixed_option
@click.option(
    "--across-gpus",
    is_flag=True,
    help="For runs on two GPU models: compare the measured speedup with the largest speedup that "
    "the roofline of B's GPU allows.",
)
@gate_outputs
@window_option
@step_range_option
@store_option
def compare_command(
    before: str,
    after: str,
    allow_mixed: bool,
    across_gpus: bool,
    outputs: Outputs,
    window: str,
    step_range: str | int | None,
    store_path: str | None,
) -> None:
    """Show whether B is faster or slower than A, what changed, and why.

    A and B are runs or reports (several separated by commas), named baselines, or exported
    baselines (FILE.json).  @1 is the newest run, @2 the one before it; a file name is the report
    that was read from it.  The exit code is always 0; use 'perfpipe check' as a gate.

    \b
    perfpipe compare gemm-2026a gemm-2026b
    perfpipe compare @2 @1
    perfpipe compare run1,run3,run5 run2,run4,run6 --html difference.html
    perfpipe compare gemm-a100 gemm-h100 --across-gpus
    """
    from perfpipe.pipelines.gate import across_gpus as across
    from perfpipe.pipelines.gate.compare import compared
    from perfpipe.pipelines.gate.project import write

    store = resolve_store(store_path)
    if across_gpus:
        across.refuse_verdicts(outputs)
        moved = across.across_gpus(store, before.split(","), after.split(","), step_range, window)
        to = {"as_json": outputs.json, "md": outputs.md, "html": outputs.html}
        write(moved.page, moved.as_data, **to)
        return
    found = compared(
        store, before.split(","), after.split(","), step_range, window, allow_mixed=allow_mixed
    )
    found.write(outputs, store, step_range, window)
