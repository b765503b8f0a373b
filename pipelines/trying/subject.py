"""What `perfpipe try` tries: one configuration of a workload, a run, or a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.pipelines.program import PROGRAM, program_of
from perfpipe.pipelines.selection import select
from perfpipe.pipelines.tasks import Task, directory_of, program_file, task_of, tasks
from perfpipe.pipelines.workload import Params, Scalar, Workload
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.units import counted


@dataclass(frozen=True)
class Subject:
    """What to try: a workload with one configuration, and its program if there is no file."""

    workload: Workload
    path: Path
    task: Task
    words: tuple[str, ...] | None = None
    run: RunRecord | None = None

    @property
    def directory(self) -> Path:
        """The working directory of the program."""
        return directory_of(self.workload, self.path)

    def command(self, changed: Params) -> tuple[str, ...]:
        """Return the command with changed parameters."""
        if not changed:
            return self.task.command
        params = {**self.task.params, **changed}
        return task_of(self.task.index, params, self.workload, self.path).command


def subject_of(
    name: str | None,
    words: tuple[str, ...] | None,
    store: Store,
    *,
    settings: Mapping[str, list[Scalar]],
    filters: Mapping[str, list[str]],
    env: Sequence[str] = (),
    cwd: Path | None = None,
) -> Subject:
    """Return what to try: `name` is a workload file or a run, `words` a program.

    Raises InputError if there is no such thing, or if a workload has several configurations.
    """
    run = None
    if name is not None and not name.endswith((".yaml", ".yml")):
        run = _run(name, store)
        words = run.words
        if words is None:
            if run.workload_file.endswith(".py"):
                raise InputError(
                    f"{run.run_id} is a run of a function; perfpipe try needs a program or a "
                    "workload file"
                )
            raise InputError(
                f"{run.run_id} is a run of a workload file: give the file, {run.workload_file}"
            )
    if words is not None:
        program = program_of(
            words, env=env, cwd=cwd, settings={name: [*own] for name, own in settings.items()},
            collector="nsys",
        )  # fmt: skip
        workload = program.workload()
        (task,) = tasks(workload, PROGRAM)
        return Subject(workload, PROGRAM, task, words, run)
    if env or cwd is not None:
        raise InputError("--env and --cwd are for a program after --")
    assert name is not None  # noqa: S101
    path = Path(name)
    workload = program_file(path, settings)
    if workload.tune is not None:
        raise InputError(f"{path}: an autotuning search cannot be tried; choose a configuration")
    found = tasks(workload, path, filters)
    if len(found) > 1:
        raise InputError(
            f"{path} has {counted(len(found), 'configuration')}: choose one with --set or --filter"
        )
    return Subject(workload, path, found[0])


def _run(name: str, store: Store) -> RunRecord:
    chosen = select(store, [name])
    if len(chosen.runs) != 1:
        raise InputError(f"{name} is not a workload file or a run; a program goes after --")
    return chosen.runs[0]
