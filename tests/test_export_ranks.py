"""perfpipe export perfetto of several ranks: on one clock, with what is known of its error."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from conftest import Cli

from perfpipe.analysis.session import Session
from perfpipe.pipelines.commands.export import _clock
from perfpipe.store import Store

Stored = Callable[..., list[str]]
Event = dict[str, Any]


def _export(cli: Cli, folder: Path, *words: str) -> list[Event]:
    output = folder / "trace.json"
    assert cli("export", "perfetto", *words, "-o", str(output)) == 0, cli.err
    events: list[Event] = json.loads(output.read_text(), parse_float=Decimal)["traceEvents"]
    return events


def _ends(events: list[Event]) -> list[list[int]]:
    """Return the ends of the all-reduces of each GPU, ns."""
    found: dict[int, list[int]] = {}
    for event in events:
        if event.get("cat") == "kernel" and event["ph"] == "X" and "AllReduce" in event["name"]:
            found.setdefault(event["pid"], []).append(int(1000 * (event["ts"] + event["dur"])))
    return [sorted(own) for own in found.values()]


@pytest.mark.parametrize("capture", ["ddp_straggler", "ddp_comm"])
def test_collectives_end_on_all_ranks_together(
    cli: Cli, stored: Stored, store: Store, tmp_path: Path, capture: str
) -> None:
    ranks = stored(*(f"nsys/{capture}_rank{rank}.sqlite" for rank in (0, 1)))
    with Session.open(store) as session:
        rows = session.execute(
            "SELECT clock_offset_ns, clock_residual_ns FROM job_ranks"
        ).fetchall()
    offsets, residuals = zip(*rows, strict=True)
    assert max(offsets) > 1_000_000
    (residual,) = (residual for residual in residuals if residual is not None)
    ends = _ends(_export(cli, tmp_path, *ranks))
    assert len(ends) == 2 and len(ends[0]) == len(ends[1]) > 10
    assert median(abs(a - b) for a, b in zip(*ends, strict=True)) <= residual + 1
    assert re.search(r": \+0 ns, the rank that sets the clock of the job\n", cli.err)
    assert re.search(r": \+[\d.]+ ms, ends of collectives agree within [\d.]+ us", cli.err)
    alone = [_ends(_export(cli, tmp_path, name))[0] for name in ranks]
    assert "clock" not in cli.err, "a single report keeps its own clock"
    apart = median(abs(a - b) for a, b in zip(*alone, strict=True))
    assert apart > 1_000_000 > 10 * residual, "what the clocks of the captures make of it"


def test_processes_are_labeled_with_their_clock(cli: Cli, stored: Stored, tmp_path: Path) -> None:
    names = ("ddp_comm_rank0", "ddp_comm_rank1", "memcpy")
    events = _export(cli, tmp_path, *stored(*(f"nsys/{name}.sqlite" for name in names)))
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels.keys() == processes.keys()
    for pid, process in processes.items():
        alone = "memcpy" in process
        assert (labels[pid] == "clock: time zero, no other rank of its job") == alone
    assert ": time zero, no other rank of its job" in cli.err


def test_reports_of_one_name_are_told_apart(
    cli: Cli, captures: Store, ingested: Callable[[str], str], store: Store, tmp_path: Path
) -> None:
    ids = [ingested(f"nsys/{name}.sqlite") for name in ("memcpy", "eager_small")]
    for report in ids:
        shutil.copytree(captures.reports_dir / report, store.reports_dir / report)
        path = store.manifest_path(report)
        path.write_text(json.dumps({**json.loads(path.read_text()), "source_name": "r.sqlite"}))
    events = _export(cli, tmp_path, *ids)
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert len(names) == len({*names}) == 4
    assert all(any(f"r.sqlite {report} " in name for report in ids) for name in names)


def test_what_is_unknown_of_a_clock_is_stated() -> None:
    assert _clock(False, -1500, None, None, 1) == (
        "-1.5 us, from the start of the capture alone; error unknown, no collective to compare"
    )
    assert "offset unknown" in _clock(False, 0, None, None, None)
