"""Reads the limits of a cluster from scontrol, sinfo and sacctmgr."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GPU = re.compile(r"\bgpu(?::(?P<type>[A-Za-z][^:(,]*))?:(?P<count>\d+)")
_CLOCK = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")

#: Powers of two of Slurm's units of memory, which are megabytes if none is stated.
_BITS = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}

#: Fields of sinfo -o, in the order in which rows are read.
SINFO_FIELDS = "%P|%a|%l|%L|%F|%c|%m|%G|%f"


@dataclass(frozen=True)
class Partition:
    """A partition; CPUs, memory and GPUs are the most per node, a time of None is unlimited.

    `nodes` counts all of its nodes, `idle` the idle ones.
    """

    name: str
    default: bool
    up: bool
    nodes: int
    idle: int
    gpus: int
    gpu_types: tuple[str, ...]
    cpus: int
    memory_mb: int
    features: tuple[str, ...]
    max_time_s: int | None
    default_time_s: int | None


@dataclass(frozen=True)
class Limits:
    """The limits of a cluster; array indices are less than `max_array_size`."""

    cluster: str
    version: str
    max_array_size: int | None
    max_jobs: int | None
    max_submit: int | None
    accounting: bool
    partitions: tuple[Partition, ...]

    def partition(self, name: str | None) -> Partition | None:
        """Return a partition by name, or the default one."""
        return next(
            (p for p in self.partitions if (p.name == name if name else p.default)),
            None,
        )


def parse_limits(config: str, sinfo: str, associations: str) -> Limits:
    """Return limits from scontrol show config, sinfo -o SINFO_FIELDS, sacctmgr show assoc."""
    settings = dict(re.findall(r"^(\w+) *= (.*?) *$", config, re.MULTILINE))
    submits = [int(number) for number in re.findall(r"\d+", associations)]
    return Limits(
        settings.get("ClusterName", ""),
        settings.get("SLURM_VERSION", ""),
        _number(settings.get("MaxArraySize", "")),
        _number(settings.get("MaxJobCount", "")),
        min(submits, default=None),
        settings.get("AccountingStorageType", "").endswith("slurmdbd"),
        parse_partitions(sinfo),
    )


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Return partitions from sinfo, which prints a row per kind of node in a partition."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != SINFO_FIELDS.count("|") + 1:
            continue
        name, up, most, default, counts, cpus, memory, gres, features = fields
        numbers = [int(number) for number in re.findall(r"\d+", counts)]
        _, idle, _, total = numbers if len(numbers) == 4 else (0, 0, 0, 0)
        gpus = list(_GPU.finditer(gres))
        row = Partition(
            name.rstrip("*"),
            name.endswith("*"),
            up == "up",
            total,
            idle,
            sum(int(gpu["count"]) for gpu in gpus),
            tuple(gpu["type"] for gpu in gpus if gpu["type"]),
            _number(cpus) or 0,
            _number(memory) or 0,
            tuple(word for word in features.split(",") if word != "(null)"),
            time_s(most),
            time_s(default),
        )
        known = found.get(row.name)
        found[row.name] = _together(known, row) if known else row
    return tuple(found.values())


def _together(one: Partition, other: Partition) -> Partition:
    return Partition(
        one.name,
        one.default,
        one.up,
        one.nodes + other.nodes,
        one.idle + other.idle,
        max(one.gpus, other.gpus),
        tuple(dict.fromkeys(one.gpu_types + other.gpu_types)),
        max(one.cpus, other.cpus),
        max(one.memory_mb, other.memory_mb),
        tuple(dict.fromkeys(one.features + other.features)),
        one.max_time_s,
        one.default_time_s,
    )


def time_s(text: str) -> int | None:
    """Return a time of sinfo, such as 1-00:00:00, 1:00:00 or 5:00, in s; None for none.

    >>> time_s("5:00"), time_s("infinite")
    (300, None)
    """
    seconds = clock_s(text)
    return None if seconds is None else int(seconds)


def clock_s(text: str) -> float | None:
    """Return a time of Slurm, such as 1-02:03:04 or 03:04.567, in s; None for none."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + float(seconds)


def amount_bytes(text: str) -> float | None:
    """Return an amount of memory of Slurm, such as 64G, in bytes; None for none."""
    match = _AMOUNT.fullmatch(text)
    return None if match is None else float(match[1]) * 2.0 ** _BITS[match[2]]


def _number(text: str) -> int | None:
    """Return the number at the start of a text: sinfo prints 64+ where nodes differ."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
