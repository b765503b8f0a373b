"""A server under load: latencies, faults of servers and loads, captured windows, nothing left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import DATA, Cli
from serving import Served

from perfpipe.pipelines import tools

#: Loads that take little time: many requests at once.
BRIEF = ("--rate", "40", "--requests", "20", "--warm-up", "1")


def nothing_left(served: Served) -> bool:
    """Return whether no process of the server is left."""
    found = subprocess.run(["pgrep", "-f", f"port={served.port}"], capture_output=True, text=True)
    return found.stdout == ""


def test_latencies_at_each_rate(served: Served) -> None:
    assert (
        served("--rate", "20,40", "--requests", "20", "--slo", "e2e=5s", server="--slow-start 0.3")
        == 0
    )
    assert served.run.status == "done" and nothing_left(served)
    assert "without a profiler at 40 requests/s: 20 requests" in served.cli.err
    rows = served.rows(
        "SELECT phase, rate, arrivals, requests, failed, ttft_p50_ms > 2, tpot_p50_ms >= 2, e2e_p50_ms >= 10,"
        " good_pct, output_tokens_per_s > 0, client_wait_max_ms >= 0 FROM serving_rates"
    )
    assert rows == [
        ("plain", rate, "poisson", 20, 0, True, True, True, 100.0, True, True) for rate in (20, 40)
    ]
    assert served.rows(
        "SELECT DISTINCT input_tokens, output_tokens, tokens_from, status FROM requests"
    ) == [(7, 5, "server", 200)]
    assert served.rows("SELECT count(*) FROM request_tokens") == [(200,)]
    (task,) = served.run.tasks
    assert task.notes[0].startswith("the server was ready after ")
    assert not list(served.store.runs_dir.rglob("*load.json")), (
        "bodies and headers may have secrets"
    )


@pytest.mark.parametrize(
    ("style", "first", "source"), [("plain", True, "chunks"), ("json", False, "server")]
)
def test_other_responses(style: str, first: bool, source: str, served: Served) -> None:
    assert served(*BRIEF, server=f"--style {style}") == 0
    rows = served.rows(
        "SELECT DISTINCT first_token_ns IS NOT NULL, output_tokens, tokens_from FROM requests"
    )
    assert rows == [(first, 5, source)]
    missing = served.rows("SELECT missing FROM serving_latencies WHERE metric = 'ttft'")
    assert missing[0][0] == (
        "20 of the 59 values that p95 needs" if first else "the responses were not streamed"
    )


def test_waiting_in_a_blocked_server_counts_from_the_planned_time(served: Served) -> None:
    """The server answers 20 requests/s of the 60 that arrive; the client sends them in time all the same."""
    assert served("--rate", "60", "--requests", "90", "--warm-up", "0", server="--rate 20") == 0
    ((growth, saturated, wait, last),) = served.rows(
        "SELECT latency_growth, saturated, client_wait_max_ms, (SELECT max(ttft_ms) FROM _request_times)"
        " FROM serving_rates"
    )
    assert saturated and growth > 1
    assert last > 2000 > wait, "what waits for the server does not wait in the client"


def test_a_blocked_event_loop_delays_every_request(served: Served) -> None:
    assert served("--rate", "30", "--requests", "20", "--warm-up", "0", server="--block-ms 60") == 0
    ((shortest, itl),) = served.rows(
        "SELECT min(e2e_ms), (SELECT max_ms FROM serving_latencies WHERE metric = 'itl') FROM _request_times"
    )
    assert shortest > 60 and itl > 60, "tokens of other requests wait too"


def test_requests_that_fail_are_counted(served: Served) -> None:
    assert served(*BRIEF, "--warm-up", "0", server="--refuse-every 4") == 0
    rows = served.rows("SELECT requests, failed, error_pct, errors FROM serving_rates")
    assert rows == [(20, 5, 25.0, "HTTP 503: busy")]
    assert "5 failed (HTTP 503: busy)" in served.cli.err


def test_a_response_that_takes_too_long_is_a_failure(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    block = {"ready": f"{served.base}/health", "url": served.url, "rate": [40], "requests": 6,
             "warm_up": 0, "request_timeout": 0.2}  # fmt: skip
    command = shlex.split(served.command("--token-ms=300"))
    file.write_text(json.dumps({"version": 1, "name": "slow", "command": command, "serve": block}))
    assert served.cli("run", file, "--collector", "timing") == 1
    assert "no request succeeded at 40 requests/s" in served.cli.err
    rows = served.rows("SELECT failed, errors FROM serving_rates")
    assert rows == [(6, "timeout: no complete response within 0.2 s")]
    assert served.run.tasks[0].failure == "load"


def test_a_server_that_dies_under_load_is_an_answer(served: Served) -> None:
    assert (
        served("--rate", "50,100", "--requests", "40", "--warm-up", "0", server="--die-at 50") == 1
    )
    (task,) = served.run.tasks
    assert task.failure == "server_ended" and served.run.status == "failed"
    assert (
        task.error is not None and "at 100 requests/s: the server exited with code 3" in task.error
    )
    assert "CUDA error: an illegal memory access" in task.error
    assert task.ran is not None
    rows = served.rows("SELECT rate, requests - failed, ended_by IS NOT NULL FROM serving_rates")
    assert rows[0] == (50, 40, False)
    assert rows[1][0] == 100 and 0 < rows[1][1] < 10 and rows[1][2], (
        "what was answered before is kept"
    )
    log = next((served.store.runs_dir).rglob("server-plain.err"))
    assert "illegal memory access" in log.read_text() and nothing_left(served)


@pytest.mark.parametrize(
    ("server", "words", "why"),
    [
        (
            "--never-ready",
            (),
            "was not ready after 1 s (http://127.0.0.1:{port}/health answers with status 503)",
        ),
        ("--never-ready", (), "its last output: loading the model | listening on port {port}"),
        ("--slow-start nonsense", (), "exited with code 2"),
        (
            "",
            ("--ready-line", "never said"),
            "was not ready after 1 s (no line matches 'never said')",
        ),
    ],
)
def test_a_server_that_never_gets_ready_is_an_answer(
    server: str, words: tuple[str, ...], why: str, served: Served
) -> None:
    assert served(*BRIEF, *words, "--ready-timeout", "1s", server=server) == 1
    (task,) = served.run.tasks
    assert task.failure == "not_ready" and task.error is not None
    assert why.format(port=served.port) in task.error
    assert nothing_left(served)


@pytest.mark.parametrize(
    ("ready", "words"),
    [("127.0.0.1:{port}", ()), ("", ("--ready-line", "listening on port")), ("", ())],
)
def test_a_server_is_ready_by_its_port_or_a_line(
    ready: str, words: tuple[str, ...], served: Served
) -> None:
    assert (
        served(*BRIEF, *words, ready=ready.format(port=served.port), server="--slow-start 0.3") == 0
    )


def test_a_place_that_is_taken_is_not_measured(served: Served) -> None:
    with subprocess.Popen(
        shlex.split(served.command()), stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        while "listening" not in other.stdout.readline():
            pass
        assert served(*BRIEF) == 1
        other.terminate()
    assert f"a server already answers at {served.base}/health" in served.cli.err


def test_a_captured_window(served: Served, profilers: Path) -> None:
    words = ("--rate", "20,40", "--for", "2s", "--window", "500ms")
    assert served(*words, collector="nsys") == 0
    loads = served.rows(
        "SELECT phase, rate, (window_end_ns - window_start_ns) / 1e6, capture FROM request_loads"
        " ORDER BY load_id"
    )
    assert [row[:2] for row in loads] == [("plain", 20), ("plain", 40), ("nsys", 20), ("nsys", 40)]
    assert [row[3] for row in loads] == [None, None, "nsys-rate-20.sqlite", "nsys-rate-40.sqlite"]
    assert all(500 <= row[2] < 1500 for row in loads[2:]), (
        "as long as asked, on a busy machine longer"
    )
    log = (profilers / "nsys.log").read_text()
    launched = next(line for line in log.splitlines() if line.startswith("launch"))
    assert "--trace=cuda,nvtx,osrt" in launched and "--sample" not in launched
    assert "--trace-fork-before-exec=true" in launched
    assert log.count("start --session=perfpipe-") == 2 == log.count("stop --session=perfpipe-")
    assert "--sample=none" in next(line for line in log.splitlines() if line.startswith("start"))
    assert "shutdown" in log and nothing_left(served)
    # The stand-in's captures begin when they are started: all requests of the window lie after that.
    spans = served.rows(
        "SELECT s.rate, count(*), min(s.end_ns) > 0, bool_and(s.start_ns < l.window_end_ns - t.started_ns)"
        " FROM request_spans AS s JOIN request_loads AS l ON l.report_id = s.requests_report_id"
        " AND l.load_id = s.load_id JOIN reports AS t ON t.report_id = s.report_id GROUP BY s.rate ORDER BY 1"
    )
    assert [(row[0], row[2], row[3]) for row in spans] == [(20, True, True), (40, True, True)]
    assert all(1 < row[1] < 80 for row in spans), "only those of the window"
    overhead = served.rows("SELECT DISTINCT profiler, rate FROM serving_overhead ORDER BY rate")
    assert overhead == [("nsys", 20), ("nsys", 40)]


def test_a_server_that_dies_under_a_profiler_keeps_what_is_known(
    served: Served, profilers: Path
) -> None:
    words = ("--rate", "40", "--requests", "40", "--warm-up", "0", "--window-after", "0s")
    assert served(*words, collector="nsys", server="--die-at 20 --die-under nsys") == 1
    (task,) = served.run.tasks
    assert task.failure == "server_ended" and nothing_left(served)
    assert task.error is not None and "the server exited with code 3" in task.error
    rows = served.rows("SELECT phase, requests - failed, ended_by IS NOT NULL FROM serving_rates")
    assert rows[0] == ("plain", 40, False)
    assert rows[1][0] == "nsys" and rows[1][1] < 20 and rows[1][2]


def test_the_profiler_of_the_server(
    served: Served, profilers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_TRACE", str(DATA / "torch/symm_rank0.kineto.json.gz"))
    words = ("--rate", "40", "--for", "1s", "--window", "200ms")
    assert served(*words, collector="torch", server=f"--marks {tmp_path}/marks") == 0
    marks = [line.split()[0] for line in (tmp_path / "marks").read_text().splitlines()]
    assert marks == ["ready", "ready", "/start_profile", "/stop_profile"]
    assert served.rows("SELECT kind, count(*) FROM reports GROUP BY 1 ORDER BY 1") == [
        ("serving", 1),
        ("torch", 1),
    ]
    assert served.rows("SELECT capture FROM request_loads WHERE phase = 'torch'") == [
        ("torch-rate-40.json.gz",)
    ]


def test_kernels_of_a_server_are_profiled_under_load(served: Served, profilers: Path) -> None:
    (profilers / "FAULT").write_text("ncu-served")
    (profilers / "nvidia-smi").write_text("#!/bin/sh\nexit 1\n")
    words = ("--rate", "40", "--requests", "60", "--warm-up", "1", "--window", "200ms")
    assert served(*words, collector="ncu", server=f"--marks {served.folder}/marks") == 0
    assert served.rows("SELECT kind, count(*) FROM reports GROUP BY 1 ORDER BY 1") == [
        ("ncu", 1), ("nsys", 1), ("serving", 1)
    ]  # fmt: skip
    assert (served.folder / "marks").read_text().count("ready") == 3, "one start under each"
    assert nothing_left(served)


def test_a_server_that_does_not_run_under_ncu(served: Served, profilers: Path) -> None:
    (profilers / "FAULT").write_text("ncu-crash")
    words = ("--rate", "40", "--requests", "60", "--warm-up", "1", "--window", "200ms")
    assert served(*words, collector="ncu") == 1
    (task,) = served.run.tasks
    assert task.error is not None
    assert task.error.startswith(
        "the server does not run under ncu, which replays each kernel: the server "
    )
    assert len(task.reports) == 2 and nothing_left(served)


#: Load generators that print lines, or write the file of one that perfpipe knows.
PRINTS = """
import json, sys, time, urllib.request
print("warming up")
for _ in range(6):
    sent = time.time_ns()
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"{}", method="POST")).read()
    print(json.dumps({"sent_ns": sent, "end_ns": time.time_ns(), "output_tokens": 5}))
