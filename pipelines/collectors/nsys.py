"""Traces a task with Nsight Systems and exports the report."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.collectors import compiled
from perfpipe.pipelines.collectors.base import Collected, Context, Job, ProgramFailed, check
from perfpipe.pipelines.collectors.observing import is_python
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.tools import nsys_offers, require_tool
from perfpipe.pipelines.workload import CollectNsys, Execution

#: Messages of nsys on its own failures and received events, in DIAGNOSTIC_EVENT.
_PROCESSING_FAILED = "ProcessEventsError"
_PRODUCED = re.compile(r"Number of CUPTI events produced:\s*(\d+)")

#: Explanation if nsys leaves its raw data instead of a report.
_NOT_IMPORTED = (
    "nsys recorded data but could not import it (it left a .qdstrm); its importer needs the "
    "packages libdw1 and libelf1, and enough memory"
)
#: NVIDIA's importer, relative to the parent folder of nsys.
_IMPORTERS = "*/QdstrmImporter"


#: Option that samples the stacks of Python threads, which needs no rights, and how often.
_PYTHON_SAMPLING, _SAMPLES_PER_S = "--python-sampling", 1000

_NO_SAMPLING = (
    "the code that runs while the GPU is idle was not recorded: this version of nsys cannot sample "
    "the stacks of Python threads (--python-sampling); use a newer one"
)


#: Exports the report of a task of srun: $0 is the path without rank and ending.
_EXPORT_OF_RANK = 'exec "$@" --output="$0-rank$SLURM_PROCID.sqlite" "$0-rank$SLURM_PROCID.nsys-rep"'


class Nsys:
    """Traces a task with nsys."""

    tool = "nsys"

    def collect(self, job: Job) -> Collected:
        """Return the exported SQLite file; compiled kernels are kept if ncu profiles them next."""
        wanted = job.context.workload.collect
        if wanted.nsys is None:
            raise ValueError("nsys")
        compiled.forget(job.context)
        job.announce("nsys")
        guides = "ncu" in job.profilers and wanted.ncu is not None and wanted.ncu.guided
        return collect_nsys(
            job.context, wanted.nsys, compiled.environment(job.context) if guides else {}
        )


def collect_nsys(
    context: Context, options: CollectNsys, env: Mapping[str, str] = MappingProxyType({})
) -> Collected:
    """Launch under nsys and return the exported SQLite file; the .nsys-rep is next to it.

    `env` are variables for the program besides those of the workload.

    Its time is that of the launch, without the export.  Every srun task has its own report, with
    its rank in the name.
    """
    # A task that does not read reports does not import the readers.
    from perfpipe.analysis.thresholds import thresholds

    launcher = context.launcher
    nsys = require_tool("nsys", launcher)
    if launcher.execution.kind == "srun":
        return collect_ranks(context, options, nsys.path, env)
    traced = trace(context, options, nsys.path, env)
    lost_pct = lost_events(traced.path)
    if lost_pct < thresholds()["timeline.unprocessed_pct"]:
        return traced
    # The lost events differ from launch to launch.
    context.tell(
        f"the program is launched again under nsys, which lost {lost_pct:.0f} % of the CUDA events"
    )
    again = trace(context, options, nsys.path, env)
    still_pct = lost_events(again.path)
    if still_pct >= thresholds()["timeline.unprocessed_pct"]:
        note = (
            f"nsys failed to process its data and lost {still_pct:.0f} % of the CUDA events: the "
            "analysis covers only the others; another version of nsys may help"
        )
    else:
        note = (
            f"the timeline is from a second launch, because nsys lost {lost_pct:.0f} % of the CUDA "
            "events of the first; disk caches of the program can make its second start faster"
        )
    return replace(again, notes=(note, *again.notes))


def trace(
    context: Context,
    options: CollectNsys,
    nsys: str,
    env: Mapping[str, str],
    name: str = "nsys",
) -> Collected:
    """Launch under nsys and export the report; `name` is that of the launch and of its files."""
    # A task that is not traced does not import the readers.
    from perfpipe.pipelines.collectors.forked import sampling_forks

    launcher = context.launcher
    report, database = context.into / f"{name}.nsys-rep", context.into / f"{name}.sqlite"
    chosen, notes = _options(context, options, nsys)
    words = [nsys, "profile", *chosen, f"--output={launcher.output(report)}"]
    with sampling_forks(context.into, wanted=options.stacks and launcher.here) as forks:
        finished = context.launch(name, words, env={**_environment(options), **env, **forks.env})
    if not report.is_file() and report.with_suffix(".qdstrm").is_file():
        _import_again(context, report, nsys)
        traced = Collected(report, finished.seconds)
    else:
        traced = context.product(finished, "nsys", report)
    exported(context, nsys, report, database, name)
    forks.store(database)
    return replace(traced, path=database, notes=(*notes, *forks.notes))


def exported(context: Context, nsys: str, report: Path, database: Path, name: str) -> None:
    """Export a report to SQLite; raises ProgramFailed if that fails."""
    context.say("nsys export")
    launcher = context.launcher
    words = [
        *(nsys, *export_options()),
        f"--output={launcher.output(database)}",
        launcher.output(report),
    ]
    done = launcher.run(words, log=context.into / f"{name}-export")
    check(done, "nsys export", None)
    context.written(done, "nsys export", database)


def _import_again(context: Context, report: Path, nsys: str) -> None:
    """Import data that nsys could not import; raises ProgramFailed if that fails again."""
    importers = sorted(Path(nsys).resolve().parent.parent.glob(_IMPORTERS))
    if context.launcher.here and importers:
        context.say("nsys import, retrying")
        recorded = report.with_suffix(".qdstrm")
        words = [str(importers[0]), f"--input-file={recorded}", f"--output-file={report}"]
        context.launcher.run(words, log=context.into / "nsys-import")
    if not report.is_file():
        raise ProgramFailed("profiler", _NOT_IMPORTED)


def lost_events(database: Path) -> float:
    """Return the share of CUDA events that nsys reports as lost, %.

    A damaged export counts as 0: its reader reports the damage.
    """
    uri = f"{database.as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as con:
            produced, kept = _events(con)
    except sqlite3.Error:
        return 0.0
    return 100.0 * max(produced - kept, 0) / produced if produced else 0.0


def children_work(database: Path) -> bool:
    """Return whether all kernels are from processes that the launched process started.

    nsys keeps the output of the launched process under its id; False if an export lacks it.
    """
    uri = f"{database.as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as con:
            launched, working = (
                {pid for (pid,) in con.execute(f'SELECT DISTINCT globalPid FROM "{table}"') if pid}
                for table in ("ProcessStreams", "CUPTI_ACTIVITY_KIND_KERNEL")
            )
    except sqlite3.Error:
        return False
    return bool(launched and working) and launched.isdisjoint(working)


def _events(con: sqlite3.Connection) -> tuple[int, int]:
    """Return the numbers of produced and of stored events, if nsys reports a failure."""
    tables = {name for (name,) in con.execute("SELECT name FROM sqlite_master")}
    if "DIAGNOSTIC_EVENT" not in tables:
        return 0, 0
    texts = [str(text) for (text,) in con.execute("SELECT text FROM DIAGNOSTIC_EVENT")]
    if not any(_PROCESSING_FAILED in text for text in texts):
        return 0, 0
    kept = sum(
        con.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        for name in tables
        if name.startswith("CUPTI_ACTIVITY_KIND_")
    )
    return sum(int(match[1]) for text in texts if (match := _PRODUCED.match(text))), kept


def _environment(options: CollectNsys) -> dict[str, str]:
    # Include capture ranges whose names are not registered strings.
    return {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"} if options.nvtx else {}


def collect_ranks(
    context: Context,
    options: CollectNsys,
    nsys: str,
    env: Mapping[str, str],
    name: str = "nsys",
) -> Collected:
    """Launch every srun task under its own nsys, and return all exports."""
    base = context.into / name
    chosen, notes = _options(context, options, nsys)
    words = [nsys, "profile", *chosen, f"--output={base}-rank%q{{SLURM_PROCID}}"]
    env = {**_environment(options), **env}
    finished = context.launch(name, words, env=env, every_rank=True)
    context.check(finished, "nsys")
    traced = sorted(base.parent.glob(f"{name}-rank*.nsys-rep"), key=_rank)
    if not traced:
        raise ProgramFailed("profiler", f"nsys did not write a report: {finished.complaint()}")
    context.say("nsys export")
    export = ["sh", "-c", _EXPORT_OF_RANK, str(base), nsys, *export_options()]
    exported = context.launcher.run(export, log=context.into / f"{name}-export")
    check(exported, "nsys export", None)
    first, *others = (path.with_suffix(".sqlite") for path in traced)
    if lost := [path.name for path in (first, *others) if not path.is_file()]:
        raise ProgramFailed("profiler", f"nsys export did not write {lost[0]}")
    return Collected(first, finished.seconds, tuple(notes), tuple(others))


def _options(
    context: Context, options: CollectNsys, nsys: str
) -> tuple[list[str], tuple[str, ...]]:
    """Return the options of a launch under nsys, which ends the program if requested, and notes."""
    duration = context.workload.duration
    # Settings of the workload take precedence.
    given = {word.partition("=")[0] for word in options.options}
    if duration and not options.duration and not given & {"--duration", "-d"}:
        options = options.model_copy(update={"duration": duration})
    ending = ["--kill=sigterm"] if duration and "--kill" not in given else []
    sampling, notes = sampling_options(context, options, nsys)
    return [*sampling, *profile_options(options), *ending], notes


def sampling_options(
    context: Context, options: CollectNsys, nsys: str
) -> tuple[list[str], tuple[str, ...]]:
    """Return the options for stacks of Python that are not given, and a note if there are none."""
    if not options.stacks:
        return [], ()
    given = {word.partition("=")[0] for word in options.options}
    if not nsys_offers(_PYTHON_SAMPLING, nsys, context.launcher):
        return [], (_NO_SAMPLING,) if is_python(context.task.command) else ()
    words = {_PYTHON_SAMPLING: "true", f"{_PYTHON_SAMPLING}-frequency": str(_SAMPLES_PER_S)}
    return [f"{name}={value}" for name, value in words.items() if name not in given], ()


def _rank(path: Path) -> tuple[int, str]:
    digits = path.stem.rpartition("rank")[2]
    return int(digits) if digits.isdigit() else -1, path.name


def profile_options(options: CollectNsys) -> list[str]:
    """Return the options of `nsys profile`."""
    words = [
        f"--trace={','.join(options.trace)}",
        f"--cuda-graph-trace={options.cuda_graph_trace}",
        "--sample=none",
        "--cpuctxsw=none",
        "--force-overwrite=true",
    ]
    if options.capture_range != "none":
        words += [f"--capture-range={options.capture_range}", "--capture-range-end=stop"]
    if options.nvtx:
        words.append(f"--nvtx-capture={options.nvtx}")
    if options.gpu_metrics:
        words.append("--gpu-metrics-devices=all")
    if options.cuda_memory_usage:
        words.append("--cuda-memory-usage=true")
    if options.page_faults:
        words += ["--cuda-um-cpu-page-faults=true", "--cuda-um-gpu-page-faults=true"]
    if options.duration:
        words.append(f"--duration={options.duration:g}")
    return [*words, *options.options]


def export_options() -> list[str]:
    """Return the options of `nsys export`, except its output.

    NVTX payloads contain NCCL's sizes and communicators.
    """
    return [
        "export",
        "--type=sqlite",
        "--lazy=false",
        "--include-blobs=true",
        "--force-overwrite=true",
    ]


def export_nsys_rep(report: Path, database: Path) -> Path:
    """Export an .nsys-rep locally; raises ToolMissing without nsys, TaskFailed on failure."""
    nsys = require_tool("nsys")
    launcher = Launcher(Execution(), Path.cwd())
    exported = launcher.run([nsys.path, *export_options(), f"--output={database}", report])
    check(exported, "nsys export", None)
    if not database.is_file():
        raise TaskFailed(f"nsys export did not write {database.name}: {exported.complaint()}")
    return database
