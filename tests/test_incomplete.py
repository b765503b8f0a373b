"""Timelines that contradict themselves, and those whose profiler recorded only part of the work."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, Cli

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.manifest import Manifest
from perfpipe.pipelines.agents.marking import marking_of
from perfpipe.pipelines.agents.wording import MARKS
from perfpipe.store import Store

Edited = Callable[..., Path]

FIELD = DATA / "field" / "nsys"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"

#: Captures of every kind in which nothing contradicts anything.
SOUND = (
    "real/llama_train.sqlite.xz",
    "nsys/graph_node.sqlite.xz",
    "nsys/graph_whole.sqlite.xz",
    "nsys/ddp_single.sqlite.xz",
    "public/power_iteration.sqlite.xz",
    "torch/train_step.kineto.json.gz",
    "field/nsys/28_unified_memory.sqlite.xz",
)


def _read(path: Path, store: Store) -> Manifest:
    return store.manifest(ingest(path, store).report_id)


def _query(store: Store, manifest: Manifest, sql: str) -> list[tuple[Any, ...]]:
    with Session.open(store, [manifest.report_id]) as session:
        return session.sql(sql).fetchall()


def _about(manifest: Manifest, *words: str) -> list[str]:
    return [text for text in manifest.warnings if any(word in text for word in words)]


@pytest.mark.parametrize("name", SOUND)
def test_sound_captures_are_not_changed(name: str, store: Store) -> None:
    manifest = _read(DATA / name, store)
    assert (manifest.missed_pct, manifest.missed) == (0, "")
    assert not _about(manifest, "launching API call", "timestamps")


def test_kernels_that_end_after_their_successors_get_their_usual_length(
    cli: Cli, tmp_path: Path
) -> None:
    assert cli("report", FIELD / "05_longdur.json.gz", "--md", "report.md", "--json", "r.json") == 0
    page = (tmp_path / "report.md").read_text()
    assert "2 of 400 GPU operations end after later operations of their stream" in page
    assert "A step takes 10 ms, and the GPU is busy for 80 % of that time" in page
    store = Store(tmp_path / "store")
    (manifest,) = store.manifests()
    for table in ("nsys_kernels", "launches"):
        lengths = f"SELECT DISTINCT end_ns - start_ns, count(*) FROM {table} GROUP BY 1"
        assert _query(store, manifest, lengths) == [(400_000, 400)]
    assert _query(store, manifest, "SELECT sum(dur_ns) FROM nsys_kernels") == [(160_000_000,)]
    shares = _query(store, manifest, "SELECT max(share_pct) FROM findings")
    assert shares[0][0] <= 100


def test_one_kernel_of_an_export_that_ends_late_decides_nothing(cli: Cli, tmp_path: Path) -> None:
    path = FIELD / "32_one_long_kernel.sqlite.xz"
    assert cli("report", path, "--md", "report.md") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    assert "the GPU is busy for 11 % of that time" in page
    assert "1 of 7,900 GPU operations end after later operations" in page


def test_a_kernel_without_others_of_its_name_ends_where_the_next_one_begins(
    edited: Edited, store: Store
) -> None:
    path = edited(
        "eager_small",
        "INSERT INTO StringIds VALUES (99991, 'alone')",
        f"UPDATE {KERNELS} SET demangledName = 99991, shortName = 99991, end = start + 3400000000 "
        f"WHERE start = (SELECT start FROM {KERNELS} ORDER BY start LIMIT 1 OFFSET 99)",
    )
    sql = """
        SELECT end_ns - following FROM (
            SELECT name, end_ns, lead(start_ns) OVER (ORDER BY start_ns) AS following FROM launches
        ) WHERE name = 'alone'
    """
    assert _query(store, _read(path, store), sql) == [(0,)]


def test_kernels_without_timestamps_are_left_out(edited: Edited, store: Store) -> None:
    first = f"SELECT rowid FROM {KERNELS} ORDER BY start LIMIT 3"
    path = edited(
        "eager_small", f"UPDATE {KERNELS} SET start = 0, end = 0 WHERE rowid IN ({first})"
    )
    manifest = _read(path, store)
    assert _about(manifest, "timestamps") == [
        f"3 of 7,080 rows of {KERNELS} have no timestamps; they were skipped"
    ]
    assert manifest.tables["nsys_kernels"].rows == 7_077
    assert _query(store, manifest, "SELECT count(*) FROM launches WHERE start_ns = 0") == [(0,)]


@pytest.mark.parametrize(
    ("name", "said", "headline"),
    [
        ("20_lostfirst.json.gz", "100 of 200", "busy for at least 80 % of that time"),
        ("34_kernels_lost.sqlite.xz", "2,000 of 7,080", "busy for at least 7 % of that time"),
    ],
)
def test_launches_without_kernels_lower_the_confidence(
    name: str, said: str, headline: str, cli: Cli, tmp_path: Path
) -> None:
    assert cli("report", FIELD / name, "--md", "report.md") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    assert f"Warning: the kernels of {said} launches were not recorded" in page
    assert "**The trace is incomplete" in page
    assert headline in page
    store = Store(tmp_path / "store")
    (manifest,) = store.manifests()
    sql = "SELECT DISTINCT confidence, incomplete FROM timeline_bottleneck"
    assert _query(store, manifest, sql) == [("low", True)]


def test_where_most_kernels_are_missing_the_busy_share_is_unknown(cli: Cli, tmp_path: Path) -> None:
    path = FIELD / "21_graphlost.json.gz"
    assert cli("report", path, "--md", "report.md", "--html") == 0, cli.err
    page = (tmp_path / "report.md").read_text()
    assert "**No verdict: the kernels of 97 of 100 launches were not recorded" in page
    assert "busy for" not in page
    assert "GPU time budget" not in page
    assert "no category other than compute" not in page


RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
OF_KERNELS = f"correlationId IN (SELECT correlationId FROM {KERNELS})"
LAST = f"SELECT correlationId FROM {KERNELS} ORDER BY start DESC LIMIT 20"

#: Changes after which some launches have no kernel, although none is lost: these launches failed, were
#: captured into a graph, or were queued when the capture ended.
HARMLESS = {
    "failed": (
        f"UPDATE {RUNTIME} SET returnValue = 700 WHERE correlationId IN ({LAST})",
        f"DELETE FROM {KERNELS} WHERE correlationId IN ({LAST})",
    ),
    "captured": (
        "INSERT INTO StringIds VALUES (99991, 'cudaStreamBeginCapture_v10000')",
        "INSERT INTO StringIds VALUES (99992, 'cudaStreamEndCapture_v10000')",
        f"CREATE TEMP TABLE part AS SELECT * FROM {RUNTIME} WHERE {OF_KERNELS} "
        "ORDER BY start LIMIT 50 OFFSET 500",
        f"INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, "
        "returnValue) SELECT min(start) - 2, min(start) - 1, 0, globalTid, 900001, 99991, 0 FROM part",
        f"INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, "
        "returnValue) SELECT max(end) + 1, max(end) + 2, 0, globalTid, 900002, 99992, 0 FROM part",
        f"DELETE FROM {KERNELS} WHERE correlationId IN (SELECT correlationId FROM part)",
    ),
    "queued": (
        f"UPDATE {KERNELS} SET end = (SELECT max(end) FROM {RUNTIME}) "
        f"WHERE start = (SELECT max(start) FROM {KERNELS} WHERE correlationId NOT IN ({LAST}))",
        *(
            f"DELETE FROM {table} WHERE start > (SELECT min(start) FROM {RUNTIME} "
            f"WHERE correlationId IN ({LAST}))"
            for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
        ),
        f"DELETE FROM {KERNELS} WHERE correlationId IN ({LAST})",
    ),
}


@pytest.mark.parametrize("how", HARMLESS)
def test_launches_that_run_no_kernel_are_not_counted(
    how: str, edited: Edited, store: Store
) -> None:
    manifest = _read(edited("eager_small", *HARMLESS[how]), store)
    assert manifest.tables["nsys_kernels"].rows < 7_080
    assert not _about(manifest, "were not recorded")


def test_launches_of_host_functions_are_not_of_kernels(edited: Edited, store: Store) -> None:
    path = edited(
        "eager_small",
        "INSERT INTO StringIds VALUES (99991, 'cudaLaunchHostFunc_v10000')",
        f"INSERT INTO {RUNTIME} (start, end, eventClass, globalTid, correlationId, nameId, "
        f"returnValue) SELECT min(start), min(end), 0, globalTid, 900001, 99991, 0 FROM {RUNTIME}",
    )
    assert not _about(_read(path, store), "were not recorded")


def test_kernels_without_launches_lower_the_confidence(edited: Edited, store: Store) -> None:
    path = edited(
        "compute",
        "DELETE FROM DIAGNOSTIC_EVENT",
        f"DELETE FROM {RUNTIME} WHERE correlationId % 10 = 0 AND {OF_KERNELS}",
    )
    manifest = _read(path, store)
    assert _about(manifest, "have no launching API call")
    sql = "SELECT confidence, explanation LIKE '%no launching API call%' FROM timeline_bottleneck"
    assert _query(store, manifest, sql) == [("medium", True)]
    whole = _read(edited("compute", "DELETE FROM DIAGNOSTIC_EVENT"), store)
    assert _query(store, whole, "SELECT confidence FROM timeline_bottleneck") == [("high",)]


def test_migrations_of_unified_memory_need_no_launch(store: Store) -> None:
    manifest = _read(FIELD / "28_unified_memory.sqlite.xz", store)
    assert not _about(manifest, "have no launching API call")


def test_a_kernel_whose_call_is_missing_leaves_a_launch_without_a_kernel(
    store: Store, tmp_path: Path
) -> None:
    trace = json.loads(gzip.decompress((FIELD / "20_lostfirst.json.gz").read_bytes()))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    kernels[0]["args"]["correlation"] = 10**9
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    manifest = _read(path, store)
    assert "the kernels of 101 of 200 launches were not recorded" in manifest.warnings
    assert "1 of 100 GPU operations have no launching API call" in manifest.warnings


MESSAGES = {
    "Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems. CUDA "
    "trace will be collected using libraries for driver version 12.9": "use an nsys release",
    "CUDA profiling might have not been started correctly.": "the traced process makes no CUDA calls",
}

NO_WORK = (
    *(f"DELETE FROM CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")),
    f"DELETE FROM {RUNTIME} WHERE {OF_KERNELS}",
    f"DELETE FROM {RUNTIME} WHERE correlationId > 0",
)


def _saying(edited: Edited, texts: list[str], *statements: str) -> Path:
    return edited(
        "memcpy",
        "DELETE FROM DIAGNOSTIC_EVENT",
        *(
            "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) "
            f"VALUES ({number}, 1, 1, 2, '{text}')"
            for number, text in enumerate(texts)
        ),
        *statements,
    )


@pytest.mark.parametrize("count", [1, 2])
def test_nsys_says_why_there_is_no_gpu_work(
    count: int, edited: Edited, cli: Cli, tmp_path: Path
) -> None:
    other = (
        "CUDA device 0: Unified Memory cannot be traced on devices without peer-to-peer transfers."
    )
    texts = list(MESSAGES)[-count:]
    assert cli("report", _saying(edited, [other, *texts], *NO_WORK), "--md", "report.md") == 0
    headline = (tmp_path / "report.md").read_text().split("**")[1]
    assert headline.startswith(f"No verdict: nsys recorded no GPU work: {texts[0].rstrip('.')}")
    assert MESSAGES[texts[0]] in headline


FATAL = "Accelerator Fatal Error: no device code"

#: What a program prints before it ends, and what the headline says of it.
PRINTED = [
    (f"{FATAL} --password=hunter2\nRebuild it\n", f"{FATAL} --password=***"),
    ('Traceback:\n  File "demo.py"\nImportError: no PyInit\n', "ImportError: no PyInit"),
    (
        "/opt/env/bin/python: symbol lookup error: /a/lib.so\n",
        "python: symbol lookup error: lib.so",
    ),
    ("step 1 of 3\n", None),
]


@pytest.mark.parametrize(("text", "line"), PRINTED)
def test_a_program_that_failed_says_why_there_is_no_gpu_work(
    text: str, line: str | None, edited: Edited, cli: Cli, tmp_path: Path
) -> None:
    streams = (
        "DELETE FROM ProcessStreams",
        "INSERT INTO StringIds VALUES (9001, '/tmp/pid_1_stderr.log'), (9003, 'pid_1_stdout.log'), "
        f"(9002, '{text}'), (9004, 'Error: no')",
        "INSERT INTO ProcessStreams VALUES (1, 9001, 9002), (1, 9003, 9004)",
    )
    path = _saying(edited, list(MESSAGES)[1:], *NO_WORK, *streams)
    assert cli("report", path, "--md", "report.md") == 0, cli.err
    headline = (tmp_path / "report.md").read_text().split("**")[1].replace("\\", "")
    if line is None:
        assert "CUDA profiling might" in headline
    else:
        assert headline.startswith(
            f"No verdict: nsys recorded no GPU work, and the program printed: {line} (first run"
        )
        with Session.open(Store(tmp_path / "store")) as session:
            marked = marking_of(session).sentence(headline) or ""
        assert MARKS[0] in marked.partition("printed: ")[2].partition(" (first run")[0]


def test_no_part_of_a_secret_is_stored_where_a_line_is_cut(edited: Edited, store: Store) -> None:
    """A line is cut after 500 characters."""
    token = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA1bC2"
    line = f"error: {'a b ' * 122}{token}"
    path = edited(
        "memcpy", *NO_WORK, "DELETE FROM ProcessStreams",
        f"INSERT INTO StringIds VALUES (9001, 'pid_1_stderr.log'), (9002, '{line}')",
        "INSERT INTO ProcessStreams VALUES (1, 9001, 9002)",
    )  # fmt: skip
    found = _query(store, _read(path, store), "SELECT line FROM _printed")
    assert found and token[:4] not in found[0][0] and len(found[0][0]) <= 500


def test_lost_events_are_not_taken_for_missing_calls(
    edited: Edited, cli: Cli, tmp_path: Path
) -> None:
    """Some calls were recorded, and nsys says that others were not."""
    said = "Not all CUDA events might have been collected."
    assert cli("report", _saying(edited, [said], *NO_WORK[:3]), "--md", "report.md") == 0, cli.err
    headline = (tmp_path / "report.md").read_text().split("**")[1]
    assert headline.startswith(
        f"No verdict: nsys recorded no GPU work: {said.rstrip('.')} (collect"
    )


def test_messages_do_not_replace_a_verdict(edited: Edited, cli: Cli, tmp_path: Path) -> None:
    assert cli("report", _saying(edited, list(MESSAGES)), "--md", "report.md") == 0, cli.err
    assert "No verdict" not in (tmp_path / "report.md").read_text()


def test_wsl_is_named(edited: Edited, cli: Cli, tmp_path: Path) -> None:
    release = "5.15.90.1-microsoft-standard-WSL2"
    path = _saying(
        edited,
        [],
        *NO_WORK,
        "DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'SoftwareReleaseVersion'",
        "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value) "
        f"VALUES (1, '', 'SoftwareReleaseVersion', 1, '{release}')",
    )
    assert cli("report", path, "--md", "report.md") == 0, cli.err
    headline = (tmp_path / "report.md").read_text().split("**")[1]
    assert f"nsys recorded no GPU work under WSL ({release})" in headline
