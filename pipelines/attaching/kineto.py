"""Kineto's on-demand traces of PyTorch, requested as the daemon dynolog requests them.

With KINETO_USE_DAEMON in its environment, libkineto asks a daemon every few seconds whether to
trace: by datagrams to the UNIX socket "dynolog", abstract or in KINETO_IPC_SOCKET_DIR.  perfpipe
takes the daemon's place for as long as it attaches.  The messages are those of libkineto's
IpcFabricConfigClient.cpp and of dynolog's FabricManager.h and Utils.h: a size (8 bytes), a type (32
bytes), and the content.  A request is (type, n, job id, n process ids), an answer a configuration.

libkineto stops the trace by itself, so nothing records any more if perfpipe is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from perfpipe.errors import TaskFailed
from perfpipe.pipelines.attaching.target import Target
from perfpipe.pipelines.attaching.ways import UNPREPARED, Recording, Subject
from perfpipe.pipelines.attaching.window import Window
from perfpipe.scratch import scratch
from perfpipe.units import counted

#: Variables of libkineto: whether it asks a daemon, the directory of the sockets, and the least
#: severity of messages that it prints.
DAEMON_VARIABLE, DIRECTORY_VARIABLE = "KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR"
LOG_VARIABLE = "KINETO_LOG_LEVEL"

#: The daemon's name, and how the names of libkineto's own sockets begin.
_DAEMON, _CLIENT = "dynolog", "dynoconfigclient"

_HEADER, _REQUEST = struct.Struct("=Q32s"), struct.Struct("=iiq")
_CREDENTIALS = struct.Struct("=iii")

#: Types of messages: a request for a configuration, and a registration, answered by a number.
_ASKS, _REGISTERS = b"req", b"ctxt"

#: Bit of a request's type: libkineto is free to trace.
_ACTIVITIES = 2

#: libkineto asks every 5 s.  If it found no daemon before, it first sleeps for up to 10 s.
_ASKING_S = 20.0

#: Warm-up of a trace, s; time from the first answer to its start, with libkineto's own delays.
_WARMUP_S, _LEAD_S = 1, 3.0

#: How long libkineto may take to write a trace, s, and per second of it.
_WRITING_S, _WRITING_PER_S = 60.0, 20.0

#: Directory of traces: libkineto refuses others, unless KINETO_ONDEMAND_TRACE_DIR names one.
TRACES = Path("/tmp")  # noqa: S108

#: What each event of a trace has, but not the names of processes and threads.
_EVENT = b'"cat"'

_LARGEST = 1 << 16


class KinetoDaemon:
    """Records PyTorch processes through libkineto."""

    name = "Kineto"
    sees = "kernels, copies, CUDA calls and PyTorch operators"
    lacks = "work of other libraries' threads on the CPU, and processes without PyTorch"
    prepare = f"start a PyTorch program with {DAEMON_VARIABLE}=1 in its environment"

    def why_not(self, subject: Subject) -> str | None:
        clients = _clients(subject).values()
        if not clients:
            return UNPREPARED
        if any(not client.startswith("/") for client in clients) and not _same_network(subject):
            return "its sockets are in another network namespace (a container): attach there"
        return None

    @contextlib.contextmanager
    def recording(self, subject: Subject, window: Window) -> Iterator[Recording]:
        clients = _clients(subject)
        asking = (one for one in subject.processes if one.pid in clients)
        found = Recording()
        with scratch(TRACES) as folder, _Daemon(folder, clients, window) as daemon:
            let_write(folder, next(asking, subject.target))
            window.say(f"waiting until PyTorch asks for a configuration, up to {_ASKING_S:g} s")
            daemon.wait()
            yield found
            window.say("waiting until PyTorch has written the trace")
            found.files += daemon.take(window.into)


class _Daemon:
    """Answers the requests of some processes while its context lasts."""

    def __init__(self, folder: Path, clients: dict[int, str], window: Window) -> None:
        self._folder, self._window = folder, window
        self._waiting, self._asked, self._busy = {*clients}, set[int](), set[int]()
        self._start: float | None = None
        self._many = len(clients) > 1
        self._over = threading.Event()
        names = {str(Path(client).parent) if client.startswith("/") else "" for client in
                 clients.values()}  # fmt: skip
        self._sockets = []
        self._paths: list[Path] = []
        try:
            for name in sorted(names):
                self._sockets.append(self._bound(name))
        except BaseException:
            self._close()
            raise
        self._threads = [
            threading.Thread(target=self._answer, args=(own,), daemon=True) for own in self._sockets
        ]

    def _bound(self, directory: str) -> socket.socket:
        """Return the daemon's socket; raises TaskFailed if there is a daemon."""
        address = f"{directory}/{_DAEMON}" if directory else f"\0{_DAEMON}\0"
        own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        own.settimeout(0.1)
        try:
            if directory:
                _remove_stale(Path(address))
            own.bind(address)
            if directory:
                self._paths.append(Path(address))
                Path(address).chmod(0o666)
        except OSError as error:
            own.close()
            if error.errno == errno.EADDRINUSE:
                raise TaskFailed(
                    "a daemon serves the PyTorch processes of this machine already (dynolog, or "
                    "another 'perfpipe attach'); ask it for a trace: dyno gputrace --pids PID"
                ) from error
            raise TaskFailed(f"cannot bind the socket of a daemon: {error.strerror}") from error
        return own

    def __enter__(self) -> _Daemon:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._close()

    def _close(self) -> None:
        for own in self._sockets:
            own.close()
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _answer(self, own: socket.socket) -> None:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        while not self._over.is_set():
            try:
                message, extra, _, sender = own.recvmsg(_LARGEST, room)
            except TimeoutError:
                continue
            except OSError:
                return
            if (reply := self._reply(message, _sender(extra))) is not None and sender:
                with contextlib.suppress(OSError):
                    own.sendto(reply, sender)

    def _reply(self, message: bytes, pid: int | None) -> bytes | None:
        """Return the answer to a message of a process; None if it is not one of libkineto."""
        if len(message) < _HEADER.size:
            return None
        kind = _HEADER.unpack_from(message)[1].rstrip(b"\0")
        if kind == _REGISTERS:
            return _message(_REGISTERS, struct.pack("=i", 1))
        if kind != _ASKS or len(message) < _HEADER.size + _REQUEST.size:
            return None
        wanted = _REQUEST.unpack_from(message, _HEADER.size)[0]
        return _message(_ASKS, self._configuration(pid, wanted).encode())

    def _configuration(self, pid: int | None, wanted: int) -> str:
        """Return the configuration for a process; empty if it should not trace."""
        if pid is None or pid not in self._waiting:
            return ""
        if not wanted & _ACTIVITIES:
            self._busy.add(pid)
            return ""
        if self._start is None:
            # Several processes ask at different times, and trace at the same time.
            self._start = time.time() + (_ASKING_S if self._many else 0.0) + _LEAD_S
        self._waiting.discard(pid)
        self._busy.discard(pid)
        self._asked.add(pid)
        return configuration(self._folder, self._start, self._window.seconds)

    def wait(self) -> None:
        """Wait until the traces begin; raises TaskFailed if no process has asked."""
        self._window.until(lambda: not self._waiting, _ASKING_S)
        if not self._asked or self._start is None:
            why = "is profiling itself" if self._busy else "asked for no configuration"
            raise TaskFailed(f"PyTorch {why} (waited for {_ASKING_S:g} s)")
        if self._waiting:
            self._window.note(f"{counted(len(self._waiting), 'PyTorch process')} did not respond")
        self._window.until(lambda: time.time() >= (self._start or 0), _ASKING_S + _LEAD_S)

    def take(self, into: Path) -> list[Path]:
        """Return the traces, in another directory, when all processes have written theirs."""

        def written() -> list[Path]:
            return sorted(self._folder.glob("trace*.json"))

        patience_s = writing_s(self._window.seconds)
        self._window.until(lambda: len(written()) >= len(self._asked), patience_s)
        traces = written()
        if len(traces) < len(self._asked):
            self._window.note(
                f"{len(traces)} of {counted(len(self._asked), 'PyTorch process')} wrote a trace"
            )
        return [taken for path in traces if (taken := self._copied(path, into / path.name))]

    def _copied(self, source: Path, target: Path) -> Path | None:
        """Return a copy of a trace; None if it is empty."""
        content = source.read_bytes()
        if _EVENT not in content:
            pid = source.stem.rpartition("_")[2]
            self._window.note(f"process {pid} used no PyTorch meanwhile")
            return None
        target.write_bytes(content)
        return target


