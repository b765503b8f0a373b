"""Which GPU a report is about: the one that ran its work, not the machine's first."""

from __future__ import annotations

from perfpipe.ingest.builder import ReportBuilder

#: No GPU has so many; a report that says so is damaged.
_MOST_SMS = 1 << 16


class UsedGpus:
    """GPUs that ran something, and for how long."""

    def __init__(self) -> None:
        self._ns: dict[str | None, float] = {}
        self._sms: dict[str | None, int] = {}

    def add(self, name: str | None, sm_count: int | None, ns: float) -> None:
        """Add work on a GPU by its model; None is not known."""
        self._ns[name] = self._ns.get(name, 0) + ns
        if sm_count is not None and 0 < sm_count < _MOST_SMS:
            self._sms.setdefault(name, sm_count)

    def state(self, builder: ReportBuilder) -> None:
        """Make the GPU that worked longest that of the report; warn where models differ."""
        names = sorted(
            (name for name in self._ns if name is not None),
            key=lambda name: (-self._ns[name], name),
        )
        gpu = names[0] if names else None
        builder.facts.gpu = gpu
        builder.facts.sm_count = self._sms.get(gpu, self._sms.get(None))
        if len(names) > 1:
            builder.warn(
                f"the work ran on different GPUs: {', '.join(names)}; peaks are those of {gpu}, "
                "which was busy longest"
            )
