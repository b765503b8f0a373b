"""Marks what comes from a capture within perfpipe's own sentences.

A sentence consists of words of perfpipe and of names of the capture, in any order and spelling.
The names that a capture holds are known, so whatever a sentence shares with them is marked: a whole
name of one or two words, and three successive words of a longer one.  A name that was cut or
shortened thus stays marked.  What is next to an ellipsis is part of something that was cut.

Numbers, and a single word of perfpipe's own vocabulary ("step"), say nothing that perfpipe would
not say.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from weakref import WeakKeyDictionary

from perfpipe.analysis.session import Session
from perfpipe.files import packaged
from perfpipe.pipelines.agents.wording import MARKS, SENTENCE, plain, seen, without_paths

#: Successive words of a longer text that are marked: of a name, and of prose.
_NAME, _PROSE = 3, 6

#: Columns with names that whoever writes a program or a capture can choose, by table.
NAMES: Mapping[str, tuple[str, ...]] = {
    "ncu_launches": ("kernel_name", "kernel_demangled", "device_name", "nvtx_path"),
    "ncu_metrics": ("text",),
    "ncu_source": ("file",),
    "nsys_kernels": ("name", "demangled", "mangled"),
    "nsys_cpu_page_faults": ("function",),
    "nsys_api_calls": ("name", "recorded_name"),
    "nsys_osrt": ("name",),
    "nsys_nvtx_ranges": ("domain", "name"),
    "nsys_nvtx_payloads": ("field", "text"),
    "nsys_memory_usage": ("name",),
    "nsys_gpus": ("name", "chip"),
    "nsys_processes": ("name",),
    "nsys_threads": ("name",),
    "launches": ("name", "api_name", "demangled", "api_recorded_name", "nvtx_range"),
    "mpi_communicators": ("members",),
    "mpi_p2p": ("name",),
    "mpi_collectives": ("name",),
    "mpi_start_wait": ("name",),
    "mpi_other": ("name",),
    "torch_operators": ("shapes", "types"),
    "host_frames": ("function", "file", "package"),
    "process_samples": ("name",),
    "gpu_samples": ("name",),
    "request_loads": ("capture", "dtype"),
    "snapshot_events": ("action", "metadata"),
    "snapshot_stacks": (
        *("file", "function", "library", "library_file", "library_function"),
        *("modules", "operator", "node", "stack"),
    ),
    "snapshot_segments": ("pool", "size_class"),
    "snapshot_blocks": ("state",),
    "snapshot_marks": ("name", "stage"),
    "snapshot_settings": ("name", "value"),
    "snapshot_devices": ("name",),
    "hang_dumps": ("file", "version", "library"),
    "hang_groups": ("backend", "name", "description"),
    "hang_calls": ("operation", "input_types", "output_types", "thread"),
    "ras_counts": ("file", "taken_at", "communicator", "operation", "state", "host", "gpu"),
    "launch_modules": ("name", "demangled", "model", "module", "class", "operator"),
    "module_calls": ("model", "module", "class"),
    "reports": ("source_name", "command", "gpu"),
    "run_tasks": ("label", "short_label", "variant", "gpu_model", "node"),
    "runs": ("workload",),
    "trials": ("program", "gpu", "lever", "title", "applied"),
    "_known_kernels": ("short_name", "operators"),
}

#: Columns with sentences of profilers and programs, by table.
PROSE: Mapping[str, tuple[str, ...]] = {
    "ncu_rules": ("title", "message"),
    "ncu_source": ("text",),
    "nsys_diagnostics": ("text",),
    "_printed": ("line",),
    "run_tasks": ("error", "failure"),
    "trials": ("why", "results_why"),
    "request_loads": ("ended_by",),
    "requests": ("reason",),
}

_WORD = re.compile(r"[^\W\d]\w*|\d+\w*")
_DIGITS = re.compile(r"\d+")
_ELLIPSIS = "\u2026"

_QUOTES = "'\""

#: A percentage, which belongs to the sentence.
_PERCENT = re.compile(r"(?<![\w.])\d+(?:\.\d+)? %")


class Marking:
    """Marks some names, and parts of them, in sentences."""

    def __init__(self, names: Iterable[str | None], prose: Iterable[str | None] = ()) -> None:
        self._known: set[tuple[str, ...]] = set()
        for most, texts in ((_NAME, names), (_PROSE, prose)):
            for text in filter(None, texts):
                words = [word for word, _, _ in _words(seen(without_paths(text)))]
                if len(words) >= most:
                    self._known |= {*_runs(words, most)}
                elif words:
                    self._known.add(tuple(words))
        self._known = {known for known in self._known if not _says_nothing(known)}

    def sentence(self, text: object) -> str | None:
        """Return a sentence with marks around what may come from the capture; None for None."""
        if text is None:
            return None
        shown = plain(str(text), SENTENCE)
        words = [*_words(shown)]
        foreign = [_by_ellipsis(shown, start, end) for _, start, end in words]
        for many in range(1, _PROSE + 1):
            for at in range(len(words) - many + 1):
                if tuple(word for word, _, _ in words[at : at + many]) in self._known:
                    foreign[at : at + many] = [True] * many
        shares = [found.span() for found in _PERCENT.finditer(shown)]
        spans = [
            (start, end)
            for (_, start, end), is_foreign in zip(words, foreign, strict=True)
            if is_foreign and not any(low <= start and end <= high for low, high in shares)
        ]
        return _marked(shown, _joined(shown, spans))


def marking_of(session: Session) -> Marking:
    """Return the marking of what the reports of a session hold; made once for each session."""
    if session not in _MADE:
        _MADE[session] = Marking(_texts(session, NAMES), _texts(session, PROSE))
    return _MADE[session]


_MADE: WeakKeyDictionary[Session, Marking] = WeakKeyDictionary()


def _texts(session: Session, columns: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for table, names in columns.items():
        for name in names:
            # Millions of ranges differ in a number only.
            sql = (
                f"SELECT DISTINCT regexp_replace({name}::VARCHAR, '[0-9]+', '0', 'g') FROM {table}"
            )
            yield from (text for (text,) in session.execute(sql).fetchall() if text)


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word with its place; all numbers are the same word."""
    for found in _WORD.finditer(text):
        yield _DIGITS.sub("0", found[0]), found.start(), found.end()


