"""Reads tables of the report that is being written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from perfpipe.model import tables


def texts_of(path: Path) -> list[str]:
    """Return the columns of a table that are text, which are read as dictionaries."""
    return [column.name for column in tables()[path.stem].columns if column.type == "string"]


def read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Read some columns of a table."""
    texts = [column for column in texts_of(path) if column in columns]
    return pq.read_table(path, columns=columns, read_dictionary=texts).unify_dictionaries()


def read_rows(path: Path, columns: list[str], rows: npt.NDArray[np.bool_]) -> pa.Table:
    """Read some rows of a table by row group; the whole table would take twice the memory."""
    parts, first = [], 0
    with pq.ParquetFile(path, read_dictionary=texts_of(path)) as file:
        for group in range(file.num_row_groups):
            part = file.read_row_group(group, columns=columns)
            parts.append(part.filter(pa.array(rows[first : first + part.num_rows])))
            first += part.num_rows
    return pa.concat_tables(parts).unify_dictionaries() if parts else read_columns(path, columns)
