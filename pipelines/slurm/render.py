"""Writes the script for sbatch: a pure function of its specification."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from perfpipe.errors import InputError
from perfpipe.pipelines.slurm.options import Container, Slurm, line

#: Values of #SBATCH lines that need no quotes.
_PLAIN = re.compile(r"[\w@%+=:,./\[\]&|*-]+")

#: A short time limit gets its warning after three quarters, whatever `warn_s` is.
_WARN_SHARE = 4


@dataclass(frozen=True)
class JobSpec:
    """A job, or an array of jobs.

    `log` may contain %A, %a and %j.  A job without `gpu` requests one node, without GPUs, features
    or exclusive use.  The user gets a mail about a job that `mails`.  `environment` is added to the
    login environment.
    """

    name: str
    slurm: Slurm
    command: tuple[str, ...]
    log: str
    directory: str
    array: tuple[int, ...] | None = None
    parallelism: int | None = None
    dependency: str | None = None
    comment: str | None = None
    gpu: bool = True
    mails: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def render(spec: JobSpec) -> str:
    """Return the script of a job."""
    slurm = spec.slurm
    lines = [
        # A login shell if setup lines of a site follow: it knows the command `module`.
        "#!/bin/bash -l" if slurm.setup else "#!/bin/bash",
        *(f"#SBATCH {option}" for option in (*_options(spec), *slurm.extra) if option),
        "",
        "# srun passes the environment of this script on.",
        "export SLURM_EXPORT_ENV=ALL",
        *_setup(slurm.setup),
        *(f"export {name}={shlex.quote(value)}" for name, value in spec.environment.items()),
        "# Replaces this shell, so that the warning before the time limit reaches perfpipe.",
        f"exec {shlex.join([*_wrapper(slurm.container, spec), *spec.command])}",
    ]
    return "\n".join(lines) + "\n"


def compact_array(indices: Iterable[int]) -> str:
    """Return array indices as Slurm writes them.

    >>> compact_array([0, 1, 2, 5])
    '0-2,5'
    """
    runs: list[list[int]] = []
    for index in sorted(set(indices)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _options(spec: JobSpec) -> Iterator[str]:
    slurm = spec.slurm
    yield _set("job-name", spec.name)
    yield _set("comment", spec.comment)
    yield _set("chdir", spec.directory)
    yield _set("output", spec.log)
    yield "--open-mode=append"
    yield "--export=NONE"
    yield "--requeue" if slurm.requeue else "--no-requeue"
    yield _set("partition", slurm.partition if spec.gpu else slurm.cpu_partition or slurm.partition)
    yield _set("account", slurm.account)
    yield _set("qos", slurm.qos)
    yield _set("time", slurm.time)
    yield _set("nodes", slurm.nodes if spec.gpu else 1)
    ranks = slurm.ranks if spec.gpu else None
    yield _set("ntasks-per-node", ranks) if ranks else "--ntasks=1"
    yield _set("cpus-per-task", slurm.cpus and max(slurm.cpus // (ranks or 1), 1))
    yield _set("mem", slurm.mem)
    if spec.gpu:
        kind = f"gpu:{slurm.gpu_type}" if slurm.gpu_type else "gpu"
        yield _set("gres", f"{kind}:{slurm.gpus}" if slurm.gpus else None)
        yield _set("constraint", slurm.constraint)
        yield "--exclusive" if slurm.exclusive else ""
    if spec.mails and slurm.mail_user:
        yield _set("mail-user", slurm.mail_user)
        yield _set("mail-type", slurm.mail_type)
    if slurm.warn_s:
        limit = slurm.limit_s
        warn = min(slurm.warn_s, limit // _WARN_SHARE) if limit else slurm.warn_s
        yield _set("signal", f"B:USR1@{warn}")
    if spec.array is not None:
        most = f"%{spec.parallelism}" if spec.parallelism else ""
        yield _set("array", f"{compact_array(spec.array)}{most}")
    if spec.dependency:
        yield _set("dependency", spec.dependency)
        yield "--kill-on-invalid-dep=yes"


def _set(option: str, value: str | int | None) -> str:
    if value is None:
        return ""
    text = str(value)
    try:
        line(text)
    except ValueError as error:
        raise InputError(f"--{option}: {error}") from error
    return f"--{option}={text if _PLAIN.fullmatch(text) else chr(34) + text + chr(34)}"


def _setup(lines: list[str]) -> Iterator[str]:
    """Yield the setup lines of a site; if one fails, the job fails."""
    if lines:
        yield "trap 'echo \"perfpipe: setup line failed: $BASH_COMMAND\" >&2' ERR"
        yield "set -e"
        yield from lines
        yield "set +e"
        yield "trap - ERR"


def _wrapper(container: Container, spec: JobSpec) -> list[str]:
    """Return the words that start a container, for use in front of a command."""
    if container.image is None:
        return []
    if container.runtime == "apptainer":
        mounts = [word for mount in container.mounts for word in ("--bind", mount)]
        gpu = ["--nv"] if spec.gpu and spec.slurm.gpus else []
        return ["apptainer", "exec", *gpu, *mounts, *container.options, container.image]
    words = ["srun", "--nodes=1", "--ntasks=1", f"--container-image={container.image}"]
    words.append(f"--container-workdir={spec.directory}")
    if container.mounts:
        # Pyxis requires both ends of a mount.
        both = [mount if ":" in mount else f"{mount}:{mount}" for mount in container.mounts]
        words.append(f"--container-mounts={','.join(both)}")
    return [*words, *container.options]
