"""The two arms of a comparison on this machine: a workload with two settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.gate.commits import git, two_commits
from perfpipe.pipelines.options import pairs, scalar
from perfpipe.pipelines.process import run
from perfpipe.pipelines.tasks import Task, directory_of, tasks
from perfpipe.pipelines.workload import Execution, Scalar, Workload, load_workload
from perfpipe.scratch import scratch

#: How long git may take to remove a work tree, and a build, s.
_GIT_S, _BUILD_S = 600.0, 7200.0

#: Parts of an arm besides parameters.
_PLACES = ("cwd", "python", "wrapper")


@dataclass(frozen=True)
class Arm:
    """An arm: its workload, the workload file, and its settings besides parameters."""

    name: str
    workload: Workload
    path: Path
    variant: tuple[str, ...] = ()

    @property
    def tasks(self) -> list[Task]:
        """Its configurations."""
        return tasks(self.workload, self.path)

    def alike(self, other: Arm) -> bool:
        """Return whether another arm is the same program: only the name differs."""
        return (self.workload, self.path) == (other.workload, other.path)


def arm_of(name: str, path: Path, given: Sequence[str], cwd: Path | None = None) -> Arm:
    """Return an arm of a workload file with settings NAME=VALUE.

    NAME is a parameter, `env.VARIABLE`, `cwd` (relative to the file), `python` or `wrapper`;
    `cwd` as an argument is the program's directory in another checkout.  Raises InputError.
    """
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
    workload = load_workload(path, parameters)
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
        if "wrapper" in changed:
            stated["wrapper"] = [*stated.get("wrapper", []), *shlex.split(changed["wrapper"])]
        update["execution"] = Execution.model_validate(stated)
    # Launches alternate: each round has one of each arm.
    update["launches"] = 1
    free = [setting for setting in given if setting.split("=")[0] not in parameters]
    arm = Arm(name, workload.model_copy(update=update), path, tuple(free))
    if not directory_of(arm.workload, path).is_dir():
        raise InputError(f"--{name}: no such directory: {directory_of(arm.workload, path)}")
    return arm


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
def checkouts(path: Path, span: str, build: str | None) -> Iterator[tuple[Path, Path]]:
    """Yield the workload's directory in work trees of two commits, A..B or A...B, each built.

    The trees are removed in the end.  Raises InputError for an invalid commit, TaskFailed if a
    build fails.
    """
    here = path.resolve().parent
    commits = two_commits(here, span)
    root = Path(git(here, "rev-parse", "--show-toplevel"))
    with scratch() as folder:
        trees = [folder / name for name in ("a", "b")]
        try:
            for tree, commit in zip(trees, commits, strict=True):
                git(root, "worktree", "add", "--detach", str(tree), commit)
                _build(tree, build)
            inside = here.relative_to(root)
            yield trees[0] / inside, trees[1] / inside
        finally:
            for tree in trees:
                words = ["git", "-C", str(root), "worktree", "remove", "--force", str(tree)]
                run(words, timeout=_GIT_S)


def _build(tree: Path, command: str | None) -> None:
    if command is None:
        return
    done = run(shlex.split(command), cwd=tree, timeout=_BUILD_S)
    if not done.ok:
        raise TaskFailed(f"{command} failed in {tree.name}: {done.complaint()}")
