"""Sums what NVTX ranges launched by their paths: the names of a range and of those around it.

Each level is looked up in the one around it by place, in linear time; joins would hash all ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfpipe.database import create_table

if TYPE_CHECKING:
    import numpy.typing as npt
    from duckdb import DuckDBPyConnection

#: Ranges read at a time: few enough to be copied from the processor's cache.
_AT_A_TIME = 122_880

#: What the table is made of.
NEEDS = frozenset(("_tree_ranges", "_range_places", "nsys_nvtx_ranges"))

_COLUMNS = (
    ("report_id", "VARCHAR", ""),
    ("node", "BIGINT", ""),
    ("above", "BIGINT", ""),
    ("depth", "INTEGER", ""),
    ("domain", "INTEGER", ""),
    ("name", "INTEGER", ""),
    ("ns", "BIGINT", ""),
    ("host_ns", "BIGINT", ""),
    ("backward_ns", "BIGINT", ""),
    ("instances", "BIGINT", ""),
)


def make_range_nodes(con: DuckDBPyConnection) -> None:
    """Create the private table of paths of ranges; `above` is the node of the path around."""
    some = con.execute("SELECT 1 FROM _tree_ranges LIMIT 1").fetchone()
    create_table(con, "_range_nodes", _COLUMNS, _nodes(con) if some else [])


def _nodes(con: DuckDBPyConnection) -> list[tuple[Any, ...]]:
    import numpy as np

    from perfpipe.ingest.arrays import NONE, numbered

    places = con.execute("SELECT report_id, first FROM _range_places ORDER BY first").fetchall()
    ranges = _columns(con)
    names = int(ranges["name"].max()) + 1
    node_of = np.full(int(ranges["place"].max()) + 1, NONE, np.int32)
    nodes: list[tuple[Any, ...]] = []
    reports: list[str] = []
    for depth in range(int(ranges["level"].max()) + 1):
        rows = np.flatnonzero(ranges["level"] == depth)
        place = ranges["place"][rows]
        if depth:
            above = node_of[ranges["around"][rows]]
        else:
            above = np.searchsorted([first for _, first in places], place, side="right") - 1
        rows, place, above = (values[above != NONE] for values in (rows, place, above))
        titles = ranges["domain"][rows].astype(np.int64) * names + ranges["name"][rows]
        title_of, title = numbered(titles)
        keys, own = numbered(above * np.int64(max(1, len(title_of))) + title)
        ns, host_ns = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        np.add.at(ns, own, ranges["gpu_time_ns"][rows])
        lasting = ranges["dur_ns"][rows]
        np.add.at(host_ns, own, np.maximum(lasting, 0))
        backward, paired = np.zeros(len(keys), np.int64), ranges["backward_ns"][rows]
        np.add.at(backward, own, np.maximum(paired, 0))
        pairs = np.bincount(own[paired >= 0], minlength=len(keys))
        ended = np.bincount(own[lasting >= 0], minlength=len(keys))
        instances = np.bincount(own, minlength=len(keys))
        node_of[place] = len(nodes) + own
        for at, key in enumerate(keys.tolist()):
            around, number = divmod(key, len(title_of))
            domain, name = divmod(int(title_of[number]), names)
            reports.append(reports[around] if depth else places[around][0])
            nodes.append(
                (
                    reports[-1],
                    len(nodes),
                    around if depth else None,
                    depth,
                    domain,
                    name,
                    int(ns[at]),
                    int(host_ns[at]) if ended[at] else None,
                    int(backward[at]) if pairs[at] else None,
                    int(instances[at]),
                )
            )
    return nodes


def _columns(con: DuckDBPyConnection) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the ranges, read in batches that are copied while they are at hand.

    Gathered as they come, all columns would be there twice.  By DLPack: to_numpy imports pandas.
    """
    import numpy as np

    (most,) = con.execute("SELECT count(*) FROM nsys_nvtx_ranges").fetchall()[0]
    found: dict[str, npt.NDArray[Any]] = {}
    rows = 0
    for batch in con.sql("FROM _tree_ranges").to_arrow_reader(_AT_A_TIME):
        own = slice(rows, rows + batch.num_rows)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            part = np.from_dlpack(values)
            if name not in found:
                found[name] = np.empty(most, part.dtype)
            found[name][own] = part
        rows = own.stop
    return {name: values[:rows] for name, values in found.items()}
