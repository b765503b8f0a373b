"""Submits tasks to Slurm: each array is recorded before sbatch is called, its job afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfpipe.batchrecord import Batch, BatchTask, Stage, Submission
from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.batch.disk import BatchDirectory
from perfpipe.pipelines.batch.packing import packed
from perfpipe.pipelines.slurm.client import Cluster, Unreachable
from perfpipe.pipelines.slurm.fitting import misfit
from perfpipe.pipelines.slurm.limits import Limits
from perfpipe.pipelines.slurm.options import Container, Slurm, shape
from perfpipe.pipelines.slurm.render import JobSpec, render
from perfpipe.provenance import utc_now

#: Why the first jobs of a batch are submitted.
FIRST = "submit"

#: Elements of an array if the cluster does not state its limit.
USUAL_ARRAY = 1000


@dataclass(frozen=True)
class Array:
    """An array to submit: its elements, and their Slurm options."""

    elements: list[tuple[int, ...]]
    slurm: Slurm


def arrays_of(
    tasks: Iterable[BatchTask],
    slurm_of: Mapping[str, Slurm],
    expected_s: Mapping[int, float],
    most: int,
    arms: str | None = None,
) -> list[Array]:
    """Return the arrays of some tasks; `slurm_of` has the options of each run.

    `most` is the largest number of elements of an array on the cluster.
    """
    by_index = {task.index: task for task in tasks}
    arrays = packed(
        by_index.values(),
        lambda task: shape(slurm_of[task.run_id]),
        expected_s,
        lambda task: slurm_of[task.run_id].tasks_per_job,
        most,
        arms,
    )
    return [Array(array, slurm_of[by_index[array[0][0]].run_id]) for array in arrays]


def largest_array(limits: Limits) -> int:
    """Return the largest number of elements of an array on a cluster."""
    return min(limits.max_array_size or USUAL_ARRAY, limits.max_submit or USUAL_ARRAY)


def require_fitting(batch: Batch, arrays: Iterable[Array], limits: Limits) -> None:
    """Raise InputError if the cluster could never start the jobs of an array."""
    for array in arrays:
        if why := misfit(array.slurm, limits, gpu=batch.measures):
            raise InputError(why)


def submit(
    directory: BatchDirectory,
    cluster: Cluster,
    arrays: Sequence[Array],
    reason: str,
    others: tuple[str, ...] = (),
) -> list[str]:
    """Submit arrays and their dependents: the reading of reports, and the collector.

    The collector also waits for `others`.
    Returns the jobs.  Submissions before an error are on disk, and `resume` continues from there.
    The caller has claimed the batch.
    """
    jobs = []
    for array in arrays:
        job = _submit(directory, cluster, Stage.PROFILE, array, (), reason)
        jobs.append(job)
        if array.slurm.ingest == "separate":
            jobs.append(_submit(directory, cluster, Stage.INGEST, array, (job,), reason))
    first = directory.batch.runs[0].run_id
    one = Array([()], arrays[0].slurm if arrays else directory.slurm(first))
    after = (*jobs, *others)
    try:
        return [*jobs, _submit(directory, cluster, Stage.COLLECT, one, after, reason)]
    except PerfpipeError as error:
        if jobs:
            error.args = (f"{error}; this is the collector, the tasks were submitted",)
        raise


def scripts(directory: BatchDirectory, arrays: Sequence[Array]) -> list[tuple[Submission, str]]:
    """Return the scripts that `submit` would submit, without job ids."""
    made: list[tuple[Submission, str]] = []
    for array in arrays:
        made.append(_written(directory, len(made) + 1, Stage.PROFILE, array, (), FIRST))
        if array.slurm.ingest == "separate":
            job = (f"JOB{len(made)}",)
            made.append(_written(directory, len(made) + 1, Stage.INGEST, array, job, FIRST))
    after = tuple(f"JOB{number + 1}" for number in range(len(made)))
    one = Array([()], arrays[0].slurm)
    return [*made, _written(directory, len(made) + 1, Stage.COLLECT, one, after, FIRST)]


def _submit(
    directory: BatchDirectory,
    cluster: Cluster,
    stage: Stage,
    array: Array,
    after: tuple[str, ...],
    reason: str,
) -> str:
    number = directory.next_submission()
    what, script = _written(directory, number, stage, array, after, reason)
    path = directory.write_submission(what, script)
    try:
        job = cluster.submit(path)
    except Unreachable:
        raise  # it may have become a job
    except PerfpipeError:
        directory.write_job(number, "")
        raise
    directory.write_job(number, job)
    return job


def _written(
    directory: BatchDirectory,
    number: int,
    stage: Stage,
    array: Array,
    after: tuple[str, ...],
    reason: str,
) -> tuple[Submission, str]:
    """Return a submission and its script."""
    elements = () if stage == Stage.COLLECT else tuple(array.elements)
    what = Submission(number, stage, elements, utc_now(), after, reason, warn_s=array.slurm.warn_s)
    return what, render(_spec(directory, what, array))


def _spec(directory: BatchDirectory, what: Submission, array: Array) -> JobSpec:
    batch = directory.batch
    collects = what.stage == Stage.COLLECT
    # The collector runs outside of the container, where Slurm's commands are.
    inside = array.slurm.container.image is not None and not collects
    program = ["perfpipe"] if inside else [batch.python, "-m", "perfpipe"]
    verb = "_collect" if what.stage == Stage.COLLECT else "_task"
    words = [*program, "batch", verb, batch.batch_id, str(what.number), "--store", batch.store]
    # It does not measure, so it can be restarted.
    update = {"requeue": True, "container": Container()}
    slurm = array.slurm.model_copy(update=update) if collects else array.slurm
    return JobSpec(
        name=_name(directory, what, slurm),
        slurm=slurm,
        command=tuple(words),
        # Slurm replaces what follows a single %.
        log=str(directory.path / "logs").replace("%", "%%")
        + ("/%j.out" if collects else "/%A_%a.out"),
        directory=batch.directory,
        array=None if collects else tuple(range(len(what.elements))),
        parallelism=None if collects else array.slurm.array_parallelism,
        dependency=_dependency(what, slurm),
        comment=" ".join(filter(None, (comment_of(directory, what.number), slurm.comment))),
        mails=collects,
        gpu=what.stage == Stage.PROFILE and batch.measures,
    )


def comment_of(directory: BatchDirectory, number: int) -> str:
    """Return the comment that identifies a job whose id was not recorded."""
    return f"perfpipe:{directory.batch.batch_id}:{number}"


def _name(directory: BatchDirectory, what: Submission, slurm: Slurm) -> str:
    if slurm.job_name:
        return slurm.job_name if what.stage == Stage.PROFILE else f"{slurm.job_name}-{what.stage}"
    names = "+".join(dict.fromkeys(run.workload for run in directory.batch.runs))
    return f"perfpipe-{what.stage}-{names}"[:60]


def _dependency(what: Submission, slurm: Slurm) -> str | None:
    """Return what a job waits for; the stated dependency is that of the first jobs of a batch."""
    if not what.after:
        first = what.stage == Stage.PROFILE and what.reason == FIRST
        return slurm.dependency if first else None
    # Reading follows each element of its array; the collector follows all, however they ended.
    kind = "aftercorr" if what.stage == Stage.INGEST else "afterany"
    return f"{kind}:{':'.join(what.after)}"
