"""Kineto's on-demand traces of PyTorch, requested by SIGUSR2: libkineto before May 2026.

These versions install a handler for SIGUSR2 if the file in KINETO_CONFIG says ENABLE_SIGUSR2=YES.
The handler lets libkineto read /tmp/libkineto.conf and trace (ConfigLoader.cpp before commit
471ed38e of pytorch/kineto, which removed it).

SIGUSR2 kills a program that has no handler, and a program may use a handler of its own for
something else.  So the signal is sent only if the program was prepared for it, libkineto supports
it, and the program handles the signal.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import TaskFailed, os_error_sentence
from perfpipe.pipelines.attaching.guarding import guarded
from perfpipe.pipelines.attaching.kineto import TRACES, configuration, let_write, writing_s
from perfpipe.pipelines.attaching.target import Target
from perfpipe.pipelines.attaching.ways import UNPREPARED, Recording, Subject
from perfpipe.pipelines.attaching.window import Window
from perfpipe.scratch import scratch

#: Variable with the file that enables the signal, and the line that does.
CONFIG_VARIABLE = "KINETO_CONFIG"
_ENABLED = re.compile(r"^\s*ENABLE_SIGUSR2\s*=\s*(yes|true|on|1|y|t)\s*$", re.I | re.M)

#: Library with libkineto, and a function of versions that react to the signal.
_LIBRARY, _FUNCTION = "libtorch_cpu", b"handleOnDemandSignal"

#: What libkineto reads when the signal arrives.  It reads no other file.
REQUEST = Path("/tmp/libkineto.conf")  # noqa: S108

#: Time from the signal to the start of a trace, s: the warm-up, and libkineto's own delays.
_LEAD_S = 4.0


class KinetoSignal:
    """Records a PyTorch process through the signal of older versions of libkineto."""

    name = "Kineto by SIGUSR2"
    sees = "kernels, copies, CUDA calls and PyTorch operators of one process"
    lacks = "other processes, and work without PyTorch"
    prepare = ""

    def why_not(self, subject: Subject) -> str | None:
        return refusal(subject.target)

    @contextlib.contextmanager
    def recording(self, subject: Subject, window: Window) -> Iterator[Recording]:
        found = Recording()
        with scratch(TRACES) as folder, guarded(["rm", "-f", str(REQUEST)]):
            let_write(folder, subject.target)
            start = time.time() + _LEAD_S
            _write_request(folder, start, window.seconds)
            try:
                _send(subject.target)
                window.until(lambda: time.time() >= start, 2 * _LEAD_S)
            finally:
                # libkineto has read it by then.
                REQUEST.unlink(missing_ok=True)
            yield found
            window.say("waiting until PyTorch has written the trace")
            window.until(lambda: any(folder.glob("trace*.json")), writing_s(window.seconds))
            for path in folder.glob("trace*.json"):
                (window.into / path.name).write_bytes(path.read_bytes())
                found.files.append(window.into / path.name)
            if not found.files:
                window.note("PyTorch wrote no trace after SIGUSR2")


def refusal(target: Target) -> str | None:
    """Return why the signal must not be sent to a process; None if it may be sent."""
    config = target.environment().get(CONFIG_VARIABLE)
    if config is None:
        return UNPREPARED
    try:
        enabled = _ENABLED.search(Path(config).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return f"{CONFIG_VARIABLE}: {os_error_sentence(error, 'cannot read')}"
    if not enabled:
        return f"{config} does not say ENABLE_SIGUSR2=YES"
    if not handles(target, signal.SIGUSR2):
        return "it does not handle SIGUSR2, which would kill it"
    library = target.maps(_LIBRARY)
    if library is None:
        return "it has not loaded PyTorch"
    if not _contains(library, _FUNCTION):
        return "this version of PyTorch does not react to SIGUSR2"
    if REQUEST.exists():
        return f"{REQUEST} exists, and belongs to another request"
    return None


def handles(target: Target, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal (SigCgt in /proc/PID/status)."""
    try:
        text = Path(f"/proc/{target.pid}/status").read_text(encoding="utf-8", errors="replace")
        caught = int(text.partition("\nSigCgt:")[2].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(caught >> (number - 1) & 1)


def _contains(library: Path, name: bytes) -> bool:
    try:
        with (
            library.open("rb") as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
        ):
            return content.find(name) >= 0
    except (OSError, ValueError):
        return False


def _write_request(folder: Path, start: float, seconds: float) -> None:
    """Write the configuration, which must not exist: nobody else's is overwritten or followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(REQUEST, flags, 0o644), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(configuration(folder, start, seconds))
    except OSError as error:
        raise TaskFailed(os_error_sentence(error, "cannot write")) from error


def _send(target: Target) -> None:
    """Send the signal to this process, and to no later one with its id."""
    try:
        process = os.pidfd_open(target.pid)
    except OSError as error:
        raise TaskFailed(f"process {target.pid} has ended") from error
    try:
        # The descriptor stays with the process that is checked here.
        if not target.alive or not handles(target, signal.SIGUSR2):
            raise TaskFailed(f"process {target.pid} has ended, or no longer handles SIGUSR2")
        signal.pidfd_send_signal(process, signal.SIGUSR2)
    except ProcessLookupError as error:
        raise TaskFailed(f"process {target.pid} has ended") from error
    finally:
        os.close(process)
