"""Files of a job that hangs: which belong together, which are damaged; output of NCCL RAS."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hanging import RAS, WAITS, Hang, ddp, dumps_of, enumerated, write

from perfpipe.errors import InputError
from perfpipe.ingest.finding import expand_paths
from perfpipe.ingest.hangs.dumps import read_dump
from perfpipe.ingest.hangs.ras import read_ras
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

# Files: what belongs together, and what is damaged.


def test_the_dumps_of_a_folder_are_one_report(tmp_path: Path) -> None:
    hang = Hang(tmp_path, ddp(3, 2))
    (hang.folder / "notes.txt").write_text("nothing")
    (hang.folder / "profile.csv").write_text('"ID","Process ID","Kernel Name"\n')
    parts = sorted(hang.folder.glob("nccl*"))
    assert expand_paths([str(hang.folder)]) == [hang.folder, hang.folder / "profile.csv"]
    assert expand_paths([str(hang.folder / "nccl_*")]) == [hang.folder]
    assert expand_paths([str(parts[1])]) == [parts[1]]
    before = ingest(hang.folder, hang.store)
    (hang.folder / "notes.txt").write_text("changed")
    assert ingest(hang.folder, hang.store).report_id == before.report_id


def test_a_compressed_dump(tmp_path: Path) -> None:
    hang = Hang(tmp_path, ddp(3, 2, lambda programs: programs[1].pop()))
    path = hang.folder / "nccl_trace_rank_2"
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert hang.rows(WAITS) == [("never enqueued", 5, "0, 2", "1", None)]


def test_two_dumps_of_a_rank(tmp_path: Path) -> None:
    hang = Hang(tmp_path, ddp(2, 2))
    content = (hang.folder / "nccl_trace_rank_1").read_bytes()
    (hang.folder / "other_rank_1").write_bytes(content)
    with pytest.raises(InputError, match="is also a dump of rank 1; keep the dumps of one job"):
        hang.rows("FROM hang_calls")


def test_a_dump_without_a_rank_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.pickle"
    path.write_bytes(pickle.dumps(dumps_of(ddp(2, 2))[0], protocol=2))
    with pytest.raises(InputError, match="ends with its rank, as in nccl_trace_rank_3; rename"):
        ingest(path, Store(tmp_path / "store"))


def test_a_dump_of_many_groups_as_json(tmp_path: Path) -> None:
    dump = dumps_of(ddp(2, 2))[0]
    groups = {f"{n}": {"desc": f"group {n}", "ranks": "[0, 1]"} for n in range(2_000)}
    path = tmp_path / "rank_0.json"
    rest = {name: value for name, value in dump.items() if name not in {"version", "pg_config"}}
    groups = {**groups, **dump["pg_config"]}
    path.write_text(json.dumps({"version": dump["version"], "pg_config": groups, **rest}))
    assert expand_paths([str(tmp_path)]) == [tmp_path]


class _Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda dump: dump["entries"].append(_Evil()), r"the pickle needs \w+\.system"),
        (lambda dump: dump.pop("pg_config"), "not a complete flight recorder dump \\(no pg_config"),
        (lambda dump: dump.update(version="1.3"), "version 1.3; perfpipe reads version 2"),
        (lambda dump: dump["entries"][0].update(state="odd"), "state odd"),
        (lambda dump: dump["entries"][0].update(record_id=1 << 64), "is not a whole number"),
        (
            lambda dump: dump["entries"][0].update(input_sizes=[[1 << 40] * 9]),
            "not a complete flight",
        ),
        (lambda dump: dump["entries"][0].update(profiling_name="a b c"), "profiling_name a b c"),
        (lambda dump: dump["pg_config"]["0"].update(ranks="[0, 1"), "not a complete flight"),
        (lambda dump: dump.update(entries=7), "not a complete flight recorder dump"),
    ],
)
def test_hostile_dumps(
    change: Callable[[dict[str, Any]], object],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    dump = dumps_of(ddp(2, 2))[0]
    change(dump)
    path = write({0: dump}, tmp_path / "dumps") / "nccl_trace_rank_0"
    with pytest.raises(InputError, match=said) as caught:
        ingest(path, Store(tmp_path / "store"))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda dump: dump["pg_status"].update({"0": {"last_enqueued_collective": float("inf")}}),
        lambda dump: dump["pg_config"]["0"].update(ranks="[" * 50_000),
    ],
)
def test_json_that_python_cannot_hold(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    dump = dumps_of(ddp(2, 2))[0]
    change(dump)
    path = tmp_path / "rank_0.json"
    path.write_text(json.dumps(dump))
    with pytest.raises(InputError, match="not a complete flight recorder dump"):
        read_dump(path, path)


@pytest.mark.parametrize("as_json", [False, True])
def test_lone_surrogates_are_replaced(as_json: bool, tmp_path: Path) -> None:
    dumps = dumps_of(ddp(2, 2))
    for entry in dumps[0]["entries"]:
        entry.update(process_group=("0", "\ud800group"), thread_name="\udfffthread")
        entry["frames"][0]["name"] = "\ud800call"
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder, as_json=as_json)
    assert ("?thread",) in hang.rows("SELECT thread FROM hang_calls")
    assert ("?group",) in hang.rows("SELECT description FROM hang_groups")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("6 ranks", f"{'9' * 5000} ranks"),
        ("rank: 5", f"rank: {'9' * 30}"),
        ("Rank 3", f"Rank {'9' * 5000}"),
        ("process 1650386", f"process {'9' * 30}"),
    ],
)
def test_numbers_of_ras_that_are_too_large(old: str, new: str) -> None:
    with pytest.raises(InputError, match=r"ras\.txt: not complete output of ncclras") as caught:
        read_ras(RAS.replace(old, new), "ras.txt")
    assert len(str(caught.value)) < 300


def test_every_truncation_is_one_sentence(tmp_path: Path) -> None:
    whole = pickle.dumps(dumps_of(ddp(2, 2))[0], protocol=2)
    path = tmp_path / "rank_0"
    for end in range(100, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError) as caught:
            read_dump(path, path)
        assert "\n" not in str(caught.value)


def test_names_are_foreign(tmp_path: Path, cli: Cli) -> None:
    """Markup is escaped, and secrets are hidden."""
    dumps = dumps_of(ddp(2, 2, lambda programs: programs[1].pop()))
    for dump in dumps:
        dump["pg_config"]["0"]["desc"] = "<script>x</script>"
        for entry in dump["entries"]:
            entry["process_group"] = ("0", "<script>x</script>")
            entry["frames"][1]["name"] = "--api-key=abcdef0123456789"
    hang = Hang(tmp_path)
    write(enumerated(dumps), hang.folder)
    found = ingest(hang.folder, hang.store).report_id
    page = tmp_path / "page.html"
    assert cli("report", found, "--store", str(hang.store.root), "--html", str(page)) == 0
    text = page.read_text()
    assert "<script>x</script>" not in text and "abcdef0123456789" not in text
    assert "&lt;script&gt;x" in text


# NCCL RAS.


def test_ras_text(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "ras_1.txt").write_text(RAS)
    hang = Hang(tmp_path)
    sql = "SELECT operation, most, most_ranks, least, behind_ranks, progress FROM ras_differences"
    assert hang.rows(sql) == [("AllReduce", 64, 6, 60, "3, 7", None)]
    said = hang.said()
    assert (
        "ranks 3, 7 launched 60 AllReduce calls in communicator 78db921d1c117b4a, and 6 ranks 64"
        in said
    )
    assert "Query it again" in said
    assert "a process (process 3487984 on 172.16.64.213, GPU 5) as dead" in said
    assert "rank 5 of communicator cf264af53edbe986 as unresponsive" in said
    (folder / "ras_2.txt").write_text(RAS)
    assert hang.rows(sql)[0][-1] == "none"
    (folder / "ras_3.txt").write_text(RAS.replace("operation 6", "operation 7"))
    assert hang.rows(sql) == [("AllReduce", 74, 6, 70, "3, 7", "some")]


def test_ras_of_two_ranks_lists_neither(tmp_path: Path) -> None:
    """Outliers are fewer than half of the ranks, and one rank is not counted."""
    hang = Hang(tmp_path)
    hang.folder.mkdir()
    start = RAS.index("  6 ranks have")
    (hang.folder / "ras.txt").write_text(RAS[:start])
    said = (
        "different numbers of AllReduce calls in communicator 78db921d1c117b4a, and lists no ranks"
    )
    assert said in hang.said()


def test_ras_json(tmp_path: Path) -> None:
    ranks = [
        {
            "rank": rank, "host": "10.0.0.1", "pid": 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
            "status": {"init_state": 0, "async_error": 6 * (rank == 1), "abort_flag": False},
            "collective_counts": {"AllReduce": 40 + (rank != 2), "Broadcast": 1},
        }
        for rank in range(3)
    ]  # fmt: skip
    missing = {"rank": 3, "host": "10.0.0.1", "pid": 103, "cuda_dev": 3, "nvml_dev": 3,
               "status": {"unresponsive": True, "considered_dead": False}}  # fmt: skip
    whole = {
        "nccl_version": "2.28.9", "timestamp": "2026-06-19 06:51:56", "communicators_count": 1,
        "communicators": [{"hash": "0xab", "size": 4, "ranks": ranks, "missing_ranks": [missing]}],
        "ras": {"collection_time_sec": 0.0},
    }  # fmt: skip
    text = json.dumps(whole, indent=2)
    # NCCL 2.28.9 forgets this comma.
    broken = text.replace('"nvml_dev": 3,', '"nvml_dev": 3')
    assert broken != text and read_ras(broken, "x") == read_ras(text, "x")
    hang = Hang(tmp_path)
    hang.folder.mkdir()
    (hang.folder / "ras.json").write_text(broken)
    sql = (
        "SELECT operation, most, most_ranks, least, behind_ranks, behind_where FROM ras_differences"
    )
    assert hang.rows(sql) == [("AllReduce", 41, 2, 40, "2", "process 102 on 10.0.0.1, GPU 2")]
    assert hang.rows("SELECT rank, state FROM ras_states ORDER BY rank") == [
        (1, "asynchronous error 6"),
        (3, "unresponsive"),
    ]


def test_damaged_ras_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not complete output of ncclras"):
        read_ras('{"nccl_version": "2.28.9", "communicators": [{"hash": 1}', "ras.json")
