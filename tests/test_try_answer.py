"""The answer of a trial: its headline says "nothing" only if that was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import DATA

from perfpipe.pipelines.trying.answering import after, as_data, headline, rows
from perfpipe.trialrecord import (
    INTERRUPTED,
    NO_BUDGET,
    NO_FINDING,
    NO_TIMELINE,
    UNUSED,
    WAITS,
    Gained,
    LeverTrial,
    StackTrial,
    read_file,
)

LORA = replace(read_file(DATA / "trials" / "lora-20261120-103107.json"), diagnosis="launch-bound")


def lever(name: str, verdict: str, gain: float = 0.0, **settings: Any) -> LeverTrial:
    """Return a lever that was measured with an interval of 4 %."""
    gained = Gained(gain, gain - 2, gain + 2)
    return LeverTrial(
        name, name, verdict, gained, **{"launches": 3, "results": "identical", **settings}
    )


def stack(verdict: str, gain: float, **settings: Any) -> StackTrial:
    """Return a stack of two levers."""
    return StackTrial(
        ("a", "b"), verdict, Gained(gain, gain - 2, gain + 2), "identical", **settings
    )


@pytest.mark.parametrize(
    ("levers", "settings", "expected", "decided"),
    [
        (
            [lever("a", "no gain", 0.4), lever("b", "slower", -9)],
            {},
            "Nothing to gain: the best of 2 levers, a, changes the time by -0.4 % (+1.6 to -2.4 %) "
            "(launch-bound)",
            True,
        ),
        (
            [lever("b", "slower", -9), lever("c", "not tried", launches=0, why=NO_BUDGET)],
            {},
            "Nothing to gain: b changes the time by +9.0 % (+11.0 to +7.0 %); the budget does not "
            "allow 1 more lever (launch-bound)",
            True,
        ),
        (
            [lever("a", "inconclusive", 3), lever("b", "inconclusive", 40, results="differ")],
            {},
            "Undecided: launches scatter too much to judge a; gains up to 5.0 % are possible; a "
            "larger --budget allows more rounds",
            False,
        ),
        (
            [lever("a", "inconclusive", 3), lever("b", "failed", why="ValueError: no")],
            {},
            "Undecided: launches scatter too much to judge a; gains up to 5.0 % are possible; a "
            "larger --budget allows more rounds",
            False,
        ),
        (
            [lever("b", "inconclusive", 40, results="differ")],
            {},
            "Nothing to gain with equal results: b changes them (launch-bound)",
            False,
        ),
        (
            [lever("a", "gain", 94.4, results="unknown", results_why="Nothing was printed.")],
            {},
            "a: -94.4 % (-92.4 to -96.4 %), but the results cannot be compared: Nothing was printed",
            True,
        ),
        (
            [lever("a", "gain", 40, results="differ")],
            {},
            "a: -40.0 % (-38.0 to -42.0 %), but the results differ",
            True,
        ),
        (
            [lever("a", "not applied", why="no loader"), lever("b", "not applied", why="no GPU")],
            {},
            "Nothing to gain: a not applied: no loader; b not applied: no GPU (launch-bound)",
            True,
        ),
        (
            [lever("a", "failed", why="ValueError: no"), lever("b", "not applied", why="no GPU")],
            {},
            "No lever was measured: a failed: ValueError: no; b not applied: no GPU",
            True,
        ),
        (
            [lever("a", "not tried", launches=0, why=NO_BUDGET)],
            {},
            "Undecided: the budget does not allow any lever; raise --budget, or end launches early "
            "with --steps or --duration",
            False,
        ),
        (
            [lever("a", "not tried", launches=0, why=WAITS)],
            {},
            "Nothing to gain: the program waits for requests most of the time, and levers do not "
            "bring requests; --levers tries some (launch-bound)",
            True,
        ),
        (
            [lever("a", "not tried", launches=0, why=NO_TIMELINE)],
            {"run_id": None},
            "Undecided: without a timeline, only levers that need no finding are tried, and none "
            "applies; --levers tries others",
            False,
        ),
        (
            [lever("a", "not applied", why="no GPU"), lever("b", "", launches=0, why=NO_TIMELINE)],
            {"run_id": None},
            "Undecided: without a timeline, only levers that need no finding are tried; a not "
            "applied: no GPU; --levers tries others",
            False,
        ),
        (
            [lever("a", "not tried", launches=0, why=f"{UNUSED}PyTorch")],
            {},
            "Nothing was tried: a: the program does not use PyTorch",
            True,
        ),
        (
            [lever("a", "gain", 9)],
            {"notes": (INTERRUPTED,)},
            "Interrupted before fresh launches: a: -9.0 % (-7.0 to -11.0 %), results identical",
            False,
        ),
        (
            [lever("a", "not tried", launches=0, why="no finding calls for it")],
            {},
            "Nothing to gain: no lever answers a finding of this program (launch-bound)",
            True,
        ),
        (
            [lever("a", "not tried", launches=0)],
            {"unsteady": "60 to 80 steps"},
            "Undecided: the program does different work in each launch: 60 to 80 steps",
            False,
        ),
        (
            [lever("a", "gain", 9)],
            {"stack": stack("no gain", 0.1)},
            "Nothing to gain: on fresh launches, a + b changes the time by -0.1 % "
            "(+1.9 to -2.1 %) (launch-bound)",
            True,
        ),
        (
            [lever("a", "gain", 9)],
            {"stack": stack("inconclusive", 1)},
            "Not confirmed: a + b: -1.0 % (+1.0 to -3.0 %) on fresh launches",
            True,
        ),
        (
            [lever("a", "gain", 9), lever("b", "gain", 30), lever("c", "slower", -3)],
            {},
            "Not confirmed: b: -30.0 % (-28.0 to -32.0 %), results identical",
            True,
        ),
        (
            [lever("a", "gain", 9)],
            {"stack": stack("failed", 0, results_why="ValueError: no")},
            "Not confirmed: a + b: ValueError: no",
            True,
        ),
        (
            [lever("a", "gain", 50)],
            {"stack": stack("gain", 50, ms=5.0, plain_ms=10.0)},
            "a + b: -50.0 % (-48.0 to -52.0 %) (10 ms -> 5 ms a step), results identical",
            True,
        ),
    ],
)
def test_the_headline_says_what_is_known(
    levers: list[LeverTrial], settings: dict[str, Any], expected: str, decided: bool
) -> None:
    trial = replace(LORA, levers=tuple(levers), **{"stack": None, **settings})
    assert headline(trial) == expected
    assert trial.decided == decided
    assert as_data(trial)["decided"] == decided


def test_the_table_has_what_was_measured_and_reasons_follow() -> None:
    levers = (
        lever("a", "inconclusive", -15.0, results="differ", results_why="The loss is 0."),
        replace(lever("b", "failed", why="exit code 3"), gained=Gained()),
        lever("d", "gain", 9.0, start_up_s=2.0, pays_after=70.0, applied=("loader",)),
        lever("e", "inconclusive", 9.0, start_up_s=2.0, pays_after=70.0),
    )
    trial = replace(LORA, levers=levers, stack=None)
    found = {name: cells for name, *cells in rows(trial)}
    assert {*found} == {"a", "d", "e"}
    assert found["a"][:5] == ["-15.0 %", "-17.0 to -13.0 %", "inconclusive", "", "differ"]
    text = [*after(trial)]
    assert text[:4] == [
        "d: loader; start-up 2.0 s, pays after 70 steps",
        "e: start-up 2.0 s",
        "a: results differ: The loss is 0.",
        "b: failed: exit code 3",
    ]


def test_levers_that_do_not_apply_are_counted() -> None:
    whys = [
        NO_BUDGET, NO_FINDING, NO_FINDING, f"{UNUSED}JAX", f"{UNUSED}JAX", f"{UNUSED}transformers",
    ]  # fmt: skip
    levers = [
        lever(name, "not tried", launches=0, why=why)
        for name, why in zip("abcdef", whys, strict=True)
    ]
    text = [*after(replace(LORA, levers=tuple(levers), stack=None))]
    assert text[:2] == [
        f"Not tried ({NO_BUDGET}): a",
        "Not tried: 2 levers that no finding calls for, 3 levers for what the program does not use "
        "(JAX, transformers); --json names them",
    ]
    text = [*after(replace(LORA, levers=(levers[1],), stack=None))]
    assert text[0] == "Not tried: 1 lever that no finding calls for; --json names them"
