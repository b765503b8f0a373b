"""The nsys session of a program that `perfpipe run --detach` started.

`nsys launch` starts a program with nsys's libraries, and records nothing.  `nsys start` and `nsys
stop` on its session record for a while, and the program continues (Nsight Systems user guide,
"Interactive CLI Command Sequences").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.attaching.guarding import guarded
from perfpipe.pipelines.attaching.ways import UNPREPARED, Recording, Subject
from perfpipe.pipelines.attaching.window import Window
from perfpipe.pipelines.complaint import ended
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.tools import explain, find_tool, offered

#: Options of `nsys launch`: what is recorded later.  The program's own stacks come from py-spy.
_LAUNCH = ("--trace=cuda,nvtx,osrt", "--cuda-graph-trace=graph", "--trace-fork-before-exec=true")

#: Options of `nsys start`: neither CPU samples nor context switches.
_START = ("--sample=none", "--cpuctxsw=none", "--force-overwrite=true")

#: How long a command of nsys may take, s; `stop` writes the report.
_PATIENCE_S, _WRITING_S = 60.0, 600.0


class NsysSession:
    """Records through the nsys session of a program."""

    name = "nsys session"
    sees = "kernels, copies, CUDA calls, NVTX ranges and waiting system calls of all its processes"
    lacks = "what was allocated, captured or compiled before"
    prepare = "start it with 'perfpipe run --detach -- PROGRAM', which needs nsys"

    def why_not(self, subject: Subject) -> str | None:
        if subject.prepared.session is None:
            return UNPREPARED
        if find_tool("nsys") is None:
            return "nsys is not installed here"
        return None

    @contextlib.contextmanager
    def recording(self, subject: Subject, window: Window) -> Iterator[Recording]:
        tool, session = find_tool("nsys"), f"--session={subject.prepared.session}"
        if tool is None:
            raise TaskFailed("nsys is not installed here")
        # Commands of nsys find a session only with the TMPDIR of its launch.
        env = {"TMPDIR": subject.prepared.tmpdir} if subject.prepared.tmpdir else {}
        report, found = window.into / "nsys.nsys-rep", Recording()
        cancel = [tool.path, "cancel", session]
        with guarded(cancel, env):
            try:
                options = offered(tool.path, "start", _START)
                words = [tool.path, "start", session, *options, f"--output={report}"]
                started = _ask(words, env, _PATIENCE_S, window.into / "nsys-start")
                if not started.ok:
                    raise TaskFailed(f"nsys start {_reason(started)}")
                yield found
                window.say("nsys stop: writing the timeline")
                words = [tool.path, "stop", session]
                stopped = _ask(words, env, _WRITING_S, window.into / "nsys-stop")
            except BaseException:
                with contextlib.suppress(TaskFailed):
                    _ask(cancel, env, _PATIENCE_S)
                raise
        # When the program ends, nsys stops by itself, and `nsys stop` finds no recording.
        if report.is_file():
            found.exports.append(report)
        else:
            window.note(f"nsys wrote no timeline: nsys stop {_reason(stopped)}")


def _ask(
    words: list[str], env: Mapping[str, str], patience_s: float, log: Path | None = None
) -> Finished:
    """Run a command of nsys; processes that it leaves running belong to the session."""
    return run(words, env=env, timeout=patience_s, log=log, keep_rest=True)


def launch_words(nsys: str, session: str) -> list[str]:
    """Return the words before a program that is started with a session."""
    return [nsys, "launch", f"--session-new={session}", *offered(nsys, "launch", _LAUNCH)]


def shutdown_words(nsys: str, session: str) -> list[str]:
    """Return the words that end a session, and let its processes live."""
    return [nsys, "shutdown", f"--session={session}", "--kill=none"]


def _reason(finished: Finished) -> str:
    """Return how a command of nsys failed, as the end of a sentence."""
    if finished.timed_out:
        return f"took longer than {finished.seconds:.0f} s"
    said = explain(finished.stdout + finished.stderr) or finished.complaint()
    how = ended(finished.returncode)
    return f"{how}: {said}" if said else how
