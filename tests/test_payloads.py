"""Payloads of NVTX ranges: decoded by the export's own schemas, damage costs that payload only."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.ingest.nsys.payloads import _decoded, _Entry
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store

CAPTURE = "ddp_straggler_rank0"
SCHEMAS = {
    (1, 7): [
        _Entry("size", 0, struct.Struct("<Q"), {}),
        _Entry("operation", 8, struct.Struct("<i"), {0: "Sum", 1: "Product"}),
    ]
}


def _payload(schema: int = 7, size: int = 12, offset: int = 32, kept: int | None = None) -> bytes:
    whole = struct.pack("<4Q", 1, schema, size, offset) + struct.pack("<Qi", 2**40, 1)
    return whole[:kept]


def test_fields_are_numbers_and_labels() -> None:
    expected = [("size", 2.0**40, str(2**40)), ("operation", 1.0, "Product")]
    assert list(_decoded(_payload(), SCHEMAS)) == expected
    assert list(_decoded(_payload().hex(), SCHEMAS)) == expected


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (b"", []),
        (_payload(kept=31), []),
        (_payload(schema=8), []),
        (_payload(kept=40), ["size"]),
        (_payload(size=8), ["size"]),
        (_payload(offset=10**9), []),
        ("no hexadecimal digits", []),
    ],
)
def test_what_is_cut_short_or_unknown_gives_nothing(
    content: bytes | str, fields: list[str]
) -> None:
    assert [name for name, *_ in _decoded(content, SCHEMAS)] == fields


@pytest.mark.parametrize("damage", ["x'00'", "'text'", "NULL", "zeroblob(10000)", "7"])
def test_a_damaged_payload_costs_that_one_only(
    edited: Callable[..., Path], store: Store, damage: str
) -> None:
    path = edited(
        CAPTURE,
        f"UPDATE NVTX_EVENTS SET binaryData = {damage} WHERE rowid = "
        "(SELECT max(rowid) FROM NVTX_EVENTS WHERE length(binaryData) = 56)",
    )
    report = ingest(path, store).report_id
    with Session.open(store, [report]) as con:
        ((ranges,),) = con.execute(
            "SELECT count(DISTINCT range_id) FROM nsys_nvtx_payloads"
        ).fetchall()
        assert len(con.execute("FROM nccl_collectives").fetchall()) == 5
    assert ranges == 49


def test_an_export_without_payloads_says_how_to_get_them(
    edited: Callable[..., Path], store: Store
) -> None:
    report = ingest(edited(CAPTURE, "UPDATE NVTX_EVENTS SET binaryData = NULL"), store).report_id
    with Session.open(store, [report]) as con:
        (reason,) = con.execute(
            "SELECT reason FROM collection_gaps WHERE table_name = 'nvtx_payloads'"
        ).fetchall()[0]
        rows = con.execute("SELECT bytes, bus_bytes_per_s FROM nccl_collectives").fetchall()
    assert "--include-blobs=true" in reason
    assert set(rows) == {(None, None)}
