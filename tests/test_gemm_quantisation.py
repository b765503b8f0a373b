"""Waves and tiles of matrix products, against a scheduler that places blocks on SMs one by one."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Opened, Tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.store import Store

Ingested = Callable[[str], str]


#: Counters of a launch by short names.
COUNTERS = {
    "sms": "launch__sm_count",
    "fit": "launch__occupancy_limit_warps",
    "cluster": "launch__cluster_size",
    "clusters": "launch__cluster_max_active",
}


class Launch(NamedTuple):
    """A kernel, the blocks of its grid, counters by short names, and other columns."""

    name: str
    grid: int
    gpu: dict[str, int]
    more: dict[str, Any]


def database(*launches: Launch) -> Tiny:
    """Return a database of launches, numbered from 0."""
    rows = [
        {"launch_id": number, "kernel_name": name, "kernel_demangled": name, "grid_x": grid,
         "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1} | more
        for number, (name, grid, _, more) in enumerate(launches)
    ]  # fmt: skip
    counters = {
        number: {COUNTERS[key]: value for key, value in gpu.items()}
        for number, (_, _, gpu, _) in enumerate(launches)
    }
    return Tiny(rows, counters)


def launch(name: str, grid: int, gpu: dict[str, int], **more: Any) -> Tiny:
    """Return a database of one launch."""
    return database(Launch(name, grid, gpu, more))


@cache
def makespan(units: int, places: int) -> int:
    """Return when the last unit ends, if each takes 1 and goes where a place falls free first."""
    free = [0] * places
    heapq.heapify(free)
    end = 0
    for _ in range(units):
        start = heapq.heappop(free)
        heapq.heappush(free, start + 1)
        end = max(end, start + 1)
    return end


class Drawn(NamedTuple):
    """A GPU and a product; the tile and cluster are along M and N."""

    sms: int
    fit: int
    tile: tuple[int, int]
    cluster: tuple[int, int]
    size: tuple[int, int]
    batch: int
    persistent: bool

    def tiles(self) -> tuple[int, int]:
        """Return how many tiles it takes to cover the product, counted by covering it."""
        (rows, columns), (m, n) = self.tile, self.size
        return len(range(0, m, rows)), len(range(0, n, columns))

    def clusters(self) -> tuple[int, int]:
        (rows, columns), (along_m, along_n) = self.tiles(), self.cluster
        return len(range(0, rows, along_m)), len(range(0, columns, along_n))

    def blocks(self) -> int:
        """Return the blocks that are launched, in whole clusters, unless they are persistent."""
        clusters = self.batch * self.clusters()[0] * self.clusters()[1]
        return clusters * self.cluster[0] * self.cluster[1]


#: Square tiles and clusters: which way round M and N are makes no difference.
DRAWN = st.builds(
    lambda sms, fit, tile, cluster, m, n, batch, persistent: Drawn(
        sms * cluster**2, fit, (tile, tile), (cluster, cluster), (m, n), batch, persistent
    ),
    st.integers(1, 6),
    st.integers(1, 2),
    st.sampled_from([8, 16, 48]),
    st.sampled_from([1, 1, 2]),
    st.integers(1, 160),
    st.integers(1, 160),
    st.sampled_from([1, 1, 2, 3]),
    st.booleans(),
)


def drawn_launch(drawn: Drawn, blocks: int) -> Launch:
    """Return the launch of a drawn product."""
    (tile, _), (cluster, _), (m, n) = drawn.tile, drawn.cluster, drawn.size
    clusters = drawn.sms * drawn.fit // cluster**2
    gpu = {"sms": drawn.sms, "fit": drawn.fit, "cluster": cluster**2, "clusters": clusters}
    name = f"nvjet_sm90_tst_{tile}x{tile}_64x4_{cluster}x{cluster}_h_bz_NNT"
    return Launch(name, blocks, gpu, {"nvtx_path": f"bmm_b{drawn.batch}_m{m}_n{n}_k64"})


@settings(max_examples=5)
@given(st.lists(DRAWN, min_size=20, max_size=30))
def test_a_scheduler_and_a_count_of_cells_agree(several: list[Drawn]) -> None:
    launches, expected = [], []
    for drawn in several:
        (tile, _), (m, n), size = drawn.tile, drawn.size, drawn.cluster[0] ** 2
        slots = drawn.sms * drawn.fit
        persistent = drawn.persistent and drawn.blocks() > slots
        launches.append(drawn_launch(drawn, slots if persistent else drawn.blocks()))
        rows, columns = drawn.tiles()
        tiles = drawn.batch * rows * columns
        end = makespan(drawn.blocks() // size, slots // size)
        cells = sum(tile * tile for _ in product(range(0, m, tile), range(0, n, tile)))
        useful = drawn.batch * m * n / (end * slots * tile * tile)
        shares = (1 - tiles / (end * slots), 1 - m * n / cells, 1 - useful)
        expected.append(
            (
                tiles,
                persistent,
                end,
                pytest.approx(tiles / slots),
                *(pytest.approx(100 * share, abs=1e-9) for share in shares),
                None,
                None,
            )
        )
    assert expected == database(*launches).rows(
        "SELECT tiles, persistent, rounds, waves, wave_lost_pct, padding_pct, lost_pct, "
        "wave_reason, padding_reason FROM gemm_quantisation"
    )


def full(drawn: Drawn, rows: int, columns: int) -> bool:
    """Return whether so many whole tiles fill all places to the end."""
    if rows % drawn.cluster[0] or columns % drawn.cluster[1]:
        return False
    tiles, slots = drawn.batch * rows * columns, drawn.sms * drawn.fit
    size = drawn.cluster[0] * drawn.cluster[1]
    return makespan(tiles // size, slots // size) * slots == tiles


def areas_of_full_sizes(drawn: Drawn, rows: range, columns: range) -> list[int]:
    """Return the areas of the full sizes of so many tiles."""
    tile = drawn.tile[0]
    return [a * b * tile**2 for a, b in product(rows, columns) if full(drawn, a, b)]


@settings(max_examples=4)
@given(st.lists(DRAWN, min_size=15, max_size=15))
def test_the_nearest_full_sizes_are_those_of_a_search(several: list[Drawn]) -> None:
    found = database(*(drawn_launch(drawn, drawn.blocks()) for drawn in several)).rows(
        "SELECT larger_m, larger_n, smaller_m, smaller_n FROM gemm_quantisation"
    )
    for drawn, (larger_m, larger_n, smaller_m, smaller_n) in zip(several, found, strict=True):
        tile, (m, n), (rows, columns) = drawn.tile[0], drawn.size, drawn.tiles()
        reach = drawn.sms * drawn.fit * drawn.cluster[0] + 1
        areas = areas_of_full_sizes(
            drawn, range(rows, rows + reach), range(columns, columns + reach)
        )
        assert larger_m * larger_n == min(areas)
        assert full(drawn, larger_m // tile, larger_n // tile)
        assert larger_m >= m
        assert larger_n >= n
        areas = areas_of_full_sizes(drawn, range(1, m // tile + 1), range(1, n // tile + 1))
        if not areas:
            assert (smaller_m, smaller_n) == (None, None)
            continue
        assert smaller_m * smaller_n == max(areas)
        assert full(drawn, smaller_m // tile, smaller_n // tile)
        assert smaller_m <= m
        assert smaller_n <= n


REASONS = (
    "SELECT waves, wave_lost_pct, wave_reason, padding_pct, padding_reason FROM gemm_quantisation"
)
FULL_GPU = {"sms": 132, "fit": 1}


def test_what_is_not_known_is_null_with_its_reason() -> None:
    """Their launches share a database: planning the view takes longer than all else."""
    nvjet = "nvjet_sm90_tst_128x128_64x4_1x1_h_bz_NNT"
    stream_k = (
        "cutlass3x_sm90_tensorop_gemm_f16_f16_f32_128x128x64_1x1x1_0_tnn_align8_stream_k_epi_tma"
    )
    sizes = ("gemm_m512_n512_k512", "gemm_m4096_n4096_k512")
    persistent, of_program, other_grid, sliced, uncounted = database(
        Launch(nvjet, 132, FULL_GPU, {}),
        Launch("matmul_kernel", 264, FULL_GPU, {}),
        Launch(nvjet, 100, FULL_GPU, {"nvtx_path": sizes[0]}),
        Launch(stream_k, 132, FULL_GPU, {"nvtx_path": sizes[1]}),
        Launch("ampere_sgemm_128x64_tn", 132, {}, {}),
    ).rows(f"{REASONS} ORDER BY launch_id")

    waves, lost, why, padding, why_padding = persistent
    assert (waves, lost, padding) == (None, None, None)
    assert "persistent" in why
    assert "M and N are unknown" in why_padding

    waves, lost, why, _, why_padding = of_program
    assert (waves, lost, why) == (2, 0, None)
    assert "no tile" in why_padding

    waves, _, why, padding, why_padding = other_grid
    assert waves == pytest.approx(100 / 132)
    assert (why, padding) == (None, None)
    assert "grid does not match" in why_padding

    waves, _, why, padding, _ = sliced
    assert waves is None
    assert "stream-K" in why
    assert padding == 0

    waves, _, why, _, _ = uncounted
    assert waves is None
    assert "not collected" in why


def test_a_grid_of_one_wave_is_that_where_each_block_has_one_tile() -> None:
    ((waves, lost, why, *_),) = launch("ampere_sgemm_128x64_tn", 132, FULL_GPU).rows(REASONS)
    assert (waves, lost, why) == (1, 0, None)


def test_a_persistent_kernel_may_leave_room_on_every_sm() -> None:
    """132 blocks of which two fit on an SM, for 200 tiles: two rounds of 132, not one of 264."""
    db = launch(
        "nvjet_sm90_tst_128x128_64x4_1x1_h_bz_NNT",
        132,
        {"sms": 132, "fit": 2},
        nvtx_path="gemm_m1280_n2560_k64",
    )
    assert db.rows("SELECT persistent, rounds, wave_lost_pct FROM gemm_quantisation") == [
        (True, 2, pytest.approx(100 * (1 - 200 / 264)))
    ]


def test_slices_of_k_are_blocks_of_their_own() -> None:
    db = launch(
        "nvjet_sm90_tst_128x128_64x4_1x1_h_bz_splitK_NNT",
        300,
        FULL_GPU,
        nvtx_path="gemm_m1280_n1280_k8192",
    )
    assert db.rows("SELECT tiles, persistent, rounds, waves FROM gemm_quantisation") == [
        (100, False, 3, pytest.approx(300 / 132))
    ]


@pytest.mark.parametrize(
    ("m", "n", "grid", "tiles", "padding"),
    [
        (128, 1024, 4, 4, 0.0),  # only with M along the 128 columns of a tile
        (128, 1024, 8, 8, 50.0),  # only with M along its 256 rows
        (1024, 128, 4, 4, 0.0),
        (1024, 128, 8, 8, 50.0),
        (300, 500, 6, 6, 100 * (1 - 300 * 500 / (6 * 256 * 128))),
    ],
)
def test_the_grid_tells_which_way_round_m_and_n_are(
    m: int, n: int, grid: int, tiles: int, padding: float
) -> None:
    db = launch("ampere_sgemm_256x128_tn", grid, FULL_GPU, nvtx_path=f"gemm_m{m}_n{n}_k64")
    assert db.rows("SELECT tiles, round(padding_pct, 6) FROM gemm_quantisation") == [
        (tiles, pytest.approx(padding, abs=1e-5))
    ]


def test_a_persistent_kernel_that_could_take_them_either_way_is_not_judged() -> None:
    db = launch(
        "nvjet_sm90_tst_256x128_64x4_1x1_h_bz_NNT", 132, FULL_GPU, nvtx_path="gemm_m300_n99999_k64"
    )
    assert db.rows("SELECT tiles, waves, padding_pct FROM gemm_quantisation") == [
        (None, None, None)
    ]


MEASURED = (
    "SELECT kernel_name, m, n, wave_lost_pct, sm_idle_pct, padding_pct FROM gemm_quantisation "
    "WHERE persistent ORDER BY ALL"
)


def test_the_sms_of_persistent_kernels_idle_as_whole_tiles_say(
    opened: Opened, replayed: Callable[[str], Path]
) -> None:
    """What was measured on an H200 bears the model out, though the grid is always 132 blocks."""
    with opened("ncu/ops.ncu-rep") as con:
        rows = con.execute(MEASURED).fetchall()
    with Session.open(Store(replayed("gemm"))) as con:
        rows += con.execute(MEASURED).fetchall()
    assert len(rows) == 8
    assert {(m, n) for _, m, n, *_ in rows} == {
        (4096, 4096), (512, 1024), (8192, 8192), (16384, 16384),
    }  # fmt: skip
    for _, _, _, lost, idle, _ in rows:
        assert 1 < lost < 4
        assert abs(lost - idle) < 0.8
    padding = {(m, round(padding, 2)) for _, m, _, _, _, padding in rows}
    assert padding == {(512, 0.0), (4096, 0.0), (8192, 0.19), (8192, 1.54), (16384, 1.54)}


def test_waves_of_a_grid_are_those_of_ncu(captures: Store, ingested: Ingested) -> None:
    sql = """
        SELECT g.waves, o.waves FROM gemm_quantisation AS g
        JOIN kernel_occupancy AS o USING (report_id, launch_id) WHERE NOT coalesce(g.persistent, false)
    """
    reports = [ingested(f"ncu/{name}.ncu-rep") for name in ("ops", "block")]
    with Session.open(captures, reports) as con:
        rows = [row for row in con.execute(sql).fetchall() if row[0] is not None]
    assert len(rows) >= 20
    assert all(ours == pytest.approx(ncus) for ours, ncus in rows)
