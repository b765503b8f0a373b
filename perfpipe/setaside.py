"""Reports that turned out to be unreadable while a process read their rows."""

from __future__ import annotations

from collections.abc import Callable


class SetAside:
    """Reports by id, with the reason; a report that was rewritten since is read again.

    `written_at` returns a value that changes when a report is rewritten.
    """

    def __init__(self, written_at: Callable[[str], int]) -> None:
        self._written_at = written_at
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, report_id: str, fault: str) -> None:
        """Set a report aside."""
        self._found[report_id] = fault, self._written_at(report_id)

    def fault(self, report_id: str) -> str | None:
        """Return why a report was set aside; None if it was not."""
        fault, at = self._found.get(report_id, (None, 0))
        return fault if fault is not None and at == self._written_at(report_id) else None

    def ids(self) -> frozenset[str]:
        """Return the reports that are set aside."""
        return frozenset(report_id for report_id in [*self._found] if self.fault(report_id))