"""
WRITES = """
import json, sys, time
from pathlib import Path
start = time.perf_counter()
result = {"date": "20261127", "backend": "openai", "request_rate": float(sys.argv[2]), "burstiness": 1.0,
          "max_concurrency": None, "input_lens": [9] * 6, "output_lens": [2] * 6, "ttfts": [0.1] * 6,
          "itls": [[0.05]] * 6, "latencies": [0.15] * 6, "start_times": [start + n for n in range(6)],
          "errors": [""] * 6}
(Path(sys.argv[3]) / "result.json").write_text(json.dumps(result))
"""


def test_lines_of_another_load_generator(served: Served, tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(PRINTS)
    assert served("--load", f"{sys.executable} load.py {served.url}", load=False) == 0
    rows = served.rows(
        "SELECT rate, arrivals, generator, requests, e2e_p50_ms > 8 FROM serving_rates"
    )
    assert rows == [(None, "unknown", "command", 6, True)]


def test_another_load_generator_gets_a_warm_server_if_there_is_a_body(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "load.py").write_text(PRINTS)
    generator = ("--load", f"{sys.executable} load.py {served.url}", "--warm-up", "2")
    for load in (False, True):
        assert served(*generator, load=load) == 0
        logs = (served.store.runs_dir / served.run.run_id).rglob("plain-warm-up-load.*")
        assert any(logs) == load
        assert served.rows("SELECT generator, requests FROM serving_rates") == [("command", 6)]


def test_files_of_another_load_generator(served: Served, tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(WRITES)
    load = f"{sys.executable} load.py {{url}} {{rate}} {{output}}"
    began = time.time_ns()
    assert served("--load", load, "--rate", "2,4", "--url", served.url, load=False) == 0
    rows = served.rows("SELECT rate, arrivals, generator, ttft_p50_ms FROM serving_rates")
    assert rows == [(rate, "poisson", "vllm", pytest.approx(100)) for rate in (2, 4)]
    ((clock, first),) = served.rows(
        "SELECT DISTINCT clock, min(sent_ns) OVER () FROM request_loads, requests"
    )
    assert clock == "utc" and began < first < time.time_ns(), "the clock of the machine became UTC"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('nothing')", "no request succeeded: the load sent none, or printed no line of one"),
        (
            "raise SystemExit('no such model')",
            "the load generator exited with code 1: no such model",
        ),
        (
            'print(\'{"sent_ns": 2, "end_ns": 1}\')',
            "the load generator printed line 1: not a request",
        ),
    ],
)
def test_a_load_generator_that_fails_is_an_answer(
    code: str, why: str, served: Served, tmp_path: Path
) -> None:
    (tmp_path / "load.py").write_text(code)
    assert served("--load", f"{sys.executable} load.py", load=False) == 1
    (task,) = served.run.tasks
    assert task.failure == "load" and task.error is not None and why in task.error
    assert nothing_left(served)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rate", "0"), "--rate 0: expected requests per second, such as 1,4,8"),
        (("--rate", "x"), "--rate x: expected requests per second"),
        (("--rate", "4", "--for", "ages"), "--for: 'ages' is not a duration"),
        (
            ("--rate", "4", "--slo", "tftt=1s"),
            "--slo tftt=1s: no such objective (ttft, tpot, e2e); did you mean 'ttft'?",
        ),
        (("--rate", "4", "--requests", "4", "--for", "1s"), "requests and for exclude each other"),
        (
            ("--rate", "4", "--url", "http://example.com/"),
            "example.com is not this machine; --allow-remote",
        ),
        (("--rate", "4", "--url", "ftp://127.0.0.1"), "does not begin with http"),
        (("--rate", "4", "--body", "{"), "--body: not JSON"),
        (("--rate", "4", "--body", "none.json"), "none.json"),
        (("--rate", "4", "--ready-line", "("), "is not a regular expression"),
        ((), "say how many requests to send: rate"),
        (("--rate", "4", "--modules"), "--modules needs a program that ends by itself"),
        (("--rate", "4", "--duration", "9"), "serve and duration exclude each other"),
        (("--rate", "4", "--set", "launches=2"), "serve and launches exclude each other"),
        (("--load", "x 'y"), '--load "x \'y": No closing quotation'),
    ],
)
def test_settings_that_are_wrong_are_one_sentence(
    words: tuple[str, ...], why: str, served: Served
) -> None:
    assert served(*words) == 2
    assert not served.store.runs(), "nothing was started"
    assert why in served.cli.err and "Traceback" not in served.cli.err


def test_options_of_loads_need_a_server(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "--rate", "4", "--", "true") == 2
    assert "--rate needs --serve, not a program after --" in cli.err
    assert cli("run", "--serve", "true", "--", "true") == 2
    assert "give either --serve or a program after --" in cli.err
    (tmp_path / "a.yaml").write_text("version: 1\nname: a\ncommand: ['true']\n")
    assert cli("run", "a.yaml", "--rate", "4") == 2
    assert "--rate needs a workload file with 'serve'" in cli.err


def test_a_saved_server_can_be_swept_and_resumed(served: Served, tmp_path: Path) -> None:
    assert served(*BRIEF, "--slo", "ttft=1s", "--save", "serve.yaml") == 0
    text = (tmp_path / "serve.yaml").read_text()
    assert "serve:" in text and "{prompt:7}" in text
    assert served.cli("run", "serve.yaml", "--rate", "30,50", "--collector", "timing") == 0
    assert served.rows("SELECT rate, slo FROM serving_rates") == [
        (30, "TTFT 1000 ms"),
        (50, "TTFT 1000 ms"),
    ]
    swept = text.replace("rate: [40]", 'rate: ["{rate}"]') + "matrix: {rate: [30, 50]}\n"
    (tmp_path / "sweep.yaml").write_text(swept.replace("name: standserver", "name: sweep"))
    assert served.cli("run", "sweep.yaml", "--collector", "timing", "--filter", "rate=30") == 0
    assert served.cli("run", "sweep.yaml", "--collector", "timing", "--resume") == 0
    assert "rate=30: kept" in served.cli.err and "rate=50: measured" in served.cli.err
    assert [task.label for task in served.run.tasks] == ["rate=30", "rate=50"]
    assert served.cli("report", "--md", "-") == 0
    assert "At 50 requests/s, the median TTFT is" in served.cli.out
    swept = text.replace("rate: [40]", "rate: [40]") + "matrix: {tokens: [2, 3]}\n"
    swept = swept.replace('standserver.py"', 'standserver.py", "--tokens={tokens}"').replace(
        "name: s", "name: t"
    )
    (tmp_path / "tokens.yaml").write_text(swept)
    assert served.cli("run", "tokens.yaml", "--collector", "timing") == 0
    assert served.cli("report", "--md", "-") == 0
    assert "At 40 requests/s (tokens=" in served.cli.out


def test_figures_in_other_output(served: Served) -> None:
    assert served(*BRIEF, "--json") == 0
    found = json.loads(served.cli.out)["serving"]
    assert found["serving_rates"][0]["requests"] == 20
    assert [row["metric"] for row in found["serving_latencies"]] == [
        "ttft",
        "tpot",
        "itl",
        "e2e",
        "client_wait",
    ]
    assert served.cli("report", "--md", "-") == 0
    assert "At 40 requests/s, the median TTFT is " in served.cli.out
    assert "Latency against rate" in served.cli.out
    assert served.cli("show", "rates") == 0 and "ttft_p50_ms" in served.cli.out
    assert served.cli("show", "requests") == 0 and "input_tokens" in served.cli.out


def test_without_a_gpu_only_latencies_can_be_measured(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    tools.gpus.cache_clear()
    assert served(*BRIEF, collector="auto") == 2
    assert (
        "no GPU found, and a server has no recording to replay; --collector timing"
        in served.cli.err
    )
    tools.gpus.cache_clear()


def test_a_server_is_not_compared_or_tried(served: Served, tmp_path: Path) -> None:
    assert served(*BRIEF, "--save", "serve.yaml") == 0
    for words in (("ab", "serve.yaml", "--b", "env.A=1"), ("try", "serve.yaml")):
        assert served.cli(*words) == 2
        assert "serve.yaml is a server, which only 'perfpipe run' measures" in served.cli.err


def test_a_run_that_is_interrupted_leaves_nothing_and_continues(served: Served) -> None:
    words = ["run", "--collector", "timing", "--no-report", "--serve", served.command(),
             "--ready", f"{served.base}/health", "--url", served.url,
             "--rate", "40,4", "--requests", "12", "--warm-up", "0"]  # fmt: skip
    whole = [sys.executable, "-m", "perfpipe", *words]
    with subprocess.Popen(
        whole, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        while "at 40 requests/s: 12 requests" not in (line := run.stderr.readline()):
            assert line
        time.sleep(0.3)
        os.kill(run.pid, signal.SIGINT)
        rest = run.stderr.read()
        assert run.wait() == 130
    assert "to continue: perfpipe run --resume" in rest and nothing_left(served)
    assert served.run.status == "interrupted"
    assert served.rows("SELECT rate, requests FROM serving_rates") == [(40, 12)], (
        "kept although interrupted"
    )
    assert served.cli(*words, "--resume") == 0
    assert "kept without a profiler at 40 requests/s: 12 requests" in served.cli.err
    assert served.rows("SELECT rate, requests FROM serving_rates") == [(40, 12), (4, 12)]
    assert len(served.store.runs()) == 1


def test_a_killed_perfpipe_leaves_nothing(served: Served) -> None:
    words = [sys.executable, "-m", "perfpipe", "run", "--collector", "timing", "--no-report",
             "--serve", served.command(), "--ready", f"{served.base}/health", "--url", served.url,
             "--rate", "4", "--requests", "100", "--warm-up", "0"]  # fmt: skip
    with subprocess.Popen(words, start_new_session=True) as run:
        while nothing_left(served) or not list(
            served.store.runs_dir.rglob("plain-rate-4-load.json")
        ):
            time.sleep(0.05)
        run.kill()
    until = time.monotonic() + 30
    while not nothing_left(served) and time.monotonic() < until:
        time.sleep(0.05)
    assert nothing_left(served)
