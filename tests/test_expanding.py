"""The guard of the fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from expanding import Kept


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(4096))


def _overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path, (7, 7))


@pytest.mark.parametrize("change", [_append, _overwrite, Path.unlink])
@pytest.mark.parametrize("in_directory", [False, True])
def test_a_change_is_told_once(
    change: Callable[[Path], None], in_directory: bool, tmp_path: Path
) -> None:
    file, other = tmp_path / "own" / "a", tmp_path / "b"
    file.parent.mkdir()
    for path in (file, other):
        path.write_bytes(bytes(9))
    shared = file.parent if in_directory else file
    kept = Kept()
    kept.keep(shared)
    kept.keep(other)
    assert kept.changed() == []
    change(file)
    kept.keep(shared)
    assert kept.changed() == [shared]
    assert kept.changed() == []


@pytest.mark.parametrize("name", ["nsys/memcpy.sqlite", "nsys/gpumetrics_parquetdir"])
def test_what_is_shared_is_read_only(name: str, expand: Callable[[str], Path]) -> None:
    path = expand(name)
    assert {file.stat().st_mode & 0o777 for file in ([*path.glob("*")] or [path])} == {0o444}
