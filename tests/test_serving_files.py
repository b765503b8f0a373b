"""Files of load generators: each is read as its own figures say, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.serving.loads import Load, Request
from perfpipe.ingest.serving.own import lines_of, loads_of
from perfpipe.store import Store

#: Records as in AIPerf's guide to its exports: one that succeeded, one that was canceled.
AIPERF = [
    {
        "metadata": {
            "session_num": 45, "x_request_id": "7609a2e7", "turn_index": 0,
            "request_start_ns": 1759813207532900363, "request_ack_ns": 1759813207650730976,
            "request_end_ns": 1759813207838764604, "worker_id": "w", "record_processor_id": "r",
            "benchmark_phase": "profiling", "was_cancelled": False, "cancellation_time_ns": None,
        },
        "metrics": {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "time_to_first_token": {"value": 255.88656799999998, "unit": "ms"},
            "request_latency": {"value": 305.864241, "unit": "ms"},
            "inter_chunk_latency": {"value": [4.898437, 5.316006, 4.801489], "unit": "ms"},
            "output_sequence_length": {"value": 9, "unit": "tokens"},
            "inter_token_latency": {"value": 6.247209, "unit": "ms"},
        },
        "error": None,
    },
    {
        "metadata": {
            "session_num": 80, "request_start_ns": 1759813208119147826, "request_ack_ns": None,
            "request_end_ns": 1759813208119772754, "worker_id": "w", "record_processor_id": "r",
            "benchmark_phase": "profiling", "was_cancelled": True,
            "cancellation_time_ns": 1759813208119772754,
        },
        "metrics": {"error_isl": {"value": 550, "unit": "tokens"}},
        "error": {"code": 499, "type": "RequestCancellationError", "message": "Request was cancelled"},
    },
    {
        "metadata": {"session_num": 0, "request_start_ns": 1, "request_end_ns": 2, "worker_id": "w",
                     "record_processor_id": "r", "benchmark_phase": "warmup"},
        "metrics": {}, "error": None,
    },
]  # fmt: skip


def guidellm_request(start: float, status: str, **more: Any) -> dict[str, Any]:
    """Return a request as guidellm's GenerativeRequestStats dumps it, with its computed fields."""
    timings = {"targeted_start": start, "queued": start, "resolve_start": start + 0.001,
               "request_start": start + 0.002, "first_token_iteration": None,
               "last_token_iteration": None, "request_iterations": 0, "token_iterations": 0,
               "request_end": start + 0.5, "resolve_end": start + 0.5}  # fmt: skip
    timings |= more.pop("timings", {})
    return {
        "type_": "generative_request_stats", "request_id": "a", "output": "text",
        "info": {"request_id": "a", "status": status, "error": more.pop("error", None),
                 "timings": timings},
        "input_metrics": {"text_tokens": 256}, "output_metrics": {"text_tokens": 5},
        "prompt_tokens": 256, "output_tokens": 5, **more,
    }  # fmt: skip


GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.6.0", "python_version": "3.12", "platform": "x"},
    "config": {"target": "http://localhost"},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "poisson", "rate": 4.0, "max_concurrency": None}},
            "requests": {
                "successful": [
                    guidellm_request(1000.0, "completed", timings={
                        "first_token_iteration": 1000.102, "last_token_iteration": 1000.302,
                        "token_iterations": 5}),
                ],
                "incomplete": [guidellm_request(1002.0, "cancelled")],
                "errored": [guidellm_request(1001.0, "errored", error="connection refused")],
                "total": None,
            },
        },
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "concurrent", "streams": 8}},
            "requests": {"successful": [guidellm_request(2000.0, "completed")],
                         "incomplete": [], "errored": [], "total": None},
        },
    ],
}  # fmt: skip

VLLM = {
    "date": "20261127-101112", "endpoint_type": "openai", "backend": "openai", "label": None,
    "model_id": "m", "tokenizer_id": "m", "num_prompts": 2, "request_rate": 4.0, "burstiness": 1.0,
    "max_concurrency": None, "duration": 1.5, "completed": 1, "failed": 1,
    "input_lens": [128, 128], "output_lens": [3, 0], "ttfts": [0.1, 0.0], "itls": [[0.02, 0.03], []],
    "latencies": [0.15, 0.0], "start_times": [5000.0, 5000.25], "queue_times": [0.001, 0.0],
    "generated_texts": ["a", ""], "errors": ["", "Service Unavailable"],
}  # fmt: skip


