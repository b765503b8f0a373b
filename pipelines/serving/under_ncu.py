"""Profiles kernels of a server with ncu, while requests come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from perfpipe.pipelines.collectors.base import Collected, Context, Job, ProgramFailed, Say
from perfpipe.pipelines.collectors.guide import without_skip
from perfpipe.pipelines.collectors.ncu import collect_ncu, guide_of_job
from perfpipe.pipelines.process import Finished
from perfpipe.pipelines.serving.block import Serve
from perfpipe.pipelines.serving.loading import Loads
from perfpipe.pipelines.serving.server import Server, serving
from perfpipe.pipelines.workload import CollectNcu

#: ncu replays each kernel, so responses take much longer: time limits are multiplied by this.
_SLOWER = 10.0


def collect_served(job: Job, serve: Serve, loads: Loads) -> Collected:
    """Return the .ncu-rep of a server; raises ProgramFailed if it does not bear the replay."""
    options = job.context.workload.collect.ncu or CollectNcu()
    slow = serve.model_copy(
        update={
            "ready_timeout": _SLOWER * serve.ready_timeout,
            "request_timeout": _SLOWER * serve.request_timeout,
        }
    )
    own = {own.name: getattr(job.context, own.name) for own in fields(Context)}
    context = _ServedContext(**own, serve=slow, feed=loads.feed)
    guide = None
    if options.guided:
        # The timeline begins long after the start of the server.
        guide = guide_of_job(job, options)
        guide = replace(guide, words=without_skip(guide.words), from_start=True)
    job.announce("ncu")
    try:
        return collect_ncu(context, options, guide)
    except ProgramFailed as error:
        raise ProgramFailed(
            error.kind,
            f"the server does not run under ncu, which replays each kernel: {error}",
            error.program_code,
        ) from error


@dataclass(frozen=True)
class _ServedContext(Context):
    """A context whose program is a server: a launch also puts requests on it until it ends."""

    serve: Serve = field(kw_only=True)
    feed: Callable[[Server, Serve], None] = field(kw_only=True)

    def launch(
        self,
        collector: str,
        before: Sequence[str | Path] = (),
        *,
        log: str | None = None,
        env: dict[str, str] | None = None,
        command: Sequence[str | Path] | None = None,
        on_line: Say | None = None,
        timeout: float | None = None,
        every_rank: bool = False,
        grace_s: float | None = None,
    ) -> Finished:
        with serving(self, self.serve, collector, before, env, on_line) as server:
            self.feed(server, self.serve)
        program = server.program
        out, err = (path.read_text("utf-8", "replace") for path in program.logs)
        return Finished(program.returncode or 0, out, err, program.seconds)
