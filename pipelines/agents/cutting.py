"""Shortens answers: cut lists know their full length, and fields that say nothing are dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class Cut(list[Any]):
    """The first items of a list, which has `total` in all; `name` is its name in the answer.

    An unnamed list is named by the keys that lead to it.
    """

    def __init__(self, items: Sequence[Any], total: int, name: str = "") -> None:
        super().__init__(items)
        self.total, self.name = total, name


def first(items: Sequence[Any], most: int, total: int | None = None) -> list[Any]:
    """Return the first items of a list, which has `total` in all."""
    total = len(items) if total is None else total
    return Cut(items[:most], total) if total > min(most, len(items)) else [*items]


def lean(data: Any) -> Any:
    """Return data without fields that say nothing: null, or empty.

    A field that is null for a reason, next to `why` or `reason`, is kept.
    """
    if isinstance(data, Mapping):
        explained = bool(data.get("why") or data.get("reason"))
        kept = {key: lean(one) for key, one in data.items()}
        return {
            key: one
            for key, one in kept.items()
            if not _is_empty(one) or (one is None and explained)
        }
    if isinstance(data, list):
        items = [lean(one) for one in data]
        return Cut(items, data.total, data.name) if isinstance(data, Cut) else items
    return data


def _is_empty(data: Any) -> bool:
    # A cut list may show nothing of what there is.
    return data is None or (data in ("", [], {}) and not isinstance(data, Cut))


def truncated(data: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return how much of each cut list is shown; of lists with the same name, of the longest."""
    found: dict[str, dict[str, int]] = {}
    for name, cut in _cuts(data, ""):
        if name not in found or found[name]["total"] < cut.total:
            found[name] = {"shown": len(cut), "total": cut.total}
    return found


def _cuts(data: Any, path: str) -> Iterator[tuple[str, Cut]]:
    """Yield every cut list with its name."""
    if isinstance(data, Cut):
        yield data.name or path, data
    if isinstance(data, Mapping):
        for key, one in data.items():
            yield from _cuts(one, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for one in data:
            yield from _cuts(one, f"{path}[]")
