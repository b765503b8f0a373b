"""perfpipe gpu."""

from __future__ import annotations

from dataclasses import asdict

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.lazy import WithViews
from perfpipe.pipelines.options import json_document, json_option
from perfpipe.specs import GpuSpec, gpu_specs, search_specs


@click.command("gpu", cls=WithViews, views={"occupancy": "occupancy"})
@click.argument("gpu", required=False)
@json_option()
def gpu_command(gpu: str | None, as_json: bool) -> None:
    """Show the vendors' published peak rates of all GPUs, or the details of one GPU.

    GPU is a name or part of a name.  Peaks are dense, in TFLOP/s (int8: TOP/s); peaks with 2:4
    sparsity are listed separately.  'perfpipe gpu occupancy' calculates the occupancy of a kernel.

    \b
    perfpipe gpu
    perfpipe gpu h200
    perfpipe gpu occupancy h200 --block 256 --regs 64 --smem 48K
    """
    chosen = list(gpu_specs()) if gpu is None else search_specs(gpu)
    if not chosen:
        raise InputError(f"unknown GPU '{gpu}' ('perfpipe gpu' lists them)")
    if as_json:
        click.echo(json_document(gpus=[asdict(spec) for spec in chosen]))
    elif len(chosen) == 1:
        _print_one(chosen[0])
    else:
        types = " ".join(f"{dtype:>7}" for dtype in ("fp32", "fp16", "bf16"))
        click.echo(f"{'GPU':24} {'CC':>5} {'SMs':>4} {'MHz':>5} {'GB/s':>6} {types}")
        for spec in chosen:
            peaks = " ".join(f"{spec.dense.get(t, '-'):>7}" for t in ("fp32", "fp16", "bf16"))
            click.echo(
                f"{spec.name:24} {spec.cc:>5} {spec.sms:>4} {spec.clock_mhz or '-':>5} "
                f"{spec.bandwidth_gbs or '-':>6} {peaks}"
            )


def _print_one(spec: GpuSpec) -> None:
    clock = "" if spec.clock_mhz is None else f", {spec.clock_mhz} MHz"
    bandwidth = "" if spec.bandwidth_gbs is None else f", {spec.bandwidth_gbs:,} GB/s"
    click.echo(f"{spec.name}: compute capability {spec.cc}, {spec.sms} SMs{clock}")
    click.echo(f"memory: {'/'.join(map(str, spec.memory_gb))} GB{bandwidth}")
    for link, rate in (("PCIe", spec.pcie_gbs), ("NVLink", spec.nvlink_gbs)):
        if rate is not None:
            click.echo(f"{link}: {rate:,} GB/s in each direction")
    for dtype, peak in spec.dense.items():
        unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
        sparse = spec.sparse.get(dtype)
        extra = f"  (2:4 sparse: {sparse:,})" if sparse else ""
        click.echo(f"{dtype:12} {peak:>9,} {unit}{extra}")
    for dtype, why in spec.missing.items():
        click.echo(f"{dtype:12} {'-':>9} {why}")
    for unit, mhz in spec.quoted_mhz.items():
        click.echo(f"{unit} core peaks are quoted at {mhz:,} MHz")
    click.echo(f"source: {spec.source}")
    for address in spec.addresses:
        click.echo(f"  {address}")
