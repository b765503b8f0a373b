"""The options under `slurm:` in a workload file and [slurm] in perfpipe.toml."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

#: Options of those that have a setting of perfpipe's.
_SETTINGS = {
    "--job-name": "job_name", "-J": "job_name", "--comment": "comment", "--output": "log_dir",
    "-o": "log_dir", "--dependency": "dependency", "-d": "dependency",
}  # fmt: skip

_UNITS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_HOW_TO_WRITE = "write 30m, 1h30m, 2:00:00 or 1-12:00:00"

#: Options that perfpipe writes itself, or that change the output that it reads.
_OWN = (
    "--array --chdir --comment --dependency --error --export --job-name --kill-on-invalid-dep "
    "--no-requeue --open-mode --output --parsable --requeue --signal --test-only --wait --wrap "
    "-a -D -d -e -J -o -W"
).split()


def seconds(text: str) -> int:
    """Return a time limit in seconds; raises ValueError for an ambiguous one.

    Slurm reads 90 as minutes and 90:00 as minutes and seconds; YAML 1.1 reads 1:30:00 as 5400.

    >>> seconds("1h30m"), seconds("1-12:00:00")
    (5400, 129600)
    """
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        if match[1] and hours >= 24:
            raise ValueError(f"{text} has days and {hours} hours; {_HOW_TO_WRITE}")
    elif text and (match := _UNITS.fullmatch(text)):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    else:
        raise ValueError(f"{text!r} is not a valid time limit, or is ambiguous; {_HOW_TO_WRITE}")
    total = days * _DAY + hours * _HOUR + minutes * _MINUTE + rest
    if not total:
        raise ValueError(f"{text} is zero; {_HOW_TO_WRITE}")
    return total


def clock(total: int) -> str:
    """Return seconds as Slurm's D-HH:MM:SS."""
    days, rest = divmod(total, _DAY)
    hours, rest = divmod(rest, _HOUR)
    return f"{days}-{hours:02}:{rest // _MINUTE:02}:{rest % _MINUTE:02}"


def _time(value: object) -> str:
    return clock(seconds(str(value)))


def _memory(value: object) -> str:
    """Reject a number without a unit: Slurm would read it as megabytes."""
    if not re.fullmatch(r"0|[1-9]\d*[KMGT]", str(value)):
        raise ValueError(
            f"{value!r} is not an amount of memory; write 64G, or 0 for all memory of the node"
        )
    return str(value)


def line(text: object) -> object:
    """Return a value of an #SBATCH line; raises ValueError for one that would break the line."""
    if isinstance(text, str) and (not text or re.search(r'[\x00-\x1f\x7f"\\]', text)):
        raise ValueError(f"{text!r} is empty or contains a line break, a quote or a backslash")
    return text


def _option(text: object) -> object:
    name = re.match(r"(--[^=\s]+|-\w)", str(text))
    if not name:
        raise ValueError(f"{text!r} is not an sbatch option, such as --qos=high")
    if name[0] in _OWN:
        hint = f"; use {_SETTINGS[name[0]]}" if name[0] in _SETTINGS else ""
        raise ValueError(f"{name[0]} is set by perfpipe{hint}")
    return text


