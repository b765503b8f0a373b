"""Finds the GPU of a report: the GPU that ran the work, not the first of the machine."""

from __future__ import annotations

from perfpipe.ingest.builder import ReportBuilder

#: More SMs than any GPU has; larger values mean a damaged report.
_MOST_SMS = 1 << 16


class UsedGpus:
    """GPUs that ran work, and for how long."""

    def __init__(self) -> None:
        self._ns: dict[str | None, float] = {}
        self._sms: dict[str | None, int] = {}

    def add(self, name: str | None, sm_count: int | None, ns: float) -> None:
        """Add work on a GPU by its model; None and an empty name mean unknown."""
        name = name or None
        self._ns[name] = self._ns.get(name, 0) + ns
        if sm_count is not None and 0 < sm_count < _MOST_SMS:
            self._sms.setdefault(name, sm_count)

    def state(self, builder: ReportBuilder) -> None:
        """Set the GPU of the report to the longest busy GPU; warn if models differ."""
        names = sorted(
            (name for name in self._ns if name is not None),
            key=lambda name: (-self._ns[name], name),
        )
        gpu = names[0] if names else None
        builder.facts.gpu = gpu
        builder.facts.sm_count = self._sms.get(gpu, self._sms.get(None))
        if len(names) > 1:
            builder.warn(
                f"the work ran on different GPU models: {', '.join(names)}; peaks are for {gpu}, "
                "which was busy longest"
            )
