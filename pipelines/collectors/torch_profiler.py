"""Traces a Python program with torch.profiler."""

from __future__ import annotations

import json
from pathlib import Path

from perfpipe.errors import InputError
from perfpipe.pipelines.collectors.base import Collected, Context, Job
from perfpipe.pipelines.workload import CollectTorch

#: Runs as a separate program in the workload's interpreter, which may lack perfpipe.
_RUNNER = Path(__file__).with_name("torch_runner.py")

#: How long torch.profiler may take to write its trace, s.
_WRITING_S = 300.0


class Torch:
    """Traces a Python program with torch.profiler, which is part of the program's PyTorch."""

    tool = ""

    def collect(self, job: Job) -> Collected:
        """Return the Kineto trace."""
        options = job.context.workload.collect.torch
        if options is None:
            raise ValueError("torch")
        job.announce("torch.profiler")
        return collect_torch(job.context, options)


def collect_torch(context: Context, options: CollectTorch) -> Collected:
    """Launch under torch.profiler and return the trace; raises InputError if it is not Python."""
    interpreter, *rest = context.task.command
    if not rest or "python" not in Path(interpreter).name or rest[0].startswith("-"):
        raise InputError(
            "the collector 'torch' needs a command with a Python interpreter and a file, such as "
            '["{python}", program.py, ...]'
        )
    launcher = context.launcher
    trace = context.into / "torch.json"
    settings = json.dumps(options.model_dump())
    # Another machine does not have the file, so its text is passed.
    text = _RUNNER.read_text(encoding="utf-8")
    runner = ["-c", text] if launcher.remote else [str(_RUNNER)]
    command = [interpreter, *runner, launcher.output(trace), settings, *rest]
    finished = context.launch("torch", command=command, grace_s=_WRITING_S)
    return context.product(finished, "torch.profiler", trace)
