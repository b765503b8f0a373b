"""What jobs used of what they had, from sacct."""

from __future__ import annotations

import re
from collections import defaultdict

from perfpipe.batchrecord import Usage
from perfpipe.pipelines.slurm.limits import amount_bytes, clock_s

#: Fields of sacct -o, in the order in which rows are read.
USAGE_FIELDS = ("JobID", "CPUTimeRAW", "TotalCPU", "ReqMem", "MaxRSS", "NNodes", "AllocCPUS",
                "TRESUsageInAve")  # fmt: skip

_GPU = re.compile(r"gres/gpuutil=(\d+(?:\.\d+)?)")


def parse_usage(text: str) -> dict[str, Usage]:
    """Return what each job or array element used, by JOB or JOB_INDEX.

    `text` is the output of sacct -P with USAGE_FIELDS.  A job's row has its CPU time and request,
    the rows of its steps have memory and the utilization of GPUs.
    """
    rows = [line.split("|") for line in text.splitlines()]
    jobs: dict[str, list[str]] = {}
    steps: dict[str, list[list[str]]] = defaultdict(list)
    for row in rows:
        if len(row) == len(USAGE_FIELDS) and row[0][:1].isdigit():
            name, dot, _ = row[0].partition(".")
            if dot:
                steps[name].append(row)
            else:
                jobs[name] = row
    return {name: _usage(row, steps[name]) for name, row in jobs.items()}


def _usage(job: list[str], steps: list[list[str]]) -> Usage:
    _, had_s, total, requested, _, nodes, cpus, _ = job
    used_s, had = clock_s(total), float(had_s) if had_s.isdigit() else 0.0
    memory = _bytes(requested, _number(nodes), _number(cpus))
    resident = [size for row in steps if (size := _bytes(row[4])) is not None]
    gpus = [float(match[1]) for row in steps if (match := _GPU.search(row[7]))]
    return Usage(
        100 * used_s / had if used_s is not None and had else None,
        100 * max(resident) / memory if resident and memory else None,
        max(gpus, default=None),
    )


def _bytes(text: str, nodes: int = 1, cpus: int = 1) -> float | None:
    """Return an amount of memory; before Slurm 21.08 it is stated by node (n) or by CPU (c)."""
    times = {"n": nodes, "c": cpus}.get(text[-1:], 1)
    amount = amount_bytes(text.rstrip("nc"))
    return None if amount is None else times * amount


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 1
