"""Changes how tasks of a batch run: Slurm options and the time limit, never what is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfpipe.batchrecord import BatchRun
from perfpipe.errors import InputError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.freezing import spread
from perfpipe.pipelines.settings import slurm_options
from perfpipe.pipelines.slurm.options import Slurm, merged
from perfpipe.pipelines.workload import Workload, load_workload
from perfpipe.runrecord import Scalar

#: Options whose value a batch has derived, so that the files do not have it.
_DERIVED = ("ingest",)


@dataclass(frozen=True)
class Change:
    """The workloads of a batch as later jobs use them, by run, and the options of command lines.

    `timeout` is that of a task, if a command line gave it, s.  `said` are the options that differ,
    as `time: 0-00:01:00 -> 0-00:05:00`.  `before` is what they replace.
    """

    workloads: Mapping[str, Workload]
    flags: Slurm | None
    timeout: float | None
    said: Sequence[str] = ()
    before: Change | None = None

    def slurm(self, run_id: str) -> Slurm:
        """Return the Slurm options of a run."""
        return self.workloads[run_id].slurm or Slurm()

    def write(self, directory: BatchDirectory) -> None:
        """Keep the change, if it is one; the caller has claimed the batch."""
        if self.said:
            self._keep(directory)

    def undo(self, directory: BatchDirectory) -> None:
        """Keep what was there before."""
        if self.said and self.before is not None:
            self.before._keep(directory)

    def _keep(self, directory: BatchDirectory) -> None:
        for run_id, workload in self.workloads.items():
            directory.write_workload(run_id, workload)
        if self.flags is not None:
            directory.write_flags(self.flags, self.timeout)


def change(directory: BatchDirectory, flags: Slurm, timeout: float | None) -> Change:
    """Return a batch with the Slurm options that apply now.

    They are merged as at submission: files, workload file, environment, the command lines so far,
    then `flags`.  The workload file also gives the timeout of a task, unless `timeout` or the
    submission does, s.  Raises InputError if a workload file has become invalid.
    """
    before, kept_s = directory.flags()
    timeout = kept_s if timeout is None else timeout
    given = None if before is None else merged(before, flags)
    workloads, olds, said = {}, {}, dict[str, None]()
    for run in directory.batch.runs:
        old = olds[run.run_id] = directory.workload(run.run_id)
        new = workloads[run.run_id] = _changed(directory, run, old, given, flags, timeout)
        said |= dict.fromkeys(_differences(old, new))
    return Change(workloads, given, timeout, [*said], Change(olds, before, kept_s))


def _changed(
    directory: BatchDirectory,
    run: BatchRun,
    old: Workload,
    given: Slurm | None,
    flags: Slurm,
    timeout: float | None,
) -> Workload:
    """Return a run's workload with the options of now; without all that were `given`, the old."""
    own = old.slurm or Slurm()
    file = Path(run.file) if run.file and run.words is None else None
    update: dict[str, object] = {}
    # Options of a file that is gone stay.
    if given is None or (file is not None and not file.exists()):
        slurm = merged(own, flags)
    else:
        now = None
        if file is not None:
            now = load_workload(file)
            if not _sets_timeout(directory):
                update["timeout"] = now.timeout
        kept = Slurm.model_validate({name: getattr(own, name) for name in _DERIVED})
        slurm = merged(slurm_options(now.slurm if now else None, given), kept)
    if not run.measures:
        slurm = merged(slurm, Slurm(gpus=0, gpu_type=None))
    if timeout is not None:
        update["timeout"] = timeout
        if old.duration is not None and timeout <= old.duration:
            raise InputError(
                f"--set timeout={timeout:g}: {run.workload} runs for {old.duration:g} s (duration)"
            )
    return spread(old.model_copy(update=update), slurm)


def _sets_timeout(directory: BatchDirectory) -> bool:
    """Return whether the command line of the submission sets the timeout, which then stays."""
    return any(word.startswith(("timeout=", "--set=timeout=")) for word in directory.batch.command)


def _differences(old: Workload, new: Workload) -> list[str]:
    """Return the options that differ."""
    before, after = old.slurm or Slurm(), new.slurm or Slurm()
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in Slurm.model_fields]
    pairs.append(("timeout", old.timeout, new.timeout))
    return [f"{name}: {_text(one)} -> {_text(other)}" for name, one, other in pairs if one != other]


def _text(value: object) -> str:
    if value is None:
        return "default"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def timeout_of(settings: Mapping[str, Sequence[Scalar]]) -> float | None:
    """Return the timeout of a task from --set, s; raises InputError for anything else."""
    for name in settings:
        if name != "timeout":
            raise InputError(
                f"--set {name}: a batch keeps what it measures; only the timeout can change"
            )
    if "timeout" not in settings:
        return None
    value, *more = settings["timeout"]
    if more or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError("--set timeout: expected one number of seconds above 0")
    return float(value)
