"""The load's HTTP client: arrivals, bodies, and responses in pieces of any size."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.pipelines.beside import Beside
from perfpipe.pipelines.serving.block import Serve, is_here, milliseconds
from perfpipe.pipelines.serving.client import Sending, arrivals, body_of
from perfpipe.pipelines.serving.http_stream import Answer, Refused, _read

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


CHAT = [
    event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
    event({"choices": [{"delta": {"content": "a"}}]}),
    event({"choices": [{"delta": {"reasoning_content": "b"}}]}),
    event({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}),
    b"data: [DONE]\n\n",
]


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def answered(pieces: list[bytes]) -> Answer:
    """Return what is read of a response that arrives in these pieces and then ends."""

    async def read() -> Answer:
        reader, answer = asyncio.StreamReader(), Answer()
        task = asyncio.create_task(_read(reader, answer))
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()
        await task
        return answer

    return asyncio.run(read())


@given(st.lists(st.integers(1, 400), max_size=30), st.lists(st.integers(1, 60), max_size=30))
def test_a_stream_is_read_whatever_its_pieces(cuts: list[int], sizes: list[int]) -> None:
    """Neither chunks of the response nor pieces of the network end where events do."""
    body, chunks = b"".join(CHAT), []
    for size in sizes:
        chunks.append(body[:size])
        body = body[size:]
    whole = SSE + b"Transfer-Encoding: chunked\r\n\r\n" + chunked([c for c in [*chunks, body] if c])
    at = sorted({min(cut, len(whole)) for cut in cuts})
    answer = answered([whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)])
    assert (answer.status, answer.streamed, len(answer.token_ns)) == (200, True, 2)
    assert (answer.input_tokens, answer.output_tokens) == (9, 2)
    assert answer.first_ns == answer.token_ns[0] <= answer.token_ns[1]
    assert answer.bytes == len(b"".join(CHAT))


@pytest.mark.parametrize(
    ("events", "tokens", "output"),
    [
        ([event({"choices": [{"text": "a"}]}), event({"choices": [{"text": ""}]})], 1, None),
        ([event({"text": "a", "meta_info": {"completion_tokens": 1}}),
          event({"text": "ab", "meta_info": {"completion_tokens": 2}})], 2, 2),
        ([event({"token": {"text": "a"}}), b"data: plain\n\n", b": comment\n\n"], 2, None),
        ([event({"choices": [{"delta": {"tool_calls": [{"id": "x"}]}}]})], 1, None),
        ([event({"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": True}})], 1, None),
    ],
)  # fmt: skip
def test_events_of_other_servers(events: list[bytes], tokens: int, output: int | None) -> None:
    answer = answered([SSE + b"\r\n", *events])
    assert (len(answer.token_ns), answer.output_tokens) == (tokens, output)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"", "the connection was closed without a response"),
        (b"SSH-2.0\r\n\r\n", "the response is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "the response ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "the response ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "damaged chunks"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nboom", "HTTP 500: boom"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "HTTP 302"),
        (SSE + b"\r\n" + event({"error": {"message": "out of memory"}}), "error in the response: out of"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * (1 << 21) + b"\r\n\r\n", "a line of the response is too long"),
    ],
)  # fmt: skip
def test_a_response_that_is_damaged_or_an_error_fails(response: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        answered([response])


def test_a_response_after_an_interim_one() -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 3, "completion_tokens": 4}}).encode()
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    answer = answered([head, usage])
    assert (answer.output_tokens, answer.streamed, answer.first_ns) == (4, False, None)


@given(st.integers(0, 1000), st.floats(0.5, 200))
def test_arrivals_are_those_of_the_seed(seed: int, rate: float) -> None:
    sending = Sending(url="", rate=rate, requests=50, seed=seed)
    times = list(arrivals(sending))
    assert times == list(arrivals(sending)) and len(times) == 50
    assert times == sorted(times) and times[0] > 0


def test_arrivals_are_a_poisson_process() -> None:
    """Intervals have the mean 1 / rate and as large a standard deviation; counts vary like their mean."""
    counts, gaps = [], []
    for seed in range(400):
        times = list(arrivals(Sending(url="", rate=10, duration=4, seed=seed)))
        counts.append(len(times))
        gaps += [b - a for a, b in pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.05)
    assert statistics.fmean(counts) == pytest.approx(40, rel=0.05)
    assert statistics.variance(counts) == pytest.approx(40, rel=0.25)


def test_bodies_come_in_turn_with_random_words() -> None:
    bodies: list[dict[str, Any]] = [
        {"prompt": "{prompt:5}", "n": [1, "{prompt:2}"]},
        {"prompt": "fixed"},
    ]
    sending = Sending(url="", bodies=bodies, rate=4, requests=4)
    made = [json.loads(body_of(sending, number)) for number in range(4)]
    assert [len(body["prompt"].split()) for body in made] == [5, 1, 5, 1]
    assert made[0]["prompt"] != made[2]["prompt"] and len(made[0]["n"][1].split()) == 2
    assert made[0] == json.loads(body_of(sending, 0)), "the same under every profiler"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200ms", 200), ("1.5s", 1500), ("2", 2), ("1 min", 60000), (".5s", 500), ("3us", 0.003)],
)
def test_durations(text: str, ms: float) -> None:
    assert milliseconds(text, "ms") == pytest.approx(ms)


@pytest.mark.parametrize("text", ["", "s", "1h2", "-1s", "1e9", "nan", "1 s s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        milliseconds(text, "ms")


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("a.localhost", True),
     ("localhost.example.com", False), ("10.0.0.1", False), ("0x7f.1", False), ("", False)],
)  # fmt: skip
def test_only_this_machine_is_here(host: str, here: bool) -> None:
    assert is_here(host) == here


def test_a_block_is_resolved_for_a_configuration() -> None:
    serve = Serve.model_validate(
        {"ready": "127.0.0.1:{port}", "load": ["run", "{rate}"], "rate": ["{r}", 4], "for": "2s"}
    )
    known = {"{port}": "8000", "{r}": "8", "{rate}": "{rate}"}

    def replaced(text: str) -> str:
        for name, value in known.items():
            text = text.replace(name, value)
        return text

    found = serve.resolved(replaced)
    assert (found.ready, found.rate, found.load, found.duration) == (
        "127.0.0.1:8000",
        [8.0, 4.0],
        ["run", "{rate}"],
        2,
    )
    with pytest.raises(ValueError, match="is not this machine"):
        Serve.model_validate({**serve.model_dump(by_alias=True), "ready": "{host}:1"}).resolved(
            lambda text: text.replace("{host}", "example.com").replace("{r}", "1")
        )


def test_a_program_beside_perfpipe_keeps_the_beginning_of_its_output(tmp_path: Path) -> None:
    code = (
        "import sys\nfor n in range(9): print(n)\nprint('last words', file=sys.stderr)\nsys.exit(3)"
    )
    heard: list[str] = []
    with Beside(
        [sys.executable, "-c", code], log=tmp_path / "a", on_line=heard.append, most=4
    ) as program:
        assert program.wait(60) and program.returncode == 3
    assert (tmp_path / "a.out").read_text() == "0\n1\n" and len(heard) == 10
    assert (program.outcome, program.complaint()) == ("exited with code 3", "last")
