"""A capture of a training program, as a launch for modules would have recorded it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from perfpipe.ingest.formats import MODULES_ID

#: The modules of the encoder in the order of their calls.
CALLS = [("", "TransformerEncoder")] + [
    (f"layers.{layer}{part}", kind)
    for layer in range(6)
    for part, kind in (
        ("", "TransformerEncoderLayer"), (".self_attn", "MultiheadAttention"), (".dropout1", "Dropout"),
        (".norm1", "LayerNorm"), (".linear1", "Linear"), (".dropout", "Dropout"), (".linear2", "Linear"),
        (".dropout2", "Dropout"), (".norm2", "LayerNorm"),
    )
]  # fmt: skip


def name_calls(path: Path) -> None:
    """Name the calls of modules as the start-up file does, and mark the capture as perfpipe does."""
    with closing(sqlite3.connect(path)) as con:
        calls = con.execute(
            "SELECT rowid FROM NVTX_EVENTS WHERE textId = (SELECT id FROM StringIds "
            "WHERE value = 'torch.nn.modules.Module.__call__') ORDER BY start"
        ).fetchall()
        assert len(calls) == 4 * len(CALLS)
        for at, (row,) in enumerate(calls):
            place, kind = CALLS[at % len(CALLS)]
            text = f"nn.Module TransformerEncoder{': ' if place else ''}{place} ({kind})"
            sql = "UPDATE NVTX_EVENTS SET textId = NULL, text = ?, domainId = 0 WHERE rowid = ?"
            con.execute(sql, (text, row))
        con.execute("DELETE FROM NVTX_EVENTS WHERE domainId = 1")
        con.execute(f"PRAGMA application_id = {MODULES_ID}")
        con.commit()