Line = Annotated[str, BeforeValidator(line)]
Time = Annotated[str, BeforeValidator(_time)]
Memory = Annotated[str, BeforeValidator(_memory)]
Option = Annotated[Line, BeforeValidator(_option)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Container(_Model):
    """The container that jobs run in."""

    image: Line | None = Field(
        None, description="image file or registry address; default: no container"
    )
    runtime: Literal["apptainer", "pyxis"] = Field("apptainer", description="container runtime")
    mounts: list[Line] = Field([], description="directories to mount, as FROM or FROM:TO")
    options: list[str] = Field([], description="additional options of apptainer exec or srun")


class Slurm(_Model):
    """Batch jobs: the Slurm options of `perfpipe batch submit`."""

    partition: Line | None = Field(
        None, description="Slurm partition; default: the cluster's default partition"
    )
    cpu_partition: Line | None = Field(
        None, description="partition of jobs without a GPU; default: the value of partition"
    )
    account: Line | None = Field(None, description="account to charge")
    qos: Line | None = Field(None, description="Slurm quality of service (QOS)")
    time: Time | None = Field(
        None, description="time limit of a job: 30m, 1h30m, 2:00:00 or 1-12:00:00"
    )
    gpus: int = Field(1, ge=0, description="GPUs per node")
    gpu_type: Line | None = Field(None, description="GPU type as named in Slurm, such as h100")
    cpus: int | None = Field(None, ge=1, description="CPUs per node")
    mem: Memory | None = Field(
        None, description="memory per node, such as 64G; 0: all memory of the node"
    )
    constraint: Line | None = Field(None, description="features that nodes must have")
    exclusive: bool = Field(False, description="request whole nodes")
    nodes: int = Field(1, ge=1, description="nodes per task; if 2 or more, srun starts the program")
    ranks_per_node: int | None = Field(
        None,
        ge=1,
        description="processes that srun starts per node; default: one per GPU if nodes > 1",
    )
    array_parallelism: int | None = Field(
        None, ge=1, description="maximum number of jobs that run at a time"
    )
    tasks_per_job: int | None = Field(
        None,
        ge=1,
        description="number of tasks that a job runs, one after another; default: automatic",
    )
    setup: list[str] = Field(
        [], description="shell lines to run before the task, such as module load cuda"
    )
    container: Container = Field(
        default_factory=Container, description="the container that tasks run in"
    )
    ingest: Literal["auto", "inside", "separate"] = Field(
        "auto",
        description="inside: each job reads the reports that it wrote; separate: a job without "
        "a GPU reads the reports; auto: separate if reading took more than a minute in earlier "
        "runs",
    )
    job_name: Line | None = Field(
        None, description="name of the jobs; default: perfpipe and the names of the workloads"
    )
    comment: Line | None = Field(None, description="text behind perfpipe's comment of a job")
    dependency: Line | None = Field(
        None, description="what the first jobs wait for, such as afterok:1234"
    )
    log_dir: Line | None = Field(
        None,
        description="directory for the logs of jobs, which get a directory per batch in it; "
        "default: in the batch's directory",
    )
    mail_user: Line | None = Field(
        None, description="who gets one mail per batch, from its last job"
    )
    mail_type: Line = Field("END,FAIL", description="when to send it, as sbatch --mail-type")
    requeue: bool = Field(False, description="let Slurm restart a job after a node failure")
    warn_s: int = Field(
        120,
        ge=0,
        le=65535,
        description="seconds before the time limit at which a job begins to shut down",
    )
    extra: list[Option] = Field(
        [], description="additional sbatch options, such as --reservation=x"
    )

    @property
    def ranks(self) -> int | None:
        """Processes that srun starts per node; None without srun."""
        if self.ranks_per_node is None and self.nodes == 1:
            return None
        return self.ranks_per_node or max(self.gpus, 1)

    @property
    def prepares(self) -> bool:
        """Whether tasks may find other programs than the host that submits them."""
        return bool(self.setup or self.container.image)

    @property
    def limit_s(self) -> int | None:
        """The time limit, s; None for the partition's."""
        return seconds(self.time) if self.time else None


def merged(*layers: Slurm | None) -> Slurm:
    """Return options from layers; a later layer overrides earlier ones.

    A list is replaced as a whole, a container key by key.
    """
    stated: dict[str, Any] = {}
    container: dict[str, Any] = {}
    for layer in layers:
        if layer is not None:
            stated |= layer.model_dump(exclude_unset=True, exclude={"container"})
            container |= layer.container.model_dump(exclude_unset=True)
    return Slurm.model_validate(stated | ({"container": container} if container else {}))


def shape(slurm: Slurm) -> Hashable:
    """Return all options that decide which job a task fits in."""
    return slurm.model_dump_json(exclude={"array_parallelism", "tasks_per_job"})
