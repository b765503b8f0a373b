"""Results of launches are compared: by bits, within the scatter of plain launches, by tolerance."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.thresholds import thresholds
from perfpipe.analysis.trying.launched import GRADIENT, LOSS, OUTPUT, PARAMETER, TOKENS, UPDATE
from perfpipe.analysis.trying.printed import printed
from perfpipe.analysis.trying.results import Results, compare, read
from perfpipe.analysis.trying.series import Kind, curve_of, judged, strong

CURVE = [2.0, 1.9, 1.7, 1.6, 1.4, 1.3, 1.2, 1.0, 0.9, 0.8]


def trained(losses: Sequence[float] = CURVE) -> Results:
    steps = len(losses)
    return Results(
        series={(LOSS, ""): {at: (value,) for at, value in enumerate(losses, 1)}},
        counts={"": {"backward": steps, "steps": steps, "calls": steps, "tokens": 0}},
        types=frozenset({"float32"}),
        exit_code=0,
    )


def scaled(by: float, since: int = 0) -> Results:
    return trained([value * (by if at >= since else 1) for at, value in enumerate(CURVE)])


def with_series(kind: str, values: Mapping[int, tuple[float, ...]], **more: Any) -> Results:
    own = trained()
    return replace(own, series={**own.series, (kind, ""): values}, **more)


@pytest.mark.parametrize(
    ("plain", "other", "tolerance", "kind", "why"),
    [
        ([1, 1], 1, None, "identical", "equal bit for bit"),
        ([1, 1], 1 + 1e-7, None, "within_tolerance", "The first loss 2 -> 2 (1e-07)"),
        ([1, 1], 1 + 1e-3, None, "differ", "The first loss 2 -> 2.002 (0.1 %)"),
        ([1, 1], 1 + 1e-3, 1e-3, "within_tolerance", "is allowed"),
        ([1, 1 + 1e-5, 1 - 1e-5], 1 + 3e-5, None, "within_scatter", "between plain launches"),
        ([1, 1.5], 1, None, "unknown", "no fixed seed"),
        ([1, 1.02], 1, None, "unknown", "no fixed seed"),
        ([1], 1.5, None, "unknown", "one launch does not show the scatter"),
        ([1], 1, None, "identical", ""),
        ([1, 1], math.nan, None, "differ", "not a finite number"),
        ([math.nan, math.nan], 1, None, "unknown", "not a finite number in plain launches"),
    ],
)
def test_losses_that_are_scaled(
    plain: list[float], other: float, tolerance: float | None, kind: str, why: str
) -> None:
    found = compare([*map(scaled, plain)], [scaled(other)], tolerance)
    assert found.kind == kind and why in found.why, found
    assert found.why.endswith(".") and found.why[0].isupper()


def test_the_curve_counts_after_the_first_step() -> None:
    plain = [scaled(1), scaled(1)]
    assert compare(plain, [scaled(1.02, since=5)], 1e-2).kind == Kind.WITHIN_TOLERANCE
    found = compare(plain, [scaled(1.5, since=5)], 1e-2)
    assert found.kind == Kind.DIFFER and "loss up to step 6" in found.why.lower()
    # A change in the second step cannot be grown rounding.
    found = compare(plain, [scaled(1.001, since=1)], None)
    assert found.kind == Kind.DIFFER and "loss at step 2" in found.why.lower()
    steps, differences, allowed = zip(*compare(plain, [scaled(1.5, since=5)]).curve, strict=True)
    assert steps == (*range(1, 11),) and {*allowed} == {0.0}
    assert [round(own, 9) for own in differences] == [0.0] * 5 + [0.5] * 5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"backward": 0}, "different work: 0 backward passes instead of 10"),
        ({"steps": 5}, "different work: 5 optimizer steps instead of 10"),
        ({"calls": 11}, "different work: 11 calls instead of 10"),
        ({"tokens": 1}, "different work: 1 token instead of 0"),
    ],
)
def test_unequal_work_differs(change: dict[str, int], why: str) -> None:
    plain = trained()
    other = replace(plain, counts={"": {**plain.counts[""], **change}})
    found = compare([plain, plain], [other])
    assert found.kind == Kind.DIFFER and found.why.lower().startswith(why)
    assert compare([plain], [other]).kind == Kind.DIFFER, "one launch shows the work"


@pytest.mark.parametrize(("backward", "kind"), [(1, "identical"), (2, "differ"), (0, "differ")])
def test_launches_that_end_after_a_time(backward: int, kind: str) -> None:
    """They make different numbers of steps: the work of a step counts, and the steps of both."""

    def launch(steps: int, per_step: int = 1) -> Results:
        counts = {"backward": steps * per_step, "steps": steps, "calls": steps, "tokens": 0}
        own = trained([2 - 0.01 * step for step in range(steps)])
        return replace(own, counts={"": counts}, complete=False)

    assert compare([launch(40), launch(50)], [launch(45, backward)]).kind == kind


def test_what_is_missing_is_unknown() -> None:
    plain = trained()
    empty = replace(plain, series={})
    for other in (empty, replace(plain, series={(LOSS, ""): {1: (2.0,)}})):
        assert compare([plain, plain], [other]).kind == Kind.UNKNOWN
        assert compare([plain, plain], [plain, other]).kind == Kind.UNKNOWN
    assert compare([empty, empty], [empty]).kind == Kind.UNKNOWN, "work alone is no result"
    assert compare([], [plain]).kind == compare([plain], []).kind == Kind.UNKNOWN
    found = compare([plain, plain], [replace(empty, counts={})])
    assert found.kind == Kind.UNKNOWN


def test_a_failing_program_differs() -> None:
    plain = trained()
    found = compare([plain, plain], [replace(plain, exit_code=1)])
    assert (found.kind, found.why) == (Kind.DIFFER, "The program exits with code 1.")


@pytest.mark.parametrize(
    ("kind", "plain", "other", "found"),
    [
        (OUTPUT, {1: (5.0, 3.0, 4.0)}, {1: (5.0, 3.0, 4.00001)}, "within_tolerance"),
        (OUTPUT, {1: (5.0, 3.0, 4.0)}, {1: (5.0, 4.0, 3.0)}, "differ"),
        (OUTPUT, {1: (5.0, 3.0, 4.0)}, {1: (5.0, 3.0)}, "differ"),
        # Later outputs follow from training.
        (OUTPUT, {1: (5, 3, 4), 2: (1, 1)}, {1: (5, 3, 4), 2: (2, 2)}, "within_tolerance"),
        (OUTPUT, {1: (5, 3, 4), 2: (1, 1)}, {1: (5, 3, 4), 2: (9, 9)}, "differ"),
        (GRADIENT, {1: (1.0,)}, {1: (1.00005,)}, "within_tolerance"),
        (GRADIENT, {1: (1.0,)}, {1: (0.5,)}, "differ"),
        (GRADIENT, {1: (1.0,), 2: (1.0,)}, {1: (1.0,), 2: (0.0,)}, "differ"),
        (GRADIENT, {1: (1.0,), 2: (1.0,)}, {1: (1.0,), 2: (2.0,)}, "within_tolerance"),
        (GRADIENT, {1: (1.0,), 2: (1.0,)}, {1: (1.0,), 2: (30.0,)}, "differ"),
        (GRADIENT, {1: (1.0,), 2: (1.0,)}, {1: (1.0,), 2: (math.nan,)}, "differ"),
        (UPDATE, {1: (1.0,)}, {1: (0.5,)}, "differ"),
        (PARAMETER, {0: (1.0,), 1: (1.1,)}, {0: (1.0,), 1: (1.0,)}, "differ"),
        (PARAMETER, {0: (1.0,), 1: (1.1,)}, {0: (1.2,), 1: (1.3,)}, "differ"),
        (TOKENS, {1: (5.0,), 2: (6.0,)}, {1: (5.0,), 2: (6.0,)}, "identical"),
        (TOKENS, {1: (5.0,), 2: (6.0,)}, {1: (5.0,), 2: (7.0,)}, "differ"),
    ],
)  # fmt: skip
def test_other_series(
    kind: str,
    plain: dict[int, tuple[float, ...]],
    other: dict[int, tuple[float, ...]],
    found: str,
) -> None:
    own = with_series(kind, plain)
    assert compare([own, own], [with_series(kind, other)]).kind == found


def test_every_output_counts_without_training() -> None:
    def served(last: float) -> Results:
        calls = {call: (1.0, last if call == 4 else 1.0) for call in (1, 2, 4)}
        counts = {"": {"backward": 0, "steps": 0, "calls": 4, "tokens": 0}}
        return Results({(OUTPUT, ""): calls}, counts, frozenset({"float32"}))

    assert compare([served(1), served(1)], [served(1)]).kind == Kind.IDENTICAL
    found = compare([served(1), served(1)], [served(1.1)])
    assert found.kind == Kind.DIFFER and found.why.startswith("The output of call 4")


def test_tokens_may_differ_late_with_a_coarse_type() -> None:
    """Not from the first one on, nor if plain launches differ."""
    tokens = [{at: (float(at if at < n else 0),) for at in range(1, 9)} for n in (9, 5, 1)]
    own, late, early = (with_series(TOKENS, one) for one in tokens)
    assert compare([own, own], [late], 1e-2).kind == Kind.WITHIN_TOLERANCE
    assert compare([own, own], [early], 1e-2).kind == Kind.DIFFER
    assert compare([own, own], [late]).kind == Kind.DIFFER
    assert compare([own, late], [own], 1e-2).kind == Kind.UNKNOWN


@pytest.mark.parametrize("scatter", [0.02, 0.3, 1.4])
def test_unseeded_programs_are_unknown(scatter: float) -> None:
    """First losses of other seeds may be alike, but outputs are not, nor is a step as small."""
    rng = random.Random(1)
    plain = [
        replace(
            with_series(OUTPUT, {1: (1.0, *(rng.gauss(0, 1) for _ in range(16)))}),
            series={
                (LOSS, ""): {at: (value + 0.001 * rng.random(),) for at, value in enumerate(CURVE)},
                (OUTPUT, ""): {1: (1.0, *(1 + scatter * rng.gauss(0, 1) for _ in range(16)))},
            },
        )
        for _ in range(4)
    ]
    found = compare(plain[:3], plain[3:], 1e-2)
    assert (found.kind == Kind.UNKNOWN) is (scatter > 0.1)
    flat = [trained([2 + 0.01 * at + 0.0001 * step for step in range(9)]) for at in range(4)]
    assert compare(flat[:3], flat[3:], 1e-2).kind == Kind.UNKNOWN, "wider than a step"


def test_files() -> None:
    def wrote(**files: str) -> Results:
        return replace(trained(), files=files)

    plain = [wrote(model="a", log="x1"), wrote(model="a", log="x2")]
    assert compare(plain, [wrote(model="a", log="x3", more="m")]).kind == Kind.IDENTICAL
    found = compare(plain, [wrote(model="b", log="x3")])
    assert (found.kind, found.why) == (Kind.DIFFER, "File model has another content.")
    found = compare(plain, [wrote(model="a")])
    assert found.kind == Kind.DIFFER and "log was not written" in found.why
    rounded = replace(scaled(1 + 1e-7), files={"model": "b", "log": "x"})
    assert compare(plain, [rounded]).kind == Kind.WITHIN_TOLERANCE, "a file follows from numbers"
    alone = [Results(files={"out": "a"}), Results(files={"out": "a"})]
    assert compare(alone, alone[:1]).kind == Kind.IDENTICAL
    assert compare(alone, [Results(files={"out": "b"})]).kind == Kind.DIFFER


def test_numbers_that_the_program_prints() -> None:
    def said(*lines: str) -> Results:
        return Results(printed=printed("\n".join(lines)))

    def losses(by: float = 1.0, noise: float = 0.0) -> Results:
        return said(*(f"loss {value * by + noise:.6f}" for value in CURVE))

    plain = [losses(), losses()]
    assert compare(plain, [losses()]).kind == Kind.IDENTICAL
    assert compare(plain, [losses(1.0005)]).kind == Kind.WITHIN_TOLERANCE
    assert compare(plain, [losses(1.0005)], exact=True).kind == Kind.DIFFER
    assert compare(plain, [losses(1.002)]).kind == Kind.DIFFER, "from the first one on"
    later = said(*(f"loss {v * (1.02 if n else 1)}" for n, v in enumerate(CURVE)))
    assert compare(plain, [later]).kind == Kind.WITHIN_TOLERANCE, "training amplifies rounding"
    # What is not learned, although it is called a loss, or is one number at the end.
    for line in ("packet loss: 0.01", "final loss: 0.5"):
        once = [said(line, "checksum: 1000000")] * 2
        assert compare(once, [said(line, "checksum: 1045000")]).kind == Kind.DIFFER
    assert compare([said("loss 0.5006")] * 2, [said("loss 0.5013")]).kind == Kind.DIFFER
    assert compare(plain, [losses(1.3)]).kind == Kind.DIFFER
    assert compare([losses(), losses(1.3)], [losses()]).kind == Kind.UNKNOWN, "no seed"
    assert compare(plain, [said("done")]).kind == Kind.UNKNOWN
    assert compare(plain, [said("loss 2.0")]).kind == Kind.DIFFER, "different work"
    # Without training, only rounding is allowed; what plain launches do not repeat is no result.
    assert compare([said("norm 2.5")] * 2, [said("norm 2.51")]).kind == Kind.DIFFER
    assert compare([said("got 2.5")] * 2, [said("got 2.51")]).kind == Kind.DIFFER
    assert compare([said("got 2.5"), said("got 2.6")], [said("got 9.5")]).kind == Kind.UNKNOWN
    # A program that checks its result itself.
    checked = '{"perfpipe": "validation", "ok": true, "max_abs_error": %s}'
    found = compare([said(checked % 0.01)] * 2, [said(checked % 0.02)])
    assert found.kind == Kind.WITHIN_TOLERANCE and "the program's own check accepts" in found.why
    # A hash of all losses.
    told = '{"perfpipe": "about", "torch": "2.%s", "losses": "%s"}'
    assert compare([said(told % (1, "a"))] * 2, [said(told % (2, "a"))]).kind == Kind.IDENTICAL
    assert compare([said(told % (1, "a"))] * 2, [said(told % (1, "b"))]).kind == Kind.DIFFER


def test_reports_of_ranks_and_helpers(tmp_path: Path) -> None:
    """Ranks are matched by number; processes that do not train are left out."""
    for pid, rank, steps in ((7, "1", 3), (9, "0", 3), (8, None, 0)):
        report = {
            "pid": pid, "rank": rank, "losses": [[1, float(pid)]], "loss_dtype": "float32",
            "outputs": [], "gradients": [], "parameters": [], "complete": True,
            "counts": {"backward": 3, "steps": steps, "calls": 3, "tokens": 0},
        }  # fmt: skip
        (tmp_path / f"results.{pid}.json").write_text(json.dumps(report))
    for name, text in (("results.1.json", "{"), ("results.2.json", '{"pid": 2}')):
        (tmp_path / name).write_text(text)
    found = read(tmp_path)
    assert found.series == {(LOSS, "rank 0"): {1: (9.0,)}, (LOSS, "rank 1"): {1: (7.0,)}}
    assert {*found.counts} == {"rank 0", "rank 1"}
    assert read(tmp_path / "none").series == {}


vectors = st.lists(st.floats(0.5, 2), min_size=3, max_size=3).map(tuple)


@given(st.lists(vectors, min_size=2, max_size=5), vectors, st.floats(1e-6, 0.5))
def test_the_first_values_by_brute_force(
    plain: list[tuple[float, ...]], other: tuple[float, ...], limit: float
) -> None:
    def distance(one: Sequence[float], two: Sequence[float]) -> float:
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(one, two, strict=True)))

    size = max(distance(one, [0, 0, 0]) for one in plain)
    scatter = max(distance(a, b) for a, b in combinations(plain, 2)) / size
    error = (
        distance(other, [sum(values) / len(plain) for values in zip(*plain, strict=True)]) / size
    )
    times = 3 if len(plain) > 2 else 6
    if all(one == other for one in plain):
        expected = Kind.IDENTICAL
    elif scatter > 0.4:
        expected = Kind.UNKNOWN
    elif scatter and error <= times * scatter:
        expected = Kind.WITHIN_SCATTER
    else:
        expected = Kind.WITHIN_TOLERANCE if error <= limit else Kind.DIFFER
    if min(abs(error - times * scatter), abs(error - limit), abs(scatter - 0.4)) > 1e-9:
        assert strong("x", plain, [other], limit, unseeded=0.4).kind == expected


series = st.lists(st.floats(1, 2), min_size=6, max_size=6)


@given(st.lists(series, min_size=3, max_size=4), series)
def test_the_scatter_of_a_curve_by_brute_force(
    plain: list[list[float]], other: list[float]
) -> None:
    curve = curve_of("x", [dict(enumerate(one)) for one in plain], [dict(enumerate(other))])
    for at, scatter in enumerate(curve.scatter):
        near = [own for own in (at - 1, at, at + 1) if 0 <= own < 6]
        expected = max(abs(a[own] - b[own]) for own in near for a, b in combinations(plain, 2))
        assert scatter == pytest.approx(expected)
    inside = all(
        abs(value - sum(one[at] for one in plain) / len(plain)) <= 3 * curve.scatter[at]
        for at, value in enumerate(other)
    )
    if judged(curve, 1e-5, growing=False).kind == Kind.WITHIN_SCATTER:
        assert inside, "95 % of six steps are six"


@given(series, st.permutations(range(3)))
def test_the_order_of_launches_does_not_matter(own: list[float], order: list[int]) -> None:
    launches = [trained([value * by for value in own]) for by in (1, 1 + 1e-6, 1 - 1e-6)]
    other = [trained([value * 1.1 for value in own])]
    found = compare(launches, other)
    again = compare([launches[at] for at in order], other)
    assert (found.kind, found.curve) == (again.kind, again.curve)


def chaotic(
    rng: random.Random, launches: int, grows: float, most: float, speeds: Sequence[float]
) -> list[Results]:
    """Trainings on the same data whose differences grow from rounding until they wander."""
    data = [rng.gauss(0, 0.05) for _ in range(60)]
    found = []
    for speed in speeds[:launches]:
        away, wanders, losses = 1e-7 * rng.gauss(0, 1), False, []
        for step, noise in enumerate(data):
            loss = 0.3 + 2 * math.exp(-0.02 * step * speed)
            losses.append(loss * (1 + noise + away))
            wanders |= abs(away) > most
            away = 0.9 * away + rng.gauss(0, 0.44 * most) if wanders else away * grows
        found.append(trained(losses))
    return found


@pytest.mark.parametrize(("grows", "most"), [(1.1, 0.01), (1.5, 0.02), (2, 0.05)])
@pytest.mark.parametrize("launches", [2, 3, 5])
def test_few_wrong_answers_for_chaotic_training(grows: float, most: float, launches: int) -> None:
    """Equal programs rarely differ; a program that stops learning is never passed."""
    rng = random.Random(7)
    equal: Counter[str] = Counter()
    for _ in range(60):
        own = chaotic(rng, launches + 1, grows, most, [1] * (launches + 1))
        equal[compare(own[:-1], own[-1:]).kind] += 1
        own = chaotic(rng, launches + 1, grows, most, [*[1] * launches, 0])
        assert compare(own[:-1], own[-1:], 1e-2).kind == Kind.DIFFER
    assert equal[Kind.DIFFER] <= 2 and not equal[Kind.IDENTICAL]
    assert equal[Kind.WITHIN_SCATTER] >= 40


def test_every_class_of_rounding_has_a_tolerance() -> None:
    limits = thresholds()
    kinds = ("fp64", "fp32", "fp16", "bf16")
    own = [limits[f"results.{kind}"] for kind in kinds]
    assert own == sorted(own)
    for kind, by in zip(("float64", "float32", "float16", "bfloat16"), own, strict=True):
        plain = replace(scaled(1), types=frozenset({kind}))
        for times, found in ((0.5, Kind.WITHIN_TOLERANCE), (2, Kind.DIFFER)):
            assert compare([plain, plain], [scaled(1 + times * by)]).kind == found
