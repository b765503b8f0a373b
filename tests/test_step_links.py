"""Collectives of a step are linked from rank to rank: in the picture, its data and the browser."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

from conftest import Opened
from matplotlib.image import imread
from selenium import webdriver
from test_step_browser import _step

from perfpipe.analysis.report.build import kinds_of
from perfpipe.analysis.report.picture import VIEWS, picture_of
from perfpipe.analysis.report.scope import Scope
from perfpipe.picture import Arrival, Label, Lane, Panel, Picture, Slice, View
from perfpipe.templates.step_drawing import step_png, step_svg
from perfpipe.templates.step_picture import End, links_of

RANKS = [f"nsys/ddp_straggler_rank{rank}.sqlite" for rank in (0, 1)]


def _panel(*starts: int) -> Panel:
    slices = tuple(Slice(start, 5, 0) for start in starts)
    lanes = (Lane("calls", "call", (Slice(10, 1, 0),)), Lane("7", "stream", slices))
    return Panel("GPU", 100, lanes, "")


def test_links_end_where_slices_are_drawn() -> None:
    links = (
        (Arrival(0, 10), Arrival(1, 20)),
        (Arrival(0, 40), Arrival(1, 41)),
        (Arrival(0, 50), Arrival(1, 60)),
    )
    view = View("", (_panel(10, 50), _panel(20, 41, 60)), links)
    assert links_of(view) == [[End(0, 1, 10), End(1, 1, 20)], [End(0, 1, 50), End(1, 1, 60)]]
    drawn = step_svg(Picture((view,), (Label("k", "communication"),)), "x")
    assert len(re.findall(r"M[\d.]+ [\d.]+L", drawn)) == 2


def test_the_picture_in_pixels_has_the_links() -> None:
    """They cross what lies between the panels, and nothing else changes."""
    panels = (_panel(10, 50), _panel(30, 70))
    links = ((Arrival(0, 10), Arrival(1, 30)), (Arrival(0, 50), Arrival(1, 70)))
    labels = (Label("k", "communication"),)
    linked, plain = (
        imread(io.BytesIO(step_png(Picture((View("", panels, some),), labels))))
        for some in (links, ())
    )
    changed = (linked != plain).any(axis=2)
    rows, columns = changed.any(axis=1).nonzero()[0], changed.any(axis=0).nonzero()[0]
    assert 10 < rows[-1] - rows[0] < 60
    assert 0.4 < (columns[-1] - columns[0]) / linked.shape[1] < 0.7


def test_every_collective_of_a_step_is_linked(opened: Opened) -> None:
    with opened(*RANKS) as session:
        session.use(*VIEWS, "reports", "paired_collectives")
        con = session.con
        reports = [report for (report,) in con.execute("SELECT report_id FROM reports").fetchall()]
        scope = Scope(con, tuple(sorted(reports)), kinds_of(con, reports))
        picture = picture_of(scope, reports)
        paired = con.execute(
            """
            SELECT count(*) FROM paired_collectives AS c
            JOIN step_pictures AS p ON p.job = c.job AND p.role = 'median'
            WHERE c.last_start_ns >= p.start_ns + p.offset_ns
                AND c.first_start_ns < p.end_ns + p.offset_ns
            """
        ).fetchone()
    assert picture is not None and paired is not None
    view = picture.views[0]
    links = links_of(view)
    assert 1 < len(links) <= paired[0]
    for ends in links:
        assert [end.panel for end in ends] == [0, 1]
        labels = []
        for panel, lane, start in ends:
            slices = view.panels[panel].lanes[lane].slices
            labels.append(next(one.label for one in slices if one.start_ns == start))
        assert {picture.labels[label].category for label in labels} == {"communication"}


def test_links_are_drawn_and_arrivals_told(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("ddp_step")
    figure, canvas = _step(driver)
    assert int(figure.get_attribute("data-links") or 0) > 5
    for _ in range(40):
        canvas.send_keys("\ue015")  # down, from lane to lane
        tip = figure.find_element("css selector", ".tip").text
        if "ncclDevKernel" in tip:
            break
    assert re.search(r"\d [mu]s after the first of 2 ranks", tip), tip
