"""Profiled matrix products: their tiles and problem sizes, from names and parameters."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from perfpipe.database import create_table
from perfpipe.files import packaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class Tile(NamedTuple):
    """The tile of the product that a block computes at a time, and the blocks of a cluster."""

    m: int
    n: int
    k: int | None = None
    cluster_m: int = 1
    cluster_n: int = 1


class Problem(NamedTuple):
    """`batch` products of M x K by K x N."""

    batch: int
    m: int
    n: int
    k: int


#: Private columns of the table, after report_id and launch_id.
_COLUMNS = (
    ("tile_m", "BIGINT"),
    ("tile_n", "BIGINT"),
    ("tile_k", "BIGINT"),
    ("cluster_m", "BIGINT"),
    ("cluster_n", "BIGINT"),
    ("batch", "BIGINT"),
    ("m", "BIGINT"),
    ("n", "BIGINT"),
    ("k", "BIGINT"),
    ("tile_source", "VARCHAR"),
    ("problem_source", "VARCHAR"),
    ("stream_k", "BOOLEAN"),
    ("split_k", "BOOLEAN"),
    ("one_tile_a_block", "BOOLEAN"),
)

#: Sources of _gemm_launches.
NEEDS = frozenset({"ncu_launches", "reports", "run_tasks", "kernel_libraries", "kernel_category"})


def make_gemm_launches(con: DuckDBPyConnection) -> None:
    """Create the private table of launches that compute a product, with its known properties.

    Triton kernels are products if the name of the innermost NVTX range around them says so.
    """
    profiled = con.execute("SELECT 1 FROM ncu_launches LIMIT 1").fetchone()
    found = _products(con) if profiled else []
    rules = _rules()
    rows = []
    for report, launch, name, path, threads, library, params, flops in found:
        if re.search(rules["not_tiled"], name, re.IGNORECASE):
            continue
        given = _parameters(params)
        tile, tile_source = tile_of(name), "name"
        if tile is None and library == "triton":
            tile, tile_source = _triton_tile(path, threads), "NVTX"
            if tile is None:
                tile, tile_source = _tile_of_parameters(given), "parameters"
        problem, problem_source = problem_of_path(path), "NVTX"
        if problem is None:
            problem, problem_source = problem_of_parameters(given, flops), "parameters"
        rows.append(
            (
                report,
                launch,
                *(tile or [None] * len(Tile._fields)),
                *(problem or [None] * len(Problem._fields)),
                tile_source if tile else None,
                problem_source if problem else None,
                *(
                    re.search(rules[kind], name, re.IGNORECASE) is not None
                    for kind in ("stream_k", "split_k", "one_tile_a_block")
                ),
            )
        )
    columns = [("report_id", "VARCHAR", ""), ("launch_id", "BIGINT", "")]
    columns += [(name, kind, "") for name, kind in _COLUMNS]
    create_table(con, "_gemm_launches", columns, rows)


def _products(con: DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Return names, places and parameters of the launches that compute a product."""
    return con.execute(
        r"""
        WITH launched AS (
            SELECT *, regexp_extract(nvtx_path, '[^/]*$') AS label FROM ncu_launches
        ),
        -- The macro is long: planned once, for names of kernels and of ranges.
        categories AS (
            SELECT name, full_name, kernel_category(name, full_name) AS category
            FROM (
                SELECT kernel_name AS name, kernel_demangled AS full_name FROM launched
                UNION
                SELECT label, label FROM launched
            )
        )
        SELECT
            l.report_id, l.launch_id, coalesce(l.kernel_demangled, l.kernel_name), l.nvtx_path,
            l.block_x * l.block_y * l.block_z, k.library, t.params, t.flops
        FROM launched AS l
        JOIN kernel_libraries AS k USING (report_id, launch_id)
        LEFT JOIN categories AS c
            ON c.name IS NOT DISTINCT FROM l.kernel_name
                AND c.full_name IS NOT DISTINCT FROM l.kernel_demangled
        LEFT JOIN categories AS r ON r.name = l.label AND r.full_name = l.label
        LEFT JOIN (
            SELECT unnest(reports) AS report_id, run_id, task_index, params, flops FROM run_tasks
        ) AS t ON t.report_id = l.report_id AND t.run_id = (
            SELECT run_id FROM reports AS r WHERE r.report_id = l.report_id
        )
        WHERE c.category = 'gemm' OR (
            c.category = 'other' AND k.library = 'triton' AND r.category = 'gemm'
        )
        QUALIFY row_number() OVER (
            PARTITION BY l.report_id, l.launch_id ORDER BY t.task_index NULLS LAST
        ) = 1
        ORDER BY ALL
        """
    ).fetchall()


