"""Compares what two commits say about the same reports: every public view, row by row.

Usage: python benchmarks/compare_views.py BEFORE AFTER PATH...

Each PATH is a report, or a folder of which every file is tried.  Each commit is checked out, and
reads each file into a store of its own; the rows of each public view are written to a text file.
Prints the views that differ, each with the first line that does; exits with 1 if there is one.
Files that both refuse in the same words are equal.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

#: Columns of what is not in the input: when and by which version it was read, and from where.
_OURS = {"ingested_at", "perfpipe_version", "source_path"}

#: Lines of a difference that are shown.
_SHOWN = 4


def main() -> int:
    """Compare and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--numbers", action="store_true", help="compare numbers only, not texts")
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    inputs = sorted({file.resolve() for path in options.paths for file in _files(path)})
    if options.dump:
        _dump(inputs, options.dump, numbers=options.numbers)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        with ThreadPoolExecutor() as pool:
            sides = [
                pool.submit(_side, commit, place / side, inputs, options.numbers)
                for side, commit in (("before", options.before), ("after", options.after))
            ]
            before, after = (side.result() for side in sides)
        compared, differ = 0, 0
        one_side = {name.name for name in _names(before)} ^ {name.name for name in _names(after)}
        if one_side:
            print(f"only one commit has {', '.join(sorted(one_side))}")
        for name in sorted(_names(before) | _names(after)):
            if name.name in one_side:
                continue
            compared += 1
            if lines := list(_difference(before / name, after / name)):
                differ += 1
                print(f"{name}\n" + "".join(f"  {line[:200]}\n" for line in lines))
        print(f"{len(inputs)} files, {compared} views of them compared, {differ} differ")
        return 1 if differ else 0


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def _side(commit: str, place: Path, inputs: list[Path], numbers: bool) -> Path:
    """Check a commit out, let it dump its views, and return where they are."""
    tree, dumped = place / "tree", place / "dump"
    place.mkdir()
    subprocess.run(
        ["git", "-C", ROOT, "worktree", "add", "-q", "--detach", tree, commit], check=True
    )
    try:
        words = [sys.executable, __file__, commit, commit, *map(str, inputs), "--dump", str(dumped)]
        words += ["--numbers"] if numbers else []
        subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": str(tree)})
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)
    return dumped


def _dump(inputs: list[Path], folder: Path, *, numbers: bool) -> None:
    """Write the rows of each public view of each input to folder/INPUT/VIEW."""
    import perfpipe

    views: Any = _module("analysis.views").views()
    reading, store_of = _module("ingest.reading"), _module("perfpipe.store").Store
    for number, path in enumerate(inputs):
        with tempfile.TemporaryDirectory() as place:
            to = folder / f"{number:03}-{path.name}"
            to.mkdir(parents=True)
            store = store_of(Path(place, "store"))
            try:
                reading.ingest(path, store)
            except Exception as error:
                said = re.sub(re.escape(str(path)), path.name, f"{type(error).__name__}: {error}")
                (to / "refused").write_text((type(error).__name__ if numbers else said) + "\n")
                continue
            with perfpipe.open_store(Path(place, "store")) as session:
                for name, view in views.items():
                    if view.public:
                        (to / name).write_text(
                            "\n".join(_rows(session, name, numbers=numbers)) + "\n"
                        )


def _module(name: str) -> Any:
    """Import a module by the name that this commit has for it."""
    if name.startswith("perfpipe."):
        return importlib.import_module(name)
    try:
        return importlib.import_module(f"perfpipe.{name}")
    except ModuleNotFoundError:
        return importlib.import_module(name)


def _rows(session: Any, view: str, *, numbers: bool) -> list[str]:
    """Return the columns of a view, and its rows in the order of their text."""
    try:
        found = session.sql(f'SELECT * FROM "{view}"')
        kept = [
            at
            for at, (column, kind) in enumerate(zip(found.columns, found.types, strict=True))
            if column not in _OURS and not (numbers and "VARCHAR" in str(kind))
        ]
        rows = sorted(repr(tuple(row[at] for at in kept)) for row in found.fetchall())
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    types = [f"{found.columns[at]} {found.types[at]}" for at in kept]
    return [", ".join(types), *rows]


def _names(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.glob("*/*")}


def _difference(before: Path, after: Path) -> Iterator[str]:
    one, two = (path.read_text().splitlines() if path.exists() else [] for path in (before, after))
    if one != two:
        # Behind the heads of both and the place.
        yield from islice(unified_diff(one, two, n=0, lineterm=""), 2, 2 + _SHOWN)


if __name__ == "__main__":
    sys.exit(main())
