"""Scrubs a memory snapshot of PyTorch."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from perfpipe.ingest.allocator.content import Content
from perfpipe.ingest.masking import mask, names_in


def scrub_snapshot(source: Path, target: Path, *known: str) -> list[str]:
    """Write a copy without user names, host names, directories and `known` names, as a pickle.

    Raises InputError if the snapshot is damaged.
    """
    value = Content(source, source).value
    names = names_in(_texts(value), *known)
    target.write_bytes(pickle.dumps(_Masked(names).of(value)))
    return []


def _texts(value: Any) -> set[str]:
    """Return all texts of a value; a shared container is visited once."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, (list, tuple, dict)) and id(one) not in seen:
            seen.add(id(one))
            waiting.extend([*one, *one.values()] if isinstance(one, dict) else one)
    return found


class _Masked:
    """Copies values with masked texts; what is shared stays shared, as frames are."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._texts: dict[str, str] = {}
        self._made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return the copy of a value."""
        if isinstance(value, str):
            if value not in self._texts:
                self._texts[value] = mask(value, self._names)
            return self._texts[value]
        if not isinstance(value, (list, tuple, dict)):
            return value
        if id(value) not in self._made:
            self._made[id(value)] = self._copy(value)
        return self._made[id(value)]

    def _copy(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.of(key): self.of(item) for key, item in value.items()}
        return type(value)(self.of(item) for item in value)
