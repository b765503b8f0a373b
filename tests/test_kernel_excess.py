"""Excess traffic, replays and branches by instruction and line, against NVIDIA's own numbers."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.store import Store

Ingested = Callable[[str], str]
Place = tuple[int, int, int]

SECTORS = "memory_l2_theoretical_sectors_global"
WAVEFRONTS = "memory_l1_wavefronts_shared"
DIVERGENT = "smsp__branch_targets_threads_divergent"

#: Columns of NVIDIA's source page, and the problems that together are in them.
COLUMNS = {
    "L2 Theoretical Sectors Global Excessive": (
        "uncoalesced_load",
        "uncoalesced_store",
        "uncoalesced_atomic",
    ),
    "L1 Wavefronts Shared Excessive": ("bank_conflict",),
    "Divergent Branches": ("divergence",),
}


def source_page(path: Path) -> Iterator[tuple[int, list[dict[str, str]]]]:
    """Yield the launch number and instructions of each table; ncu prints every table twice."""
    launch = -1
    header: list[str] = []
    rows: list[dict[str, str]] = []
    with path.open(newline="") as file:
        for cells in csv.reader(file):
            if cells and cells[0] == "Kernel Name":
                if launch >= 0 and launch % 2 == 0:
                    yield launch // 2, rows
                launch, header, rows = launch + 1, [], []
            elif cells and not header:
                header = cells
            elif cells:
                rows.append(dict(zip(header, cells, strict=True)))


@pytest.mark.parametrize("column", COLUMNS)
def test_every_instruction_has_the_excess_that_nvidia_prints(
    opened: Opened, expand: Callable[[str], Path], column: str
) -> None:
    expected: set[Place] = set()
    for launch, rows in source_page(expand("ncu/visible.source.csv")):
        first = int(rows[0]["Address"], 16)
        counts = ((int(row["Address"], 16) - first, int(row.get(column, 0))) for row in rows)
        expected |= {(launch, pc, count) for pc, count in counts if count}
    with opened("ncu/visible.ncu-rep") as con:
        found = con.execute(
            "SELECT launch_id, pc, excess FROM kernel_excess "
            "WHERE kind = 'sass' AND list_contains(?, problem)",
            [[*COLUMNS[column]]],
        ).fetchall()
    assert len(found) >= 4
    assert set(found) == expected
    assert len(found) == len(expected)


def test_instructions_on_local_memory_are_those_that_nvidia_prints(
    opened: Opened, expand: Callable[[str], Path]
) -> None:
    expected = set()
    for launch, rows in source_page(expand("ncu/visible.source.csv")):
        first = int(rows[0]["Address"], 16)
        for row in rows:
            if int(row.get("L2 Theoretical Sectors Local", 0)):
                pc = int(row["Address"], 16) - first
                expected.add((launch, pc, int(row["Instructions Executed"])))
    with opened("ncu/visible.ncu-rep") as con:
        found = con.execute(
            "SELECT launch_id, pc, excess FROM kernel_excess "
            "WHERE kind = 'sass' AND problem = 'local_spill'"
        ).fetchall()
    assert len(found) == 666
    assert set(found) == expected


@pytest.mark.parametrize(("name", "count"), [("visible", 5), ("ops", 19)])
def test_sums_are_those_of_nvidias_rules(opened: Opened, name: str, count: int) -> None:
    """The messages tell excess and total: "10485790 excessive wavefronts (27% of the total ...)"."""
    said = re.compile(r"total of (\d+) excessive (sectors|wavefronts) \(\d+% of the total (\d+) ")
    with opened(f"ncu/{name}.ncu-rep") as con:
        messages = con.execute(
            "SELECT launch_id, message FROM ncu_rules WHERE rule LIKE 'Uncoalesced%Access'"
        ).fetchall()
        sums = con.execute(
            "SELECT launch_id, unit, sum(excess)::BIGINT, sum(counted)::BIGINT "
            "FROM kernel_excess_totals WHERE unit IN ('sectors', 'wavefronts') GROUP BY ALL"
        ).fetchall()
    told = {
        (launch, match[2]): (int(match[1]), int(match[3]))
        for launch, message in messages
        if (match := said.search(message or ""))
    }
    ours = {(launch, unit): (excess, counted) for launch, unit, excess, counted in sums}
    assert len(told) == count
    assert {key: ours[key] for key in told} == told
    # NVIDIA's rule is silent where there is little.
    for key in ours.keys() - told.keys():
        excess, counted = ours[key]
        assert excess < 0.05 * counted or counted < 1000, key


@pytest.mark.parametrize(
    ("unit", "metrics"),
    [
        ("sectors", ["derived__memory_l2_theoretical_sectors_global_excessive"]),
        ("wavefronts", ["derived__memory_l1_wavefronts_shared_excessive"]),
        ("branches", ["smsp__branch_targets_threads_divergent"]),
        (
            "instructions",
            [
                "smsp__sass_inst_executed_op_local_ld.sum",
                "smsp__sass_inst_executed_op_local_st.sum",
            ],
        ),
    ],
)
def test_sums_are_those_of_the_launch(
    captures: Store, ingested: Ingested, unit: str, metrics: list[str]
) -> None:
    reports = [ingested(f"ncu/{name}.ncu-rep") for name in ("visible", "ops")]
    with Session.open(captures, reports) as con:
        collected = con.execute(
            "SELECT report_id, launch_id, sum(value)::BIGINT FROM ncu_metrics "
            "WHERE list_contains(?, metric) GROUP BY ALL",
            [metrics],
        ).fetchall()
        sums = con.execute(
            "SELECT report_id, launch_id, sum(excess)::BIGINT FROM kernel_excess_totals "
            "WHERE unit = ? GROUP BY ALL",
            [unit],
        ).fetchall()
    ours = {(report, launch): excess for report, launch, excess in sums}
    assert len(collected) == 56
    assert any(total for _, _, total in collected)
    for report, launch, total in collected:
        assert ours.get((report, launch), 0) == total


def test_the_worst_line_of_each_labelled_kernel(opened: Opened) -> None:
    with opened("ncu/visible.ncu-rep") as con:
        rows = con.execute(
            "SELECT kernel_name, problem, text, sass, round(share_pct) FROM kernel_excess "
            "WHERE kind = 'line' AND rank = 1"
        ).fetchall()
    worst = {(kernel, problem): (text, sass, share) for kernel, problem, text, sass, share in rows}
    for kernel, problem, words, opcode in (
        ("strided_read", "uncoalesced_load", "strided_read", "LDG"),
        ("bank_conflict", "bank_conflict", "bank_conflict", "LDS"),
        ("spill_local", "local_spill", "r[k]=r[k]*r[(k+i)%96]", "LDL"),
        ("divergent", "divergence", "divergent", "BRA"),
    ):
        text, sass, share = worst[kernel, problem]
        assert words in text
        assert opcode in sass
        assert share > 50
    # It lies in an inlined function of CUDA's headers.
    assert worst["atomic_hot", "atomics"] == (
        "return __iAtomicAdd(address, val);",
        "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R5",
        100,
    )


#: An instruction of each kind, and what it counts: problem -> (excess, counted).
KINDS: dict[str, Callable[[int, int, int], tuple[dict[str, float], dict[str, tuple[int, int]]]]] = {
    "LDG.E.128 R4, desc[UR4][R2.64]": lambda _, least, more: (
        {SECTORS: least + more, f"{SECTORS}_ideal": least},
        {"uncoalesced_load": (more, least + more)},
    ),
    "@!P0  STG.E desc[UR4][R2.64], R5": lambda _, least, more: (
        {SECTORS: least + more, f"{SECTORS}_ideal": least},
        {"uncoalesced_store": (more, least + more)},
    ),
    "@P2   LDGSTS.E [R23], desc[UR16][R12.64]": lambda _, least, more: (
        {SECTORS: least, f"{SECTORS}_ideal": least, WAVEFRONTS: more + 3, f"{WAVEFRONTS}_ideal": 3},
        {"uncoalesced_load": (0, least), "bank_conflict": (more, more + 3)},
    ),
    "STS.64 [R9], R18": lambda _, least, more: (
        {WAVEFRONTS: least + more, f"{WAVEFRONTS}_ideal": least},
        {"bank_conflict": (more, least + more)},
    ),
    "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R5": lambda runs, least, more: (
        {SECTORS: least, f"{SECTORS}_ideal": least, "thread_inst_executed_true": runs + more},
        {"uncoalesced_atomic": (0, least), "atomics": (more, runs + more)},
    ),
    "LDL.LU R29, [R1+0x290]": lambda runs, _, __: (
        {"thread_inst_executed_true": 32 * runs},
        {"local_spill": (runs, runs)},
    ),
    "@P1   BRA 0x7f2ced7af920": lambda runs, _, more: (
        {DIVERGENT: more},
        {"divergence": (more, runs)},
    ),
    "REDUX.SUM UR6, R3": lambda runs, _, __: ({"thread_inst_executed_true": 32 * runs}, {}),
}


Drawn = list[tuple[str, Any, int, int, int]]
_instructions = st.lists(
    st.tuples(
        st.sampled_from([*KINDS]),
        st.sampled_from([None, 1, 2, 3]),
        st.integers(1, 50),
        st.integers(1, 50),
        st.sampled_from([0, 0, 4, 4, 9, 70]),
    ),
    max_size=12,
)


@settings(max_examples=6)
@given(st.lists(_instructions, min_size=8, max_size=8))
def test_places_are_ranked_and_shared_as_by_hand(launches: list[Drawn]) -> None:
    """Several launches at a time: planning the views takes longer than all else."""
    db = Tiny([{"launch_id": launch} for launch in range(len(launches) + 1)])
    for launch, drawn in enumerate(launches):
        _list(db, launch, drawn)
    by_pc = db.rows(
        "SELECT launch_id, problem, kind, rank, pc, NULL, excess, share_pct FROM kernel_excess "
        "WHERE kind = 'sass' ORDER BY ALL"
    )
    by_line = db.rows(
        "SELECT launch_id, problem, rank, line, excess FROM kernel_excess WHERE kind = 'line' "
        "ORDER BY ALL"
    )
    assert all(
        notable == (pct >= 1)
        for pct, notable in db.rows("SELECT excess_pct, notable FROM kernel_excess")
    )
    totals = db.rows(
        "SELECT launch_id, problem, [excess, counted, places] FROM kernel_excess_totals"
    )
    for launch, drawn in enumerate(launches):
        own = [
            [tuple(row) for of, *row in rows if of == launch] for rows in (by_pc, by_line, totals)
        ]
        _check_places(drawn, *own)
    assert {launch for launch, *_ in (*by_pc, *by_line, *totals)} <= {*range(len(launches))}


def _list(db: Tiny, launch: int, drawn: Drawn) -> None:
    """Add the instructions of a launch, with what was counted."""
    for number, (text, line, runs, least, more) in enumerate(drawn):
        db.add(
            "ncu_source",
            {"launch_id": launch, "pc": 16 * number, "address": 4096 + 16 * number, "sass": text,
             "file": "a.cu" if line else None, "line": line, "executions": runs},
        )  # fmt: skip
        for metric, value in KINDS[text](runs, least, more)[0].items():
            row = {"launch_id": launch, "metric": metric, "key_int": 4096 + 16 * number}
            db.add("ncu_instances", row | {"value": value})


def _check_places(drawn: Drawn, by_pc: list[Any], by_line: list[Any], totals: list[Any]) -> None:
    sass: dict[str, list[tuple[int, int]]] = {}
    lines: dict[str, Counter[int]] = {}
    counted: Counter[str] = Counter()
    for number, (text, line, runs, least, more) in enumerate(drawn):
        for problem, (excess, total) in KINDS[text](runs, least, more)[1].items():
            counted[problem] += total
            sass.setdefault(problem, [])
            if excess:
                sass[problem].append((-excess, 16 * number))
                if line:
                    lines.setdefault(problem, Counter())[line] += excess
    sums = {problem: -sum(excess for excess, _ in places) for problem, places in sass.items()}
    expected = [
        (problem, "sass", rank, pc, None, -excess, pytest.approx(-100 * excess / sums[problem]))
        for problem, places in sass.items()
        for rank, (excess, pc) in enumerate(sorted(places), 1)
    ]
    assert by_pc == sorted(expected, key=lambda row: row[:3])
    assert Counter({(p, line): excess for p, _, line, excess in by_line}) == Counter(
        {(p, line): excess for p, at in lines.items() for line, excess in at.items()}
    )
    for problem in lines:
        ranked = [excess for p, _, _, excess in by_line if p == problem]
        assert ranked == sorted(ranked, reverse=True)
    assert dict(totals) == {
        problem: [sums[problem], counted[problem], len(sass[problem])] for problem in sass
    }


def test_what_was_not_collected_has_no_rows() -> None:
    rows = Tiny([{"launch_id": 0}])
    rows.add(
        "ncu_source",
        {"launch_id": 0, "pc": 0, "address": 4096, "sass": "LDG.E R7, [R6.64]", "samples": 5},
    )
    assert rows.rows("FROM kernel_excess") == []
    assert rows.rows("FROM kernel_excess_totals") == []


def test_executions_alone_tell_local_memory() -> None:
    """Every report of kernels has them, with or without SourceCounters."""
    rows = Tiny([{"launch_id": 0}])
    for pc, sass in enumerate(
        ("LDL R7, [R1]", "STL.64 [R1+0x8], R2", "ATOMG R1, [R2]", "FADD R1, R2, R3")
    ):
        row = {"launch_id": 0, "pc": 16 * pc, "address": 16 * pc, "sass": sass, "executions": 5}
        rows.add("ncu_source", row)
    assert rows.rows("SELECT problem, excess, excess_pct, places FROM kernel_excess_totals") == [
        ("local_spill", 10, 50.0, 2)
    ]


def test_a_clean_access_has_an_excess_of_zero() -> None:
    rows = Tiny([{"launch_id": 0}])
    rows.add(
        "ncu_source",
        {"launch_id": 0, "pc": 0, "address": 64, "sass": "LDG.E R7, [R6.64]", "executions": 2},
    )
    for metric in (SECTORS, f"{SECTORS}_ideal"):
        rows.add("ncu_instances", {"launch_id": 0, "metric": metric, "key_int": 64, "value": 8.0})
    assert rows.rows("SELECT problem, excess, counted, excess_pct FROM kernel_excess_totals") == [
        ("uncoalesced_load", 0, 8, 0.0)
    ]
    assert rows.rows("FROM kernel_excess") == []
