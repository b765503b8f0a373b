"""Reads tables of the report that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.ingest.columns import release
from perfpipe.model import tables


def texts_of(path: Path) -> list[str]:
    """Return the columns of a table that are text, which are read as dictionaries."""
    return [column.name for column in tables()[path.stem].columns if column.type == "string"]


def read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Read some columns of a table."""
    texts = [column for column in texts_of(path) if column in columns]
    return pq.read_table(path, columns=columns, read_dictionary=texts).unify_dictionaries()


def row_groups(
    path: Path, columns: list[str], among: npt.NDArray[np.bool_] | None = None
) -> Iterator[tuple[slice, pa.Table]]:
    """Yield some columns of a table by row group, each with the numbers of its rows.

    If `among` marks rows, row groups without such rows are skipped.
    """
    first = 0
    with pq.ParquetFile(path, read_dictionary=texts_of(path)) as file:
        for group in range(file.num_row_groups):
            some = slice(first, first + file.metadata.row_group(group).num_rows)
            if among is None or among[some].any():
                yield some, file.read_row_group(group, columns=columns)
                release()
            first = some.stop
