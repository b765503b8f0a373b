"""perfpipe work."""

from __future__ import annotations

import click

from perfpipe.errors import InputError
from perfpipe.pipelines.options import resolve_store, store_option


@click.command("work")
@click.argument("report", metavar="REPORT")
@click.option("--flops", help="Floating-point operations per launch, such as 2*m*n*k.")
@click.option("--bytes", "moved", help="Minimum number of bytes that a launch must move.")
@click.option("--dtype", help="Data type that determines the peak FLOP rate (see 'perfpipe gpu').")
@click.option(
    "--kernel", metavar="REGEX", help="Apply only to launches whose full kernel name matches."
)
@click.option("--nvtx", metavar="REGEX", help="Apply only to launches whose NVTX ranges match.")
@click.option(
    "--param",
    "-p",
    "params",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Value of a variable in --flops or --bytes.",
)
@store_option
def work_command(
    report: str,
    flops: str | None,
    moved: str | None,
    dtype: str | None,
    kernel: str | None,
    nvtx: str | None,
    params: tuple[str, ...],
    store_path: str | None,
) -> None:
    """Declare how many FLOPs and bytes the kernels in REPORT need, to compute MFU.

    Counters show what the hardware did, not what the algorithm needs.  After you declare the work
    per launch, the view kernel_summary and the report show MFU and the algorithm's arithmetic
    intensity.  For workloads that perfpipe runs, use `work` in the workload file.

    \b
    perfpipe work 7a4c --nvtx gemm_fp16_4096 -p n=4096 \\
        --flops "2*n**3" --bytes "3*n**2*2" --dtype fp16
    """
    from perfpipe.pipelines.expression import evaluate
    from perfpipe.pipelines.selection import select
    from perfpipe.work import Work, add_work

    if flops is None and moved is None:
        raise InputError("give --flops, --bytes or both")
    store = resolve_store(store_path, must_exist=True)
    names = dict(_number(text) for text in params)
    try:
        values = [None if text is None else evaluate(text, names) for text in (flops, moved)]
    except ValueError as error:
        raise InputError(str(error)) from error
    if any(value is not None and value <= 0 for value in values):
        raise InputError("--flops and --bytes must be positive")
    for text in (kernel, nvtx):
        _check_expression(text)
    _check_type(dtype)
    reports = select(store, [report]).reports
    for report_id in reports:
        add_work(store, Work(report_id, kernel, nvtx, values[0], values[1], dtype))
        click.echo(report_id)


def _number(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError as error:
        raise InputError(f"--param {text}: expected NAME=NUMBER") from error


def _check_expression(text: str | None) -> None:
    import duckdb

    if text is None:
        return
    try:
        duckdb.connect().execute("SELECT regexp_matches('', ?)", [text])
    except duckdb.Error as error:
        raise InputError(
            f"'{text}' is not a regular expression: {str(error).splitlines()[0]}"
        ) from error


def _check_type(dtype: str | None) -> None:
    from perfpipe.errors import did_you_mean
    from perfpipe.specs import gpu_specs

    known = sorted({name for spec in gpu_specs() for name in spec.dense})
    if dtype is not None and dtype not in known:
        hint = did_you_mean(dtype, known) or f" (known: {', '.join(known)})"
        raise InputError(f"no known peak for type '{dtype}'{hint}")
