"""Whether launches of a program with a lever did the same work as plain launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfpipe.analysis.trying.launched import COUNTED, Results
from perfpipe.analysis.trying.series import Judged, Kind
from perfpipe.units import counted


def unequal_work(plain: Sequence[Results], other: Sequence[Results]) -> Iterator[Judged]:
    """Yield unequal work; nothing if the work of plain launches was not recorded.

    Where plain launches differ, because they are ended after a time, the work of a step counts.
    """
    known = [one.counts for one in (*plain, *other) if one.counts]
    if not known or not all(one.counts for one in plain):
        return
    if not all(one.counts for one in other):
        yield Judged(Kind.UNKNOWN, "the work of the program was not recorded")
        return
    processes = {frozenset(one) for one in known}
    if len(processes) > 1:
        yield Judged(Kind.UNKNOWN, "other processes were recorded than in plain launches")
        return
    whole = all(one.complete for one in (*plain, *other))
    for process in sorted(plain[0].counts):
        before, after = ([one.counts[process] for one in side] for side in (plain, other))
        yield from _of_process(process, before, after, whole=whole)


def _of_process(
    process: str,
    plain: Sequence[Mapping[str, int]],
    other: Sequence[Mapping[str, int]],
    *,
    whole: bool,
) -> Iterator[Judged]:
    """Yield the first difference; `whole` says that all launches ran to their end."""
    if whole and all(own == plain[0] for own in plain):
        for name, what in COUNTED.items():
            for own in other:
                if own[name] != plain[0][name]:
                    yield other_work(counted(own[name], what), str(plain[0][name]), process)
                    return
        return
    unit = "steps" if all(own["steps"] for own in plain) else "calls"
    for name, what in COUNTED.items():
        per = [own[name] / max(1, own[unit]) for own in plain]
        for own in other:
            if not own[unit]:
                yield other_work(f"0 {unit}", str(plain[0][unit]), process)
                return
            # The last unit may be incomplete.
            edge = 1.5 * max(1.0, *per) * max(1 / max(1, one[unit]) for one in (*plain, own))
            rate = own[name] / own[unit]
            if not min(per) - edge <= rate <= max(per) + edge:
                text = f"{what} {rate:.3g} times per {unit.removesuffix('s')}"
                yield other_work(text, f"{per[0]:.3g}", process)
                return


def other_work(after: str, before: str, process: str) -> Judged:
    """Return that a process, or the program if it has no name, did other work."""
    where = f" in {process}" if process else ""
    return Judged(Kind.DIFFER, f"different work: {after} instead of {before}{where}")
