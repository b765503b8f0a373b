"""The data of the step's picture for the script of the page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from perfpipe.picture import Lane, Picture
from perfpipe.templates.step_colours import categories_of, paint_of
from perfpipe.templates.step_levels import levels_of
from perfpipe.templates.step_links import links_of
from perfpipe.templates.step_svg import HEIGHTS

#: Level of gzip: the best takes seven times as long, for a tenth less.
_LEVEL = 4


def payload(picture: Picture) -> str:
    """Return JSON, compressed by gzip, in base64: columns of numbers, each text once.

    In base64 no name can end the script element that holds it.  A slice begins a gap behind the
    one before; blocks of a level are counts of slices.
    """
    categories = [*categories_of(picture)]
    places = {name: place for place, name in enumerate(categories)}
    data = {
        "categories": [paint_of(name) for name in categories],
        "heights": HEIGHTS,
        "labels": [(n, places[c], kernel, detail) for n, c, kernel, detail in picture.labels],
        "views": [
            {
                "title": view.title,
                "dur": view.dur_ns,
                "links": links_of(view),
                "panels": [
                    {
                        "name": panel.name,
                        "command": panel.command,
                        "lanes": [
                            _lane(picture, lane, view.dur_ns, places) for lane in panel.lanes
                        ],
                    }
                    for panel in view.panels
                ],
            }
            for view in picture.views
        ],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    # Without the time, so that the same picture gives the same bytes.
    return base64.b64encode(gzip.compress(text.encode(), _LEVEL, mtime=0)).decode()


def _lane(picture: Picture, lane: Lane, dur_ns: int, places: Mapping[str, int]) -> dict[str, Any]:
    if lane.samples:
        return {
            "name": lane.name,
            "kind": lane.kind,
            "ends": [sample.end_ns for sample in lane.samples],
            "pct": [round(sample.pct, 1) for sample in lane.samples],
        }
    starts = [one.start_ns for one in lane.slices]
    ends = [0, *(one.start_ns + one.dur_ns for one in lane.slices)]
    return {
        "name": lane.name,
        "kind": lane.kind,
        "gap": [start - end for end, start in zip(ends, starts, strict=False)],
        "dur": [one.dur_ns for one in lane.slices],
        "label": [one.label for one in lane.slices],
        "levels": [
            {
                "unit": round(unit),
                "count": [block.slices for block in blocks],
                "category": [places[block.category] for block in blocks],
                "fill": [block.fill for block in blocks],
            }
            for unit, blocks in levels_of(lane.slices, picture.labels, dur_ns)
        ],
    }
