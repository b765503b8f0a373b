"""Names of the GPUs of a report: by number, and by rank or label where numbers repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfpipe.units import gpu_name


class Place(NamedTuple):
    """A GPU of a report: the label of the report, its job (None without one), and its rank."""

    report_id: str
    device: int | None
    label: str
    job: str | None
    rank: int | None


def names_of(places: Sequence[Place]) -> list[str]:
    """Return a name for each GPU: its number, if no other one has it.

    GPUs of one job with the same number get their ranks; GPUs of other reports get the label.
    """
    if len({place.report_id for place in places}) < 2:
        return [gpu_name(place.device) for place in places]
    one_job = None not in (jobs := {place.job for place in places}) and len(jobs) == 1
    if not one_job:
        return [f"{place.label}, {gpu_name(place.device)}" for place in places]
    if len({place.device for place in places}) == len(places):
        return [gpu_name(place.device) for place in places]
    return [
        gpu_name(place.device)
        if place.rank is None
        else f"rank {place.rank}, {gpu_name(place.device)}"
        for place in places
    ]
