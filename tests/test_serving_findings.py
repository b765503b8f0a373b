"""Findings on a server's engine, against planted faults: host work, flushed files, a small batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Tiny
from engine import MS, ORIGIN, PID, TID, US, Engine, plant, plant_in_export, requests_of, words

from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import write_loads

HOST = "SELECT intervals, between_ns, code, code_pct, share_pct, gain_pct FROM engine_host_findings"


def _between(engine: Engine) -> tuple[list[tuple[int, int]], int]:
    """Return the intervals between iterations with a request in progress, and the whole window, ns."""
    spans = [(one.sent, times[-1] + 50 * US) for one, times in engine.arrivals()]
    found = []
    for own, after in pairwise(engine.iterations):
        edges = sorted(
            {
                own.end,
                after.start,
                *(at for span in spans for at in span if own.end < at < after.start),
            }
        )
        for start, end in pairwise(edges):
            if any(sent <= start and end <= ended for sent, ended in spans):
                found.append((start, end))
    return found, engine.iterations[-1].end - engine.iterations[0].start


def _every_gap(engine: Engine, start: int, length: int) -> list[dict[str, Any]]:
    """Return intervals in the gaps after all iterations, some time after their end, ns."""
    return [
        {
            "report_id": "t",
            "pid": PID,
            "tid": TID,
            "start_ns": own.end + start,
            "end_ns": own.end + start + length,
        }
        for own in engine.iterations[:-1]
    ]


def test_host_work_between_iterations_is_found_and_bounded() -> None:
    engine = Engine(2, think=2 * MS)
    ((_, between, code, _, share, gain),) = plant(engine, words).rows(HOST)
    gaps, window = _between(engine)
    assert between == sum(end - start for start, end in gaps)
    assert share == gain == pytest.approx(100 * between / window)
    assert code is None
    assert plant(Engine(2), words).rows(HOST) == [], "200 us between iterations of 3 ms"


@pytest.mark.parametrize(
    ("table", "row", "code"),
    [
        ("nsys_nvtx_ranges", {"name": "tokenize", "style": "PushPop", "range_id": 9999}, "range tokenize"),
        ("nsys_osrt", {"name": "write", "nesting_level": 0}, "call write"),
        ("nsys_osrt", {"name": "epoll_wait", "nesting_level": 0}, None),
        ("nsys_nvtx_ranges", {"name": "batch 3", "style": "PushPop", "range_id": 9999}, None),
    ],
)  # fmt: skip
def test_what_takes_the_time_is_named(table: str, row: dict[str, Any], code: str | None) -> None:
    engine = Engine(2, think=2 * MS)
    db = plant(engine, words)
    db.add(table, *({**row, **own} for own in _every_gap(engine, 100 * US, 1500 * US)))
    ((*_, found, pct, _, _),) = db.rows(HOST)
    assert found == code
    if code:
        assert pct == pytest.approx(75, abs=4)


def test_stacks_name_a_function_of_the_program() -> None:
    engine = Engine(2, think=2 * MS)
    db = plant(engine, words)
    frames = (("socket.send", "socket.py", "python"), ("log_token", "/srv/engine.py", "user"))
    for number, (function, file, kind) in enumerate(frames):
        db.add("host_frames", {"report_id": "t", "frame_id": number, "function": function, "file": file,
                               "kind": kind})  # fmt: skip
        db.add(
            "host_stacks", {"report_id": "t", "stack_id": 1, "depth": number, "frame_id": number}
        )
    db.add("host_samples", *(
        {**own, "time_ns": own["end_ns"], "stack_id": 1, "source": "py-spy"}
        for own in _every_gap(engine, 0, 2 * MS)
    ))  # fmt: skip
    ((_, _, code, *_),) = db.rows(HOST)
    assert code == "log_token (engine.py)"


def test_flushes_are_a_finding_of_their_own() -> None:
    engine = Engine(2, think=2 * MS)
    db = plant(engine, words)
    calls = _every_gap(engine, 100 * US, 1800 * US)
    db.add("nsys_osrt", *({"name": "fsync", "nesting_level": 0, **own} for own in calls))
    sql = "SELECT name, calls, flush_ns, share_pct, gain_pct FROM engine_flush_findings"
    ((name, count, time, share, gain),) = db.rows(sql)
    gaps, window = _between(engine)
    known = [
        sum(max(0, min(end, call["end_ns"]) - max(start, call["start_ns"])) for start, end in gaps)
        for call in calls
    ]
    assert (name, count, time) == ("fsync", sum(own > 0 for own in known), sum(known))
    assert share == gain == pytest.approx(100 * time / window)
    assert db.rows(HOST) == [] or db.rows(HOST)[0][4] < share
    other = plant(engine, words)
    other.add("nsys_osrt", *({"name": "fsync", **own, "tid": 5} for own in calls))
    assert other.rows(sql) == [], "another thread"


def _limited(engine: Engine) -> tuple[int, float, float]:
    """Return the time at the largest batch while requests wait, and the shares of the finding."""
    first = {one.number: engine.iterations[one.prefilled_by[-1]].start for one in engine.served}
    most = max(len(own.decodes) for own in engine.iterations)
    total, saved = 0, 0.0
    for own in engine.iterations:
        waiting = sum(one.sent <= own.start < first[one.number] for one in engine.served)
        if len(own.decodes) == most and waiting:
            total += own.end - own.start
            saved += (own.end - own.start) * waiting / (most + waiting)
    _, window = _between(engine)
    return total, 100 * total / window, 100 * saved / window


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_at_its_limit_while_requests_wait(seed: int) -> None:
    engine = Engine(seed, requests=60, rate=80.0, batch=2)
    sql = "SELECT batch, limited_ns, share_pct, gain_pct FROM batch_limit_findings"
    assert plant(engine, words).rows(sql) == [(2, *map(pytest.approx, _limited(engine)))]
    assert plant(engine, None).rows(sql) == [
        (2, *(pytest.approx(x, rel=0.05) for x in _limited(engine)))
    ]
    assert plant(Engine(seed, requests=60, rate=80.0, batch=64), words).rows(sql) == []
    assert plant(Engine(seed, requests=30, rate=2.0, batch=2), words).rows(sql) == []


def _requests(engine: Engine) -> list[Request]:
    return [
        Request(**{key: value for key, value in row.items() if key != "request_id"})
        for row in requests_of(engine)
    ]


def test_the_report_names_the_fault(cli: Cli, edited: Callable[..., Path], tmp_path: Path) -> None:
    engine = Engine(4, requests=40, rate=80.0, batch=2, kernels=3)
    path = edited("eager_small")
    plant_in_export(engine, path, words)
    load = Load(_requests(engine), phase="nsys", rate=80.0, window_start_ns=ORIGIN,
                window_end_ns=ORIGIN + engine.end, capture=path.name)  # fmt: skip
    write_loads(tmp_path / "requests.jsonl", [load])
    assert cli("ingest", path, tmp_path / "requests.jsonl") == 0
    ids = cli.out.split()
    assert cli("report", *(word for word in ids if len(word) == 16), "--md", "-") == 0
    said = " ".join(cli.out.split())
    assert "decodes at most 2 requests at a time while other requests wait" in said
    assert "of the captured window of the load" in said
    assert "Allow larger batches" in said
    assert "if an iteration with all waiting requests takes as long as now" in said


def test_there_is_nothing_without_a_load() -> None:
    db = Tiny()
    for view in (
        "engine_host_findings",
        "engine_flush_findings",
        "batch_limit_findings",
        "serving_iterations",
    ):
        assert db.rows(f"FROM {view}") == []


def test_advice_for_a_server_is_about_requests(opened: Callable[..., Any]) -> None:
    """Optimizers are named to programs that train, a larger batch to those that choose it."""
    db = plant(Engine(2), words)
    assert db.rows("SELECT report_id, device FROM _serving_gpus") == [("t", 0)]
    ((features,),) = db.rows("SELECT features FROM _timeline_features")
    assert "requests" in features
    assert not {"no_requests", "training", "no_training"} & set(features)
    # Requests alone show a server as well.
    assert plant(Engine(2), None).rows("SELECT report_id FROM _serving_gpus") == [("t",)]
    for name, feature in (("eager_small", "training"), ("graph_node", "training")):
        with opened(f"nsys/{name}.sqlite") as con:
            ((features,),) = con.execute("SELECT features FROM _timeline_features").fetchall()
        assert {feature, "no_requests"} <= set(features)
        assert "requests" not in features


def test_a_server_reads_its_tokens_later() -> None:
    """Losses and stop conditions are read less often, tokens are not."""
    plain = "SELECT technique FROM _techniques WHERE bound = 'readback' AND list_contains(features, '{}')"
    db = Tiny()
    assert db.rows(plain.format("requests")) == [("later_readbacks",)]
    assert db.rows(plain.format("no_requests")) == [("fewer_readbacks",)]


@pytest.mark.parametrize(
    ("label", "rate", "expected"),
    [
        ("-", 1.0, "1 request/s"),
        ("-", 8.0, "8 requests/s"),
        ("size=4", 2.5, "size=4, 2.5 requests/s"),
        ("rate=4 size=4", 4.0, "rate=4 size=4"),
    ],
)
def test_a_capture_under_load_is_named_by_its_rate(label: str, rate: float, expected: str) -> None:
    db = plant(Engine(2, rate=rate, requests=3), words)
    db.rows("UPDATE reports SET run_id = 'a' WHERE report_id = 't'")
    db.add("run_tasks", {"run_id": "a", "task_index": 0, "short_label": label, "reports": ["t"]})
    assert db.rows("SELECT label FROM _labels WHERE report_id = 't'") == [(expected,)]


def test_captures_are_in_the_order_of_their_rates() -> None:
    """The requests of all rates are one report, which has no rate and is named by its file."""
    db = Tiny()
    reports = ("requests.jsonl", *(f"nsys-rate-{rate}.sqlite" for rate in (16, 4, 100)))
    for name in reports:
        db.add("reports", {"report_id": name, "source_name": name, "directory": "d", "run_id": "a"})
    for rate in (16, 4, 100):
        db.add("request_loads", {"report_id": reports[0], "load_id": rate, "rate": float(rate),
                                 "capture": f"nsys-rate-{rate}.sqlite"})  # fmt: skip
    labels = "SELECT label FROM _labels WHERE source_name IS NOT NULL ORDER BY position NULLS LAST, label"
    labels = labels.replace("_labels", "_labels JOIN reports USING (report_id)")
    files = [f"nsys-rate-{rate}.sqlite" for rate in (4, 16, 100)]
    assert db.rows(labels) == [(name,) for name in (*files, "requests.jsonl")]
    db.add("run_tasks", {"run_id": "a", "task_index": 0, "short_label": "-", "reports": [*reports]})
    names = ("4 requests/s", "16 requests/s", "100 requests/s", "requests.jsonl")
    assert db.rows(labels) == [(name,) for name in names]


@pytest.mark.parametrize(("name", "loops"), [("scipy_fit", 0), ("ode_solver", 0), ("jax_while", 1)])
def test_a_server_that_reads_tokens_back_is_no_loop_of_the_host(
    name: str, loops: int, cli: Cli, edited: Callable[..., Path]
) -> None:
    """Each iteration of a server works on all requests; a loop of XLA is one in a server as well."""
    path, engine = edited(name, folder="real"), Engine(4, requests=3)
    load = Load(_requests(engine), phase="nsys", rate=8.0, window_start_ns=ORIGIN,
                window_end_ns=ORIGIN + engine.end, capture=path.name)  # fmt: skip
    write_loads(path.parent / "requests.jsonl", [load])
    assert cli("ingest", path, path.parent / "requests.jsonl") == 0
    assert cli("query", "--format", "csv", "SELECT count(*) FROM loop_findings") == 0
    assert cli.out.split()[-1] == str(loops)
