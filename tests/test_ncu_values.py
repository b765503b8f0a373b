"""What is read from the bytes of an .ncu-rep, against NVIDIA's reader and a plain decoder."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ncu_report
import numpy as np
import pytest
from conftest import Opened
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.analysis.session import Session
from perfpipe.errors import InputError
from perfpipe.ingest.ncu.columns import DOUBLE, UINT64, data_of, numbers, whole_numbers
from perfpipe.ingest.ncu.container import KERNELS, KINDS, Kind, read_container
from perfpipe.ingest.ncu.instances import Instances, read_instances
from perfpipe.ingest.ncu.lean import LeanCopies, _block, _plain
from perfpipe.ingest.ncu.names import keeps_instances
from perfpipe.ingest.ncu.sass import actions
from perfpipe.ingest.ncu.values import MetricReader, Metrics
from perfpipe.ingest.ncu.wire import counted, delimited, encoded, fields_at, parted, varint
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

Expand = Callable[[str], Path]
Ingested = Callable[[str], str]


def _read(path: Path) -> Iterator[Metrics]:
    container = read_container(path)
    reader = MetricReader(container.strings)
    with path.open("rb") as file:
        for result in LeanCopies(container).results:
            yield reader.read(container.message(file, result.place), result.metrics)


def _value(metric: Any) -> float | str | None:
    if not metric.has_value():
        return None
    kind = metric.kind()
    if kind == ncu_report.IMetric.ValueKind_STRING:
        return str(metric.as_string())
    whole = kind in (ncu_report.IMetric.ValueKind_UINT64, ncu_report.IMetric.ValueKind_UINT32)
    value = float(metric.as_uint64() if whole else metric.as_double())
    return value if math.isfinite(value) else str(value)


def _same(ours: Instances, metric: Any) -> bool:
    keys = metric.correlation_ids()
    at = range(0, metric.num_instances(), 37)
    whole = metric.kind() in (ncu_report.IMetric.ValueKind_UINT64,)
    value = metric.as_uint64 if whole else metric.as_double
    key = keys.as_string if ours.texts else keys.as_uint64
    told = ours.texts if ours.texts else ours.keys.tolist()
    return [(told[i], ours.values[i]) for i in at] == [(key(i), value(i)) for i in at]


def _told(action: Any) -> int:
    """How many metrics of an action have a value, or no data at all."""
    names = (name for name in action.metric_names() if not name.startswith("group:"))
    metrics = [action.metric_by_name(name) for name in names]
    return sum(
        _value(m) not in (None, "") or not m.num_instances() for m in metrics if _value(m) != ""
    )


@pytest.mark.parametrize("name", ["visible", "ops", "range", "multi", "pm"])
def test_metrics_are_those_of_the_vendors_reader(name: str, expand: Expand) -> None:
    path = expand(f"ncu/{name}.ncu-rep")
    compared = listed = 0
    results = zip(actions(ncu_report.load_report(str(path))), _read(path), strict=True)
    for index, ((_, _, action), ours) in enumerate(results):
        if index % 7 and name in ("visible", "ops"):
            continue
        names = [n for n in action.metric_names() if not n.startswith("group:")]
        theirs = {n: action.metric_by_name(n) for n in names}
        for n in names:
            value = _value(theirs[n])
            if value == "" or (value is None and theirs[n].num_instances()):
                assert n not in ours.values
            else:
                assert ours.values[n] == value, n
            if keeps_instances(n) and theirs[n].num_instances():
                assert len(ours.instances[n].values) == theirs[n].num_instances()
                assert _same(ours.instances[n], theirs[n]), n
                listed += 1
        assert set(ours.values) <= set(names)
        compared += len(names)
    assert compared > 300
    assert listed > 3


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30))
def test_whole_numbers_at_once(values: list[int]) -> None:
    message = b"".join(encoded(value) for value in values)
    places, at = [], 0
    for value in values:
        places.append(at)
        told, at = varint(message, at)
        assert told == value
    found, ends = whole_numbers(data_of(message, len(message)), np.array(places, np.int64))
    assert found.tolist() == values
    assert ends.tolist() == [*places[1:], at][: len(values)]


_scalars = st.one_of(st.integers(0, 2**53), st.floats(allow_nan=False, allow_infinity=False))


def _scalar(value: float | str) -> bytes:
    if isinstance(value, str):
        return delimited(1, value.encode())
    if isinstance(value, int):
        return counted(5, value)
    return encoded(DOUBLE) + struct.pack("<d", value)


_keys = st.one_of(
    st.none(), st.integers(0, 2**64 - 1), st.floats(), st.text(max_size=200).filter(bool)
)


@given(st.lists(st.lists(st.tuples(_keys, _scalars), max_size=6), max_size=4))
def test_instances_of_any_kind(metrics: list[list[tuple[float | str | None, float]]]) -> None:
    """Lists of numbers are decoded at once, others one by one, to the same end."""
    message, lists = b"", {}
    for index, instances in enumerate(metrics):
        start = len(message)
        for key, value in instances:
            body = b"" if key is None else delimited(1, _scalar(key))
            message += delimited(3, body + delimited(2, _scalar(value)))
        lists[str(index)] = start, len(message)
    found = read_instances(message, data_of(message, len(message)), lists)
    for index, instances in enumerate(metrics):
        ours = found[str(index)]
        keys = [at if key is None else key for at, (key, _) in enumerate(instances)]
        texts = any(not isinstance(key, int) for key in keys)
        signed = [key - 2**64 if isinstance(key, int) and key >= 2**63 else key for key in keys]
        assert (ours.texts or ours.keys.tolist()) == ([*map(str, keys)] if texts else signed)
        assert ours.values.tolist() == [float(value) for _, value in instances]


def test_numbers_of_another_kind_are_not_guessed() -> None:
    message = encoded(UINT64) + encoded(300) + encoded(DOUBLE) + struct.pack("<d", 0.5) + b"\n"
    data = data_of(message, len(message))
    found = numbers(data, np.array([0, 3, 12]))
    assert found[:2].tolist() == [300, 0.5]
    assert math.isnan(found[2])


@given(
    st.lists(st.tuples(st.integers(1, 40), st.one_of(st.integers(0, 2**40), st.binary()))),
    st.frozensets(st.integers(1, 40)),
)
def test_parting_a_message(values: list[tuple[int, int | bytes]], out: frozenset[int]) -> None:
    encode = {int: counted, bytes: delimited}
    message = b"".join(encode[type(value)](field, value) for field, value in values)  # type: ignore[operator]
    kept, left = parted(message, out)
    assert [field for field, *_ in fields_at(kept, 0, len(kept))] == [
        field for field, _ in values if field not in out
    ]
    for number in out:
        assert [message[slice(*extent)] for extent in left[number]] == [
            value if isinstance(value, bytes) else encoded(value)
            for field, value in values
            if field == number
        ]


@pytest.mark.parametrize("kind", KINDS, ids=["kernel", "range", "cmdlist", "graph"])
def test_results_of_every_kind(kind: Kind, expand: Expand, tmp_path: Path, store: Store) -> None:
    """A report whose launches are told as another kind of result, read by the vendor's reader too."""
    container = read_container(expand("ncu/visible.ncu-rep"))
    copies = LeanCopies(container)
    block = next(block for block in container.blocks if KERNELS in block.contents)
    with container.path.open("rb") as file:
        ((_, _, message),) = container.messages(file, block)
    if kind != KERNELS:
        left = parted(message, frozenset({KERNELS.metrics}))[1][KERNELS.metrics]
        metrics = (delimited(kind.metrics, message[slice(*extent)]) for extent in left)
        message = counted(1, 7) + counted(2, 8) + b"".join(metrics)
    session = [
        part for b in container.blocks if not b.contents for part in _block(_plain(b.header), [])
    ]
    other = copies.results[1]
    results = _block(_plain(block.header), [(kind, message)])
    path = tmp_path / "other.ncu-rep"
    last = _block(delimited(6, other.process), [(KERNELS, other.message)])
    path.write_bytes(b"".join([copies._head(), *session, *results, *last]))
    theirs = [action for *_, action in actions(ncu_report.load_report(str(path)))]
    types = ("kernel", "range", "cmdlist", "graph")
    with Session.open(store, [ingest(path, store).report_id]) as con:
        rows = con.execute(
            "SELECT workload_type, kernel_name, "
            "(SELECT count(*) FROM ncu_metrics m WHERE m.launch_id = l.launch_id) "
            "FROM ncu_launches l ORDER BY launch_id"
        ).fetchall()
    assert rows == [
        (types[theirs[0].workload_type()], theirs[0].name(), _told(theirs[0])),
        ("kernel", "fp32_fma", 0),
    ]
    assert types.index(rows[0][0]) == KINDS.index(kind)


