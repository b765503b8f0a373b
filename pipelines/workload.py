"""Workload files: what to launch, over which parameters, and what to collect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.evaluate.block import Evaluate
from perfpipe.pipelines.faults import explain
from perfpipe.pipelines.serving.block import Serve
from perfpipe.pipelines.slurm.options import Slurm
from perfpipe.pipelines.strict_yaml import line_of, load

Scalar = int | float | str
Params = dict[str, Scalar]

#: Settings of a workload that --set changes besides its parameters.
_SETTINGS = ("warmup", "repeats", "launches", "timeout", "duration")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Work(_Model):
    """Work of one iteration, for rates and the roofline: expressions that use the parameters."""

    flops: str | int | float | None = Field(
        None, description="floating-point operations, such as 2*m*n*k"
    )
    bytes: str | int | float | None = Field(
        None, description="minimum number of bytes that must be moved"
    )
    samples: str | int | float | None = Field(
        None, description="samples of an iteration, such as batch: the report gives samples/s"
    )
    tokens: str | int | float | None = Field(
        None, description="tokens of an iteration, such as batch*length: the report gives tokens/s"
    )
    dtype: str | None = Field(
        None, description="data type that determines the peak FLOP rate, such as fp16"
    )


class Validation(_Model):
    """Tolerances, passed to the program as {atol} and {rtol}."""

    atol: float = Field(1e-2, ge=0, description="absolute tolerance")
    rtol: float = Field(1e-2, ge=0, description="relative tolerance")


class CollectNsys(_Model):
    """Options of nsys profile."""

    trace: list[str] = Field(["cuda", "nvtx"], description="nsys --trace")
    cuda_graph_trace: Literal["graph", "node"] = Field(
        "node", description="nsys --cuda-graph-trace"
    )
    capture_range: Literal["none", "cudaProfilerApi", "nvtx"] = Field(
        "none",
        description="what to record: everything, between cudaProfilerStart/Stop, or one NVTX range",
    )
    nvtx: str | None = Field(None, description="NVTX range to record: nsys --nvtx-capture")
    gpu_metrics: bool = Field(False, description="sample GPU metrics of all GPUs")
    cuda_memory_usage: bool = Field(
        False,
        description="record allocations of device memory, which adds overhead "
        "(--cuda-memory-usage)",
    )
    page_faults: bool = Field(
        False,
        description="record page faults on unified memory, which may add much overhead "
        "(--cuda-um-cpu-page-faults, --cuda-um-gpu-page-faults)",
    )
    stacks: bool = Field(
        True,
        description="sample the stacks of Python threads, to find the code that runs while the GPU "
        "is idle (--python-sampling; py-spy for forked processes, on this machine)",
    )
    duration: float | None = Field(None, gt=0, description="time to record, seconds")
    options: list[str] = Field([], description="additional options of nsys profile")

    @model_validator(mode="after")
    def _range_is_named(self) -> CollectNsys:
        if (self.capture_range == "nvtx") != (self.nvtx is not None):
            raise ValueError("capture_range: nvtx and nvtx: NAME must be used together")
        return self


#: Options of ncu that choose what to profile.
_CHOOSING = (
    "--kernel-",
    "--launch-",
    "--nvtx-include",
    "--nvtx-exclude",
    "--range-filter",
    "--filter-mode",
)
_CHOOSING_SHORT = ("-k", "-c", "-s")


class CollectNcu(_Model):
    """Options of ncu."""

    select: Literal["auto", "all"] | None = Field(
        None,
        description="auto: the kernels that take the most time on the timeline; all: every kernel "
        "that passes the filters below; default: auto if there are no filters",
    )
    coverage: float = Field(
        85, gt=0, le=100, description="with auto: percentage of kernel time to cover"
    )
    max_kernels: int = Field(
        200, ge=1, description="with auto: maximum number of kernel launches to profile"
    )
    time_limit: float | None = Field(
        None,
        gt=0,
        description="with auto: time limit of ncu, seconds; default: 4 times the time of an "
        "execution without a profiler, plus 60 s, minus the time already used",
    )
    set: str = Field("basic", description="ncu --set; default with auto: detailed")
    sections: list[str] = Field([], description="additional sections: ncu --section")
    metrics: list[str] = Field([], description="additional metrics: ncu --metrics")
    kernels: str | None = Field(
        None, description="kernels to profile: regular expression on their names"
    )
    nvtx: str | None = Field(None, description="NVTX range to profile: ncu --nvtx-include")
    launch_count: int | None = Field(None, ge=1, description="number of kernel launches to profile")
    launch_skip: int = Field(0, ge=0, description="kernel launches to skip before profiling")
    clock_control: Literal["base", "none"] = Field("base", description="ncu --clock-control")
    cache_control: Literal["all", "none"] = Field("all", description="ncu --cache-control")
    replay_mode: Literal["kernel", "application", "range", "app-range"] = Field(
        "kernel", description="ncu --replay-mode"
    )
    graph_profiling: Literal["graph", "node"] = Field("node", description="ncu --graph-profiling")
    import_source: bool = Field(False, description="store source files in the report")
    capture_range: Literal["none", "cudaProfilerApi"] = Field(
        "none", description="what to profile: everything, or between cudaProfilerStart/Stop"
    )
    options: list[str] = Field([], description="additional options of ncu")

    @model_validator(mode="after")
    def _one_chooses(self) -> CollectNcu:
        if self.select == "auto" and (own := self._choosing()):
            raise ValueError(f"select: auto chooses the kernels itself; remove {own}")
        return self

    @property
    def guided(self) -> bool:
        """Whether the timeline decides which kernels are profiled."""
        return self.select == "auto" or (self.select is None and not self._choosing())

    @property
    def chosen_set(self) -> str:
        """The set to collect: as stated, else detailed for selected kernels and basic for all.

        For few launches, the detailed set costs little more than the basic set.
        """
        return "detailed" if self.guided and "set" not in self.model_fields_set else self.set

    def _choosing(self) -> str | None:
        """Return the setting that chooses kernels instead of the timeline, if any."""
        for name in ("kernels", "nvtx", "launch_count", "launch_skip"):
            if getattr(self, name):
                return name
        # These profile ranges and graphs, which kernel names cannot select.
        if self.replay_mode in ("range", "app-range"):
            return f"replay_mode: {self.replay_mode}"
        if self.graph_profiling == "graph":
            return "graph_profiling: graph"
        for word in self.options:
            if word.startswith(_CHOOSING) or (
                word.startswith(_CHOOSING_SHORT) and not word.startswith("--")
            ):
                return word
        return None


class CollectTorch(_Model):
    """Options of torch.profiler, for Python programs that use PyTorch."""

    record_shapes: bool = Field(False, description="record input shapes of operators")
    profile_memory: bool = Field(
        False, description="record memory allocations of PyTorch, which makes the trace larger"
    )
    with_stack: bool = Field(False, description="record Python stacks")
    capture_range: Literal["none", "cudaProfilerApi"] = Field(
        "none", description="what to profile: everything, or between cudaProfilerStart/Stop"
    )


class CollectNvml(_Model):
    """Sampling of clocks, power and temperature while the program runs without a profiler."""

    interval_ms: float = Field(50, ge=5, description="time between samples, ms")


class Collect(_Model):
    """Profilers to run, each in a separate execution, so that they do not affect each other."""

    nsys: CollectNsys | None = Field(None, description="timelines from nsys")
    ncu: CollectNcu | None = Field(None, description="kernel profiles from ncu")
    torch: CollectTorch | None = Field(None, description="traces from torch.profiler")
    modules: bool = Field(
        False,
        description="GPU time by PyTorch module, from an execution of its own under nsys",
    )
    nvml: CollectNvml | None = Field(
        CollectNvml(),
        description="energy, and samples of clocks, power and temperature, from NVML",
    )
    observe: bool = Field(
        True,
        description="time the steps of PyTorch programs that print no times, without a profiler; "
        "only on this machine",
    )
    keep_raw: bool = Field(
        True,
        description="keep profiler files in runs/ after ingesting them; nsys files contain all "
        "environment variables of the program",
    )


class Execution(_Model):
    """Where programs run: on this machine, on another machine through ssh, or through srun."""

    kind: Literal["local", "ssh", "srun"] = Field(
        "local",
        description="local: on this machine; ssh: on another machine, with reports copied back; "
        "srun: on nodes that share this file system",
    )
    wrapper: list[str] = Field(
        [], description="prefix of every command, such as [ssh, gpu1] or [srun, --gpus=1]"
    )
    directory: str | None = Field(
        None, description="working directory on the other machine; default: the same path as here"
    )
    python: str | None = Field(
        None, description="Python interpreter on the other machine, passed as {python}"
    )

    @model_validator(mode="after")
    def _has_a_wrapper(self) -> Execution:
        if self.kind != "local" and not self.wrapper:
            raise ValueError(f"kind: {self.kind} needs a wrapper, such as [{self.kind}, ...]")
        return self


class Tune(_Model):
    """Autotuning: a search for the fastest parameters, generation by generation."""

    parameters: dict[str, list[Scalar]] = Field(
        min_length=1, description="values of each parameter, ordered so that neighbors are similar"
    )
    generations: int = Field(
        3,
        ge=1,
        description="number of rounds; each later round varies the best configurations so far",
    )
    population: int = Field(8, ge=1, description="configurations per round")
    keep: int = Field(3, ge=1, description="number of best configurations that each round varies")
    seed: int = Field(0, description="random seed")
    default: Params = Field({}, description="configuration to compare with when gains are measured")
    confirm: int = Field(
        5,
        ge=0,
        description="timed executions of the fastest configuration, alternating with the default, "
        "after the search, to confirm the gain; 0: none",
    )
    candidates: str | None = Field(
        None,
        description="JSON lines file of configurations to try instead of a search: one object of "
        "parameters per line, optionally with a 'generation'",
    )

    @model_validator(mode="after")
    def _default_is_complete(self) -> Tune:
        if self.default and self.default.keys() != self.parameters.keys():
            raise ValueError(
                "default must give a value for every parameter in parameters, "
                "and for no other parameter"
            )
        return self


class Lever(_Model):
    """A change of your own that `perfpipe try` tries like its own levers."""

    title: str | None = Field(None, description="what the lever does; default: its name")
    env: dict[str, str] = Field({}, description="environment variables to set")
    arguments: Params = Field(
        {}, description="parameters of the command to change, such as {batch: 64}"
    )
    patch: str | None = Field(
        None,
        description="patch file, relative to the workload file; it is applied to a copy or an "
        "overlay of the working directory",
    )
    build: str | None = Field(
        None,
        description="command that builds the program there, such as make -j8; not run through a "
        "shell",
    )
    expect: Literal["identical", "scatter", "tolerance"] = Field(
        "scatter",
        description="results to expect: identical; the same within the scatter of launches without "
        "the lever; or within `tolerance`, which is the only one that allows more than rounding",
    )
    tolerance: float | None = Field(
        None, gt=0, description="relative error that results may have with `expect: tolerance`"
    )
    manual: str = Field("", description="how to make the change by hand")

    @model_validator(mode="after")
    def _changes_something(self) -> Lever:
        if not (self.env or self.arguments or self.patch or self.build):
            raise ValueError("a lever needs env, arguments, patch or build")
        if self.patch == "" or (self.build is not None and not self.build.split()):
            raise ValueError("patch and build must not be empty")
        return self

    @model_validator(mode="after")
    def _tolerance_is_expected(self) -> Lever:
        if (self.expect == "tolerance") != (self.tolerance is not None):
            raise ValueError("expect: tolerance and tolerance: NUMBER must be used together")
        return self


def _lever_name(name: str) -> str:
    # On the command line, a comma separates names, and a colon a name and its variant.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ValueError("the name of a lever has letters, digits, '.', '_' and '-' only")
    return name


class Workload(_Model):
    """A workload file."""

    version: Literal[1] = Field(description="version of this format")
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="name of the workload")
    description: str = Field("", description="one sentence about the workload")
    command: list[str] = Field(
        min_length=1, description="program and arguments; not run through a shell"
    )
    sizes: list[Params | int] = Field(
        [],
        description="sets of parameters that vary together; a plain number sets the parameter size",
    )
    matrix: dict[str, list[Scalar]] = Field(
        {}, description="parameters and their values; all combinations are run"
    )
    exclude: list[Params] = Field([], description="combinations to skip")
    include: list[Params] = Field([], description="additional combinations")
    tune: Tune | None = Field(None, description="autotuning")
    env: dict[str, str] = Field({}, description="environment variables of the program")
    cwd: str | None = Field(
        None, description="working directory; default: the directory of the file"
    )
    work: Work = Field(Work(), description="FLOPs and bytes of one iteration")
    validate_: Validation = Field(
        Validation(), alias="validate", description="tolerances of results"
    )
    warmup: int = Field(10, ge=0, description="number of warm-up iterations, passed as {warmup}")
    repeats: int = Field(5, ge=1, description="number of timed iterations, passed as {repeats}")
    launches: int = Field(
        1, ge=1, description="number of executions to time, each in a new process"
    )
    timeout: float = Field(600, gt=0, description="time limit of one execution, seconds")
    duration: float | None = Field(
        None,
        gt=0,
        description="stop each execution after this time, seconds; default: run to the end",
    )
    collect: Collect = Field(Collect(), description="profilers to run")
    execution: Execution = Field(Execution(), description="where programs run")
    serve: Serve | None = Field(
        None, description="treat the command as a server, and put loads on it"
    )
    evaluate: Evaluate | None = Field(None, description="options of perfpipe evaluate")
    levers: dict[Annotated[str, AfterValidator(_lever_name)], Lever] = Field(
        {}, description="changes of your own for perfpipe try, by name"
    )
    slurm: Slurm | None = Field(None, description="Slurm options of batch jobs")
    recording: str | None = Field(None, description="recording to replay if there is no GPU")

    @model_validator(mode="after")
    def _ends_in_time(self) -> Self:
        if self.duration is not None and self.duration >= self.timeout:
            raise ValueError(
                f"duration ({self.duration:g} s) must be less than timeout ({self.timeout:g} s), "
                "the limit at which a run of the program fails"
            )
        return self

    @model_validator(mode="after")
    def _is_served_here(self) -> Self:
        if self.serve is None:
            return self
        if self.execution.kind != "local":
            raise ValueError(
                f"serve runs on this machine, not with execution: {self.execution.kind}"
            )
        given = {name: getattr(self, name) for name in ("tune", "duration", "recording")}
        given |= {"launches": self.launches > 1, "collect.modules": self.collect.modules}
        if others := [name for name, value in given.items() if value]:
            raise ValueError(f"serve and {others[0]} exclude each other")
        return self

    def collecting(self, **settings: bool) -> Workload:
        """Return it with other values of these settings of `collect`."""
        return self.model_copy(update={"collect": self.collect.model_copy(update=settings)})

    def serving(self, block: Mapping[str, Any]) -> Workload:
        """Return it with another block `serve`; raises ValidationError if that is wrong."""
        stated = self.model_dump(by_alias=True, exclude_unset=True)
        return Workload.model_validate({**stated, "serve": dict(block)})

    def without_stacks(self) -> Workload:
        """Return it without sampling of stacks."""
        nsys = self.collect.nsys and self.collect.nsys.model_copy(update={"stacks": False})
        collect = self.collect.model_copy(update={"nsys": nsys})
        return self.model_copy(update={"collect": collect})


def load_workload(
    path: Path, overrides: Mapping[str, list[Scalar]] | None = None, *, alone: bool = True
) -> Workload:
    """Read a workload file; `overrides` replace matrix parameters (--set).

    Overrides of parameters that the file does not have are an error, unless it is not `alone`: then
    they are for other files.  Raises InputError with file and line of every error.
    """
    value, node = load(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: not a workload (a mapping with version, name, command, ...)")
    if overrides:
        known = _parameters(value)
        unknown = [name for name in overrides if name not in known and not _used(name, value)]
        if unknown and alone:
            raise InputError(
                f"{path}: no parameter {unknown[0]}{did_you_mean(unknown[0], known)} "
                f"(known: {', '.join(sorted(known))})"
            )
        value = _override(value, {k: v for k, v in overrides.items() if k not in unknown})
    try:
        return Workload.model_validate(value)
    except ValidationError as error:
        faults = [
            f"{path}:{line_of(node, fault['loc'])}: {explain(Workload, fault)}"
            for fault in error.errors()
        ]
        raise InputError("; ".join(faults)) from error


def _parameters(value: Mapping[str, Any]) -> set[str]:
    """Return the names that --set can have for a workload file, before it is validated."""
    tune = value.get("tune")
    rows = [
        value.get("matrix"),
        tune.get("parameters") if isinstance(tune, dict) else None,
        *(value.get("include") or []),
        *(size if isinstance(size, dict) else {"size": size} for size in value.get("sizes") or []),
    ]
    return {*_SETTINGS, *(str(name) for row in rows if isinstance(row, dict) for name in row)}


def _used(name: str, value: Mapping[str, Any]) -> bool:
    """Return whether a text of a workload file has a placeholder of this name."""
    return "{" + name + "}" in json.dumps(value, default=str)


def _override(value: dict[str, Any], overrides: Mapping[str, list[Scalar]]) -> dict[str, Any]:
    """Set matrix parameters; they replace those in `sizes`, which are removed."""
    settings = {name: values[0] for name, values in overrides.items() if name in _SETTINGS}
    free = {name: values for name, values in overrides.items() if name not in _SETTINGS}
    stated = value.get("matrix") or {}
    # Parameters of `sizes` stay before those of `matrix`, as without --set.
    moved = {name: values for name, values in free.items() if name not in stated}
    matrix = {**moved, **stated, **free}
    include = [
        params
        for params in value.get("include") or []
        if all(params[name] in free[name] for name in params.keys() & free.keys())
    ]
    sizes = []
    for size in value.get("sizes") or []:
        named = size if isinstance(size, dict) else {"size": size}
        left = {name: number for name, number in named.items() if name not in free}
        if left and left not in sizes:
            sizes.append(left)
    return {**value, **settings, "matrix": matrix, "sizes": sizes, "include": include}
