"""The processes of candidates, from the judge's side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.evaluate.arena import Arena
from perfpipe.pipelines.evaluate.block import Limits
from perfpipe.pipelines.evaluate.fork_server import kin
from perfpipe.pipelines.evaluate.packets import PACKET
from perfpipe.pipelines.evaluate.reach import paths
from perfpipe.pipelines.process import Supervised

#: Environment variables that candidates inherit.
ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "CUDA_HOME", "CUDA_PATH", "CUDA_MODULE_LOADING", "TRITON_INTERPRET", "TRITON_PTXAS_PATH",
    "TRITON_LIBCUDA_PATH",
)  # fmt: skip

#: How long the fork server may take to load PyTorch, s.
_LOADING_S = 300.0

#: How often a running process is checked, s.
_WATCH_S = 0.1

#: Most that a candidate may print, bytes.
_PRINTED_BYTES = 64 << 20

_PAGE = os.sysconf("SC_PAGE_SIZE")


def inherited() -> dict[str, str]:
    """Return the environment of processes that load PyTorch for candidates.

    PyTorch's compiler reads its settings when it is imported; its workers would run concurrently
    with the calls.
    """
    found = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return found | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


class Ended(Exception):
    """The process of a candidate ended or was killed: `why` is a status, `text` the details."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why, self.text = why, text