def _runs(words: list[str], most: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + most]) for at in range(len(words) - most + 1))


@cache
def _own() -> frozenset[str]:
    """Return the lower-case words of perfpipe's own verdicts."""
    words = tomllib.loads(packaged("perfpipe.analysis", "words.toml"))
    return frozenset(re.findall(r"[a-z]+", str(words)))


def _says_nothing(words: tuple[str, ...]) -> bool:
    """Return whether words are numbers, or one word that perfpipe uses itself."""
    return all(word.isdecimal() for word in words) or (len(words) == 1 and words[0] in _own())


def _by_ellipsis(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] == _ELLIPSIS or text[end : end + 1] == _ELLIPSIS


def _joined(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans that reach over punctuation up to the next space, joined where they touch."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        while start and not text[start - 1].isspace():
            start -= 1
        while end < len(text) and not text[end].isspace():
            end += 1
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for whole in spans:
        start, end = _bare(text, *whole)
        parts += [text[at:start], MARKS[0], text[start:end], MARKS[1]]
        at = end
    return "".join([*parts, text[at:]])


def _bare(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the sentence's own punctuation: at its end, and around it."""
    end -= len(text[start:end]) - len(text[start:end].rstrip(",;:.?"))
    start += text[start] in _QUOTES
    end -= text[end - 1] in _QUOTES and end - 1 > start
    name = text[start:end]
    more = name.count("(") - name.count(")")
    opened = name.startswith("(") and (more > 0 or name.endswith(")"))
    closed = name.endswith(")") and (more < 0 or name.startswith("("))
    return start + opened, end - closed
