"""Who writes candidates: an agent's command, a person, given directories, or a parameter search."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perfpipe.analysis.search_decision import rank
from perfpipe.analysis.search_summary import Found
from perfpipe.errors import PerfpipeError, ToolMissing
from perfpipe.pipelines.console import say
from perfpipe.pipelines.evaluate.candidates import PARAMETERS_FILE
from perfpipe.pipelines.process import run
from perfpipe.pipelines.search import Search as ParameterSearch
from perfpipe.pipelines.searching.disk import copy_files
from perfpipe.pipelines.workload import Workload
from perfpipe.runrecord import TaskResult
from perfpipe.searchrecord import AgentRun
from perfpipe.secrets import hide

#: Characters of an agent's output that its log keeps of each stream, and the record.
_LOGGED, _RECORDED = 1 << 17, 400

#: The file with the prompt, which also comes on the agent's input.
PROMPT_FILE = "PROMPT.md"


@dataclass(frozen=True)
class Task:
    """A candidate to write: its name, parents, and the directory that is prepared for it."""

    name: str
    generation: int
    variant: int
    seed: int
    parents: tuple[str, ...]
    folder: Path
    log: Path


#: A task that is done, with what became of the agent, if there was one.
Proposal = tuple[Task, AgentRun | None]


class Proposer(Protocol):
    """Writes candidates into prepared directories; `kind` is recorded with them."""

    kind: str

    def count(self, found: Found, generation: int, variants: int) -> int:
        """Return how many candidates the generation gets; 0 ends the search."""

    def propose(self, tasks: Sequence[Task], limit_s: float) -> Iterator[Proposal]:
        """Yield each task when its candidate is written, within the time limit for each."""


class Agent:
    """Runs a command for each candidate, some at a time.

    The prompt is its input; its working directory is that of the task.
    """

    kind = "agent"

    def __init__(self, words: Sequence[str], parallel: int) -> None:
        if shutil.which(words[0]) is None:
            raise ToolMissing(f"--agent: {words[0]}: no such program")
        # The command runs in other directories.
        self._words = [_absolute(word) for word in words]
        self._parallel = parallel

    def count(self, found: Found, generation: int, variants: int) -> int:
        """Return all variants."""
        del found, generation
        return variants

    def propose(self, tasks: Sequence[Task], limit_s: float) -> Iterator[Proposal]:
        """Run the command for each task; its end, whatever it is, is part of the result."""
        stops: list[Callable[[], None]] = []
        ending = threading.Event()

        def started(stop: Callable[[], None]) -> None:
            stops.append(stop)
            if ending.is_set():
                stop()

        with ThreadPoolExecutor(self._parallel) as pool:
            running = {pool.submit(self._run, task, limit_s, started): task for task in tasks}
            try:
                for done in as_completed(running):
                    yield running[done], done.result()
            except BaseException:
                ending.set()
                for future in running:
                    future.cancel()
                for stop in [*stops]:
                    stop()
                raise

    def _run(
        self, task: Task, limit_s: float, started: Callable[[Callable[[], None]], None]
    ) -> AgentRun:
        environment = {
            "PERFPIPE_GENERATION": str(task.generation),
            "PERFPIPE_VARIANT": str(task.variant),
            "PERFPIPE_SEED": str(task.seed),
            "PERFPIPE_CANDIDATE": task.name,
        }
        try:
            with (task.folder / PROMPT_FILE).open("rb") as prompt:
                done = run(
                    self._words, cwd=task.folder, env=environment, timeout=limit_s, stdin=prompt,
                    started=started,
                )  # fmt: skip
        except PerfpipeError as error:
            return AgentRun(None, 0.0, str(error))
        task.log.parent.mkdir(parents=True, exist_ok=True)
        text = f"{_end(done.stdout)}\n--- errors ---\n{_end(done.stderr)}"
        task.log.write_text(hide(text), encoding="utf-8", errors="backslashreplace")
        said = done.complaint() if not done.ok else done.stdout.strip()[-_RECORDED:]
        return AgentRun(None if done.timed_out else done.returncode, done.seconds, said)


def _absolute(word: str) -> str:
    """Return the absolute path of an existing file, which the agent's command names."""
    path = Path(word)
    named = os.sep in word or path.suffix
    return str(path.resolve()) if named and path.is_file() else word


def _end(text: str) -> str:
    cut = f"[the first {len(text) - _LOGGED:,} characters are not kept]\n"
    return text if len(text) <= _LOGGED else cut + text[-_LOGGED:]


class Person:
    """Waits until the user has edited each candidate."""

    kind = "hand"

    def count(self, found: Found, generation: int, variants: int) -> int:
        """Return all variants."""
        del found, generation
        return variants

    def propose(self, tasks: Sequence[Task], limit_s: float) -> Iterator[Proposal]:
        """Wait for a line of input for each candidate; the end of input leaves it as it is."""
        del limit_s
        for task in tasks:
            say(f"{task.name}: edit the files in {shlex.quote(str(task.folder))}, then press Enter")
            sys.stdin.readline()
            yield task, None


class Given:
    """Takes candidates from directories, all in one generation."""

    kind = "given"

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._taken = False

    def count(self, found: Found, generation: int, variants: int) -> int:
        """Return one for each directory, once."""
        del found, generation, variants
        return 0 if self._taken else len(self._directories)

    def propose(self, tasks: Sequence[Task], limit_s: float) -> Iterator[Proposal]:
        """Copy each directory."""
        del limit_s
        self._taken = True
        for task, source in zip(tasks, self._directories, strict=False):
            copy_files(source, task.folder)
            yield task, None


class Parameters:
    """Proposes values of the parameters in `tune`, which a candidate reads from params.json."""

    kind = "tune"

    def __init__(self, workload: Workload, path: Path, variants: int) -> None:
        tune = workload.tune
        if tune is None:
            raise ValueError("the workload has no tune")
        alone: dict[str, Any] = {"sizes": [], "matrix": {}, "include": [], "exclude": []}
        self._names = tune.parameters.keys()
        own = tune.model_copy(update={"population": variants})
        self._search = ParameterSearch(workload.model_copy(update={"tune": own, **alone}), path)
        self._next: list[dict[str, int | float | str]] = []

    def count(self, found: Found, generation: int, variants: int) -> int:
        """Return how many configurations the search proposes next."""
        del variants
        if self._search.is_listed and generation > self._search.generations:
            return 0
        speedups = {own.name: speedup for own, speedup in found.ranking}
        results = []
        for index, own in enumerate(found.attempts):
            if not 0 < own.generation < generation or not own.params.keys() >= self._names:
                continue
            speedup = speedups.get(own.name)
            # The search only ranks times: these are relative to the baseline of their launches.
            times = (1 / max(rank(speedup)[1], 1e-9),) if speedup else ()
            status = "done" if speedup else "failed"
            results.append(
                TaskResult(
                    index, own.label, own.params, status,
                    generation=own.generation - 1, times_ms=times,
                )
            )  # fmt: skip
        self._next = self._search.next_generation(results)
        return len(self._next)

    def propose(self, tasks: Sequence[Task], limit_s: float) -> Iterator[Proposal]:
        """Write the parameters of each candidate."""
        del limit_s
        for task in tasks:
            params = self._next[task.variant - 1]
            (task.folder / PARAMETERS_FILE).write_text(json.dumps(params) + "\n", encoding="utf-8")
            yield task, None