class ForkServer:
    """A process with PyTorch loaded, which forks those of candidates.

    With `confines_driver` the threads of a GPU's driver are confined as well.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.confines_driver = True

    @classmethod
    @contextlib.contextmanager
    def opened(cls, torch: Any, device: str) -> Iterator[ForkServer]:
        """Start one, and end it with its children; raises TaskFailed on failure."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, tempfile.TemporaryDirectory(prefix="perfpipe-forks-") as home:
            environment = inherited()
            environment |= {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
            # Asking CUDA whether there is a GPU would keep it from working in a fork.
            environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
            if device == "cpu":
                # Triton's kernels are interpreted, and no GPU is touched.
                environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
            tree, libraries = Path(__file__).parents[3], [str(Path(torch.__file__).parents[1])]
            begin = "import sys; sys.path.insert(0, sys.argv[1])\n"
            begin += "from perfpipe.pipelines.evaluate.fork_server import main; main()"
            words = [sys.executable, "-I", "-c", begin, str(tree), json.dumps(libraries)]
            words.append(str(theirs.fileno()))
            with Supervised(sys.executable, None, (theirs.fileno(),)) as supervised:
                supervised.start(words, None, environment, linger_s=0.0)
                theirs.close()
                ours.settimeout(_LOADING_S)
                try:
                    ready = ours.recv(PACKET)
                except TimeoutError as error:
                    raise TaskFailed(
                        "PyTorch took too long to load in the process that runs candidates"
                    ) from error
                if not ready:
                    raise TaskFailed(f"cannot run candidates: {_last_line(supervised)}")
                try:
                    yield cls(ours)
                finally:
                    ours.close()
            for stream in (supervised.process.stdout, supervised.process.stderr):
                if stream is not None:
                    stream.close()

    def ask(self, packet: Mapping[str, Any], given: Sequence[int] = ()) -> dict[str, Any]:
        """Return the answer to a packet; raises TaskFailed when the fork server is gone."""
        try:
            socket.send_fds(self._control, [json.dumps(packet).encode()], given)
            answer = self._control.recv(PACKET)
        except OSError as error:
            raise TaskFailed(f"the fork server of candidates does not answer: {error}") from error
        if not answer:
            raise TaskFailed("the fork server of candidates ended unexpectedly")
        found: dict[str, Any] = json.loads(answer)
        return found


class Worker:
    """The process of a candidate, whose copy is in `directory`; without one, an empty process.

    `seen` has the unsolicited reports of its process, `refused` its restrictions.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        arena: Arena,
        limits: Limits,
        directory: Path,
        candidate: Mapping[str, Any],
    ) -> None:
        self._fork_server, self._limits = fork_server, limits
        self.seen: list[dict[str, Any]] = []
        self.left: list[int] = []
        self._number = 0
        self.log = directory / "output.txt"
        asked = {
            "do": "bear",
            **candidate,
            "directory": str(directory / "files"),
            "device": arena.device,
            "bytes": arena.size,
            "shared": arena.shared,
            "threads": 1,
            **paths(directory, arena.device, candidate["hidden"]),
            "limits": {
                "file_bytes": limits.file_mb << 20,
                "cpu_s": int(limits.seconds * 100),
                "memory_bytes": limits.memory_mb << 20,
            },
        }
        try:
            try:
                self._begin(asked, arena.file)
            except Ended:
                if arena.device == "cpu" or not fork_server.confines_driver:
                    raise
                # A driver that needs more than it may use while it starts is confined afterwards.
                fork_server.confines_driver = False
                self.log.write_bytes(b"")
                self._begin(asked, arena.file)
        except Ended as ended:
            said = " | ".join(self.output().splitlines()[-2:])
            raise TaskFailed(f"cannot start candidates: {ended}: {said}") from ended

    def _begin(self, asked: Mapping[str, Any], block: int) -> None:
        """Start the process; raises Ended before anything of the candidate has run."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {**asked, "driver": self._fork_server.confines_driver}
        with theirs, self.log.open("ab") as output:
            given = (theirs.fileno(), output.fileno(), block)
            self.pid: int = self._fork_server.ask(asked, given)["pid"]
        try:
            self.refused: dict[str, bool] = self._answer(self._limits.seconds)["refused"]
        except Ended:
            self.end()
            raise

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Return the answer to a request; raises Ended."""
        self.say(do, **more)
        return self.hear()

    def say(self, do: str, **more: Any) -> None:
        """Send a request; the answer is for `hear`."""
        self._number += 1
        packet = json.dumps({"do": do, "id": self._number, **more}).encode()
        with contextlib.suppress(OSError):  # that it is gone is seen by the answer
            self._line.send(packet)

    def hear(self) -> dict[str, Any]:
        """Return the answer to the last request; raises Ended."""
        answer = self._answer(self._limits.seconds)
        if answer.get("done") != self._number:
            raise Ended("harness", "the candidate's process answered instead of the harness")
        return answer

    def stop(self) -> None:
        """Stop every thread of the process, until `go_on`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
        until = time.monotonic() + 1.0
        while _state(self.pid) not in "TtZX" and time.monotonic() < until:
            time.sleep(0.0001)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def others(self) -> list[int]:
        """Return the processes that it has started."""
        return kin(self.pid)

    def end(self) -> int:
        """End the process, with all that it started, and return its exit code."""
        self.go_on()
        self._line.close()
        answer = self._fork_server.ask({"do": "end", "pid": self.pid})
        self.left = answer["left"]
        code: int = answer["code"]
        return code

    def output(self) -> str:
        """Return the last lines that it printed."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2000))
            return file.read().decode(errors="replace").strip()
        return ""

    def _answer(self, seconds: float) -> dict[str, Any]:
        """Return the next answer; reports in between go to `seen`."""
        until = time.monotonic() + seconds
        while True:
            packet = self._packet(until, seconds)
            try:
                found = json.loads(packet)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise Ended("harness", "the candidate's process wrote to the harness's connection")
            if "audit" not in found:
                return found
            if len(self.seen) < 100:
                self.seen.append(found["audit"])

    def _packet(self, until: float, seconds: float) -> bytes:
        while True:
            self._line.settimeout(max(1e-3, min(_WATCH_S, until - time.monotonic())))
            try:
                packet = self._line.recv(PACKET)
            except TimeoutError:
                self._watch(until, seconds)
                continue
            except OSError:
                packet = b""
            if not packet:
                raise Ended("crash", "the candidate's process ended")
            return packet

    def _watch(self, until: float, seconds: float) -> None:
        """Raise Ended if the process exceeds a limit."""
        if time.monotonic() > until:
            raise Ended("timeout", f"the candidate took longer than {seconds:g} s (limits.seconds)")
        own = [self.pid, *kin(self.pid)]
        if len(own) - 1 > self._limits.processes:
            raise Ended(
                "out of resources",
                f"the candidate started more than {self._limits.processes} processes "
                "(limits.processes)",
            )
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > _PRINTED_BYTES:
                raise Ended(
                    "out of resources",
                    f"the candidate printed more than {_PRINTED_BYTES >> 20} MiB",
                )
        used = sum(map(_anonymous, own))
        if used > self._limits.memory_mb << 20:
            raise Ended(
                "out of resources",
                f"the candidate used more than {self._limits.memory_mb} MiB of memory "
                "(limits.memory_mb)",
            )


def _last_line(supervised: Supervised) -> str:
    """Return why a process that has ended could not load PyTorch."""
    supervised.wait(1.0)
    said = supervised.process.stderr.read() if supervised.process.stderr else ""
    return next(reversed(said.strip().splitlines()), "PyTorch cannot be loaded")


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]


def _anonymous(pid: int) -> int:
    """Return the private memory of a process, bytes."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
    except OSError:
        return 0
    _, resident, shared, *_ = map(int, text.split())
    return (resident - shared) * _PAGE
