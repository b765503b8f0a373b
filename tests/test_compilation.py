"""Idle time while a compiler builds code."""

from __future__ import annotations

import pytest
from conftest import Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

MS = 1_000_000
ROUND = 10 * MS


def _program(*compilations: tuple[int, int], own: bool, waits: bool, module: str = "jit_f") -> Tiny:
    """Return a program that compiles a module before each launch of thread 1.

    `compilations` are the start and end in each round, ns.  The compiler works on thread 1 or, if not
    `own`, on thread 2, while thread 1 waits or works.
    """
    db = Tiny()
    for index, (start, end) in enumerate(compilations, 1):
        base = index * ROUND
        db.add(
            "launches",
            {"kind": "kernel", "name": f"k{index}", "device": 0, "stream": 7, "pid": 1, "tid": 1,
             "correlation_id": index, "start_ns": base, "end_ns": base + MS // 2,
             "api_name": "cuLaunchKernel", "api_start_ns": base - 2000, "api_end_ns": base - 1000},
        )  # fmt: skip
        for tid, name, from_ns, to_ns in (
            (1, f"XlaModule:#hlo_module={module},program_id={index}#", base - 2500, base - 500),
            (1 if own else 2, f"XlaCompileBackend:#module={module},program_id={index}#",
             base - ROUND + start, base - ROUND + end),
        ):  # fmt: skip
            db.add(
                "nsys_nvtx_ranges",
                {"pid": 1, "tid": tid, "range_id": 10 * index + tid, "name": name, "domain": "TSL",
                 "style": "PushPop", "start_ns": from_ns, "end_ns": to_ns},
            )  # fmt: skip
        db.add(
            "nsys_osrt",
            {"pid": 1, "tid": 1, "name": "futex" if waits else "read",
             "start_ns": base - ROUND + MS, "end_ns": base - MS},
        )  # fmt: skip
    return db


def _building(db: Tiny) -> int:
    rows = db.rows("SELECT sum(time_ns) FROM gpu_time_budget WHERE category = 'building'")
    return int(rows[0][0] or 0)


@settings(max_examples=12, deadline=None)
@given(
    compilations=st.lists(
        st.tuples(st.integers(MS, 4 * MS), st.integers(5 * MS, 9 * MS)), min_size=2, max_size=6
    ),
    own=st.booleans(),
    waits=st.booleans(),
)
def test_compilations_are_building_while_the_launching_thread_cannot_go_on(
    compilations: list[tuple[int, int]], own: bool, waits: bool
) -> None:
    """The first one precedes the window."""
    later = [end - start for start, end in compilations[1:]]
    db = _program(*compilations, own=own, waits=waits)
    assert _building(db) == (sum(later) if own or waits else 0)


@pytest.mark.parametrize(("times", "advice"), [(3, "compile_before"), (5, "build_once")])
def test_the_advice_depends_on_whether_code_is_compiled_again(times: int, advice: str) -> None:
    db = _program(*[(MS, 9 * MS)] * times, own=True, waits=True)
    found = db.rows("SELECT technique FROM timeline_findings WHERE bound = 'building'")
    assert found == [(advice,)]


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_compiled_again_is_named(waits: bool) -> None:
    db = _program(*[(MS, 9 * MS)] * 5, own=False, waits=waits, module="jit_step")
    assert db.rows("SELECT words FROM _recompilations") == [
        ("XLA compiles jit_step 4 times (32 ms): pad or bucket shapes",)
    ]


@pytest.mark.parametrize(
    ("name", "compiles"),
    [
        ("XlaCompileBackend:#module=jit_f,program_id=3#", True),
        ("XlaModule:#hlo_module=jit_f,program_id=3#", False),
        ("XlaModule:#hlo_module=gemm_fusion_dot.5#", True),
        ("_compile.compile_inner (dynamo_timed)", True),
        ("Torch-Compiled Region: 0/1", False),
        ("CompiledFunctionBackward", False),
        ("forward", False),
    ],
)
def test_ranges_of_compilers(name: str, compiles: bool) -> None:
    assert Tiny().rows(f"SELECT is_compilation('{name}')") == [(compiles,)]


@pytest.mark.parametrize("function", ["reraise_with_filtered_traceback", "cache_miss"])
def test_wrappers_of_jax_are_not_the_code_that_is_called(function: str) -> None:
    assert Tiny().rows(f"SELECT is_wrapper('{function}')") == [(True,)]
