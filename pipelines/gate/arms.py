"""The arms of a comparison on this machine: a workload or a program, with settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError
from perfpipe.functions import scalar
from perfpipe.pipelines.gate.commits import two_commits
from perfpipe.pipelines.gate.trees import check_places, repository, work_trees
from perfpipe.pipelines.options import pairs
from perfpipe.pipelines.program import PROGRAM, program_of, python_in
from perfpipe.pipelines.tasks import Task, directory_of, literal, program_file, tasks
from perfpipe.pipelines.workload import Execution, Scalar, Workload

#: Parts of an arm besides parameters.
_PLACES = ("cwd", "python", "wrapper")


@dataclass(frozen=True)
class Source:
    """What arms run: a workload file, or `program`, a workload made of words after `--`."""

    path: Path
    program: Workload | None = None
    words: tuple[str, ...] | None = None

    def workload(self, parameters: Mapping[str, list[Scalar]] | None = None) -> Workload:
        """Return the workload with parameters of an arm; raises InputError."""
        if self.program is None:
            return program_file(self.path, parameters or {})
        for name in parameters or {}:
            raise InputError(
                f"{name}: a program after -- has no parameters; set env.VARIABLE, cwd, python or "
                "wrapper, or write a workload file with 'perfpipe run --save'"
            )
        return self.program

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the program's first configuration."""
        return tasks(self.workload(), self.path)[0].command

    @property
    def directory(self) -> Path:
        """The working directory of the program."""
        return directory_of(self.workload(), self.path)

    def check_places(self) -> None:
        """Raise InputError if the program names files of its checkout by absolute paths."""
        workload = self.workload()
        root = repository(self.directory)
        check_places(root, [*workload.command, *workload.env.values()])


def source_of(
    path: Path | None,
    words: tuple[str, ...] | None,
    *,
    env: Sequence[str] = (),
    cwd: Path | None = None,
    elsewhere: bool = False,
) -> Source:
    """Return what the arms run: a workload file, or a program with its variables and directory.

    `elsewhere` says that it runs in other checkouts, which may not be built yet.  Raises
    InputError, or ToolMissing if there is no such program.
    """
    if words is not None:
        program = program_of(words, env=env, cwd=cwd, collector="timing", elsewhere=elsewhere)
        return Source(PROGRAM, program.workload(), words)
    if env or cwd is not None:
        raise InputError("--env and --cwd are for a program after --")
    assert path is not None  # noqa: S101
    return Source(path)


@dataclass(frozen=True)
class Arm:
    """An arm: its workload, the workload file, its settings besides parameters.

    `words` are those of a program without a workload file.
    """

    name: str
    workload: Workload
    path: Path
    variant: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None

    @property
    def tasks(self) -> list[Task]:
        """Its configurations."""
        return tasks(self.workload, self.path)

    def alike(self, other: Arm) -> bool:
        """Return whether another arm is the same program: only the name differs."""
        return (self.workload, self.path) == (other.workload, other.path)


def arm_of(name: str, source: Source, given: Sequence[str], cwd: Path | None = None) -> Arm:
    """Return an arm with settings NAME=VALUE.

    NAME is a parameter, `env.VARIABLE`, `cwd` (relative to the file, or to the current directory),
    `python` or `wrapper`; `cwd` as an argument is the program's directory in another checkout.
    Raises InputError.
    """
    path = source.path
    parameters: dict[str, list[Scalar]] = {}
    changed: dict[str, Any] = {}
    environment: dict[str, str] = {}
    for setting, values in pairs(f"--{name}", given):
        text = ",".join(values)
        if setting.startswith("env."):
            environment[setting.removeprefix("env.")] = text
        elif setting in _PLACES:
            changed[setting] = text
        elif len(values) > 1:
            raise InputError(f"--{name} {setting}: an arm takes one value per parameter")
        else:
            parameters[setting] = [scalar(text)]
    workload = source.workload(parameters)
    if workload.tune is not None:
        raise InputError(f"{path}: a search (tune) already compares configurations by itself")
    update: dict[str, Any] = {"env": {**workload.env, **environment}}
    if cwd is not None:
        update["cwd"] = str(cwd)
    elif "cwd" in changed:
        update["cwd"] = changed["cwd"]
    if "python" in changed or "wrapper" in changed:
        stated = workload.execution.model_dump(exclude_unset=True)
        if "python" in changed:
            stated["python"] = changed["python"]
            update["command"] = _with_python(workload, changed["python"])
        if "wrapper" in changed:
            stated["wrapper"] = [*stated.get("wrapper", []), *shlex.split(changed["wrapper"])]
        update["execution"] = Execution.model_validate(stated)
    # Launches alternate: each round has one of each arm.
    update["launches"] = 1
    free = [setting for setting in given if setting.split("=")[0] not in parameters]
    arm = Arm(name, workload.model_copy(update=update), path, tuple(free), source.words)
    if not directory_of(arm.workload, path).is_dir():
        raise InputError(f"--{name}: no such directory: {directory_of(arm.workload, path)}")
    return arm


def _with_python(workload: Workload, python: str) -> list[str]:
    """Return the command with another interpreter; {python} stands for it in workload files."""
    command = [*workload.command]
    if "{python}" not in command:
        command[python_in(command)] = literal(python)
    return command


def labels_of(arms: Sequence[Arm]) -> list[str]:
    """Return a name for each configuration: the parameters with the same values in all arms.

    Raises InputError if the arms have different configurations.
    """
    per_arm = [[dict(task.params) for task in arm.tasks] for arm in arms]
    if len({len(own) for own in per_arm}) != 1:
        counts = " and ".join(str(len(own)) for own in per_arm)
        raise InputError(
            f"the arms have {counts} configurations, but both must have the same configurations"
        )
    names = []
    for alike in zip(*per_arm, strict=True):
        first = alike[0]
        common = [k for k in first if all(other.get(k) == first[k] for other in alike)]
        names.append(" ".join(f"{k}={first[k]}" for k in common) or "-")
    if len({*names}) != len(names):
        raise InputError("the arms differ in more than one parameter that the file sweeps")
    return names


@contextmanager
def checkouts(source: Source, span: str, build: str | None) -> Iterator[tuple[Path, Path]]:
    """Yield the program's directory in work trees of two commits, A..B or A...B, each built.

    The trees are removed in the end.  Raises InputError for an invalid commit, TaskFailed if a
    build fails.
    """
    first, second = two_commits(source.directory, span)
    source.check_places()
    with work_trees(source.directory, build) as trees:
        yield trees.directory(first), trees.directory(second)
