"""Write the pages that are generated: command line, tables and views, workload files, trials.

`--check` writes nothing and fails if something is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import topics
import tried

from perfpipe.pipelines.cli import cli
from perfpipe.pipelines.lazy import WithViews, load
from perfpipe.pipelines.settings_model import Settings
from perfpipe.pipelines.trying.levers import levers
from perfpipe.pipelines.workload import Workload
from perfpipe.specs import LISTS, documents, gpu_specs, tensor_rates

DOCS = Path(__file__).parent

#: Pages that agents read, and where they are installed from.
FOR_AGENTS, INSTALLED = ("glossary.md", "traps.md"), DOCS.parent / "pipelines/agents/pages"


def main() -> int:
    """Write or check the pages and return the exit code."""
    made = {
        "cli.md": command_line(),
        "workload-file.md": workload_file(),
        "gpus.md": gpus(),
    }
    pages = {DOCS / name: text for name, text in made.items()}
    pages |= topics.reference()
    pages |= tried.pages(tried.committed())
    trying = DOCS / "trying.md"
    pages[trying] = tried.with_block(trying.read_text(encoding="utf-8"), "levers", lever_table())
    pages |= {INSTALLED / name: (DOCS / name).read_text(encoding="utf-8") for name in FOR_AGENTS}
    check = "--check" in sys.argv[1:]
    stale = []
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if check and stale:
        click.echo(f"out of date: {', '.join(stale)}; run 'make docs'", err=True)
        return 1
    return 0


def lever_table() -> Iterator[str]:
    """Yield the table of levers."""
    yield "| lever | change | tried | risks |"
    yield "| --- | --- | --- | --- |"
    for lever in levers().values():
        needs = {"torch": "", "any": "", "jax": ", in JAX programs"}.get(
            lever.needs, f", in programs that use {lever.needs}"
        )
        when = f"{'always' if lever.free else 'on a finding'}{needs}"
        risks = lever.risks if lever.default else ""
        yield f"| `{lever.name}` | {lever.title} | {when} | {risks} |"


def command_line() -> str:
    """Return the command reference, from the commands' help."""
    lines = ["# Command line", "", "Generated from the commands' help by `make docs`.", ""]
    lines += _command(cli, "perfpipe", None)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: click.Command, path: str, parent: click.Context | None) -> list[str]:
    # The name of a view is that of its command and a word.
    within = "" if parent is None else f"{parent.command_path} "
    name = path.removeprefix(within)
    context = click.Context(command, info_name=name, parent=parent, terminal_width=90)
    lines = [f"## {path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, WithViews):
        for word, name in command.views.items():
            lines += _command(load(name), f"{path} {word}", parent)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                lines += _command(below, f"{path} {name}", context)
    return lines


_HOW = """\
A workload file describes which program to launch and which profiles to collect.  You can also [run
a program without a workload file](running.md).  See `workloads/gemm.yaml` for an example; `perfpipe
schema workload` prints the JSON Schema for editors.

- In `command`, `{name}` is replaced by the value of the parameter `name`, or of `warmup`,
  `repeats`, `atol` or `rtol`.  `{python}` is replaced by the Python interpreter ($PERFPIPE_PYTHON,
  else the interpreter that runs perfpipe).  Write `{{name}}` for the literal text {name}.
  Arguments that become empty are dropped.  The program is started without a shell, in the directory
  of the workload file or in `cwd`.
- Every entry of `sizes` is combined with every combination of `matrix`; a plain number sets the
  parameter `size`.  `exclude` removes combinations, and `include` adds combinations.
- Values of `work` are arithmetic expressions (numbers, parameters, `dtype_bytes`, + - * / // **).
- Each configuration is executed without a profiler, and then once under each profiler.  The program
  can read the current profiler from `$PERFPIPE_COLLECTOR` (plain, nsys, ncu or torch).  `launches`
  sets how many times the program is executed without a profiler, each time in a new process.
- The program may print JSON lines, each with the key "perfpipe":

  ```text
  {"perfpipe": "validation", "ok": true, "max_abs_error": 0.01}     printed before any times
  {"perfpipe": "time", "ms": [0.5, 0.4], "method": "queued"}        one entry per sample, above 0
  {"perfpipe": "kernel", "registers": 128, "spills": 0}             resources of a compiled kernel
  {"perfpipe": "out_of_resources", "reason": "shared memory"}       a hardware limit is exceeded
  {"perfpipe": "about", "torch": "2.11.0"}                          versions of libraries
  ```

  If `ok` is false, the configuration is reported as failed, and is neither timed nor profiled.

- `tune` autotunes the listed parameters, generation by generation.  The first generation is random
  (starting with `default`), and each later generation varies the best configurations so far.  No
  configuration is tried twice.  Configurations that give wrong results, time out or exceed a
  hardware limit are recorded as failed.  At the end, the fastest configuration and the default are
  profiled.  To try configurations from another optimizer instead, name a JSON lines file in
  `candidates`.  `perfpipe report --tuning FILE.jsonl` summarizes the history of any tuning tool.
- With `ncu: {}`, the kernels to profile are selected from the timeline, so nsys runs first.  ncu
  profiles the kernels that take the most time in the steady steps: one launch of each size, until
  these kernels cover `coverage` percent of the kernel time, but at most `max_kernels` launches. ncu
  collects the set `detailed`, or less data if time is short.  `perfpipe plan` shows the selection.
  Communication kernels are never profiled, and if there are several ranks, only one rank is
  profiled.  perfpipe terminates the program after the last selected kernel (except over ssh or with
  srun), or at `time_limit`; profiles collected up to that point are kept.  A filter (`kernels`,
  `nvtx`, `launch_skip`, `launch_count`, or a filter in `options`) or `select: all` turns off this
  selection.
- The wrapper in `execution` is prepended to every command.  `{kind: ssh, wrapper: [ssh, gpu1],
  directory: ...}` runs the program on another machine, which must have the program's files, and
  copies the reports back.  `kind: srun` is for nodes that share the file system with this machine.
- With `serve`, the command is a server, and perfpipe [puts loads on it](serving.md).  Parameters
  are replaced in `ready`, `url`, `load`, `rate` and `traces` too.
- `levers` are changes of your own that `perfpipe try` measures like its own levers.  A lever sets
  environment variables, changes parameters of the command, applies a patch, runs a build command,
  or does several of these.  The patch and the build change an overlay or a copy of the working
  directory, never your files:

  ```yaml
  levers:
    arena: {env: {MALLOC_ARENA_MAX: "2"}, expect: identical}
    larger_batch: {arguments: {batch: 64}, expect: tolerance, tolerance: 1e-2}
    native: {patch: native.patch, build: make -j8 CXXFLAGS=-march=native}
  ```

- `slurm` sets the Slurm options of `perfpipe batch submit`.  Put site-wide defaults in
  [perfpipe.toml](#perfpipetoml).  A time is `30m`, `1h30m`, `2:00:00` or `1-12:00:00`; an ambiguous
  time, such as `90` or `90:00`, is an error.
- Results are written as soon as a task ends.  `perfpipe run --resume` resumes the latest run.
  `--resume` executes only tasks that are missing or have changed.  A task changes with its command,
  environment or collectors, with the program, and with the Python files next to the program.
- `perfpipe run --save FILE -- PROGRAM ...` writes a workload file for the program, which you can
  then extend.
- YAML is read strictly: only `true` and `false` are booleans; `1:30`, `off` and dates are text;
  unknown and duplicate keys are errors.""".splitlines()


_SETTINGS = """\
Put project settings in `perfpipe.toml` in the working directory or one of its parent directories.
Put user settings in `~/.config/perfpipe/config.toml`, and those of a site in `/etc/perfpipe.toml`
or in the file that `PERFPIPE_SITE_CONFIG` names.  An unknown key is an error; the message names the
file and the line.

```toml
store = "/scratch/me/perfpipe-store"

[slurm]
partition = "gpu"
account = "lab"
time = "2h"
setup = ["module load cuda/12.4"]
```

The order of precedence is: option, environment variable, workload file, `perfpipe.toml`, the user's
`config.toml`, the site's file, default.  The keys of `slurm` and of `slurm.container` are merged
one by one; a list is replaced as a whole.  An environment variable is named `PERFPIPE_` followed by
the key: `PERFPIPE_STORE`, `PERFPIPE_SLURM_PARTITION`; a list has one entry per line.  A relative
path in a settings file is relative to the directory of that file.  `perfpipe config show --origin
[WORKLOAD]` shows the settings in effect and their origin."""


def workload_file() -> str:
    """Return the reference of workload files, from their models."""
    schema = Workload.model_json_schema(by_alias=True)
    lines = ["# Workload file", "", "Generated from the models by `make docs`.", "", *_HOW, ""]
    lines += _model("Workload", schema)
    for name, definition in sorted(schema["$defs"].items()):
        lines += _model(name, definition)
    lines += ["## perfpipe.toml", "", *_SETTINGS.splitlines(), ""]
    lines += _table(Settings.model_json_schema())
    return "\n".join(lines).rstrip() + "\n"


def _model(name: str, definition: dict[str, Any]) -> list[str]:
    return [f"## {name}", "", definition.get("description", ""), "", *_table(definition)]


def _table(definition: dict[str, Any]) -> list[str]:
    lines = ["| key | meaning | default |", "| --- | --- | --- |"]
    required = definition.get("required", [])
    for key, field in definition["properties"].items():
        default = "required" if key in required else f"`{field.get('default', '-')}`"
        lines.append(f"| `{key}` | {field.get('description', '')} | {default} |")
    return [*lines, ""]


def gpus() -> str:
    """Return the table of GPUs, from the lists in perfpipe."""
    lines = [
        "# GPU peaks",
        "",
        f"Generated by `make docs` from {', '.join(LISTS[:-1])} and {LISTS[-1]}",
        "in perfpipe.  Peaks are dense, in TFLOP/s (int8: TOP/s).  The column MHz has the maximum",
        "clock, followed by the clocks for which the vendor gives the peaks, if they differ.  The",
        'column "missing" lists figures that the document does not give, and figures that differ',
        "between devices with the same name and SM count; percentages of them are NULL.  The text",
        "in brackets after a source says how the figures were confirmed; a reprint is a copy of",
        "the figures in another publication.",
        "",
        "A peak applies to a device whose whole name and SM count match.  vGPUs and MIG slices",
        "have none.  The fp16, bf16 and fp8 peaks of GeForce GPUs are those with FP32",
        "accumulation; FP16 accumulation (fp16_acc16, fp8_acc16) is twice as fast.",
        "",
        "| GPU | CC | SMs | MHz | GB/s | dense peaks | missing | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for spec in gpu_specs():
        peaks = ", ".join(f"{dtype} {peak:g}" for dtype, peak in spec.dense.items())
        clocks = "".join(f", {unit} {mhz}" for unit, mhz in spec.quoted_mhz.items())
        by_reason: dict[str, list[str]] = {}
        for what, why in spec.missing.items():
            by_reason.setdefault(why, []).append(what)
        missing = "; ".join(f"{', '.join(what)} ({why})" for why, what in by_reason.items())
        lines.append(
            f"| {spec.name} | {spec.cc} | {spec.sms} | {spec.clock_mhz or '-'}{clocks} | "
            f"{spec.bandwidth_gbs or '-'} | {peaks} | {missing} | {spec.source} |"
        )
    lines += [
        "",
        "## Documents",
        "",
        *(f"- {title}: <{address}>" for title, address in documents().items()),
        "",
        "## Tensor instructions",
        "",
        "Dense FLOP (int8: operations) per cycle and SM, for compute capabilities on which the",
        "instructions for a data type have different rates.  The rates come from",
        "perfpipe/tensor_rates.toml and are also in the table `gpu_tensor_rates`.  The peaks above",
        "are those of the fastest instruction: on compute capability 9.0, a kernel that uses",
        "mma.sync (HMMA) and runs at 98 % of SOL reaches two thirds of the rate of wgmma (HGMMA).",
        "",
        "| CC | instruction | dtype | FLOP per cycle and SM |",
        "| --- | --- | --- | --- |",
        *(
            f"| {rate.cc} | {rate.instruction} | {rate.dtype} | {rate.flop_per_cycle:,.1f} |"
            for rate in tensor_rates()
        ),
        "",
        *(f"{cc}: {source}." for cc, source in {r.cc: r.source for r in tensor_rates()}.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
