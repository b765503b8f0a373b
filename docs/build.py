"""Write the pages that are generated from code: command line, tables and views, workload files.

`--check` writes nothing and fails if something is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from perfpipe.pipelines.cli import cli
from perfpipe.pipelines.commands.schema import relations
from perfpipe.pipelines.settings_model import Settings
from perfpipe.pipelines.workload import Workload
from perfpipe.specs import gpu_specs, tensor_rates

DOCS = Path(__file__).parent

#: Pages that agents read, and where they are installed from.
FOR_AGENTS, INSTALLED = ("glossary.md", "traps.md"), DOCS.parent / "pipelines/agents/pages"


def main() -> int:
    """Write or check the pages and return the exit code."""
    made = {
        "cli.md": command_line(),
        "schema.md": tables_and_views(),
        "workload-file.md": workload_file(),
        "gpus.md": gpus(),
    }
    pages = {DOCS / name: text for name, text in made.items()}
    pages |= {INSTALLED / name: (DOCS / name).read_text(encoding="utf-8") for name in FOR_AGENTS}
    check = "--check" in sys.argv[1:]
    stale = []
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        click.echo(f"out of date: {', '.join(stale)}; run 'make docs'", err=True)
        return 1
    return 0


def command_line() -> str:
    """Return the command reference, from the commands' help."""
    lines = ["# Command line", "", "Generated from the commands' help by `make docs`.", ""]
    lines += _command(cli, "perfpipe", None)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: click.Command, path: str, parent: click.Context | None) -> list[str]:
    context = click.Context(command, info_name=path.split()[-1], parent=parent, terminal_width=90)
    lines = [f"## {path}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                lines += _command(below, f"{path} {name}", context)
    return lines


def tables_and_views() -> str:
    """Return the reference of tables and views, from the data model and the SQL comments."""
    lines = [
        "# Tables and views",
        "",
        "Generated from the data model and the comments of the SQL by `make docs`.  Times are",
        "integer nanoseconds, sizes bytes, rates per second, percentages 0-100; NULL means that a",
        "value was not collected.",
        "",
    ]
    for relation in relations():
        lines += [f"## {relation.name}", "", f"({relation.kind}) {relation.doc}", ""]
        lines += ["| column | meaning |", "| --- | --- |"]
        lines += [
            f"| `{name}` | {doc.replace('|', chr(92) + '|')} |" for name, doc in relation.columns
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


_HOW = """\
A workload file describes what to launch and what to collect.  A program can also be
[run without a file](running.md).  See `workloads/gemm.yaml` for an example;
`perfpipe schema workload` prints the JSON Schema for editors.

- In `command`, `{name}` is replaced by a parameter, by `warmup`, `repeats`, `atol` or `rtol`, or,
  for `{python}`, by the interpreter ($PERFPIPE_PYTHON, else the one that runs perfpipe); `{{name}}`
  stands for the text {name}.  Arguments that become empty are dropped.  No shell is involved; the
  program runs in the directory of the file, or in `cwd`.
- Every entry of `sizes` is combined with every combination of `matrix`; a plain number is the
  parameter `size`.  `exclude` removes combinations, `include` adds combinations.
- `work` is arithmetic (numbers, parameters, `dtype_bytes`, + - * / // **).
- Each configuration is launched without a profiler, then once per collector.  The program sees the
  collector in `$PERFPIPE_COLLECTOR` (plain, nsys, ncu or torch).  `launches` repeats the launch
  without a profiler in separate processes.
- The program may print JSON lines, each with the key "perfpipe":

  ```text
  {"perfpipe": "validation", "ok": true, "max_abs_error": 0.01}     before any timing
  {"perfpipe": "time", "ms": [0.5, 0.4], "method": "queued"}        one entry per sample
  {"perfpipe": "kernel", "registers": 128, "spills": 0}             a compiled kernel
  {"perfpipe": "out_of_resources", "reason": "shared memory"}       does not fit the hardware
  {"perfpipe": "about", "torch": "2.11.0"}                          versions
  ```

  If `ok` is false, the configuration is reported as a failure, and is neither timed nor profiled.
- `tune` autotunes the listed parameters in generations.  The first generation is random (starting
  with `default`), and each later generation varies the best configuration so far.  No configuration
  is tried twice.  Wrong results, timeouts and configurations that do not fit the hardware are kept
  as data.  At the end the fastest configuration and the default are profiled.  `candidates` is a
  JSON lines file of configurations to try instead, from any optimizer.  `perfpipe tuning
  FILE.jsonl` summarizes the history of another tool.
- `ncu: {}` selects kernels from the timeline, so nsys runs first.  ncu profiles the kernels that
  take most time in the steady steps, until they cover `coverage` percent, one launch of each size,
  at most `max_kernels` launches.  It collects the set `detailed`, or less if time is short.
  `perfpipe plan` shows the selection.  Communication kernels are never profiled, and only one of
  several ranks is profiled.  The program is ended after the last selected kernel (not over ssh or
  srun), and at `time_limit`; profiles collected up to that point are kept.  A filter (`kernels`,
  `nvtx`, `launch_skip`, `launch_count`, or a filter in `options`) or `select: all` turns the
  selection off.
- `execution` prefixes every command.  `{kind: ssh, wrapper: [ssh, gpu1], directory: ...}` runs the
  program on another machine, which must have its files, and copies reports back.  `kind: srun` is
  for nodes that share this file system.
- `slurm` holds the options of `perfpipe batch submit` for Slurm.  Defaults of the site go into
  [perfpipe.toml](#perfpipetoml).  A time is `30m`, `1h30m`, `2:00:00` or `1-12:00:00`; an ambiguous
  time, such as `90` or `90:00`, is an error.
- Results are written as soon as a task ends.  `perfpipe run --resume` resumes the latest run.  It
  launches tasks that are missing or have changed since (command, environment, collectors, the
  program and the Python files next to it).
- `perfpipe run --save FILE -- PROGRAM ...` writes a workload file for a program, to start from.
- YAML is read strictly: only `true` and `false` are booleans; `1:30`, `off` and dates are text;
  unknown and duplicate keys are errors.""".splitlines()


_SETTINGS = """\
Settings of a project are in `perfpipe.toml`, in the working directory or above it.  Settings of a
user or a site are in `~/.config/perfpipe/config.toml`.  An unknown key is an error with file and
line.

```toml
store = "/scratch/me/perfpipe-store"

[slurm]
partition = "gpu"
account = "lab"
time = "2h"
setup = ["module load cuda/12.4"]
```

The order of precedence is: option, environment variable, workload file, `perfpipe.toml`, the user's
file, default.  Options of `slurm` and of its `container` are combined one by one; a list is
replaced as a whole.  The name of a variable is `PERFPIPE_` and the key: `PERFPIPE_STORE`,
`PERFPIPE_SLURM_PARTITION`; a list has one entry per line.  Paths in a file are relative to it.
`perfpipe config show --origin [WORKLOAD]` shows the settings in effect and their origin."""


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
    """Return the table of GPUs, from gpus.toml and gpus_rtx.toml."""
    lines = [
        "# GPU peaks",
        "",
        "Generated from perfpipe/gpus.toml and gpus_rtx.toml by `make docs`.  Peaks are dense,",
        "TFLOP/s (int8: TOP/s).  If the vendor's peaks hold at another clock than the maximum, it",
        "follows the maximum.  A type without a peak is supported by the hardware, but the",
        "document gives no figure: work in this type has no percentage of the peak.  Brackets",
        "after a source contain its confirmation.  gpus.toml explains why V100 SXM3 and H20 are",
        "missing.",
        "",
        "| GPU | CC | SMs | MHz | GB/s | dense peaks | without a peak | source |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for spec in gpu_specs():
        peaks = ", ".join(f"{dtype} {peak:g}" for dtype, peak in spec.dense.items())
        clocks = "".join(f", {unit} {mhz}" for unit, mhz in spec.quoted_mhz.items())
        missing = ", ".join(f"{dtype} ({why})" for dtype, why in spec.missing.items())
        lines.append(
            f"| {spec.name} | {spec.cc} | {spec.sms} | {spec.clock_mhz}{clocks} | "
            f"{spec.bandwidth_gbs} | {peaks} | {missing} | {spec.source} |"
        )
    lines += [
        "",
        "## Tensor instructions",
        "",
        "Dense FLOP (int8: operations) per cycle and SM, from perfpipe/tensor_rates.toml (table",
        "`gpu_tensor_rates`), for types whose instructions differ.  The peaks above are those of",
        "the fastest instruction: on 9.0 a kernel with mma.sync (HMMA) at 98 % of SOL reaches two",
        "thirds of the rate of wgmma (HGMMA).",
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
