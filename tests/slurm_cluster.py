"""A real Slurm on loopback for tests: a controller, nodes with fake GPUs, accounting if asked for.

Run as a program, this is the keeper of a cluster: the parent of its daemons.  It starts those whose
NAME.off is not there, again if they ended, and stops them where it is.  When nobody holds the lock
of its users any more, which also is so when tests were killed, it ends all and removes the files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from slurm_conf import write

#: How long daemons may take to start or stop on a busy machine, s.
_PATIENCE_S = 90.0
_POLL_S = 0.05
#: How often the daemons of a cluster that is up are looked after, s.
_KEEP_S = 0.25

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class SlurmCluster:
    """A running cluster; its daemons are slurmctld, slurmd.n1, slurmd.n2, ..."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.conf = root / "etc" / "slurm.conf"
        self._count = json.loads((root / "cluster.json").read_text())["nodes"]

    def run(self, *words: str) -> str:
        """Return the output of one of Slurm's commands."""
        env = {**os.environ, "SLURM_CONF": str(self.conf), "LC_ALL": "C"}
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def hasty(self) -> Path:
        """Return a configuration for commands that soon give up on a controller that is away."""
        conf = self.root / "etc" / "hasty.conf"
        conf.write_text(f"{self.conf.read_text()}MessageTimeout=2\n")
        return conf

    def stop(self, daemon: str) -> None:
        """Stop a daemon; the jobs on its node go on."""
        (self.root / "run" / f"{daemon}.off").touch()
        self._wait(lambda: not (self.root / "run" / f"{daemon}.at").exists(), f"{daemon} to stop")

    def start(self, daemon: str) -> None:
        """Start a daemon that was stopped; a node can be used some seconds later."""
        (self.root / "run" / f"{daemon}.off").unlink(missing_ok=True)
        self._wait((self.root / "run" / f"{daemon}.at").exists, f"{daemon} to start")
        self._wait(lambda: bool(self._nodes_now()), "the controller")

    def wait(self) -> None:
        """Wait until all nodes that run can be used."""
        off = {path.name.split(".")[1] for path in (self.root / "run").glob("slurmd.*.off")}
        wanted = {f"n{number}" for number in range(1, self._count + 1)} - off

        def ready() -> bool:
            rows = [row.split() for row in self._nodes_now()]
            return wanted <= {name for name, state in rows if state in ("idle", "mix", "alloc")}

        self._wait(ready, "the nodes")

    def _nodes_now(self) -> list[str]:
        """Return name and state of each node; none where the controller does not answer."""
        with contextlib.suppress(RuntimeError):
            return self.run("sinfo", "-h", "-N", "-o", "%N %t").splitlines()
        return []

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not ready():
            if time.monotonic() > until:
                logs = [f"{p.name}: {p.read_text()[-1500:]}" for p in (self.root / "log").iterdir()]
                raise RuntimeError("\n".join([f"waited for {what} in vain", *logs]))
            time.sleep(_POLL_S)


@contextmanager
def cluster(
    base: Path, *, nodes: int = 2, gpus: int = 2, cpus: int = 4, **options: bool
) -> Iterator[SlurmCluster]:
    """Use the cluster of a directory, which all who do so at a time share; the first starts it.

    With `accounting` it has that; with `preemption` jobs in debug take the place of those in batch.
    """
    base.mkdir(exist_ok=True)
    with (base / "turn").open("w") as turn, (base / "users").open("w") as users:
        fcntl.flock(turn, fcntl.LOCK_EX)
        # A keeper whose users have gone holds this until it has stopped all.
        fcntl.flock(users, fcntl.LOCK_SH)
        known = base / "root"
        if not known.exists():
            root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a socket's path is short
            write(root, nodes, gpus, cpus, **options)
            known.write_text(str(root))
            subprocess.run([sys.executable, __file__, root, base], check=True)
        found = SlurmCluster(Path(known.read_text()))
        found.wait()
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield found


class _Daemon(NamedTuple):
    """What to start, and when the next one may be started after it."""

    name: str
    words: list[str]
    ready: Callable[[], bool]