@cache
def tile_of(name: str) -> Tile | None:
    """Return the tile in the demangled name of a kernel, None if the name lacks it.

    >>> tile_of("nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT")
    Tile(m=256, n=128, k=64, cluster_m=1, cluster_n=2)
    """
    return next((Tile(**_numbers(match)) for match in _matches(_rules()["tile"], name)), None)


def _triton_tile(path: str | None, threads: int | None) -> Tile | None:
    """Return the tile in the innermost NVTX range, if the number of warps there is right."""
    for match in _matches(_rules()["triton_tile"], _steps(path)[-1]):
        numbers = _numbers(match)
        warps = numbers.pop("warps", None)
        if warps is None or 32 * warps == threads:
            return Tile(**numbers)
    return None


def _tile_of_parameters(params: Mapping[str, int]) -> Tile | None:
    for side in ("block_{}", "block_size_{}"):
        found = [params[side.format(x)] for x in "mnk" if side.format(x) in params]
        if len(found) == len("mnk"):
            return Tile(*found)
    return None


@cache
def problem_of_path(path: str | None) -> Problem | None:
    """Return the product in the names of the ranges around a launch, innermost first.

    >>> problem_of_path("step/bmm_fp16_b32_m512_n1024_k2048")
    Problem(batch=32, m=512, n=1024, k=2048)
    """
    for step in reversed(_steps(path)):
        if problem := _torch_problem(step):
            return problem
        for match in _matches(_rules()["problem"], step.lower()):
            numbers = _numbers(match)
            size = numbers.get("size", 0)
            sides = [numbers.get(x, size) for x in "mnk"]
            if all(sides):
                return Problem(numbers.get("batch", 1), *sides)
    return None


def _torch_problem(step: str) -> Problem | None:
    """Return the product of PyTorch's range around an operator (emit_nvtx with record_shapes)."""
    match = re.match(r"aten::(mm|bmm|addmm|baddbmm|linear), .*sizes = (\[\[.*?\]\])", step)
    if match is None:
        return None
    operator, shapes = match[1], json.loads(match[2])
    try:
        if operator == "linear":
            (*rows, k), (n, _) = shapes[:2]
            return Problem(1, math.prod(rows), n, k)
        first, second = shapes[1:3] if "add" in operator else shapes[:2]
        (m, k), n = first[-2:], second[-1]
        return Problem(first[0] if len(first) == 3 else 1, m, n, k)
    except (ValueError, IndexError):
        return None


def problem_of_parameters(params: Mapping[str, int], flops: float | None) -> Problem | None:
    """Return the product of a configuration: its m, n, k; its size replaces missing ones.

    Only if the FLOPs of the workload file match that product.
    """
    size = params.get("size")
    m, n, k = (params.get(side, size) for side in "mnk")
    batch = params.get("batch", 1)
    if m and n and k and flops == 2 * batch * m * n * k:
        return Problem(batch, m, n, k)
    return None


def _parameters(params: str | None) -> dict[str, int]:
    """Return the whole numbers among the parameters of a configuration, by name in lower case."""
    found = {}
    for name, value in json.loads(params or "{}").items():
        if type(value) is int or (isinstance(value, str) and value.isdecimal()):
            found[name.lower()] = int(value)
    return found


def _steps(path: str | None) -> list[str]:
    return (path or "").split("/")


def _matches(patterns: list[str], text: str) -> Iterator[re.Match[str]]:
    for pattern in patterns:
        if match := re.search(pattern, text):
            yield match


def _numbers(match: re.Match[str]) -> dict[str, int]:
    return {name: int(text) for name, text in match.groupdict().items() if text}


@cache
def _rules() -> dict[str, Any]:
    text = packaged("perfpipe.analysis", "gemm.toml")
    return tomllib.loads(text)
