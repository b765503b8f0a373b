"""What captures lack that matters to what is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from perfpipe.analysis.session import Session
from perfpipe.database import in_list
from perfpipe.pipelines.agents.cutting import first
from perfpipe.pipelines.agents.desk import rows
from perfpipe.pipelines.agents.wording import plain
from perfpipe.units import counted

#: Tables without which a GPU's time cannot be divided.
_ALWAYS = frozenset({"kernels", "memory_ops", "launches", "ncu_metrics"})

_STACKS = frozenset({"host_frames", "host_samples", "host_stacks"})
_HOST = _STACKS | {"osrt", "nvtx_ranges"}

#: Tables that say more about a bound or a claim of a finding.
_MORE: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("host", "launch_overhead", "readback", "host_loop", "building"), _HOST),
    **dict.fromkeys(("loading", "no_work", "waiting_for_requests"), _HOST),
    **dict.fromkeys(("engine_host", "engine_flushes"), _HOST),
    **dict.fromkeys(("process_starts", "startup", "transfer"), _HOST),
    "sync": _HOST | {"syncs"},
    "device_wait": frozenset({"syncs", "cuda_events"}),
    "allocation": _STACKS | {"memory_usage"},
    **dict.fromkeys(
        ("migration", "unified_memory"), frozenset({"cpu_page_faults", "gpu_page_faults"})
    ),
    "communication": frozenset({"nvtx_payloads"}),
    "ranks_wait": frozenset({"nvtx_payloads"}),
    "start_skew": frozenset({"nvtx_payloads"}),
}

#: Tables that matter where the program uses what they are about, and rows that show the use.
_USES: Mapping[str, str] = {
    "graph_launches": "FROM nsys_api_calls WHERE name LIKE 'cu%GraphLaunch%'",
    "graph_nodes": "FROM nsys_api_calls WHERE name LIKE 'cu%GraphLaunch%'",
    **{
        f"mpi_{name}": "FROM (SELECT 1 FROM mpi_collectives UNION ALL SELECT 1 FROM mpi_p2p)"
        for name in ("collectives", "communicators", "other", "p2p", "ranks", "start_wait")
    },
}


def gaps_of(session: Session, reports: Sequence[str], claims: Collection[str]) -> list[Any]:
    """Return what was not collected and matters to some bounds and claims, and how much else."""
    found = rows(
        session,
        f"""
        SELECT reason, list(DISTINCT table_name ORDER BY table_name) AS tables,
            count(DISTINCT report_id) AS reports
        FROM collection_gaps WHERE report_id IN {in_list(reports)}
        GROUP BY reason ORDER BY tables, reason
        """,
    )
    wanted = _ALWAYS.union(*(_MORE.get(claim, ()) for claim in claims))
    wanted |= {table for table, rows_ in _USES.items() if _any(session, rows_)}
    told = [
        {
            "what": ", ".join(row["tables"]),
            "why": plain(row["reason"])
            + ("" if row["reports"] == len(reports) else f" ({counted(row['reports'], 'report')})"),
        }
        for row in found
        if wanted.intersection(row["tables"])
    ]
    return first(told, len(told), len(found))


def has_stacks(session: Session, reports: Sequence[str]) -> bool:
    """Return whether any of some reports has samples of the host's stacks."""
    without = session.execute(
        "SELECT DISTINCT report_id FROM collection_gaps "
        f"WHERE table_name = 'host_samples' AND report_id IN {in_list(reports)}"
    ).fetchall()
    return len(without) < len(set(reports))


def _any(session: Session, rows_: str) -> bool:
    return bool(session.execute(f"SELECT 1 {rows_} LIMIT 1").fetchall())
