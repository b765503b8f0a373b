"""Disassembles functions of an .ncu-rep, each once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfpipe.ingest.arrays import give_back
from perfpipe.ingest.ncu.lean import LeanCopies, Result
from perfpipe.ingest.ncu.names import readable

#: The source of an instruction: file, line, text of that line.
Place = tuple[str | None, int | None, str | None]

#: Text of an instruction, and its source.
Instruction = tuple[str, str | None, int | None, str | None]

#: The instructions of a function by address.
Listing = dict[int, Instruction]

Action = Any


class Disassembler:
    """The instructions of functions, from NVIDIA's reader.

    Reading one instruction takes longer than reading all counts of a launch.
    """

    def __init__(self, copies: LeanCopies, directory: Path) -> None:
        self._copies = copies
        self._directory = directory
        self._sources: dict[str, list[str]] = {}

    def listings(self, wanted: Mapping[int, set[int]]) -> dict[int, Listing]:
        """Return the instructions at the wanted addresses of each function."""
        found: dict[int, Listing] = {}
        functions = {r.function: r for r in self._copies.results if r.function in wanted}
        # Grouped by code: for each report, the reader goes through all of its code.
        modules: dict[Any, list[Result]] = {}
        for result in functions.values():
            modules.setdefault(result.module, []).append(result)
        for results in modules.values():
            found |= self._disassembled(results, wanted)
            give_back()
        return found

    def _disassembled(
        self, results: list[Result], wanted: Mapping[int, set[int]]
    ) -> dict[int, Listing]:
        """Read the instructions of results from a report with only these and their code."""
        import ncu_report

        path = self._directory / "code.ncu-rep"
        self._copies.write_code(path, results)
        report = ncu_report.load_report(str(path))
        found = {
            result.function: self._listing(action, sorted(wanted[result.function]))
            for result, (*_, action) in zip(results, actions(report), strict=True)
        }
        # The reader opens the file again to disassemble.
        path.unlink()
        return found

    def _listing(self, action: Action, addresses: list[int]) -> Listing:
        # The reader drops its cache for one kind of query when it gets another kind.
        texts = [readable(action.sass_by_pc(address).strip()) for address in addresses]
        places = [self._place(action, address) for address in addresses]
        every = zip(addresses, texts, places, strict=True)
        return {address: (text, *place) for address, text, place in every}

    def _place(self, action: Action, address: int) -> Place:
        """Return the source of an instruction."""
        info = action.source_info(address)
        file, line = (info.file_name(), info.line()) if info else (None, None)
        text = self._source_line(action, file, line)
        return file and readable(file), line, text and readable(text)

    def _source_line(self, action: Action, file: str | None, line: int | None) -> str | None:
        """Return the text of a source line, None if ncu did not import the file."""
        if file is None or line is None:
            return None
        if file not in self._sources:
            # All files of an action are read at once, and most actions have the same files.
            for name, content in action.source_files().items():
                self._sources.setdefault(name, content.splitlines())
            # The path of a file may differ between debug information and importer.
            alike = [name for name in self._sources if _base(name) == _base(file)]
            same = self._sources[alike[0]] if len(alike) == 1 else []
            self._sources.setdefault(file, same)
        lines = self._sources[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else None


def actions(report: Any) -> Iterator[tuple[int, int, Action]]:
    """Yield range number, action number and action of a loaded report, in order."""
    for range_index in range(report.num_ranges()):
        of_range = report.range_by_idx(range_index)
        for action_index in range(of_range.num_actions()):
            yield range_index, action_index, of_range.action_by_idx(action_index)


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]
