"""Files with what perfpipe attach sampled."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


@pytest.fixture
def content() -> dict[str, Any]:
    """A program with a pool of one worker, looked at for 4 s on a machine without a GPU."""
    packed = (DATA / "attached/pool.json.xz").read_bytes()
    found: dict[str, Any] = json.loads(lzma.decompress(packed))
    return found


def _ingest(content: object, folder: Path, store: Store) -> str:
    path = folder / "attached.json"
    path.write_text(json.dumps(content))
    return ingest(path, store).report_id


def test_the_main_thread_of_the_outermost_process_with_own_code(
    content: dict[str, Any], tmp_path: Path, store: Store, cli: Cli
) -> None:
    """The worker, and the threads of the pool, wait for most of the time."""
    report = _ingest(content, tmp_path, store)
    manifest = store.manifest(report)
    assert (manifest.kind, manifest.facts.host) == ("attached", "node7")
    assert manifest.facts.command == "python train.py 20"
    gaps = {gap.table: gap.reason for gap in manifest.missing}
    assert "NVML" in gaps["gpu_samples"] and "process_samples" not in gaps
    assert cli("report", report, "--md", "-") == 0
    assert "In 4.01 s, the host spent 65 % in train.py:4 load() and its 2 processes" in cli.out
    sql = "SELECT pid, tid, sum(share_pct) AS pct, sum(time_ns) AS ns FROM host_code GROUP BY ALL"
    assert cli("query", "--report", report, sql, "--format", "json") == 0
    threads = json.loads(cli.out)["rows"]
    assert len(threads) == 5
    spans: dict[tuple[int, int], int] = {}
    for start, end, pid, tid, _ in content["samples"]:
        spans[pid, tid] = spans.get((pid, tid), 0) + end - start
    assert {(row["pid"], row["tid"]): row["ns"] for row in threads} == spans
    assert all(row["pct"] == pytest.approx(100) for row in threads)


def test_a_parent_that_only_waits_is_not_the_program(
    content: dict[str, Any], tmp_path: Path, store: Store, cli: Cli
) -> None:
    """As that of ranks: it uses no CPU time."""
    parent = min(sample[1] for sample in content["processes"])
    for sample in content["processes"]:
        if sample[1] == parent:
            sample[7] = 0
    report = _ingest(content, tmp_path, store)
    assert cli("report", report, "--md", "-") == 0
    # The worker of the pool, which waits for its next task.
    assert "the host spent 80 % in multiprocessing/connection.py:395" in cli.out


def test_the_use_of_processes_is_that_of_their_samples(
    content: dict[str, Any], tmp_path: Path, store: Store, cli: Cli
) -> None:
    content["gpus"] = [
        [at * 10**9, 1, "G", pct, 5, None, None, 9.0] for at, pct in ((0, 20.0), (1, 40.0))
    ]
    report = _ingest(content, tmp_path, store)
    sql = "FROM process_use"
    assert cli("query", "--report", report, sql, "--format", "json") == 0
    for row in json.loads(cli.out)["rows"]:
        own = [sample for sample in content["processes"] if sample[1] == row["pid"]]
        seconds = (own[-1][0] - own[0][0]) / 1e9
        assert row["seconds"] == pytest.approx(seconds)
        assert row["cpu_pct"] == pytest.approx((own[-1][7] - own[0][7]) / 1e7 / seconds)
        assert row["memory_bytes"] == max(sample[8] for sample in own)
    assert cli("query", "--report", report, "FROM gpu_use", "--format", "json") == 0
    (gpu,) = json.loads(cli.out)["rows"]
    assert (gpu["busy_pct"], gpu["program_bytes"], gpu["power_w"], gpu["device"]) == (
        30,
        None,
        None,
        1,
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"perfpipe_attached": 2}, "form 2, but this perfpipe reads 1"),
        ({"samples": [[0, 1, 1, 1, 99]]}, "not a complete file"),
        ({"samples": [[5, 1, 1, 1, 0]]}, "not a complete file"),
        ({"samples": [[0, True, 1, 1, 0]]}, "not a complete file"),
        ({"samples": 3}, "not a complete file"),
        ({"stacks": [[["f", 3, 1]]]}, "not a complete file"),
        ({"processes": [[0, 1]]}, "not a complete file"),
        ({"processes": [[None] * 11]}, "not a complete file"),
        ({"gpus": [[0, 0, "G", "busy", 1, 1, 1, 1]]}, "not a complete file"),
        ({"began_ns": 1 << 70}, "not a complete file"),
        ({"began_ns": "x" * 1_000_000}, "not a complete file"),
        ({"samples": [[-1 << 62, 1, 1, 1, 0]]}, "is too long"),
        ({"samples": [[0, 1 << 61, 1, 1, 0]] * 4}, "is too long"),
        ({"host": None}, "not a complete file"),
    ],
)
def test_damaged_files_are_one_sentence(
    change: dict[str, Any], sentence: str, content: dict[str, Any], tmp_path: Path, store: Store
) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        _ingest({**content, **change}, tmp_path, store)
    assert len(str(caught.value)) < 1000
    assert store.report_ids() == []


def test_lone_surrogates_spoil_neither_report_nor_store(
    content: dict[str, Any], tmp_path: Path, store: Store, cli: Cli
) -> None:
    content["stacks"][0][0][0] = "\ud800frame"
    content.update(host="\ud800host", command="\udfffrun", gpus=[], missing={"gpus": "\ud800why"})
    report = _ingest(content, tmp_path, store)
    for compacted in (False, True):
        if compacted:
            assert cli("store", "compact", "--grace", "0") == 0, cli.err
        assert cli("query", "SELECT host FROM reports") == 0, cli.err
        assert "host" in cli.out
        assert cli("query", "SELECT reason FROM collection_gaps") == 0, cli.err
        assert "why" in cli.out
        assert cli("report", report, "--md", "-") == 0, cli.err
        assert cli("store", "verify") == 0, cli.err


def test_a_file_that_was_cut(content: dict[str, Any], tmp_path: Path, store: Store) -> None:
    path = tmp_path / "attached.json"
    path.write_text(json.dumps(content)[:-100])
    with pytest.raises(InputError, match="damaged JSON"):
        ingest(path, store)
