"""How the kernels of a step changed: slower, faster, launched differently, new, gone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfpipe.analysis.gate.compare.comparison import Compared, Pairs
from perfpipe.analysis.gate.compare.share import Share
from perfpipe.analysis.gate.sides import Key
from perfpipe.analysis.short_names import short_names
from perfpipe.viewmodel import Column, Source, Table

#: Title and description of the table of kernels.
TITLE = "Kernels: new, gone, slower, faster"
_DOC = "Kernels that account for at least 1 % of the change in the step time, largest change first."

#: Columns of the table of kernels; a missing kernel takes no time.
_COLUMNS = (
    Column("name", "Kernel", "text"),
    Column("what", "What", "text", "", "new, gone, slower, faster, or launched differently"),
    Column("launch", "Launch", "text", "", "how the grid or block of the kernel changed"),
    Column(
        "before_ns",
        "Before",
        "ns",
        "",
        "time of the kernel in the step before; empty if the kernel is new",
    ),
    Column(
        "after_ns",
        "After",
        "ns",
        "",
        "time of the kernel in the step after; empty if the kernel is gone",
    ),
    Column("change_ns", "Change", "ns", "", "time that the kernel adds to the step"),
    Column(
        "share_pct",
        "Share of the change",
        "change",
        "%",
        "share of the change in the step's mean time; overlapping kernels can add up to more",
    ),
    Column("full_name", "Full name", "text", hover_of="name"),
)


@dataclass(frozen=True)
class KernelChange:
    """The change of a kernel: its keys before and after, and times in a step (or a capture)."""

    before: Key | None
    after: Key | None
    before_ns: float
    after_ns: float

    @property
    def change_ns(self) -> float:
        """The difference in time."""
        return self.after_ns - self.before_ns

    @property
    def name(self) -> str:
        """The kernel's full name."""
        own = self.after or self.before
        return own.kernel if own else ""

    @property
    def what(self) -> str:
        """The kind of change, in a word or two."""
        if not self.before or not self.after:
            return "new" if self.after else "gone"
        if self.before != self.after:
            return "launched differently"
        return "slower" if self.change_ns > 0 else "faster"

    @property
    def launch(self) -> str:
        """How its launch changed; empty if it did not."""
        if not self.before or not self.after or self.before == self.after:
            return ""
        parts = (("grid", self.before.grid, self.after.grid),
                 ("block", self.before.block, self.after.block))  # fmt: skip
        return ", ".join(f"{name} {old} -> {new}" for name, old, new in parts if old != new)


def kernel_changes(pairs: Pairs, step: Compared | None) -> list[KernelChange]:
    """Return the kernels of a step, largest change first; another grid or block is the same one."""
    own = [p for p in pairs.kernels if step and p.key[:2] == step.key[:2] and _seen(p)]
    gone, new = (_only([p for p in own if p.verdict == kind]) for kind in ("gone", "new"))
    both = gone.keys() & new.keys()
    found = [
        KernelChange(
            p.key if p.before.medians else None,
            p.key if p.after.medians else None,
            _time(p, before=True),
            _time(p, before=False),
        )
        for p in own
        if p.key.kernel not in both
    ]
    found += [
        KernelChange(
            gone[name].key,
            new[name].key,
            _time(gone[name], before=True),
            _time(new[name], before=False),
        )
        for name in both
    ]
    return sorted(found, key=lambda kernel: (-abs(kernel.change_ns), kernel.name))


def kernel_table(kernels: Sequence[KernelChange], share: Share, source: Source) -> Table:
    """Return the changes of the kernels of a step, with their shares of its change."""
    names = short_names([[kernel.name for kernel in kernels]])
    rows = tuple(
        (
            names[kernel.name],
            kernel.what,
            kernel.launch or None,
            kernel.before_ns if kernel.before else None,
            kernel.after_ns if kernel.after else None,
            kernel.change_ns,
            share.of(kernel.change_ns),
            kernel.name,
        )
        for kernel in kernels
    )
    return Table(TITLE, _DOC, _COLUMNS, rows, len(rows), source)


def _seen(pair: Compared) -> bool:
    """Whether the change of a kernel is known: not if a graph hides it on one side."""
    return bool(pair.before.medians and pair.after.medians) or pair.verdict in ("gone", "new")


def _only(pairs: Sequence[Compared]) -> dict[str, Compared]:
    """Return the kernels with a single launch configuration, by name."""
    names = [pair.key.kernel for pair in pairs]
    return {pair.key.kernel: pair for pair in pairs if names.count(pair.key.kernel) == 1}


def _time(pair: Compared, *, before: bool) -> float:
    """Return the time of all launches in a step, else in the capture; 0 if there are none."""
    own = pair.before if before else pair.after
    if own.totals:
        return statistics.median(own.totals)
    if not own.medians:
        return 0
    return statistics.median(own.medians) * statistics.median(own.launches)
