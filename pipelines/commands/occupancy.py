"""perfpipe gpu occupancy."""

from __future__ import annotations

import re

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import json_document, json_option

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kK]?)(?:i?[bB])?")


@click.command("occupancy")
@click.argument("gpu", required=False)
@click.option("--cc", metavar="X.Y", help="Compute capability, such as 9.0, instead of a GPU.")
@click.option("--block", required=True, type=click.IntRange(1, 1024), help="Threads per block.")
@click.option(
    "--regs", required=True, type=click.IntRange(0, 255), help="Registers per thread (ptxas -v)."
)
@click.option(
    "--smem", default="0", metavar="BYTES", help="Shared memory per block: static plus dynamic."
)
@click.option("--barriers", type=click.IntRange(0, 16), default=0, help="Named barriers per block.")
@click.option(
    "--curve",
    is_flag=True,
    help="Also print the occupancy for other register counts and block sizes.",
)
@json_option()
def occupancy_command(
    gpu: str | None,
    cc: str | None,
    block: int,
    regs: int,
    smem: str,
    barriers: int,
    curve: bool,
    as_json: bool,
) -> None:
    """Calculate how many blocks and warps of a kernel fit on an SM, and what limits them.

    GPU is a name or part of a name, as in 'perfpipe gpu'.  Neither a report nor a GPU is needed.
    The calculation assumes the largest shared-memory carve-out, because the driver chooses that
    carve-out if a kernel can use it; ncu shows the carve-out of an actual launch.  BYTES accepts a
    suffix: 48K is 48 KiB.

    \b
    perfpipe gpu occupancy h200 --block 256 --regs 64 --smem 48K
    perfpipe gpu occupancy --cc 9.0 --block 256 --regs 64 --curve
    """
    from perfpipe.analysis.occupancy import Kernel, calculate, curves
    from perfpipe.specs import architecture_of

    if (gpu is None) == (cc is None):
        raise click.UsageError("give either a GPU or --cc")
    cc = cc or _capability(str(gpu))
    architecture = architecture_of(cc)
    kernel = Kernel(block, regs, _bytes(smem), barriers)
    if kernel.smem > architecture.smem_per_block:
        raise InputError(
            f"compute capability {cc} allows at most "
            f"{architecture.smem_per_block:,} bytes of shared memory per block"
        )
    result = calculate(architecture, kernel)
    points = curves(architecture, kernel) if curve else {}
    if as_json:
        click.echo(json_document(cc=cc, **result.as_json(), curves=points))
        return
    click.echo(
        f"{result.occupancy_pct:.1f} % occupancy: {result.blocks} blocks, "
        f"{result.warps} of {architecture.warps} warps per SM"
    )
    for name, limit in result.limits.items():
        mark = "  <- limiter" if name in result.limiters else ""
        click.echo(f"  {name:14} {limit:>4} blocks{mark}")
    for name, series in points.items():
        click.echo(f"\n{name:>12}  occupancy")
        for value, occupancy in series:
            click.echo(f"{value:>12}  {occupancy:5.1f} %  {'#' * round(occupancy / 2.5)}")


def _capability(gpu: str) -> str:
    """Return the compute capability of a GPU; raises InputError unless the name means only one."""
    from perfpipe.specs import search_specs

    found = dict.fromkeys(spec.cc for spec in search_specs(gpu))
    if not found:
        raise InputError(f"unknown GPU '{gpu}' ('perfpipe gpu' lists them)")
    if len(found) > 1:
        raise InputError(f"'{gpu}' matches compute capabilities {' and '.join(found)}: use --cc")
    return next(iter(found))


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--smem {text}: expected bytes, or KiB such as 48K")
    return round(float(match[1]) * (1024 if match[2] else 1))
