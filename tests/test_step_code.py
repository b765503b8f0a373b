"""The lane of the picture of a step with the lines of the program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from perfpipe.analysis.report.build import kinds_of
from perfpipe.analysis.report.picture import VIEWS, picture_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.analysis.session import Session
from perfpipe.picture import Lane, Picture
from perfpipe.store import Store
from perfpipe.templates.step_drawing import step_png, step_svg

Ingested = Callable[[str], str]


def _picture(captures: Store, report: str) -> Picture:
    with Session.open(captures, [report], use=VIEWS) as session:
        scope = Scope(session.con, (report,), kinds_of(session.con, [report]))
        picture = picture_of(scope, [report])
    assert picture is not None
    return picture


def _code(picture: Picture) -> list[Lane]:
    return [lane for lane in picture.views[0].panels[0].lanes if lane.kind == "code"]


def test_lines_of_the_program_are_below_the_calls(captures: Store, ingested: Ingested) -> None:
    picture = _picture(captures, ingested("stacks/json_step.sqlite"))
    lanes = picture.views[0].panels[0].lanes
    (lane,) = _code(picture)
    assert lane.name == "Thread 993 code"
    assert lanes[lanes.index(lane) - 1].name == "Thread 993 calls"
    labels = [picture.labels[one.label] for one in lane.slices]
    names = [label.name for label in labels]
    assert "json_step.py:5 log_step" in names and "json_step.py:8 checksum" in names
    assert all(one != other for one, other in pairwise(names)), "merged"
    # They follow each other, and cover the step.
    ends = [one.start_ns + one.dur_ns for one in lane.slices]
    starts = [one.start_ns for one in lane.slices]
    assert starts[1:] == ends[:-1]
    assert ends[-1] - starts[0] > 0.95 * picture.views[0].dur_ns
    log = next(label for label in labels if "log_step" in label.name)
    assert log.detail.startswith("stack: <module> (json_step.py:18) > log_step (json_step.py:5) > ")
    longest = max(lane.slices, key=lambda one: one.dur_ns)
    assert picture.labels[longest.label].name == "json_step.py:8 checksum"
    svg = step_svg(picture, "x", white=True)
    assert "json_step.py:8 checksum</text>" in svg and "line of code</text>" in svg
    assert step_png(picture).startswith(b"\x89PNG")


def test_without_samples_there_is_no_such_lane(captures: Store, ingested: Ingested) -> None:
    for name in ("nsys/graph_node.sqlite", "nsys/eager_small.sqlite"):
        assert not _code(_picture(captures, ingested(name)))
