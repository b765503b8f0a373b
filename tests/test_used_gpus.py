"""The GPU of a report is the one that ran its work: facts, peaks, links, samples of its state."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import DATA, Tiny

from perfpipe.analysis.report.facts import gpus_of
from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.manifest import Manifest
from perfpipe.pipelines.collectors import nvml
from perfpipe.store import Store

A100 = "NVIDIA A100-SXM4-40GB"

#: A machine whose first GPU is another model than the one that the process was given.
GIVEN_THE_SECOND = (
    "CREATE TEMP TABLE second AS SELECT * FROM TARGET_INFO_GPU",
    "UPDATE second SET id = 1, cuDevice = 1",
    "INSERT INTO TARGET_INFO_GPU SELECT * FROM second",
    f"UPDATE TARGET_INFO_GPU SET name = '{A100}', smCount = 108 WHERE id = 0",
    "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1",
)


def test_the_gpu_is_the_one_that_was_visible(store: Store, edited: Callable[..., Path]) -> None:
    manifest = _read(edited("h2d", *GIVEN_THE_SECOND), store)
    assert (manifest.facts.gpu, manifest.facts.sm_count) == ("NVIDIA H200", 132)
    assert not _about_gpus(manifest)
    with Session.open(store) as session:
        sql = "SELECT DISTINCT device, link_bytes_per_s FROM memory_op_summary WHERE link = 'DRAM'"
        assert session.sql(sql).fetchall() == [(1, 4800e9 / 2)]
        session.use("_used_gpus")
        assert gpus_of(session.con, [manifest.report_id]) == ["NVIDIA H200, 132 SMs"]


def test_different_gpus_in_one_report_are_told(store: Store, edited: Callable[..., Path]) -> None:
    path = edited(
        "ddp_single", f"UPDATE TARGET_INFO_GPU SET name = '{A100}', smCount = 108 WHERE id = 1"
    )
    manifest = _read(path, store)
    (warning,) = _about_gpus(manifest)
    assert A100 in warning
    assert "NVIDIA H200" in warning
    with Session.open(store) as session:
        ((busiest,),) = session.sql(
            """
            SELECT device FROM launches GROUP BY device ORDER BY sum(end_ns - start_ns) DESC LIMIT 1
            """
        ).fetchall()
        assert manifest.facts.gpu == (A100 if busiest == 1 else "NVIDIA H200")
        sql = "SELECT DISTINCT device, link_bytes_per_s FROM memory_op_summary WHERE link = 'DRAM'"
        assert sorted(session.sql(sql).fetchall()) == [(0, 4800e9 / 2), (1, 1555e9 / 2)]
        session.use("_used_gpus")
        told = gpus_of(session.con, [manifest.report_id])
    assert told == [
        f"{A100}, 108 SMs (1 of 1 reports)",
        "NVIDIA H200, 132 SMs (1 of 1 reports)",
    ]


def test_without_work_models_that_differ_leave_the_gpu_open(
    store: Store, edited: Callable[..., Path]
) -> None:
    nothing = (
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY",
        "DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET",
    )
    assert _read(edited("h2d", *nothing), store).facts.gpu == "NVIDIA H200"
    assert _read(edited("h2d", *nothing, *GIVEN_THE_SECOND), store).facts.gpu is None


def test_the_gpu_of_a_kineto_trace_is_the_used_one(store: Store, tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((DATA / "torch/train_step.kineto.json.gz").read_bytes()))
    used = {
        event["args"]["device"] for event in trace["traceEvents"] if event.get("cat") == "kernel"
    }
    assert used == {0}
    trace["deviceProperties"][1] |= {"name": A100, "numSms": 108}
    for event in trace["traceEvents"]:
        if event.get("args", {}).get("device") == 0:
            event["args"]["device"] = 1
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    manifest = _read(path, store)
    assert (manifest.facts.gpu, manifest.facts.sm_count) == (A100, 108)


def test_profiled_kernels_say_on_which_gpus_they_ran() -> None:
    rows = Tiny(
        [{"launch_id": 0, "device_name": "NVIDIA H200"}, {"launch_id": 1, "device_name": A100}]
    )
    assert rows.rows("SELECT gpu, sm_count FROM _used_gpus ORDER BY gpu") == [
        (A100, None),
        ("NVIDIA H200", 132),
    ]


UUIDS = {0: "GPU-aaaa", 1: "GPU-aabb", 2: "GPU-cccc"}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("1,-1,2", [1]),
        ("0,7,1", [0]),
        ("", []),
        ("GPU-cc", [2]),
        ("GPU-aabb, GPU-cccc", [1, 2]),
        ("GPU-aa", []),
        ("MIG-1234", [0, 1, 2]),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_does(
    variable: str | None, expected: list[int]
) -> None:
    assert nvml.visible_gpus(variable, UUIDS, same_order=True) == expected


def test_numbers_say_nothing_where_cuda_may_count_otherwise() -> None:
    assert nvml.visible_gpus("1", UUIDS, same_order=False) == [0, 1, 2]
    assert nvml.visible_gpus("GPU-cccc", UUIDS, same_order=False) == [2]


def test_the_state_is_that_of_the_gpus_that_worked() -> None:
    state = nvml.Samples()
    for gpu, busy, mhz in ((0, 0, 345), (1, 0, 345), (1, 97, 1980)):
        state.samples.append({"ms": 1.0, "gpu": gpu, "gpu_pct": busy, "sm_mhz": mhz})
    summary = state.summary()
    assert [gpu.gpu for gpu in summary.gpus] == [1]
    assert summary.sm_mhz == 1980


def _read(path: Path, store: Store) -> Manifest:
    return store.manifest(ingest(path, store).report_id)


def _about_gpus(manifest: Manifest) -> list[str]:
    return [text for text in manifest.warnings if "different GPU models" in text]
