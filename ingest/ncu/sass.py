"""Disassembles the functions of an .ncu-rep, each once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ingest.arrays import give_back
from ingest.ncu.lean import LeanCopies, Result

#: Text of an instruction, and of its source: file, line, text of that line.
Instruction = tuple[str, str | None, int | None, str | None]

Action = Any


class Disassembly:
    """The instructions of functions, as NVIDIA's reader tells them.

    Asking for one costs more than reading all counts of a launch.
    """

    def __init__(self, copies: LeanCopies, directory: Path, api: Any) -> None:
        self._copies = copies
        self._directory = directory
        self._api = api
        self._known: dict[Hashable, dict[int, Instruction]] = {}
        self._sources: dict[str, list[str]] = {}

    def listing(self, launch_id: int, addresses: Iterable[int]) -> list[Instruction]:
        """Return the instructions at addresses of the function of a launch."""
        result = self._copies.results[launch_id]
        known = self._known.setdefault(result.function, {})
        wanted = list(addresses)
        if unknown := [address for address in wanted if address not in known]:
            known |= self._disassembled(result, unknown)
            give_back()
        return [known[address] for address in wanted]

    def _disassembled(self, result: Result, addresses: list[int]) -> dict[int, Instruction]:
        """Ask for instructions of a result, in a report of it alone with its code."""
        path = self._directory / "code.ncu-rep"
        self._copies.write_code(path, result)
        ((*_, action),) = actions(self._api.load_report(str(path)))
        # The reader opens the file again to disassemble.
        found = {address: self._instruction(action, address) for address in addresses}
        path.unlink()
        return found

    def _instruction(self, action: Action, address: int) -> Instruction:
        info = action.source_info(address)
        file, line = (info.file_name(), info.line()) if info else (None, None)
        text = self._source_line(action, file, line)
        return action.sass_by_pc(address).strip(), file, line, text

    def _source_line(self, action: Action, file: str | None, line: int | None) -> str | None:
        """Return the text of a source line, None where ncu did not import the file."""
        if file is None or line is None:
            return None
        if file not in self._sources:
            # All files of an action come at once, and most actions have the same ones.
            for name, content in action.source_files().items():
                self._sources.setdefault(name, content.splitlines())
            # Debug information may have a different path for a file than the importer.
            alike = [name for name in self._sources if _base(name) == _base(file)]
            same = self._sources[alike[0]] if len(alike) == 1 else []
            self._sources.setdefault(file, same)
        lines = self._sources[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else None


def actions(report: Any) -> Iterator[tuple[int, int, Action]]:
    """Yield the actions of a loaded report in order, behind the numbers of range and action."""
    for range_index in range(report.num_ranges()):
        of_range = report.range_by_idx(range_index)
        for action_index in range(of_range.num_actions()):
            yield range_index, action_index, of_range.action_by_idx(action_index)


def _base(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]
