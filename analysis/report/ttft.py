"""Where the time to first token goes, in a sentence."""

from __future__ import annotations

from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.rows import rows_of
from perfpipe.database import in_list
from perfpipe.units import counted, format_ns

#: Views that are read here.
VIEWS = ("ttft_around",)

#: Parts of the time, and how a sentence names them; the order is that of the sentence.
_PARTS = {
    "decode_ms": "behind decode iterations",
    "others_ms": "behind the prefill of other requests",
    "unknown_ms": "behind other iterations",
    "prefill_ms": "prefill",
    "client_ms": "in the client",
    "host_ms": "on the host",
}

#: Roofs, and how a sentence names them.
_ROOFS = {"tensor": "tensor peak", "dram": "DRAM bandwidth"}

#: The least share of the time from which a part is named.
_LEAST = 0.001


def parts_of(scope: Scope, rate: float | None) -> str:
    """Return where the TTFT of slow requests at a rate goes, as a sentence; empty if unknown."""
    if not scope.timeline:
        return ""
    sql = f"""
        SELECT around, of, requests, roof, roof_pct, ttft_ms, {", ".join(_PARTS)}
        FROM ttft_around
        WHERE report_id IN {in_list(scope.reports)} AND rate IS NOT DISTINCT FROM {_number(rate)}
        ORDER BY list_position(['p95', 'p50', 'slowest'], around), report_id
        LIMIT 1
    """
    for around, of, requests, roof, roof_pct, total, *times in rows_of(scope.con, sql):
        parts = []
        for name, time in zip(_PARTS, times, strict=True):
            if time > _LEAST * total:
                own = name == "prefill_ms" and roof_pct is not None
                of_roof = f" ({roof_pct:.0f} % of {_ROOFS[roof]})" if own else ""
                parts.append(f"{format_ns(1e6 * time)} {_PARTS[name]}{of_roof}")
        said = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
        return (
            f"In the captured window, the TTFT of {_which(around, requests, of)} is "
            f"{format_ns(1e6 * total)}: {said}."
        )
    return ""


def _number(rate: float | None) -> str:
    return "NULL" if rate is None else repr(rate)


def _which(around: str, requests: int, of: int) -> str:
    if around == "slowest":
        return "the only request" if of == 1 else f"the slowest of {counted(of, 'request')}"
    return f"the {counted(requests, 'request')} around the {around} (mean; {of} in all)"
