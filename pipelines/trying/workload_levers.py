"""The levers of a workload file: environment variables, arguments, a patch or a build command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from perfpipe.errors import InputError, did_you_mean
from perfpipe.files import printable
from perfpipe.pipelines import workload as model
from perfpipe.pipelines.strict_yaml import line_of, load
from perfpipe.pipelines.tasks import combinations, placeholders
from perfpipe.pipelines.trying.levers import Lever, exported, levers
from perfpipe.pipelines.workload import Workload


def own_levers(workload: Workload, path: Path) -> dict[str, Lever]:
    """Return the levers of a workload file by name.

    Raises InputError with file and line if a patch does not exist, a build command cannot be split
    into words, an argument is not a parameter that the command uses, or a name is taken.
    """
    if not workload.levers:
        return {}
    faults = [*_faults(workload, path)]
    if faults:
        _, node = load(path)
        raise InputError(
            "\n".join(f"{path}:{line_of(node, where)}: {fault}" for where, fault in faults)
        )
    return {name: _lever(name, own, path) for name, own in workload.levers.items()}


def _faults(workload: Workload, path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong, and where."""
    parameters = {name for params in combinations(workload) for name in params}
    if workload.tune is not None:
        parameters |= workload.tune.parameters.keys()
    known = parameters & placeholders(workload.command)
    for name, own in workload.levers.items():
        where = ("levers", name)
        if name in {lever.base for lever in levers().values()}:
            yield where, f"levers.{name}: perfpipe has a lever with this name; choose another one"
        for argument in own.arguments:
            if argument not in known:
                yield (*where, "arguments", argument), _unknown(argument, known)
        if own.patch is not None and not _beside(path, own.patch).is_file():
            place = printable(str(_beside(path, own.patch)))
            yield (*where, "patch"), f"levers.{name}.patch: no such file: {place}"
        if own.build is not None:
            try:
                shlex.split(own.build)
            except ValueError as error:
                yield (*where, "build"), f"levers.{name}.build: {str(error).lower()}"


def _unknown(argument: str, known: Collection[str]) -> str:
    uses = f"it uses {', '.join(sorted(known))}" if known else "it uses none"
    return f"'{argument}' is not a parameter that the command uses ({uses})" + did_you_mean(
        argument, known
    )


def _lever(name: str, own: model.Lever, path: Path) -> Lever:
    return Lever(
        base=name,
        title=own.title or name,
        free=True,
        expect=own.expect,
        tolerance=own.tolerance,
        env=dict(own.env),
        arguments=dict(own.arguments),
        patch=None if own.patch is None else _beside(path, own.patch),
        build=own.build,
        by_hand=lambda options, applied: _by_hand(own),
    )


def _by_hand(own: model.Lever) -> str:
    """Return the change to make by hand: as stated, else what the lever does."""
    if own.manual:
        return own.manual
    arguments = [f"{name}: {value}" for name, value in own.arguments.items()]
    patch = [] if own.patch is None else [f"git apply {shlex.quote(own.patch)}"]
    build = [] if own.build is None else [own.build]
    env = [exported(own.env)] if own.env else []
    return "\n".join([*patch, *build, *env, *arguments])


def _beside(path: Path, name: str) -> Path:
    return path.resolve().parent / name
