"""What is stored of an .ncu-rep, cell by cell, against NVIDIA's reader on the report as it is.

Values and instances are compared in test_ncu_values.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ncu_report
import pytest
from conftest import Opened
from kills import PERFPIPE

from perfpipe.analysis.session import Session
from perfpipe.ingest.ncu.names import nvtx_step, plain_message, unit_of
from perfpipe.ingest.ncu.sass import actions
from perfpipe.store import Store

Expand = Callable[[str], Path]
Ingested = Callable[[str], str]

#: Every how many launches of a capture one is compared.
CAPTURES = {"visible": 3, "ops": 9, "block": 24, "range": 1, "multi": 1, "pm": 1}

TYPES = ("kernel", "range", "cmdlist", "graph", "subgrid")
RULE_TYPES = {0: "INF", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}


@pytest.mark.parametrize("name", CAPTURES)
def test_every_cell_is_as_the_vendors_reader_tells(
    name: str, expand: Expand, opened: Opened
) -> None:
    with opened(f"ncu/{name}.ncu-rep") as con:

        def table(columns: str, source: str) -> dict[int, list[tuple[Any, ...]]]:
            found = defaultdict(list)
            sql = f"SELECT launch_id, {columns} FROM {source} ORDER BY ALL"
            for launch, *cells in con.execute(sql).fetchall():
                found[launch].append(tuple(cells))
            return found

        launches = table(
            "range_index, action_index, workload_type, kernel_name, kernel_demangled, nvtx_path",
            "ncu_launches",
        )
        units = table("metric, unit", "ncu_metrics")
        rules = table(
            "result_index, rule, section, title, message, type, speedup_kind, speedup_pct",
            "ncu_rules",
        )
        source = table("address, sass, file, line", "ncu_source")
    loaded = list(actions(ncu_report.load_report(str(expand(f"ncu/{name}.ncu-rep")))))
    assert list(launches) == list(range(len(loaded)))
    for launch_id, (range_index, action_index, action) in enumerate(loaded):
        if launch_id % CAPTURES[name]:
            continue
        assert launches[launch_id] == [(range_index, action_index, *_identity(action))]
        told = {
            metric: action.metric_by_name(metric).unit() or None for metric, _ in units[launch_id]
        }
        ours = dict(units[launch_id])
        # NVIDIA's reader tells units of some by what its process was asked before.
        assert ours == {name: unit_of(name, unit) for name, unit in told.items()}
        assert rules[launch_id] == _rules(action)
        addresses = [address for address, *_ in source[launch_id]]
        sass = [action.sass_by_pc(address).strip() for address in addresses]
        places = [_place(action.source_info(address)) for address in addresses]
        assert source[launch_id] == [
            (address, text, *place)
            for address, text, place in zip(addresses, sass, places, strict=True)
        ]
    assert sum(map(len, units.values())) > 100 * len(loaded)


def _identity(action: Any) -> tuple[str | None, ...]:
    steps: list[str] = []
    if state := action.nvtx_state():
        for number in state.domains():
            domain = state.domain_by_id(number)
            steps += [nvtx_step(domain.name(), name) for name in domain.push_pop_ranges()]
    return (
        TYPES[action.workload_type()],
        action.name(action.NameBase_FUNCTION),
        action.name(action.NameBase_DEMANGLED),
        "/".join(steps) or None,
    )


def _rules(action: Any) -> list[tuple[Any, ...]]:
    found = []
    for index, rule in enumerate(action.rule_results_as_dicts()):
        message, speedup = rule.get("rule_message") or {}, rule.get("speedup_estimation") or {}
        found.append(
            (
                index,
                rule["rule_identifier"],
                rule.get("section_identifier") or None,
                message.get("title") or None,
                plain_message(message.get("message", "")) or None,
                RULE_TYPES.get(message.get("type", -1)),
                {1: "local", 2: "global"}.get(speedup.get("type", 0)),
                speedup.get("speedup") if speedup else None,
            )
        )
    return found


def _place(info: Any) -> tuple[str | None, int | None]:
    return (info.file_name(), info.line()) if info else (None, None)


def test_a_metric_has_one_unit_in_all_reports(expand: Expand, store: Store) -> None:
    """Each is read by a process of its own, where NVIDIA's reader has read nothing before."""
    for name in ("multi", "ops"):
        words = ["ingest", str(expand(f"ncu/{name}.ncu-rep")), "--store", str(store.root)]
        subprocess.run([*PERFPIPE, *words], check=True, capture_output=True)
    with Session.open(store, store.report_ids()) as session:
        several = session.execute(
            "SELECT metric, list(DISTINCT unit) FROM ncu_metrics "
            "GROUP BY metric HAVING count(DISTINCT coalesce(unit, '')) > 1"
        ).fetchall()
    assert several == []