def test_a_range_and_processes_in_parallel(opened: Opened) -> None:
    """Two processes ran the same program; each has code of its own, at addresses of its own."""
    with opened("ncu/range.ncu-rep") as con:
        sql = "SELECT workload_type, kernel_name, process_id > 0, round(duration_ns) FROM ncu_launches"
        assert con.execute(sql).fetchall() == [("range", "range", True, 489344)]
    with opened("ncu/multi.ncu-rep") as con:
        listings = con.execute(
            "SELECT kernel_name, process_id, list(sass ORDER BY pc) "
            "FROM ncu_launches JOIN ncu_source USING (report_id, launch_id) "
            "WHERE executions > 0 GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert [name for name, *_ in listings] == ["copy_k", "copy_k", "fma_k", "fma_k"]
    assert len({process for _, process, *_ in listings}) == 2
    for one, other in (listings[:2], listings[2:]):
        assert len(one[2]) > 10
        # Targets of branches are addresses.
        assert one[2] != other[2]
        plain = [re.sub(r"0x7f[0-9a-f]{10}", "TARGET", sass) for sass in one[2]]
        assert plain == [re.sub(r"0x7f[0-9a-f]{10}", "TARGET", sass) for sass in other[2]]


def test_a_result_that_is_no_message_is_refused(
    expand: Expand, tmp_path: Path, store: Store
) -> None:
    path = expand("ncu/visible.ncu-rep")
    container = read_container(path)
    content = bytearray(path.read_bytes())
    block = container.blocks[-1]
    content[block.start + 4 : block.start + 4000] = b"\xff" * 3996
    damaged = tmp_path / "damaged.ncu-rep"
    damaged.write_bytes(content)
    with pytest.raises(InputError, match="the report is damaged"):
        ingest(damaged, store)
    assert store.leftovers() == []
