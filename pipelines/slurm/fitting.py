"""Whether a cluster can ever start a job: its request against the limits of the partition."""

from __future__ import annotations

from collections.abc import Iterator

from perfpipe.pipelines.slurm.limits import Limits, Partition, amount_bytes
from perfpipe.pipelines.slurm.options import Slurm, clock
from perfpipe.units import counted, format_bytes


def misfit(slurm: Slurm, limits: Limits, *, gpu: bool) -> str | None:
    """Return why no partition that the options name can start a job; None if one may.

    `gpu` is as in JobSpec.  A partition that sinfo does not list may be hidden, and a QOS may lift
    the time limit.  Both are Slurm's to judge.
    """
    if not gpu:
        partition = slurm.cpu_partition or slurm.partition
        update = {"partition": partition, "gpus": 0, "nodes": 1}
        slurm = slurm.model_copy(update=update)
    names = slurm.partition.split(",") if slurm.partition else [None]
    found = [limits.partition(name) for name in names]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known:
        return None
    reasons = [next(_misfits(slurm, one), None) for one in known]
    return None if None in reasons else reasons[0]


def _misfits(slurm: Slurm, partition: Partition) -> Iterator[str]:
    """Yield what a partition does not allow, or does not have."""
    most_s, asked_s = partition.max_time_s, slurm.limit_s
    if most_s is not None and asked_s is not None and asked_s > most_s and slurm.qos is None:
        yield (f"--time {slurm.time}: partition {partition.name} allows at most {clock(most_s)}")
    if slurm.nodes > partition.nodes:
        has = counted(partition.nodes, "node")
        yield f"--nodes {slurm.nodes}: partition {partition.name} has {has}"
    if slurm.gpus > partition.gpus:
        has = counted(partition.gpus, "GPU")
        yield f"--gpus {slurm.gpus}: partition {partition.name} has at most {has} per node"
    kinds = {kind.lower() for kind in partition.gpu_types}
    if slurm.gpus and slurm.gpu_type and kinds and slurm.gpu_type.lower() not in kinds:
        has = ", ".join(partition.gpu_types)
        yield f"gpu_type {slurm.gpu_type}: partition {partition.name} has {has}"
    if slurm.cpus is not None and 0 < partition.cpus < slurm.cpus:
        has = counted(partition.cpus, "CPU")
        yield f"--cpus {slurm.cpus}: partition {partition.name} has at most {has} per node"
    if slurm.mem is not None and 0 < partition.memory_mb << 20 < (amount_bytes(slurm.mem) or 0):
        has = format_bytes(partition.memory_mb << 20)
        yield f"--mem {slurm.mem}: partition {partition.name} has at most {has} per node"
