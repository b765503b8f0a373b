"""What a step consists of: its unit, its inner iterations and its layers."""

from __future__ import annotations

from typing import NamedTuple

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import quote, same
from perfpipe.units import counted

#: Views that are read here.
VIEWS = ("loops",)

#: Minimum share of the GPU time of inner loops that are named, %.
_LEAST_PCT = 10

_PARTS = """
    WITH steps AS (
        SELECT loop, unit, coalesce(variable, true) AS variable FROM loops
        WHERE report_id = {report} AND {device} AND {process} AND role = 'step'
        ORDER BY loop
        LIMIT 1
    ),
    inner_loops AS (
        SELECT
            l.unit, l.role, l.usual,
            if(s.variable, l.fewest, NULL) AS fewest, if(s.variable, l.most, NULL) AS most,
            l.median_ns, l.launches, l.share_pct
        FROM loops AS l
        JOIN steps AS s
            ON if(s.loop = 0, l.parent IS NULL, l.parent = s.loop)
        WHERE l.report_id = {report} AND {device} AND {process} AND l.role IN ('inner', 'layer')
            AND l.share_pct >= {least} AND l.usual >= 2
            -- A pause alone occurs between layers as well.
            AND (l.role = 'layer' OR l.evidence != 'pause')
        QUALIFY row_number() OVER (
            PARTITION BY l.role ORDER BY l.unit = 'token' DESC, l.share_pct DESC, l.loop
        ) = 1
    )
    SELECT s.unit, l.* EXCLUDE (share_pct)
    FROM steps AS s
    LEFT JOIN inner_loops AS l ON true
"""


class Parts(NamedTuple):
    """The unit of a step, its layers, and its inner iterations: number and median time."""

    unit: str = "step"
    inner: str = ""
    inner_unit: str = ""
    inner_ns: float | None = None
    inner_count: float = 0.0
    layers: str = ""

    def rate(self, step_ns: float) -> str:
        """Return how many tokens of a sequence are generated in a second; empty without tokens."""
        token_ns = step_ns if self.unit == "token" else self.inner_ns
        if not token_ns or "token" not in (self.unit, self.inner_unit):
            return ""
        return f"{1e9 / token_ns:,.3g} tokens/s in each sequence"


def parts_of(scope: Scope, report_id: str, device: int | None, process_id: int | None) -> Parts:
    """Return what the steps of a process on a GPU consist of."""
    sql = _PARTS.format(
        report=quote(report_id),
        device=same("device", device),
        process=same("process_id", process_id),
        least=_LEAST_PCT,
    )
    found = Parts()
    for unit, own, role, usual, fewest, most, median_ns, launches in rows_of(scope.con, sql):
        found = found._replace(unit=unit)
        if role == "inner":
            times = f"{counted(round(usual), own)}{_span(fewest, usual, most)}"
            found = found._replace(
                inner=times, inner_unit=own, inner_ns=median_ns, inner_count=usual
            )
        elif role == "layer":
            each = (
                f"{counted(round(launches), 'launch')} repeat {round(usual):,} times in each {unit}"
            )
            found = found._replace(layers=each)
    return found


def _span(fewest: int | None, usual: float, most: int | None) -> str:
    """Return the smallest and largest number of inner iterations, if they differ much."""
    if fewest is None or most is None or most - fewest <= 0.1 * usual:
        return ""
    return f" ({fewest:,} to {most:,})"
