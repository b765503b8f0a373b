"""Iterations of an engine by class, and the parts of TTFT, against a simulated engine that knows both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Tiny
from engine import (
    MS,
    ORIGIN,
    US,
    Engine,
    Iteration,
    numbered,
    plant,
    stored,
    vllm,
    words,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.analysis.thresholds import thresholds

CLASSES = "SELECT class, evidence FROM serving_iterations"
few = settings(max_examples=4)

separate = st.builds(
    Engine,
    st.integers(0, 10**6),
    requests=st.integers(1, 12),
    output=st.just((2, 15)),
    rate=st.sampled_from([5.0, 20.0, 80.0]),
    batch=st.integers(1, 12),
    lag=st.integers(20, 6000).map(lambda us: us * US),
    think=st.integers(0, 3000).map(lambda us: us * US),
    graphs=st.booleans(),
    ahead=st.booleans(),
)
chunked = st.builds(
    Engine,
    st.integers(0, 10**6),
    requests=st.integers(1, 12),
    output=st.just((2, 15)),
    rate=st.sampled_from([5.0, 20.0, 80.0]),
    batch=st.integers(1, 12),
    chunk=st.integers(64, 1024),
    ahead=st.booleans(),
    lag=st.integers(20, 6000).map(lambda us: us * US),
)


@pytest.mark.parametrize(
    ("name", "kind", "numbers"),
    [
        ("execute_context_3(384)_generation_2(2)", "mixed", (None, 3, 384, 2, None)),
        ("execute_context_0(0)_generation_32(32)", "decode", (None, 0, 0, 32, None)),
        (
            "execute_7_context_1(sq128sk256sqsq1sqsk1)_generation_2(sq2sk300sqsq1sqsk1)",
            "mixed",
            (None, 1, 128, 2, 300),
        ),
        ("execute_new_2_cached_0", "prefill", (None, 2, None, 0, None)),
        ("step[DECODE bs=4]", "decode", (None, None, None, 4, None)),
        ("step[decode bs=2 g_sq=2 g_sqsk=50 g_sk=77]", "decode", (None, None, None, 2, 77)),
        ("step[EXTEND bs=1 toks=107]", "prefill", (None, 1, 107, None, None)),
        ("step[MIXED bs=5 ext=100 dec=4]", "mixed", (5, None, 100, 4, None)),
        ("step[TARGET_VERIFY bs=3]", "decode", (None, None, None, 3, None)),
        ("[Executor] _forward_step 9: 1 ctx reqs, 64 ctx tokens, 31 gen reqs", "mixed",
         (None, 1, 64, 31, None)),
        ("[Executor] _forward_step: 0 ctx reqs, 3 gen reqs", "decode", (None, 0, None, 3, None)),
        ("prefill[bs=2 tok=16384]", "prefill", (None, 2, 16384, None, None)),
        ("iteration 12 prefill batch=1 tokens=256", "prefill", (None, 1, 256, None, None)),
        ("decode step 3", "decode", (None,) * 5),
        ("prefill=2 decode=3", "mixed", (None, 2, None, 3, None)),
        ("batch 4 size=7", None, (7, *(None,) * 4)),
        ("iteration 5", None, (None,) * 5),
    ],
)  # fmt: skip
def test_names_of_engines(name: str, kind: str | None, numbers: tuple[int | None, ...]) -> None:
    ((said,),) = Tiny().rows(f"SELECT engine_iteration('{name}')")
    assert [*said.values()] == [kind, *numbers]


@pytest.mark.parametrize(
    "name", ["step[idle]", "tokenizer.decoded", "predecode", "aten::batch_norm", "batches"]
)
def test_other_names_are_of_no_iteration(name: str) -> None:
    assert Tiny().rows(f"SELECT engine_iteration('{name}')") == [(None,)]


def _truth(engine: Engine) -> list[tuple[Any, ...]]:
    return [
        (own.kind, len(own.prefills), own.prefill_tokens, len(own.decodes), own.start, own.end)
        for own in engine.iterations
    ]


@few
@given(separate | chunked)
def test_names_say_class_batch_and_tokens(engine: Engine) -> None:
    rows = plant(engine, vllm).rows(
        "SELECT class, prefills, prefill_tokens, decodes, start_ns, end_ns, evidence FROM serving_iterations"
    )
    assert [row[:-1] for row in rows] == _truth(engine)
    assert {row[-1] for row in rows} == {"name"}


@few
@given(separate, st.sampled_from([None, numbered]))
def test_tokens_say_class_batch_and_lengths(
    engine: Engine, name: Callable[[Iteration, int], str] | None
) -> None:
    """At most two iterations in a hundred are wrong: a token may arrive late for its delay."""
    rows = plant(engine, name).rows(
        "SELECT class, prefills, prefill_tokens, decodes, kv_tokens FROM serving_iterations"
    )
    known = [
        (*own[:4], one.kv_tokens)
        for own, one in zip(_truth(engine), engine.iterations, strict=True)
    ]
    assert len(rows) == len(known)
    wrong = [(row, own) for row, own in zip(rows, known, strict=True) if row != own]
    assert len(wrong) <= max(2, 0.02 * len(known)), wrong


@few
@given(chunked)
def test_without_names_only_the_last_part_of_a_prompt_shows(engine: Engine) -> None:
    rows = plant(engine, None).rows(CLASSES)
    assert len(rows) == len(engine.iterations)
    wrong = 0
    for (found, _), own in zip(rows, engine.iterations, strict=True):
        ends = any(one.prefilled_by[-1] == engine.iterations.index(own) for one in engine.served)
        seen = {(True, True): "mixed", (True, False): "prefill", (False, True): "decode"}
        wrong += found != seen.get((ends, bool(own.decodes)), "unknown")
    assert wrong <= max(2, 0.02 * len(rows))


def _overlap(own: Iteration, start: int, end: int) -> int:
    return max(0, min(own.end, end) - max(own.start, start))


@few
@given(separate, st.sampled_from([words, vllm]))
def test_parts_of_ttft_are_those_of_the_engine(
    engine: Engine, name: Callable[[Iteration, int], str]
) -> None:
    rows = plant(engine, name).rows(
        "SELECT request_id, ttft_ms, client_ms, decode_ms, others_ms, unknown_ms, prefill_ms, host_ms, batch "
        "FROM ttft_parts"
    )
    first = engine.iterations[0].start
    known = {
        one.number: (one, times[0]) for one, times in engine.arrivals() if one.planned >= first
    }
    wrong = 0
    assert len(rows) == len(known)
    for number, ttft, client, decode, others, unknown, prefill, host, batch in rows:
        one, arrived = known[number]
        (own,) = one.prefilled_by
        parts = Counter[str]()
        for at, iteration in enumerate(engine.iterations):
            what = "own" if at == own else iteration.kind
            parts[what] += _overlap(iteration, one.sent, arrived)
        assert ttft == pytest.approx((arrived - one.planned) / MS)
        assert ttft == pytest.approx(client + decode + others + unknown + prefill + host)
        assert client == pytest.approx((one.sent - one.planned) / MS)
        assert unknown == 0
        expected = [parts["decode"] / MS, parts["prefill"] / MS, parts["own"] / MS]
        wrong += [decode, others, prefill] != pytest.approx(expected)
        wrong += batch != len(engine.iterations[own].prefills)
    assert wrong <= max(1, 0.02 * len(rows))


@few
@given(chunked.filter(lambda own: own.requests > 3))
def test_a_prompt_in_parts_has_all_of_its_iterations(engine: Engine) -> None:
    """Where each iteration computes one prompt: otherwise names do not say whose tokens are computed."""
    rows = plant(engine, vllm).rows("SELECT request_id, prefills FROM ttft_parts")
    for number, prefills in rows:
        one = engine.served[number]
        own = [engine.iterations[at] for at in one.prefilled_by]
        if all(each.prefills == [number] for each in own):
            assert prefills == len(own)
        assert prefills >= 1


@few
@given(separate | chunked)
def test_shares_add_up_and_time_without_requests_is_apart(engine: Engine) -> None:
    db = plant(engine, vllm)
    rows = db.rows("SELECT class, time_ns, share_pct FROM serving_classes")
    assert sum(share for *_, share in rows) == pytest.approx(100)
    found = Counter({kind: time for kind, time, _ in rows})
    known = Counter[str]()
    spans = [(one.sent, times[-1] + 50 * US) for one, times in engine.arrivals()]
    reached = engine.iterations[0].start
    for own in engine.iterations:
        known[own.kind] += own.end - own.start
        edges = sorted(
            {reached, own.start, *(at for span in spans for at in span if reached < at < own.start)}
        )
        for start, end in pairwise(edges):
            loaded = any(sent <= start and end <= ended for sent, ended in spans)
            known["between" if loaded else "empty"] += end - start
        reached = own.end
    assert {kind: time for kind, time in found.items() if time} == {
        kind: time for kind, time in known.items() if time
    }


@few
@given(separate)
def test_time_without_requests_is_no_work_of_the_host(engine: Engine) -> None:
    """OS calls, which show that the engine waits, are not traced."""
    db = plant(engine, words)
    known = "SELECT coalesce(sum(time_ns), 0) FROM {} WHERE {} = '{}'"
    ((empty,),) = db.rows(known.format("serving_classes", "class", "empty"))
    ((waited,),) = db.rows(known.format("gpu_time_budget", "category", "no_work"))
    assert waited == pytest.approx(empty, rel=0.01, abs=MS)


def test_time_of_an_iteration_is_divided_without_a_rest() -> None:
    rows = plant(Engine(3), words).rows(
        "SELECT time_ns, kernels_ns, copies_ns, gaps_ns, host_ns FROM serving_iterations"
    )
    engine = Engine(3)
    for (time, *parts), own in zip(rows, engine.iterations, strict=True):
        assert time == sum(parts) == own.end - own.start
        work = [row["end_ns"] - row["start_ns"] for row in own.launches]
        assert parts[0] == sum(work[:-1]) and parts[1] == work[-1]
        assert parts[3] == own.first - own.start + own.end - own.gpu_end


def test_roofs_are_of_declared_bytes_and_flops() -> None:
    engine = Engine(5)
    declared: dict[str, Any] = {
        "weights_bytes": 4e9,
        "kv_bytes_per_token": 1e5,
        "flops_per_token": 4e9,
        "dtype": "bf16",
    }
    db = plant(engine, words, **declared)
    ((bandwidth, peak),) = db.rows(
        "SELECT bytes_per_s, flop_per_s FROM gpu_peaks WHERE report_id = 't' AND dtype = 'bf16'"
    )
    rows = db.rows("SELECT roof, roof_ns, roof_pct, moved_bytes, flop FROM serving_iterations")
    for (roof, roof_ns, roof_pct, moved, flop), own in zip(rows, engine.iterations, strict=True):
        bytes_ns = 1e9 * (4e9 + 1e5 * own.kv_tokens) / bandwidth
        flop_ns = 1e9 * 4e9 * (own.prefill_tokens + len(own.decodes)) / peak
        assert moved == pytest.approx(4e9 + 1e5 * own.kv_tokens)
        assert flop == pytest.approx(4e9 * (own.prefill_tokens + len(own.decodes)))
        assert roof_ns == pytest.approx(max(bytes_ns, flop_ns))
        assert roof == ("tensor" if flop_ns > bytes_ns else "dram")
        assert roof_pct == pytest.approx(100 * roof_ns / (own.end - own.start))
    ((low, total),) = db.rows(
        "SELECT roof_pct, time_ns FROM serving_classes WHERE class = 'decode'"
    )
    of = [row[1] for row, own in zip(rows, engine.iterations, strict=True) if own.kind == "decode"]
    assert low == pytest.approx(100 * sum(of) / total)


def test_an_undeclared_roof_is_null_with_the_reason() -> None:
    rows = plant(Engine(5), words, weights_bytes=4e9).rows(
        "SELECT class, roof_pct, missing FROM serving_classes WHERE class IN ('prefill', 'decode')"
    )
    assert rows == [
        ("prefill", None, "unknown: serve.model.flops_per_token, serve.model.dtype"),
        ("decode", None, "unknown: serve.model.kv_bytes_per_token"),
    ]


def test_classes_without_names_and_streams() -> None:
    engine = Engine(7, graphs=True)
    rows = plant(engine, None, streamed=False).rows(
        f"{CLASSES.replace('evidence', 'evidence, why')}"
    )
    why = "its name shows no class, and responses are not streamed"
    assert rows == [
        ("decode", "graph", None) if own.kind == "decode" else ("unknown", None, why)
        for own in engine.iterations
    ]
    eager = plant(Engine(7), numbered, streamed=False).rows(CLASSES)
    assert {*eager} == {("unknown", None)}


def test_a_load_without_times_of_tokens_has_no_batches() -> None:
    engine = Engine(11)
    db = plant(engine, None, tokens=False)
    rows = db.rows("SELECT class, prefills, decodes FROM serving_iterations")
    prefills = [own.kind == "prefill" for own in engine.iterations]
    assert [row[0] == "prefill" for row in rows] == prefills
    assert {row[2] for row in rows if row[0] != "prefill"} == {None}
    # The mean is of requests that were measured: the parts of each add up.
    assert db.rows("SELECT count(*) FROM ttft_parts")[0][0] > 30


def test_requests_around_a_percentile_are_averaged() -> None:
    db = plant(Engine(13, requests=90, rate=40.0), words)
    parts = db.rows(
        "SELECT ttft_ms, request_id, decode_ms FROM ttft_parts ORDER BY ttft_ms, request_id"
    )
    found = {row[0]: row[1:] for row in db.rows(
        "SELECT around, of, requests, ttft_ms, decode_ms, request_id FROM ttft_around"
    )}  # fmt: skip
    n, aside = len(parts), int(thresholds()["serving.around"])
    assert n >= thresholds()["serving.least_p95"]
    for around, level in (("p50", 0.5), ("p95", 0.95)):
        middle = -(-n * round(100 * level) // 100) - 1
        near = parts[middle - aside : middle + aside + 1]
        means = [sum(row[at] for row in near) / len(near) for at in (0, 2)]
        assert found[around] == (n, len(near), *map(pytest.approx, means), None)
    assert found["slowest"] == (n, 1, parts[-1][0], parts[-1][2], parts[-1][1])
    few_requests = plant(Engine(13, requests=20), words).rows("SELECT around FROM ttft_around")
    assert few_requests == [("p50",), ("slowest",)]


def test_a_request_whose_prefill_is_not_in_the_window_has_no_parts() -> None:
    engine = Engine(17)
    middle = engine.iterations[len(engine.iterations) // 2].start
    db = plant(engine, words, window_start_ns=ORIGIN + middle)
    first = min(own.start for own in engine.iterations if own.start >= middle)
    later = {one.number for one in engine.served if one.planned >= first}
    assert {row[0] for row in db.rows("SELECT request_id FROM ttft_parts")} == later
    ((low, high),) = db.rows("SELECT min(start_ns), max(end_ns) FROM serving_iterations")
    assert low >= middle and high == engine.iterations[-1].end


def test_tokens_after_the_window_say_nothing_of_its_iterations() -> None:
    engine = Engine(17)
    half = len(engine.iterations) // 2
    end = engine.iterations[half].end
    rows = plant(engine, None, window_end_ns=ORIGIN + end).rows(
        "SELECT class FROM serving_iterations"
    )
    assert [kind for (kind,) in rows] == [own.kind for own in engine.iterations[: len(rows)]]
    assert len(rows) in (half, half + 1)


def test_ranges_that_launch_little_are_none_of_iterations() -> None:
    """Such as a range `decode` of a tokenizer: the work shows the iterations instead."""
    engine = Engine(19)

    def rare(own: Iteration, number: int) -> str:
        return "decode" if number % 5 == 0 else "forward"

    rows = plant(engine, rare).rows("SELECT class, source FROM serving_iterations")
    assert [row[0] for row in rows] == [own.kind for own in engine.iterations]
    assert {row[1] for row in rows} == {"NVTX", "readback"}


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", [None, words])
def test_an_export_of_nsys(
    edited: Callable[..., Path], graphs: bool, name: Callable[[Iteration, int], str] | None
) -> None:
    """Loops that perfpipe finds are iterations, unless they are batches of iterations."""
    engine = Engine(1, graphs=graphs)
    store = stored(engine, edited("eager_small"), name, {"weights_gb": 1.5}, "bf16")
    with Session.open(store) as session:
        rows = session.execute(f"{CLASSES}").fetchall()
        declared = session.execute("SELECT weights_bytes, dtype FROM request_loads").fetchall()
    evidence = "requests" if name is None else "name"
    assert rows == [(own.kind, evidence) for own in engine.iterations]
    assert declared == [(1.5e9, "bf16")]
