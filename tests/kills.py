"""Kills commands at random moments, and checks that nothing is lost, half or left over.

    python tests/kills.py --count 100 [--seconds S] [--seed 1] [ingest run report compact ...]

Each kind is killed COUNT times by SIGKILL, some time after its start, up to as long as it takes;
each kind gets an equal part of --seconds, after which no further one begins.
After each kill the store must verify; the same command must then succeed, and leave nothing behind:
no temporary files, claims, running records, or processes.
"""

from __future__ import annotations

import argparse
import contextlib
import lzma
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from perfpipe.store import Store
from perfpipe.verify import verify

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ("memcpy", "h2d", "ops")
PERFPIPE = (sys.executable, "-m", "perfpipe")
MARK = "PERFPIPE_KILLS"

#: Longest that what was started by a killed command may take to end, s.
_PATIENCE_S = 40.0


def heed_signals() -> None:
    """Run in a new process: where the tests run in the background, what it would heed is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Scene:
    """A directory with a store, captures and what a kind of command needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "store")
        self.mark = str(root)
        (root / "tmp").mkdir()
        for name in CAPTURES:
            packed = ROOT / f"tests/data/nsys/{name}.sqlite.xz"
            (root / f"{name}.sqlite").write_bytes(lzma.decompress(packed.read_bytes()))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PERFPIPE_STORE": str(self.store.root), MARK: self.mark,
                       "TMPDIR": str(self.root / "tmp"), "PYTHONPATH": path}  # fmt: skip
        return subprocess.Popen(
            [*PERFPIPE, *words],
            cwd=self.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def succeed(self, *words: str) -> float:
        """Run a command to its end and return how long it took, s."""
        began = time.monotonic()
        process = self.start(*words)
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit {process.returncode}: {said.decode()}")
        return time.monotonic() - began

    def faults(self, before: set[str]) -> list[str]:
        """Return what is wrong right after a kill: reports that are gone or half."""
        found = [f"{name}: {fault}" for name, fault in verify(self.store) if fault]
        return found + [f"{name}: lost" for name in before - {*self.store.report_ids()}]

    def left(self) -> list[str]:
        """Return what is left over after a command that came through."""
        found = [*self.store.leftovers(), *self.store.root.rglob(".tmp-*")]
        found += [*self.store.root.rglob("claim@*"), *self.root.glob(".tmp-*")]
        found += list((self.root / "tmp").iterdir())
        running = [run.run_id for run in self.store.runs() if run.status == "running"]
        return [str(path.relative_to(self.root)) for path in found] + running

    def processes(self) -> list[int]:
        """Return the processes of this scene that live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return [pid for pid in found if pid != os.getpid()]


def _captures(scene: Scene) -> list[str]:
    return [f"{name}.sqlite" for name in CAPTURES]


def _filled(scene: Scene) -> None:
    scene.succeed("ingest", *_captures(scene))


def _batch(scene: Scene) -> None:
    from perfpipe.batchrecord import Batch, BatchRun, BatchTask, Submission
    from perfpipe.pipelines.batch.disk import BatchDirectory
    from perfpipe.runrecord import TaskResult

    _filled(scene)
    reports = scene.store.report_ids()
    tasks = [BatchTask(n, "run-1", "w", n, f"{n:016x}", f"n={n}") for n in range(len(reports))]
    runs = (BatchRun("run-1", "w", "", "ingest"),)
    batch = Batch("batch-1", "2026-01-01T00:00:00Z", runs, len(tasks), str(scene.store.root),
                  sys.executable, str(scene.root))  # fmt: skip
    made = BatchDirectory.create(scene.store, batch, tasks, {})
    made.next_submission()
    made.write_submission(Submission(1, "collect", (), "2026-01-01T00:00:00Z"), "")
    made.write_job(1, "1")
    for task, report in zip(tasks, reports, strict=True):
        folder = made.task_directory(task)
        folder.mkdir(parents=True)
        result = TaskResult(task.index, task.label, {}, reports=(report,), key=task.key)
        result.write(folder / "result.json")


Kind = tuple[Callable[[Scene], None], tuple[str, ...]]

KINDS: dict[str, Kind] = {
    "ingest": (lambda _: None, ("ingest", *(f"{name}.sqlite" for name in CAPTURES))),
    "run": (lambda _: None, ("run", "--collector", "timing", "--no-report", "--set", "launches=2",
                             "--", "sh", "-c", "sleep 0.1 & sleep 0.05; wait")),
    "report": (_filled, ("report", "--html", "r.html", "--md", "r.md", "--figures", "svg")),
    "compact": (_filled, ("store", "compact", "--grace", "0")),
    "collect": (_batch, ("batch", "_collect", "batch-1", "1")),
    "scrub": (lambda _: None, ("scrub", "ops.sqlite", "--to", "clean.sqlite", "--force")),
    "query": (_filled, ("query", "FROM nsys_kernels", "-o", "rows.csv", "--format", "csv")),
    "export": (_filled, ("export", "perfetto", "--output", "trace.json.gz")),
}  # fmt: skip


def kill(kind: str, rng: random.Random, seconds: float, folder: Path) -> tuple[str, list[str]]:
    """Kill one command at a random moment; return how it ended, and what is wrong then."""
    prepare, words = KINDS[kind]
    scene = Scene(folder)
    prepare(scene)
    before = {*scene.store.report_ids()}
    process = scene.start(*words)
    time.sleep(rng.uniform(0, seconds))
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = "killed" if process.returncode == -signal.SIGKILL else "came through"
    until = time.monotonic() + _PATIENCE_S
    while scene.processes() and time.monotonic() < until:
        time.sleep(0.05)
    wrong = [f"process {pid} goes on" for pid in scene.processes()]
    wrong += scene.faults(before)
    with contextlib.suppress(RuntimeError):
        scene.succeed(*words)
    scene.succeed("ingest", *_captures(scene))
    return end, wrong + scene.faults(before) + scene.left()


def main(words: Sequence[str] | None = None) -> int:
    """Kill, and print the figures; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("kinds", nargs="*", default=[*KINDS])
    given = parser.parse_args(words)
    faulty = 0
    until = time.monotonic() + given.seconds
    for place, kind in enumerate(given.kinds):
        # Each kind gets an equal part of the time that is left.
        now = time.monotonic()
        latest = now + (until - now) / (len(given.kinds) - place)
        rng = random.Random(f"{given.seed} {kind}")
        ends: Counter[str] = Counter()
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            usually = Path(folder) / "usual"
            usually.mkdir()
            scene = Scene(usually)
            prepare, usual = KINDS[kind]
            prepare(scene)
            began = time.monotonic()
            process = scene.start(*usual)
            _, said = process.communicate()
            seconds = time.monotonic() - began
            sys.stderr.write(
                f"{kind}: exit {process.returncode} after {seconds:.1f} s"
                f"{' ' + said.decode()[-200:] if process.returncode else ''}\n"
            )
            for number in range(given.count):
                if time.monotonic() > latest:
                    break
                at_one = Path(folder) / f"{kind}-{number}"
                at_one.mkdir()
                end, wrong = kill(kind, rng, seconds, at_one)
                ends[end] += 1
                faulty += bool(wrong)
                for fault in wrong:
                    sys.stdout.write(f"{kind} {number} ({end}): {fault}\n")
                shutil.rmtree(at_one)
        told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        sys.stdout.write(f"{kind}: {told}, {faulty} faulty so far\n")
        sys.stdout.flush()
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
