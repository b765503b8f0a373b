"""Sixteen callers at once on one store: each command ends well, and prints what it prints alone.

    python tests/callers.py --seconds 600 --seed 1

Callers read and write reports: some are always there, and what is printed about these never changes.
A command ends with exit code 0, or with 2 and a sentence that names the store as busy.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import lzma
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from perfpipe.pipelines.cli import run_cli
from perfpipe.pipelines.workers import end_idle_workers
from perfpipe.store import STORE_VARIABLE, Store
from perfpipe.verify import verify

DATA = Path(__file__).resolve().parent / "data" / "nsys"

#: Captures whose reports are always there, though ingested again and again.
ALWAYS = ("memcpy", "h2d", "ops")

#: What the callers do; each has a report of its own, which comes and goes.
ROLES = (*["ingest"] * 6, *["query"] * 4, "report", "report", "compact", "rm", "verify", "gc")


@dataclass
class Called:
    """What the callers saw: how often each command ended how, and what was wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def _called(words: Sequence[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_cli(list(words))
    return code, out.getvalue(), err.getvalue()


class _Scene:
    """A store, the captures, and what commands print when nobody else uses the store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "store")
        os.environ[STORE_VARIABLE] = str(self.store.root)
        for name in ALWAYS:
            content = lzma.decompress((DATA / f"{name}.sqlite.xz").read_bytes())
            (root / f"{name}.sqlite").write_bytes(content)
        for number in range(len(ROLES)):
            self._own(number)
        self.ids = {path.stem: self._id(path) for path in sorted(root.glob("*.sqlite"))}
        self.alone = {words: _called(words) for words in self.readings()}

    def _own(self, number: int) -> None:
        """Write a capture that only one caller ingests."""
        path = self.root / f"own{number}.sqlite"
        shutil.copyfile(self.root / "memcpy.sqlite", path)
        with closing(sqlite3.connect(path)) as con:
            con.execute("INSERT INTO StringIds SELECT max(id) + 1, ? FROM StringIds", (path.stem,))
            con.commit()

    def _id(self, path: Path) -> str:
        code, out, err = _called(["ingest", str(path)])
        if code:
            raise RuntimeError(err)
        return out.split()[0]

    def readings(self) -> list[tuple[str, ...]]:
        """Return commands that print the same whatever others do."""
        found: list[tuple[str, ...]] = []
        for name in ALWAYS:
            report = self.ids[name]
            sql = "SELECT count(*), sum(end_ns - start_ns) FROM nsys_kernels"
            found.append(("query", sql, "-r", report, "--format", "csv"))
            found.append(("query", "FROM cuda_gpu_kern_sum", "-r", report, "--format", "csv"))
            found.append(("report", report, "--md", "-"))
        return found

    def calls(self, role: str, number: int, rng: random.Random) -> list[tuple[str, ...]]:
        """Return what a caller of a role runs next."""
        own = f"own{number}"
        if role in ("query", "report"):
            return [rng.choice([words for words in self.readings() if words[0] == role])]
        if role == "ingest":
            name = rng.choice((*ALWAYS, own))
            force = ("--force",) if rng.random() < 0.5 else ()
            return [("ingest", str(self.root / f"{name}.sqlite"), *force)]
        if role == "rm":
            return [("ingest", str(self.root / f"{own}.sqlite")), ("store", "rm", self.ids[own])]
        if role == "compact":
            return [("store", "compact", "--grace", rng.choice(("0", "60")))]
        older = ("--older-than", "0") if role == "gc" else ()
        return [("store", role, *older)]

    def expected(self, words: tuple[str, ...]) -> str:
        """Return a pattern of what a command prints when it is alone."""
        if words in self.alone:
            return re.escape(self.alone[words][1])
        report = next((self.ids[name] for name in self.ids if f"/{name}.sqlite" in words[1]), "")
        return {
            "ingest": rf"{report}  nsys +[\d,]+  {re.escape(words[1])}\n",
            "rm": f"removed {words[-1]}\n",
            "verify": r"\d+ intact, 0 damaged, 0 leftovers\n",
            "compact": r"nothing to compact\n|(\d+ reports?)?( and )?(\d+ segments?)? compacted into "
            r"segment [0-9a-f]{12} \(\d+ reports?, [\d.]+ kB\)\n",
            "gc": r"(removed \S+\n)*",
        }[words[0] if words[0] == "ingest" else words[1]]


def _call(scene: _Scene, number: int, seed: int, until: float) -> Called:
    """Run commands of one caller until a time."""
    found, rng, role = Called(), random.Random(f"{seed} {number}"), ROLES[number]
    while time.monotonic() < until:
        if role in ("compact", "verify", "gc"):
            # These take a few ms.
            time.sleep(rng.uniform(0, 0.3))
        for words in scene.calls(role, number, rng):
            try:
                code, out, err = _called(words)
            except BaseException:  # the callers beside go on
                code, out, err = -1, "", traceback.format_exc()
            busy = code == 2 and " busy" in err
            found.ends[f"{role}: {'busy' if busy else f'exit {code}'}"] += 1
            if not busy and code:
                found.wrong.append(f"{' '.join(words)}: exit {code}: {out[-300:]} {err[-2000:]}")
            elif not busy and not re.fullmatch(scene.expected(words), out):
                found.wrong.append(f"{' '.join(words)} printed {out[:600]!r} {err[-600:]}")
    return found


def _forked(scene: _Scene, number: int, seed: int, until: float) -> int:
    """Start a caller, which writes what it saw to a file; return its process."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        found = _call(scene, number, seed, until)
        text = json.dumps({"ends": found.ends, "wrong": found.wrong})
        (scene.root / f"{number}.json").write_text(text)
        end_idle_workers()
        code = 0
    finally:
        os._exit(code)


def callers(seconds: float, seed: int) -> Called:
    """Run sixteen callers on a new store for so many seconds; return what they saw.

    Starts processes by forking: this process must have no other threads.
    """
    found = Called()
    with tempfile.TemporaryDirectory(prefix="callers-") as folder:
        scene = _Scene(Path(folder))
        # A process can end the workers that it started itself.
        end_idle_workers()
        until = time.monotonic() + seconds
        every = [_forked(scene, number, seed, until) for number in range(len(ROLES))]
        for number, pid in enumerate(every):
            os.waitpid(pid, 0)
            seen = json.loads((scene.root / f"{number}.json").read_text())
            found.ends += Counter(seen["ends"])
            found.wrong += seen["wrong"]
        found.wrong += [f"{name}: {fault}" for name, fault in verify(scene.store) if fault]
        found.wrong += [f"left over: {path.name}" for path in scene.store.leftovers()]
        for words, alone in scene.alone.items():
            if _called(words)[:2] != alone[:2]:
                found.wrong.append(f"afterwards, {' '.join(words)} prints something else")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run the callers and print the figures; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    found = callers(given.seconds, given.seed)
    for end, count in sorted(found.ends.items()):
        sys.stdout.write(f"{end}: {count}\n")
    for fault in found.wrong:
        sys.stdout.write(f"WRONG {fault}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
