"""Runs Python programs in forks of an interpreter that has imported what takes long already.

python forks.py SOCKET MODULE...

Imports the modules, and answers at a listening socket, whose descriptor it is given, until its
input ends.  Each request is a JSON object, with two descriptors.  It has the words of a program, and
the environment variables to set; output and errors go to the descriptors.  Or it has more `modules`:
a fork imports them too and answers at the first descriptor, until the connection ends.  A program is
a path, or a module behind `-m`.  The answer is the exit code of the fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

#: The longest request, bytes.
_LONGEST = 1 << 20

#: A program in place of the interpreter, which needs no packages: it waits for the end of a fork.
CLIENT = """\
#!{python} -IS
import json, os, socket, sys
words = [word for word in sys.argv[1:] if word != "-u"]
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
    asked.connect({address!r})
    job = {{"words": words, "env": dict(os.environ)}}
    socket.send_fds(asked, [json.dumps(job).encode()], [1, 2])
    sys.exit(int(asked.recv(64) or 1))
"""


def listening(address: str) -> socket.socket:
    """Return a socket for an interpreter to answer at."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(address)
    made.listen()
    return made


def asked(address: str, job: dict[str, Any], given: Sequence[int]) -> socket.socket:
    """Ask an interpreter for something, and return the connection that the answer comes on."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    socket.send_fds(connection, [json.dumps(job).encode()], given)
    return connection


@contextlib.contextmanager
def forking(address: Path, *modules: str, **settings: Any) -> Iterator[Path]:
    """Start an interpreter, with settings of its process, that answers at an address."""
    with listening(str(address)) as given:
        words = [sys.executable, __file__, str(given.fileno()), *modules]
        server = subprocess.Popen(
            words, stdin=subprocess.PIPE, pass_fds=[given.fileno()], **settings
        )
    with server:
        yield address


def _serve(server: socket.socket, modules: list[str], until: Any) -> None:
    """Answer while there is nothing to read from `until`, and until all forks have ended."""
    for name in modules:
        importlib.import_module(name)
    # What is collected in a fork would be copied for it.
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as waiting:
        waiting.register(server, selectors.EVENT_READ)
        waiting.register(until, selectors.EVENT_READ)
        while len(waiting.get_map()) > 1:
            for key, _ in waiting.select():
                waiting.unregister(key.fileobj)
                if key.fileobj is server:
                    child, asker = _forked(server)
                    waiting.register(os.pidfd_open(child), selectors.EVENT_READ, (child, asker))
                    waiting.register(server, selectors.EVENT_READ)
                elif key.data:
                    child, asker = key.data
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    with asker, contextlib.suppress(BrokenPipeError):
                        asker.send(str(code).encode())


def _forked(server: socket.socket) -> tuple[int, socket.socket]:
    """Take a request, and return the fork that does it, with the connection for its exit code."""
    asker, _ = server.accept()
    packet, given, _, _ = socket.recv_fds(asker, _LONGEST, 2)
    job = json.loads(packet)
    child = os.fork()
    if child == 0:
        server.close()
        if "modules" in job:
            _serve(socket.socket(fileno=given[0]), job["modules"], asker)
            os._exit(0)
        _run(job["words"], job["env"], given)
    for descriptor in given:
        os.close(descriptor)
    return child, asker


def _run(words: list[str], env: dict[str, str], given: Sequence[int]) -> NoReturn:
    """Become the program; what it raises ends this process as it would end its own."""
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *given)):
        os.dup2(descriptor, number)
    os.environ.update(env)
    module = words.pop(1) if words[0] == "-m" else None
    sys.argv = words
    sys.path[0] = str(Path.cwd() if module else Path(words[0]).resolve().parent)
    code: object = 1
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code
    except Exception:
        traceback.print_exc()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking the copies of modules apart takes longer than a small program.
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:], sys.stdin)