def read(path: Path, store: Store, sql: str) -> list[tuple[Any, ...]]:
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as session:
        return session.execute(sql).fetchall()


def test_aiperf(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "profile_export.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in AIPERF))
    settings = {"loadgen": {"request_rate": 8.0, "request_rate_mode": "poisson"}}
    summary = tmp_path / "profile_export_aiperf.json"
    summary.write_text(json.dumps({"request_throughput": {"unit": "requests/sec", "avg": 1.0},
                                   "input_config": settings}))  # fmt: skip
    rows = read(
        path, store, "SELECT generator, rate, arrivals, requests, failed, errors FROM serving_rates"
    )
    assert rows == [
        ("aiperf", 8.0, "poisson", 2, 1, "RequestCancellationError: Request was cancelled")
    ]
    rows = read(
        path, store, "SELECT metric, samples, mean_ms FROM serving_latencies WHERE samples > 0"
    )
    found: dict[str, Any] = {
        metric: (samples, pytest.approx(mean, abs=1e-3)) for metric, samples, mean in rows
    }
    assert found["ttft"] == (1, 255.886568)
    assert found["itl"] == (3, (4.898437 + 5.316006 + 4.801489) / 3)
    assert found["e2e"] == (1, 305.864241)
    assert read(path, store, "SELECT status FROM requests WHERE reason IS NOT NULL") == [(499,)]
    with pytest.raises(InputError, match="AIPerf's statistics, without the requests"):
        ingest(summary, store)


def test_guidellm(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(GUIDELLM))
    rows = read(path, store, "SELECT load_id, rate, arrivals, requests, failed FROM serving_rates")
    assert rows == [(0, 4.0, "poisson", 2, 1), (1, None, "closed", 1, 0)]
    sql = "SELECT metric, mean_ms FROM serving_latencies WHERE load_id = 0 AND samples > 0"
    found = {metric: pytest.approx(mean, abs=1e-3) for metric, mean in read(path, store, sql)}
    assert found == {"ttft": 102.0, "tpot": 50.0, "e2e": 500.0, "client_wait": 2.0}
    path.write_text(json.dumps({**GUIDELLM, "metadata": {"version": 1, "guidellm_version": "0.4"}}))
    with pytest.raises(InputError, match="guidellm's schema version 1, but perfpipe reads 2"):
        ingest(path, store)


def test_vllm(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(VLLM) + "\n" + json.dumps({**VLLM, "request_rate": "inf"}))
    rows = read(path, store, "SELECT rate, arrivals, requests, failed, errors FROM serving_rates")
    assert rows == [(4.0, "poisson", 2, 1, "Service Unavailable"),
                    (None, "unknown", 2, 1, "Service Unavailable")]  # fmt: skip
    sql = "SELECT metric, mean_ms FROM serving_latencies WHERE load_id = 0 AND samples > 0"
    found = {metric: pytest.approx(mean, abs=1e-3) for metric, mean in read(path, store, sql)}
    assert found == {"ttft": 101.0, "tpot": 25.0, "itl": 25.0, "e2e": 151.0, "client_wait": 1.0}
    assert read(path, store, "SELECT DISTINCT clock FROM request_loads") == [("monotonic",)]
    brief = {
        key: value for key, value in VLLM.items() if key not in ("ttfts", "itls", "start_times")
    }
    path.write_text(json.dumps(brief))
    with pytest.raises(InputError, match="run vllm bench serve with --save-detailed"):
        ingest(path, store)


def test_lines_of_any_program(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(
        '{"sent_ns": 1000000, "end_ns": 3000000}\n\n{"sent_ns": 2, "reason": "refused"}\n'
    )
    rows = read(path, store, "SELECT rate, arrivals, requests, failed FROM serving_rates")
    assert rows == [(None, "unknown", 2, 1)]


def test_own_lines_are_read_as_they_were_written() -> None:
    loads = [
        Load([Request(planned_ns=1, sent_ns=2, first_token_ns=3, last_token_ns=4, end_ns=5,
                      token_ns=(3, 4), output_tokens=2, tokens_from="chunks", status=200, bytes=9),
              Request(planned_ns=2, sent_ns=3, end_ns=9, reason="timeout: 1 s")],
             phase="nsys", rate=4.0, arrivals="poisson", generator="perfpipe", slo_ms={"ttft": 2.0},
             window_start_ns=2, window_end_ns=4, capture="a.sqlite", ended_by="the server ended"),
        Load([], phase="plain", rate=8.0),
    ]  # fmt: skip
    lines = [line for load in loads for line in lines_of(load)]
    assert loads_of(lines) == loads
    assert loads_of(lines[:2])[0].requests == loads[0].requests[:1], "a load that was cut off"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: not a JSON object"),
        ('{"sent_ns": "1"}', "line 2: not a request: sent_ns: input should be a valid integer"),
        ('{"end_ns": 1}', "it has neither sent_ns nor planned_ns"),
        ('{"sent_ns": 1}', "it has no end_ns, and no reason of a failure"),
        ('{"sent_ns": 9, "end_ns": 1}', "its times are not in order"),
        ('{"sent_ns": -1, "end_ns": 1}', "sent_ns: input should be greater than or equal to 0"),
        ('{"perfpipe": "load", "rate": 0}', "not a load: rate: input should be greater than 0"),
    ],
)
def test_a_line_that_is_no_request_is_one_sentence(
    line: str, why: str, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(f'{{"sent_ns": 1, "end_ns": 2}}\n{line}\n')
    assert cli("ingest", path) == 2
    assert why in cli.err and "Traceback" not in cli.err
    assert not list((tmp_path / "store" / "reports").glob("*"))


@pytest.mark.parametrize(
    "text", ['{"perfpipe": "load"}\n', '{"perfpipe": "load"}\n{"perfpipe": "load_end"}\n']
)
def test_a_file_without_requests_is_refused(text: str, tmp_path: Path, store: Store) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(InputError, match="there are no requests in this file"):
        ingest(tmp_path / "a.jsonl", store)


def test_lines_between_those_of_a_program_that_prints_more() -> None:
    printed = ["starting", "{not json", '{"other": 1}', '{"perfpipe": "time", "ms": [1]}',
               '{"sent_ns": 1, "end_ns": 2}', "done"]  # fmt: skip
    (load,) = loads_of(printed, only_json=False)
    assert load.requests == [Request(sent_ns=1, end_ns=2)]
    with pytest.raises(ValueError, match="not a request"):
        loads_of(['{"sent_ns": 1}'], only_json=False)


@pytest.mark.parametrize(
    "changed",
    [{"end_ns": 2**70}, {"token_ns": [2**70]}, {"status": 2**64}, {"bytes": 2**64}],
)
def test_numbers_out_of_range_are_refused(
    changed: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "requests.jsonl"
    line = {"planned_ns": 1, "sent_ns": 2, "end_ns": 2**71, "status": 200, **changed}
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match="is out of range"):
        ingest(path, store)
    assert store.report_ids() == []


@pytest.mark.parametrize("time", ["1e308", "Infinity"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.jsonl",
            '{"metadata": {"request_start_ns": 1, "request_end_ns": 2, "session_num": 1, '
            '"was_cancelled": false, "benchmark_phase": "profiling"}, '
            '"metrics": {"time_to_first_token": {"value": TIME, "unit": "ms"}}}\n',
        ),
        (
            "b.json",
            '{"metadata": {"version": 2, "guidellm_version": "1"}, "benchmarks": [{"config": '
            '{"strategy": {"type_": "poisson"}}, "requests": {"successful": [{"info": '
            '{"status": "completed", "timings": {"request_start": TIME, "request_end": 2}}}]}}]}',
        ),
        (
            "c.json",
            '{"date": "x", "endpoint_type": "vllm", "input_lens": [5], "output_lens": [3], '
            '"start_times": [TIME], "ttfts": [0.1], "itls": [[0.1]], "errors": [""]}',
        ),
    ],
)
def test_times_beyond_every_clock_are_one_sentence(
    name: str, content: str, time: str, tmp_path: Path, store: Store
) -> None:
    (tmp_path / name).write_text(content.replace("TIME", time))
    with pytest.raises(InputError, match="infinity"):
        ingest(tmp_path / name, store)
    assert store.report_ids() == []
