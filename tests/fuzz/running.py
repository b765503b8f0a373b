"""Runs inputs by number, in worker processes that may crash, and judges what became of each."""

from __future__ import annotations

import random
import re
import resource
import shutil
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.counting import differences
from fuzz.mutations import MAKERS, REPORT
from perfpipe.errors import PerfpipeError, TaskFailed
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.recording import load_recording
from perfpipe.pipelines.reporting import make_report
from perfpipe.pipelines.workers import Lost, spread
from perfpipe.store import Store
from perfpipe.verify import verify

#: The longest sentence that refuses an input, without its path.
SENTENCE = 300

#: Memory that reading an input may take: a fixed part, and so many times its size.
FIXED_BYTES, TIMES = 300 << 20, 100

#: Time limit for an input, s: tens of times what the slowest takes.
LIMIT_S = 60.0


@dataclass(frozen=True)
class Order:
    """An input: the same seed, format and number make the same one.

    With `reported` a report of what was read is built, too, which takes longer than all else.
    """

    seed: int
    form: str
    number: int
    reported: bool = False

    @property
    def name(self) -> str:
        return f"{self.form}-{self.seed}-{self.number}"

    def make(self, folder: Path) -> Path:
        """Write the input into an empty directory."""
        return MAKERS[self.form](random.Random(f"{self.seed}/{self.form}/{self.number}"), folder)


@dataclass(frozen=True)
class Judged:
    """What became of an input: read, refused, or crashed; and what is wrong with that."""

    order: Order
    outcome: str
    wrong: tuple[str, ...] = ()


def run(orders: Iterable[Order], *, jobs: int = 1) -> Iterator[Judged]:
    """Yield what became of each input.

    A reader of the vendor may crash, which costs its own input; ours may not.
    """
    for order, answer in spread(judge, orders, jobs=jobs, limit_s=LIMIT_S):
        if not isinstance(answer, Lost):
            yield answer
        elif answer.why == "crash" and order.form == "ncu-rep":
            yield Judged(order, "vendor crashed")
        else:
            yield Judged(order, answer.why, (f"the reader was lost: {answer.why}",))


def judge(order: Order) -> Judged:
    """Read an input into a store of its own, and judge what became of it."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        base = Path(directory)
        (base / "in").mkdir()
        (base / "tmp").mkdir()
        path = order.make(base / "in")
        before, tempfile.tempdir = tempfile.tempdir, str(base / "tmp")
        try:
            return _judged(order, path, base)
        finally:
            tempfile.tempdir = before


def _judged(order: Order, path: Path, base: Path) -> Judged:
    store = Store(base / "store")
    held = _peak_bytes()
    try:
        outcome, wrong = "read", _read(order, path, store)
    except PerfpipeError as error:
        outcome, wrong = "refused", _of_sentence(str(error), path)
    except Exception:
        outcome, wrong = "traceback", [traceback.format_exc(limit=-4)]
    grown = _peak_bytes() - held
    size = sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
    if grown > FIXED_BYTES + TIMES * size:
        wrong.append(f"{grown >> 20} MB of memory for {size:,} bytes")
    shutil.rmtree(base / "exported", ignore_errors=True)
    left = [*store.leftovers(), *(base / "tmp").iterdir()]
    wrong += [f"left behind: {file.name}" for file in left]
    wrong += [f"store: {fault}" for _, fault in verify(store) if fault]
    shutil.rmtree(base / "in")
    return Judged(order, outcome, tuple(wrong))


def _read(order: Order, path: Path, store: Store) -> list[str]:
    if order.form == "recording":
        tasks = load_recording(path).tasks
        inside = path.resolve()
        files = [(path / name).resolve() for task in tasks for name in task.files]
        return [f"outside: {file}" for file in files if not file.is_relative_to(inside)]
    report = ingest(path, store, export=exported).report_id
    wrong = differences(path, store.manifest(report))
    if order.reported:
        make_report(store, [report])
    return wrong


def exported(report: Path) -> Path:
    """Stand for `nsys export`, which fails where the report is damaged."""
    content = report.read_bytes()
    if not content.startswith(REPORT):
        raise TaskFailed(f"{report}: nsys export failed: the report is damaged")
    folder = report.parent.parent / "exported"
    folder.mkdir(exist_ok=True)
    database = folder / "export.sqlite"
    database.write_bytes(content.removeprefix(REPORT))
    return database


def _of_sentence(text: str, path: Path) -> list[str]:
    """Return what is wrong with a sentence that refuses an input."""
    said = re.sub(rf"^{re.escape(str(path))}(/[^/:]+)?(:\d+)?: ", "", text)
    faults = {
        "does not begin with the path": said == text and str(path) not in text,
        "too long": len(said) > SENTENCE,
        "not one printable line": not said.isprintable(),
        "empty": len(said.strip()) < 10,
    }
    return [f"the sentence is {fault}: {text[:500]!r}" for fault, there in faults.items() if there]


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
