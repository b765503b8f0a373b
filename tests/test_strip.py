"""The strip of the whole capture: its phases, and how busy the GPU is, as the timeline has them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from conftest import Opened

from perfpipe.analysis.report.build import kinds_of
from perfpipe.analysis.report.picture import VIEWS, picture_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.picture import Capture, Panel, Phase, Picture, Span, View
from perfpipe.templates.strip import strip_svg

CAPTURES = ("eager_small", "graph_whole", "memcpy", "ddp_straggler_rank0")


def _busy(spans: list[tuple[int, int]], start: int, end: int) -> int:
    """Return how much of a part is covered by any of some spans, ns."""
    covered, reached = 0, start
    for begin, until in sorted(spans):
        begun, ended = max(begin, reached), min(until, end)
        covered += max(ended - begun, 0)
        reached = max(reached, ended)
    return covered


@pytest.mark.parametrize("capture", CAPTURES)
def test_parts_are_as_busy_as_the_operations_say(opened: Opened, capture: str) -> None:
    with opened(f"nsys/{capture}.sqlite") as session:
        ((start, end, parts),) = session.execute(
            "SELECT start_ns, end_ns, parts_pct FROM _capture_busy"
        ).fetchall()
        spans = session.execute("SELECT start_ns, end_ns FROM launches").fetchall()
    assert len(parts) == 240
    edges = [start + (end - start) * at // 240 for at in range(241)]
    for pct, (begin, until) in zip(parts, pairwise(edges), strict=True):
        assert pct == pytest.approx(100 * _busy(spans, begin, until) / (until - begin))


@pytest.mark.parametrize("capture", CAPTURES)
def test_phases_follow_each_other_and_have_all_steps(opened: Opened, capture: str) -> None:
    with opened(f"nsys/{capture}.sqlite") as session:
        phases = session.execute(
            "SELECT phase, start_ns, end_ns, steps FROM _capture_phases ORDER BY start_ns, end_ns"
        ).fetchall()
        counted = dict(
            session.execute("SELECT phase, count(step) FROM steps GROUP BY phase").fetchall()
        )
        ((first, last),) = session.execute(
            "SELECT min(start_ns), max(end_ns) FROM nsys_api_calls"
        ).fetchall()
    for (one, _, end, _), (other, start, _, _) in pairwise(phases):
        assert end == start and one != other
    assert phases[0][1] <= first and phases[-1][2] >= last
    found: dict[str, int] = {}
    for phase, _, _, steps in phases:
        found[phase] = found.get(phase, 0) + steps
    assert {name: steps for name, steps in found.items() if steps} == {
        name: steps for name, steps in counted.items() if steps
    }


def test_the_strip_marks_the_steps_that_are_drawn(opened: Opened) -> None:
    ranks = [f"nsys/ddp_straggler_rank{rank}.sqlite" for rank in (0, 1)]
    with opened(*ranks) as session:
        session.use(*VIEWS, "reports")
        con = session.con
        reports = [report for (report,) in con.execute("SELECT report_id FROM reports").fetchall()]
        scope = Scope(con, tuple(sorted(reports)), kinds_of(con, reports))
        picture = picture_of(scope, reports)
    assert picture is not None
    captures = picture.captures
    assert len(captures) == 2 and min(own.span.start_ns for own in captures) == 0
    for capture in captures:
        for _, step in capture.steps:
            assert capture.span.start_ns <= step.start_ns < step.end_ns <= capture.span.end_ns
    starts = [dict(own.steps)["median"].start_ns for own in captures]
    apart = picture.views[0].panels[1].dur_ns - picture.views[0].panels[0].dur_ns
    lengths = [
        dict(own.steps)["median"].end_ns - dict(own.steps)["median"].start_ns for own in captures
    ]
    assert starts[1] - starts[0] + lengths[1] - lengths[0] == apart, "on the clock of the picture"
    svg = strip_svg(picture)
    assert svg.count('data-role="median"') == svg.count('data-role="slowest"') == 2


def _strip(views: int) -> str:
    span = Span(0, 1_000_000)
    phases = (Phase("warm-up", Span(0, 300_000), 2), Phase("steady", Span(300_000, 1_000_000), 7))
    steps = (("median", Span(400_000, 500_000)), ("slowest", Span(700_000, 900_000)))
    capture = Capture("GPU 0", span, phases, (0.0, 50.0, 100.0, 100.0), steps)
    view = View("", (Panel("GPU 0", 1, (), ""),))
    return strip_svg(Picture((view,) * views, (), (capture,)))


def test_phases_are_named_and_shades_state_the_share() -> None:
    svg = _strip(2)
    assert "<title>warm-up, compilation: 2 steps, 300 us</title>" in svg
    assert "<title>steady steps: 7 steps, 700 us</title>" in svg
    shades = dict(re.findall(r'stroke-opacity="([\d.]+)"><title>GPU about (\d+) % busy', svg))
    assert shades == {"0": "0", "0.5": "50", "1": "100"}


def test_a_step_that_is_not_drawn_has_no_mark() -> None:
    assert 'data-role="slowest"' in _strip(2)
    assert 'data-role="slowest"' not in _strip(1)


def test_without_captures_there_is_no_strip() -> None:
    assert strip_svg(Picture((), ())) == ""