def _daemons(root: Path) -> list[_Daemon]:
    """Return the daemons of a cluster in the order in which they need each other."""
    content = json.loads((root / "cluster.json").read_text())
    munged = ["munged", "-F", "--force", f"--socket={root}/run/munge.socket"]
    munged += [f"--key-file={root}/etc/munge.key", f"--pid-file={root}/run/munged.pid"]
    munged += [f"--log-file={root}/log/munged.log", f"--seed-file={root}/run/munge.seed"]
    found = [_Daemon("munged", munged, (root / "run" / "munge.socket").exists)]
    if content["accounting"]:
        # Nothing of it is kept, and it has no users of its own: a start takes a second.
        database = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={root}/mysql"]
        database += ["--skip-grant-tables", "--innodb-flush-method=nosync"]
        database += ["--innodb-file-per-table=0", "--innodb-doublewrite=0"]
        database += [f"--socket={root}/run/mysql.sock", f"--pid-file={root}/run/mysql.pid"]
        database += ["--bind-address=127.0.0.1", f"--port={content['mysql']}", "--skip-log-bin"]
        database += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
        database += ["--innodb-lock-wait-timeout=900", f"--init-file={root}/etc/init.sql"]
        found.append(_Daemon("mariadbd", database, lambda: _listens(content["mysql"])))
        add = ["sacctmgr", "-i", "add", "cluster", "perfpipe"]
        found.append(_Daemon("slurmdbd", ["slurmdbd", "-D"], lambda: _succeeds(add)))
    found.append(_Daemon("slurmctld", ["slurmctld", "-D"], lambda: True))
    for number in range(1, content["nodes"] + 1):
        words = ["slurmd", "-D", "-N", f"n{number}"]
        found.append(_Daemon(f"slurmd.n{number}", words, lambda: True))
    return found


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _succeeds(words: list[str]) -> bool:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    return done.returncode == 0 or "already exist" in done.stdout + done.stderr


def _keep(root: Path, base: Path) -> None:
    """Run a cluster as long as it has users."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ["SLURM_CONF"] = str(root / "etc" / "slurm.conf")
    daemons = _daemons(root)
    running: dict[str, int] = {}
    ready: set[str] = set()
    with (base / "users").open("r") as users:
        while not _free(users):
            _reap(root, running)
            for name, words, is_ready in daemons:
                off = (root / "run" / f"{name}.off").exists()
                if name in running and off:
                    os.kill(running[name], signal.SIGTERM)
                elif name not in running and not off:
                    running[name] = _start(root, name, words, libc)
                # Those after it wait for its first start only.
                if name not in ready and not off:
                    if not is_ready():
                        break
                    ready.add(name)
            time.sleep(_POLL_S if len(ready) < len(daemons) else _KEEP_S)
        while _children():
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _reap(root, running)
            time.sleep(_POLL_S)
        shutil.rmtree(root, ignore_errors=True)
        (base / "root").unlink(missing_ok=True)


def _start(root: Path, name: str, words: list[str], libc: Any) -> int:
    """Start a daemon, which ends with the keeper."""
    with (root / "log" / f"{name}.out").open("a") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
    process.returncode = 0  # it is reaped with all others
    (root / "run" / f"{name}.at").write_text(str(process.pid))
    return process.pid


def _reap(root: Path, running: dict[str, int]) -> None:
    names = {pid: name for name, pid in running.items()}
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) > 0:
            if pid in names:
                (root / "run" / f"{names[pid]}.at").unlink(missing_ok=True)
                del running[names[pid]]


def _children() -> list[int]:
    """Return the processes of this one, among them those that lost their parent."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _free(users: Any) -> bool:
    """Return whether nobody uses the cluster any more; nobody can then until this process ends."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        where = Path(sys.argv[1])
        output = os.open(where / "log" / "keeper.log", os.O_WRONLY | os.O_CREAT)
        for stream, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, stream)
        _keep(where, Path(sys.argv[2]))
