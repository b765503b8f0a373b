"""The figure of steps: one slow step does not flatten the others, and is not hidden either."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from perfpipe.templates.step_figure import LONG, steps_figure
from perfpipe.viewmodel import Column, Source, Table


def _svg(*gpus: list[float]) -> str:
    """Return the figure of steps of some GPUs, each with durations in ms."""
    names = (("device", "int"), ("step", "text"), ("step_ns", "ns"), ("compute_pct", "pct"))
    rows = tuple(
        (gpu, f"step {at}", round(1e6 * ms), 100.0)
        for gpu, own in enumerate(gpus)
        for at, ms in enumerate(own)
    )
    columns = tuple(Column(name, name, kind) for name, kind in names)  # type: ignore[arg-type]
    drawing = steps_figure(Table("Steps", "", columns, rows, len(rows), Source("v", ())))
    assert drawing is not None
    return drawing.svg("f")


def _arrows(svg: str) -> list[str]:
    return re.findall(r"<title>(.*?), longer than the axis</title>", svg)


def _heights(svg: str) -> list[float]:
    """Return the heights of the columns, as parts of the height of the axes."""
    frame, *columns = re.findall(
        r'id="f-(?:patch_2|step-\d+-\d+-compute)".*?<path d="(.*?)"', svg, re.S
    )
    axes, *heights = [
        max(at) - min(at)
        for at in (
            [float(y) for _, y in re.findall(r"[ML] (\S+) (\S+)", path)]
            for path in (frame, *columns)
        )
    ]
    return [height / axes for height in heights]


def test_a_slow_step_is_an_arrow_with_its_duration() -> None:
    svg = _svg([649.0, *[20.0 + at / 10 for at in range(20)]])
    assert _arrows(svg) == ["GPU 0 step 0: 649 ms"]
    slow, *others = _heights(svg)
    assert slow > 20 and 0.8 < min(others) < max(others) < 1, "the axis is for the others"
    assert "649 ms" in re.sub(r"<title>.*?</title>", "", svg), "without hovering as well"


def test_steps_alike_have_no_arrow() -> None:
    assert not _arrows(_svg([10.0, 12.0, 29.0]))


def test_gpus_of_other_speed_keep_their_columns() -> None:
    svg = _svg([1.0] * 5, [100.0] * 5, [1.0, 1.0, 1.0, 400.0])
    assert _arrows(svg) == ["GPU 2 step 3: 400 ms"]


@given(st.lists(st.floats(0.01, 1e4), min_size=2, max_size=12))
def test_arrows_are_steps_above_the_axis(times: list[float]) -> None:
    ordered = sorted(times)
    middle = (ordered[(len(times) - 1) // 2] + ordered[len(times) // 2]) / 2
    top = 1.05 * max(ms for ms in times if ms <= LONG * middle)
    assert len(_arrows(_svg(times))) == sum(ms > top for ms in times)
