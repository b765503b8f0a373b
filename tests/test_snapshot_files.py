"""Files of memory snapshots: forms, damage, stacks and names."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from allocator import (
    MIB,
    Allocator,
    Training,
    backward,
    forward,
    frame,
    moved,
    native,
    optimizer,
    plain,
    snapshot,
    write,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.ingest.allocator.stacks import Stacks
from perfpipe.ingest.outcome import Outcome
from perfpipe.ingest.reading import ingest
from perfpipe.ingest.scrub import scrub_file
from perfpipe.store import Store

Rows = dict[str, list[dict[str, Any]]]
_SITE = "/opt/venv/lib/python3.12/site-packages"


@pytest.fixture(name="trained")
def _trained() -> dict[str, Any]:
    program = Training(Allocator())
    program.run([2 * MIB, MIB], [3 * MIB, MIB], steps=3)
    return snapshot(program.allocator)


def rows_of(path: Path, folder: Path) -> tuple[Rows, Outcome]:
    """Return the rows of all tables of a snapshot, without the id of the report."""
    store = Store(folder / f"store of {path.name}")
    outcome = ingest(path, store)
    found = {}
    for name in next(iter(store.manifests())).tables:
        rows = pq.read_table(store.table_path(outcome.report_id, name)).drop_columns(["report_id"])
        found[name] = rows.to_pylist()
    return found, outcome


def test_json_is_the_same(trained: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(trained))
    (tmp_path / "p2.pickle").write_bytes(pickle.dumps(trained, 2))
    first, outcome = rows_of(write(tmp_path / "a.pickle", trained), tmp_path)
    assert outcome.kind == "memory"
    assert first == rows_of(tmp_path / "a.json", tmp_path)[0]
    assert first == rows_of(tmp_path / "p2.pickle", tmp_path)[0]
    assert len(first["snapshot_events"]) == len(trained["device_traces"][0])


def test_older_forms(trained: dict[str, Any], tmp_path: Path) -> None:
    """Without times, settings and annotations; with frames in `history`; segments alone."""
    old = copy.deepcopy(trained)
    del old["allocator_settings"], old["external_annotations"]
    for event in old["device_traces"][0]:
        del event["time_us"], event["user_metadata"]
    first, _ = rows_of(write(tmp_path / "a.pickle", trained), tmp_path)
    second, _ = rows_of(write(tmp_path / "old.pickle", old), tmp_path)
    assert all(row["time_ns"] is None for row in second["snapshot_events"])
    assert second["snapshot_allocations"] == first["snapshot_allocations"]
    older = {"segments": copy.deepcopy(trained["segments"])}
    for segment in older["segments"]:
        for block in segment["blocks"]:
            del block["address"]
            own = {"real_size": block.pop("requested_size"), "frames": block.pop("frames")}
            if block["state"] != "inactive":
                block["history"] = [{"addr": 0, **own}]
    third, _ = rows_of(write(tmp_path / "older.pickle", older), tmp_path)
    alone, _ = rows_of(write(tmp_path / "list.pickle", older["segments"]), tmp_path)
    assert third == alone
    used = [row for row in first["snapshot_allocations"] if row["end_event"] is None]
    assert sum(row["bytes"] for row in third["snapshot_allocations"]) == sum(
        row["bytes"] for row in used
    )
    assert "snapshot_events" not in third
    names = ("address", "bytes", "state")
    assert [[row[name] for name in names] for row in third["snapshot_blocks"]] == [
        [row[name] for name in names] for row in first["snapshot_blocks"]
    ]


_TRAIN = frame("/home/ada/train/train.py", "<module>", 90)


@pytest.mark.parametrize(
    ("frames", "phase", "line"),
    [
        (forward(30), "forward", 30),
        (backward(), "backward", None),
        (optimizer(), "optimizer", 60),
        (moved(10), "parameters", 10),
        (plain(77), "other", 77),
        # A closure that an optimizer calls runs the model.
        ([*forward(30)[:-1], *optimizer()[1:]], "forward", 30),
        # Checkpointing runs forward within backward.
        ([*forward(30)[:-1], *backward()[2:]], "recompute", 30),
        # The forward of an autograd function is not its backward.
        (
            [frame(f"{_SITE}/torch/autograd/function.py", "apply", 575), *forward(31)[1:]],
            "forward", 31,
        ),
        ([frame(f"{_SITE}/torch/_tensor.py", "backward", 626), _TRAIN], "backward", 90),
        ([frame(f"{_SITE}/torch/optim/lr_scheduler.py", "step", 9), _TRAIN], "other", 90),
        (
            [frame(f"{_SITE}/transformers/modeling_utils.py", "_load_state_dict", 700), _TRAIN],
            "parameters", 90,
        ),
        (native("c10::cuda::CUDACachingAllocator::malloc(int)"), "other", None),
    ],
)  # fmt: skip
def test_phases(frames: list[dict[str, Any]], phase: str, line: int | None, tmp_path: Path) -> None:
    program = Training(Allocator())
    program.new("any", None, MIB, frames)
    rows, _ = rows_of(write(tmp_path / "a.pickle", snapshot(program.allocator)), tmp_path)
    (stack,) = rows["snapshot_stacks"]
    assert (stack["phase"], stack["line"]) == (phase, line)


def test_lines_of_libraries(tmp_path: Path) -> None:
    """Below the line of the program is the innermost line of a library other than PyTorch."""
    llama = f"{_SITE}/transformers/models/llama/modeling_llama.py"
    linear = frame(f"{_SITE}/torch/nn/modules/linear.py", "forward", 125)
    call = frame(f"{_SITE}/torch/nn/modules/module.py", "_call_impl", 1750)
    frames = [*native("at::_ops::linear::call(at::Tensor)"), linear, call,
              frame(llama, "forward", 240), call, _TRAIN]  # fmt: skip
    program = Training(Allocator())
    program.new("any", None, MIB, frames)
    rows, _ = rows_of(write(tmp_path / "a.pickle", snapshot(program.allocator)), tmp_path)
    (stack,) = rows["snapshot_stacks"]
    assert (stack["line"], stack["library"], stack["library_line"]) == (90, "transformers", 240)
    assert stack["modules"] == "modeling_llama.py:240 > linear.py:125"
    assert stack["operator"] == "linear" and stack["node"] is None
    assert stack["stack"].startswith("linear.py:125 forward; module.py:1750 _call_impl; ")


def _changed(content: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    made = copy.deepcopy(content)
    change(made)
    return made


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda own: own.pop("segments"), "not a memory snapshot of PyTorch (no segments)"),
        (lambda own: own.update(segments=[3]), "segment 0 is not a dictionary"),
        (lambda own: own["segments"][0].update(address="x"), "address of segment 0 is not a whole"),
        (lambda own: own["segments"][0].update(blocks=7), "blocks of segment 0 is not a list"),
        (
            lambda own: own["segments"][0]["blocks"][0].update(size=-1),
            "size of block 0 of segment 0 is not a whole number",
        ),
        (lambda own: own["device_traces"][0].insert(3, None), "event 3 of device 0 is not a dict"),
        (lambda own: own["device_traces"][0][5].pop("size"), "event 5 of device 0 is damaged"),
        (
            lambda own: own["device_traces"][0][5].update(addr=1 << 64),
            "is not a whole number of 63 bits",
        ),
        (lambda own: own["device_traces"][0][5].update(addr=[]), "event 5 of device 0 is damaged"),
        (lambda own: own["device_traces"][0][5].update(time_us={}), "event 5 of device 0 is damag"),
        (lambda own: own["device_traces"][0][5].update(frames=[{}]), "a frame has no name"),
        (lambda own: own.update(external_annotations=[{"name": 3}]), "name of annotation 0"),
        (
            lambda own: own.update(external_annotations=[{"time_us": 1 << 62}]),
            "time_us of annotation 0 is not a time",
        ),
        (
            lambda own: own["segments"][0].update(blocks=[{"size": (1 << 63) - 1}] * 2),
            "the address of block 1 of segment 0 is not a whole number of 63 bits",
        ),
        (lambda own: own.update(segments=[], device_traces=[]), "no segments and no events"),
    ],
)
def test_damage_is_one_sentence(
    trained: dict[str, Any], change: Callable[[dict[str, Any]], None], sentence: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.pickle", _changed(trained, change))
    with pytest.raises(InputError) as error:
        ingest(path, Store(tmp_path / "store"))
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert not list(Store(tmp_path / "store").manifests())


def test_truncated(trained: dict[str, Any], tmp_path: Path) -> None:
    for name, data in (
        ("a.pickle", pickle.dumps(trained)),
        ("a.json", json.dumps(trained).encode()),
    ):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(InputError, match=r"truncated pickle|damaged JSON"):
            ingest(tmp_path / name, Store(tmp_path / "store"))


def test_a_damaged_compressed_snapshot_has_its_name_in_the_error(
    trained: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(trained)[:-9]))
    with pytest.raises(InputError) as error:
        ingest(path, Store(tmp_path / "store"))
    assert str(error.value) == f"{path}: truncated pickle"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_value_anywhere(
    trained: dict[str, Any], data: st.DataObject, tmp_path_factory: Any
) -> None:
    """A snapshot with another value in some place is read, or refused in one sentence."""
    made: Any = copy.deepcopy(trained)
    within: Any = made
    key: Any = None
    for _ in range(data.draw(st.integers(1, 6))):
        keys = [*within] if isinstance(within, dict) else [*range(len(within))]
        if not keys:
            break
        parent, key = within, data.draw(st.sampled_from(keys))
        within = parent[key]
        if not isinstance(within, (dict, list)):
            break
    if not isinstance(parent, tuple):
        parent[key] = data.draw(
            st.none() | st.integers(-(2**66), 2**66) | st.text(max_size=3) | st.just("\ud800")
            | st.just([]) | st.just({}) | st.booleans() | st.floats() | st.just([[1], {"a": 2}])
        )  # fmt: skip
    folder = tmp_path_factory.mktemp("any")
    path = write(folder / "a.pickle", made)
    try:
        ingest(path, Store(folder / "store"))
    except InputError as error:
        assert "\n" not in str(error)


def test_names_are_scrubbed(trained: dict[str, Any], tmp_path: Path) -> None:
    """Neither folders nor people remain, and the numbers are the same."""
    trained["device_traces"][0][4]["user_metadata"] = "run of ada on HOSTNAME=gpu-17"
    path = write(tmp_path / "a.pickle", trained)
    assert scrub_file(path, tmp_path / "b.pickle") == []
    content = (tmp_path / "b.pickle").read_bytes()
    assert b"ada" not in content and b"/home" not in content and b"gpu-17" not in content
    first, second = rows_of(path, tmp_path)[0], rows_of(tmp_path / "b.pickle", tmp_path)[0]
    assert first["snapshot_allocations"] == second["snapshot_allocations"]
    for name in ("phase", "line", "function", "library", "operator", "node", "modules"):
        assert [row[name] for row in first["snapshot_stacks"]] == [
            row[name] for row in second["snapshot_stacks"]
        ]


def test_secrets_are_hidden(trained: dict[str, Any], tmp_path: Path) -> None:
    trained["device_traces"][0][4]["user_metadata"] = "API_KEY=abcdef123"
    trained["external_annotations"][0]["name"] = "step?token=abcdef123"
    path = write(tmp_path / "a.pickle", trained)
    rows, _ = rows_of(path, tmp_path)
    assert "abcdef123" not in json.dumps(rows)


def test_an_incomplete_history_is_told(trained: dict[str, Any], tmp_path: Path) -> None:
    """Blocks without an event, and events without a block, lead to warnings."""
    kept = [
        event for event in trained["device_traces"][0] if not event["action"].startswith("free")
    ]
    content = {**trained, "device_traces": [kept]}
    store = Store(tmp_path / "store")
    ingest(write(tmp_path / "a.pickle", content), store)
    (manifest,) = store.manifests()
    assert any("still in use" in text for text in manifest.warnings)


def test_blocks_that_do_not_fit_are_counted(trained: dict[str, Any], tmp_path: Path) -> None:
    """Blocks that are listed twice, or are somewhere else, lead to a warning."""
    (segment, *_), history = trained["segments"], trained["device_traces"]
    count = len(segment["blocks"])
    elsewhere = [{**segment["blocks"][0], "address": segment["address"] + 1}]
    for blocks, misplaced in (
        (segment["blocks"], 0),
        (segment["blocks"] * 3, 2 * count),
        (elsewhere + segment["blocks"][1:], 1),
    ):
        segment["blocks"] = blocks
        content = {"segments": [segment], "device_traces": history}
        _, outcome = rows_of(write(tmp_path / "a.pickle", content), tmp_path)
        warned = [text for text in outcome.warnings if "do not fit into their segment" in text]
        assert [text.split()[0] for text in warned] == [str(misplaced)] * bool(misplaced)


def test_equal_stacks_are_one() -> None:
    """Stacks are compared by content: those of JSON are never the same objects."""
    stacks = Stacks()
    lists = [copy.deepcopy(forward(30)) for _ in range(3)]
    assert [stacks.number(frames) for frames in lists] == [0, 0, 0]
    assert stacks.number([]) == -1 and stacks.number(forward(31)) == 1
