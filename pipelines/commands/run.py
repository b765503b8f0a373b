"""perfpipe run."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from perfpipe.errors import InputError, PerfpipeError
from perfpipe.pipelines.console import progress, say
from perfpipe.pipelines.launcher import Launcher
from perfpipe.pipelines.launches import announced
from perfpipe.pipelines.options import (
    WithProgram,
    filter_option,
    json_document,
    json_option,
    program_options,
    resolve_store,
    settings_of,
    step_range_option,
    store_option,
)
from perfpipe.pipelines.plan import (
    COLLECTORS,
    Plan,
    choose_collector,
    nothing_to_replay,
    planned_tasks,
)
from perfpipe.pipelines.program import PROGRAM, Program, program_of
from perfpipe.pipelines.quick import quick as reduced
from perfpipe.pipelines.quick import sizes_of
from perfpipe.pipelines.runner import Preview, execute, raise_for_status
from perfpipe.pipelines.serving.figures import figures_of
from perfpipe.pipelines.serving.options import (
    block_of,
    overriding,
    serve_options,
    split,
    taken_from,
)
from perfpipe.pipelines.signals import Ended, launching
from perfpipe.pipelines.tasks import Task, directory_of
from perfpipe.pipelines.tools import gpus_on
from perfpipe.pipelines.workload import Scalar, Workload, load_workload
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store
from perfpipe.sweeping import sweep
from perfpipe.units import counted

_YAML = (".yaml", ".yml")

#: How to time a program without a GPU, for a message.
_TIMING = "--collector timing measures how long it takes"
_LATENCIES = "--collector timing measures its latencies"


class _RunCommand(WithProgram):
    """Takes a workload file or a program, and recognizes a program given without `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            if ctx.meta["program"] is None and (meant := self._meant(args)):
                raise InputError(meant) from error
            raise
        program = ctx.meta["program"]
        if (server := ctx.params.get("serve")) is not None:
            if program is not None:
                raise click.UsageError("give either --serve or a program after --", ctx)
            program = tuple(split(server, "--serve"))
        ctx.params["program"] = program
        if program is not None and ctx.params["workload"] is not None:
            file = ctx.params["workload"]
            other = "a program after --" if server is None else "--serve"
            raise click.UsageError(f"give either a workload file ({file}) or {other}", ctx)
        if program is None and ctx.params["workload"] is None:
            raise click.UsageError(
                "give a workload file, a program after --, or a server with --serve", ctx
            )
        return rest

    def _meant(self, args: list[str]) -> str | None:
        """Return what to say if the words are a program without `--` in front."""
        parser = click.Command(self.name, params=[p for p in self.params if p.name != "workload"])
        context = click.Context(parser, info_name="run", allow_interspersed_args=False)
        try:
            _, words, _ = parser.make_parser(context).parse_args(list(args))
        except click.UsageError:
            return None
        if not words or not (hint := did_you_mean_program(words, args[: len(args) - len(words)])):
            return None
        return f"{words[0]} is not a workload file{hint}"

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] WORKLOAD.yaml")
        formatter.write_usage(ctx.command_path, "[OPTIONS] -- PROGRAM [ARGUMENT]...", "       ")
        formatter.write_usage(ctx.command_path, "[OPTIONS] --serve COMMAND", "       ")


def did_you_mean_program(words: list[str], options: list[str]) -> str:
    """Return the end of a sentence if words look like a program; empty if not."""
    first = Path(words[0])
    if first.suffix in _YAML or not (first.is_file() or shutil.which(words[0])):
        return ""
    if first.suffix == ".py" and not shutil.which(f"./{first}"):
        words = ["python", *words]
    return f"; did you mean '{shlex.join(['perfpipe', 'run', *options, '--', *words])}'?"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the command line of `perfpipe run` says; `program` are the words after `--`."""

    workload: Path | None
    program: tuple[str, ...] | None
    collector: str
    settings: tuple[str, ...]
    duration: float | None
    sizes: str | None
    quick: bool
    filters: dict[str, list[str]]
    env: tuple[str, ...]
    cwd: Path | None
    save: Path | None
    force: bool
    dry_run: bool
    detach: bool
    resume: bool
    rerun_failed: bool
    as_json: bool
    html: str | None
    md: str | None
    step_range: str | int | None
    no_report: bool
    no_raw: bool
    no_observe: bool
    no_stacks: bool
    modules: bool
    store_path: str | None
    serve: str | None
    serving: dict[str, Any]


@click.command("run", cls=_RunCommand)
@click.argument("workload", type=click.Path(path_type=Path), required=False)
@click.option(
    "--collector",
    type=click.Choice(COLLECTORS),
    default="auto",
    show_default=True,
    help="Profilers to use; auto measures if there is a GPU, else replays the recording.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE[,VALUE]",
    help="Override a parameter of the workload, or warmup, repeats, launches, timeout or duration.",
)
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop each execution after this time; useful for programs that run for hours.",
)
@click.option(
    "--sizes", metavar="N[,N]", help="Sizes to run, instead of the sizes in the workload file."
)
@click.option(
    "--quick",
    is_flag=True,
    help="Take a quick first look: run only two of the sizes, with few iterations and the "
    "cheapest ncu sections.",
)
@filter_option
@program_options
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a workload file, so that 'perfpipe run FILE' repeats this run.",
)
@click.option("--force", is_flag=True, help="Let --save overwrite an existing file.")
@click.option(
    "--dry-run", is_flag=True, help="Print configurations and commands without running them."
)
@click.option(
    "--detach",
    is_flag=True,
    help="Start the program once, prepared for 'perfpipe attach', and return at once: the program "
    "continues after perfpipe, and its output is kept in files.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the latest run of this workload: run only missing or changed configurations.",
)
@click.option(
    "--rerun-failed", is_flag=True, help="Like --resume, but also retry failed configurations."
)
@json_option("Print the run record, or the plan of --dry-run, as JSON.")
@click.option(
    "--html",
    metavar="FILE",
    help="HTML report to write [default: report.html, or report-2.html, ... if it exists].",
)
@click.option(
    "--md",
    metavar="FILE",
    help="Markdown report to write [default: report.md, or report-2.md, ... if it exists].",
)
@step_range_option
@click.option("--no-report", is_flag=True, help="Do not write a report (see 'perfpipe report').")
@click.option(
    "--no-raw",
    is_flag=True,
    help="Delete profiler files after ingesting them: nsys files contain all environment variables "
    "of the program.  'perfpipe record' cannot use such a run.",
)
@click.option(
    "--no-observe",
    is_flag=True,
    help="Do not time the steps of PyTorch programs that print no times: the program then runs "
    "without perfpipe's start-up file.",
)
@click.option(
    "--no-stacks",
    is_flag=True,
    help="Do not sample the stacks of Python threads under nsys: the report then cannot show which "
    "code runs while the GPU is idle.",
)
@click.option(
    "--modules",
    is_flag=True,
    help="Also show the GPU time of each PyTorch module: run the program once more under nsys, "
    "with NVTX ranges for modules and operators.",
)
@serve_options
@store_option
@click.pass_context
def run_command(ctx: click.Context, /, **given: Any) -> None:
    """Run a program under the profilers, ingest the results, and report.

    Give a WORKLOAD file, or any program after `--`.  Each configuration first runs without a
    profiler, to check the program's result and measure its time, and then under nsys and under ncu,
    so that the profilers do not affect the times.

    \b
    perfpipe run -- python train.py --lr 3e-4
    perfpipe run --duration 60 -- python train.py
    perfpipe run --cwd src --env OMP_NUM_THREADS=8 -- torchrun --nproc-per-node 2 train.py
    perfpipe run --collector nsys --save workload.yaml -- ./bench --size 4096

    --serve starts a server.  When it is ready, perfpipe puts a load on it, measures latencies and
    throughput at each rate, and captures a window of the same load under nsys.

    \b
    perfpipe run --serve "python server.py --port 8000" --ready http://127.0.0.1:8000/health \\
        --url http://127.0.0.1:8000/generate --body '{"prompt": "{prompt:100}"}' --rate 1,4,8
    perfpipe run --serve "vllm serve MODEL" --ready http://127.0.0.1:8000/health --rate 4 \\
        --load "vllm bench serve --model MODEL --request-rate {rate} --save-result
                --save-detailed --result-dir {output}"

    A workload file can also define parameters, a sweep, expected FLOPs and bytes, and a recording.
    If there is no GPU, perfpipe replays the recording, and every page says so.  With `tune`,
    perfpipe searches for the fastest parameters, generation by generation.

    \b
    perfpipe run workloads/gemm.yaml
    perfpipe run workloads/gemm.yaml --quick --sizes 512,4096
    perfpipe run workloads/gemm.yaml --set size=4096 --set dtype=fp16,bf16 --collector ncu
    perfpipe run workloads/gemm.yaml --filter dtype=fp16 --dry-run
    perfpipe run workloads/fused_matmul_tuning.yaml --resume

    Before the first launch, perfpipe prints which launches there will be, why, and how long they
    took the last time.  If there is one configuration, a preliminary verdict follows the timeline,
    before ncu starts; Ctrl-C then keeps the timeline and the times.  Both go to stderr.

    When perfpipe exits or is killed (Ctrl-C, SIGTERM, SIGHUP or even SIGKILL), every process that
    it started is terminated.  --resume continues the run.
    """
    serving = taken_from(given)
    options, args = RunOptions(**given, serving=serving), ctx.meta["args"]
    if options.detach:
        from perfpipe.pipelines.commands.detaching import detach_program

        detach_program(ctx, options)
        return
    workload, path, program = _subject(options, args)
    tasks = planned_tasks(workload, path, options.filters)
    if options.dry_run:
        _save(program, options)
        _show(tasks, options.as_json)
        return
    launcher = Launcher(workload.execution, directory_of(workload, path))
    kind, reason = choose_collector(options.collector, launcher)
    if kind == "replay" and workload.recording is None:
        what, timing = str(path), None
        if options.program is not None:
            what, timing = "a program without a workload file", _TIMING
        if workload.serve is not None:
            what, timing = "a server", _LATENCIES
        raise nothing_to_replay(what, options.collector, gpus_on(launcher), timing)
    resume = options.resume or options.rerun_failed
    plan = Plan(workload, path, tasks, kind, resume, options.rerun_failed, options.program)
    _save(program, options)
    say(f"{workload.name}: {counted(plan.launches, 'configuration')}; {reason}")
    store = resolve_store(options.store_path)
    preview = None if options.as_json or options.no_report else _preview(store, options.step_range)
    if kind != "replay":
        for line in announced(plan, store, preview=bool(preview) and plan.previewed):
            say(line)
    record = _executed(plan, store, args, preview)
    if options.as_json:
        served = figures_of(store, record) if workload.serve is not None else {}
        click.echo(json_document(run=asdict(record), **({"serving": served} if served else {})))
    if not options.no_report:
        from perfpipe.pipelines.reporting import report_of_run

        report_of_run(
            store,
            record,
            html=options.html,
            md=options.md,
            step_range=options.step_range,
            quiet=options.as_json,
        )
    raise_for_status(record)


def _subject(options: RunOptions, args: list[str]) -> tuple[Workload, Path, Program | None]:
    """Return the workload, its path, and the program if there is no workload file."""
    if options.serve is not None:
        _refuse("a program that ends by itself", {"--modules": options.modules})
    settings = settings_of(options.settings)
    off = {"keep_raw": options.no_raw, "observe": options.no_observe}
    collect = {name: False for name, unwanted in off.items() if unwanted}
    if options.modules:
        collect["modules"] = _modules_wanted(options.collector)
    if options.duration is not None:
        settings["duration"] = [options.duration]
    if options.serving and options.serve is None and options.program is not None:
        raise InputError(f"--{_option(options.serving)} needs --serve, not a program after --")
    if options.program is not None:
        _refuse("a workload file", {"--sizes": options.sizes, "--filter": options.filters})
        program = program_of(
            options.program,
            env=options.env,
            cwd=options.cwd,
            settings=settings,
            quick=options.quick,
            collector=options.collector,
            collect=collect,
            stacks=not options.no_stacks,
            serve=None if options.serve is None else block_of(options.serving),
        )
        return program.workload(), PROGRAM, program
    assert options.workload is not None  # noqa: S101
    workload = _load(options.workload, settings, options.sizes, options.quick, args)
    only = {"--env": options.env, "--cwd": options.cwd, "--save": options.save}
    _refuse("a program after --", only)
    workload = workload.collecting(**collect)
    if options.serving:
        workload = _with_load(workload, options.workload, options.serving)
    return workload.without_stacks() if options.no_stacks else workload, options.workload, None


def _option(stated: dict[str, Any]) -> str:
    return next(iter(stated)).replace("_", "-")


def _with_load(workload: Workload, path: Path, stated: dict[str, Any]) -> Workload:
    """Return a workload whose load is as the command line states."""
    if workload.serve is None:
        raise InputError(f"{path}: --{_option(stated)} needs a workload file with 'serve'")
    try:
        return workload.serving(overriding(workload.serve, stated))
    except ValidationError as error:
        fault = error.errors()[0]
        place = "".join(f"--{str(name).replace('_', '-')}: " for name in fault["loc"][1:2])
        raise InputError(f"{place}{fault['msg'].removeprefix('Value error, ')}") from error


def _modules_wanted(collector: str) -> bool:
    """Return True; raises InputError if the collector does not run nsys."""
    if collector not in ("auto", "all", "nsys"):
        raise InputError(f"--modules needs nsys, but --collector {collector} does not run nsys")
    return True


def _preview(store: Store, step_range: str | int | None) -> Preview:
    """Return what makes the first screen of a run while ncu has not run yet."""

    def preview(record: RunRecord) -> str:
        from perfpipe.pipelines.reporting import preview_of_run

        return preview_of_run(store, record, step_range)

    return preview


def _executed(
    plan: Plan, store: Store, args: list[str], preview: Preview | None = None
) -> RunRecord:
    """Run a plan with progress; an interrupted run says how to continue it."""
    sweep(store)
    try:
        with launching(), progress(plan.workload.name, plan.launches) as steps:
            return execute(plan, store, steps, preview)
    except Ended as end:
        end.advice += f"; to continue: {_resuming(args)}"
        raise
    raise AssertionError("unreachable")


def _load(
    path: Path,
    settings: dict[str, list[Scalar]],
    sizes: str | None,
    quick: bool,
    args: list[str],
) -> Workload:
    """Read a workload file; if it is not one, suggest what was meant."""
    try:
        loaded = load_workload(path, settings)
    except PerfpipeError as error:
        options = [word for word in args if Path(word) != path]
        hint = did_you_mean_program([str(path)], options)
        if not hint:
            raise
        raise InputError(f"{path} is not a workload file{hint}") from error
    if quick:
        loaded = reduced(loaded)
    if sizes is not None:
        numbers = sizes_of(sizes, loaded, str(path))
        again = load_workload(path, {**settings, "size": numbers})
        loaded = reduced(again) if quick else again
    return loaded


def _refuse(needed: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value:
            raise InputError(f"{name} needs {needed}")


def _save(program: Program | None, options: RunOptions) -> None:
    path = options.save
    if program is not None and path is not None:
        program.save(path, force=options.force)
        say(f"wrote {path}: 'perfpipe run {shlex.quote(str(path))}' repeats this run")


def _resuming(args: list[str]) -> str:
    words = args if "--resume" in args or "--rerun-failed" in args else ["--resume", *args]
    return shlex.join(["perfpipe", "run", *words])


def _show(planned: list[Task], as_json: bool) -> None:
    if as_json:
        names = ("index", "label", "params", "command", "key", "flops", "bytes", "dtype")
        shown = [{name: getattr(task, name) for name in names} for task in planned]
        click.echo(json_document(tasks=shown))
        return
    for task in planned:
        click.echo(f"[{task.index}] {task.label}\n    {shlex.join(task.command)}")