def configuration(folder: Path, start: float, seconds: float) -> str:
    """Return the configuration of a trace: its directory, start since 1970 and length, s."""
    return (
        f"ACTIVITIES_LOG_FILE={folder}/trace.json\n"
        f"PROFILE_START_TIME={round(start * 1e3)}\n"
        f"ACTIVITIES_DURATION_MSECS={round(seconds * 1e3)}\n"
        f"ACTIVITIES_WARMUP_PERIOD_SECS={_WARMUP_S}\n"
    )


def writing_s(seconds: float) -> float:
    """Return how long libkineto may take to write a trace of some seconds, s."""
    return _WRITING_S + _WRITING_PER_S * seconds


def let_write(folder: Path, target: Target) -> None:
    """Let a program of another user write into a directory of root."""
    if os.geteuid() == 0:
        os.chown(folder, target.uid, -1)


def _clients(subject: Subject) -> dict[int, str]:
    """Return the sockets of the processes that ask a daemon, by process."""
    return {one.pid: client for one in subject.processes if (client := client_of(one))}


def client_of(process: Target) -> str | None:
    """Return the name of the socket by which a process asks a daemon; None if it does not.

    A path if it is a file, else the name of an abstract socket.
    """
    sockets = {}
    try:
        lines = Path(f"/proc/{process.pid}/net/unix").read_text(errors="replace").splitlines()
        for line in lines:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and _CLIENT in fields[7]:
                sockets[f"socket:[{fields[6]}]"] = fields[7]
        if not sockets:
            return None
        for entry in os.scandir(f"/proc/{process.pid}/fd"):
            with contextlib.suppress(OSError):
                if name := sockets.get(os.readlink(entry.path)):  # noqa: PTH115
                    return name
    except OSError:
        return None
    return None


def _same_network(subject: Subject) -> bool:
    try:
        own, theirs = (Path(f"/proc/{who}/ns/net").readlink() for who in
                       ("self", subject.target.pid))  # fmt: skip
    except OSError:
        return True
    return own == theirs


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that has ended."""
    with (
        contextlib.suppress(FileNotFoundError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial,
    ):
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def _sender(extra: list[tuple[int, int, bytes]]) -> int | None:
    """Return the process that sent a message, as the kernel says."""
    for level, kind, content in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
            return pid or None
    return None


def _message(kind: bytes, content: bytes) -> bytes:
    return _HEADER.pack(len(content), kind) + content
