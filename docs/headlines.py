"""Writes docs/headlines.md: headlines, each beside a query on the raw file that could refute it.

python docs/headlines.py                           writes the page from headlines.toml
python docs/headlines.py FILE QUERY [NAME=VALUE]   prints the answer of a query on a raw file
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import re
import sqlite3
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

DOCS = Path(__file__).resolve().parent

HEAD = """# Headlines and their refutation

Each table lists headlines of `perfpipe report` beside the answers of an SQL query that could refute
them. The query reads the raw file (nsys's SQLite export, NVIDIA's `ncu_report`, or the events of a
JSON trace) without perfpipe: `python docs/headlines.py FILE QUERY NAME=VALUE` runs it, and sets the
parameter `:NAME`. Files with a commit are public, and `tests/test_headlines.py` runs the queries of
all other files; `python docs/headlines.py` writes this page.
"""


def checks() -> list[dict[str, Any]]:
    """Return the queries, each with its files: headlines and answers."""
    return list(tomllib.loads((DOCS / "headlines.toml").read_text(encoding="utf-8"))["check"])


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for check in checks():
        parts.append(f"## {check['title']}\n\n{check['asks'].strip()}\n")
        parts.append(f"```sql\n{check['query'].strip()}\n```\n")
        parts.append("\n".join(_rows(check["file"])) + "\n")
    return "\n".join(parts)


def _rows(files: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| file | headline | answer |"
    yield "| --- | --- | --- |"
    for entry in files:
        answer = ", ".join(f"{name} {value}" for name, value in entry["answer"].items())
        cells = (_where(entry), entry["headline"], answer)
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _where(entry: dict[str, Any]) -> str:
    if "repository" in entry:
        where = f"{entry['repository']} `{entry['path']}` at {entry['commit']}"
        where += f", recorded on {entry['recorded']}" if "recorded" in entry else ""
    else:
        where = f"`{entry['file']}`"
    values = entry.get("values", {})
    return where + "".join(f", `:{name}` = `{value}`" for name, value in values.items())


def answer(path: Path, query: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that a query gives on a raw file, by column, without NULLs."""
    with tempfile.TemporaryDirectory() as folder:
        con = _database(_expanded(path, Path(folder)), query)
        cursor = con.execute(query, values)
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
        con.close()
    if len(rows) != 1:
        raise ValueError(f"the query gives {len(rows)} rows of {path.name}")
    row = zip(names, rows[0], strict=True)
    return {name: value for name, value in row if value is not None}


def _expanded(path: Path, folder: Path) -> Path:
    if path.suffix not in (".xz", ".gz"):
        return path
    plain = folder / path.stem
    packed = path.read_bytes()
    plain.write_bytes((lzma if path.suffix == ".xz" else gzip).decompress(packed))
    return plain


def _database(path: Path, query: str) -> sqlite3.Connection:
    if path.suffix == ".sqlite":
        return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    con = sqlite3.connect(":memory:")
    if path.suffix == ".ncu-rep":
        _launches(con, path, query)
    elif path.suffix == ".csv":
        _raw_page(con, path)
    else:
        _events(con, path)
    return con


def _launches(con: sqlite3.Connection, path: Path, query: str) -> None:
    """Make `launches`: the name of the kernel, and each metric that the query names in quotes."""
    import ncu_report

    metrics = sorted(set(re.findall(r'"(\w+__[\w.]+)"', query)))
    columns = ", ".join(["kernel", *(f'"{metric}"' for metric in metrics)])
    con.execute(f"CREATE TABLE launches ({columns})")
    report = ncu_report.load_report(str(path))
    for number in range(report.num_ranges()):
        profiled = report.range_by_idx(number)
        for index in range(profiled.num_actions()):
            action = profiled.action_by_idx(index)
            found = [action.metric_by_name(metric) for metric in metrics]
            values = [None if metric is None else metric.value() for metric in found]
            marks = ", ".join("?" * (1 + len(metrics)))
            con.execute(f"INSERT INTO launches VALUES ({marks})", [action.name(), *values])


def _raw_page(con: sqlite3.Connection, path: Path) -> None:
    """Make `launches` of ncu --csv --page raw: a column per metric, in the units of the file."""
    with path.open(encoding="utf-8", newline="") as lines:
        names, _, *rows = csv.reader(line for line in lines if line.startswith('"'))
    columns = ", ".join(f'"{name}"' for name in names)
    con.execute(f"CREATE TABLE launches ({columns})")
    marks = ", ".join("?" * len(names))
    con.executemany(
        f"INSERT INTO launches VALUES ({marks})", (list(map(_number, row)) for row in rows)
    )


def _number(text: str) -> float | str:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def _events(con: sqlite3.Connection, path: Path) -> None:
    """Make `events` of the complete events of a JSON trace; times are microseconds."""
    loaded = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    events = loaded["traceEvents"] if isinstance(loaded, dict) else loaded
    con.execute("CREATE TABLE events (name, cat, ts REAL, dur REAL, pid, tid, args)")
    con.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            [
                *(event.get("name"), event.get("cat"), event["ts"], event.get("dur", 0)),
                *(str(event.get("pid")), str(event.get("tid")), json.dumps(event.get("args"))),
            ]
            for event in events
            if event.get("ph") == "X"
        ),
    )


def main() -> None:
    """Write the page, or print the answer of a query."""
    if len(sys.argv) > 2:
        path, query, *given = sys.argv[1:]
        values = dict(word.split("=", 1) for word in given)
        for name, value in answer(Path(path).resolve(), query, values).items():
            click.echo(f"{name} {value}")
    else:
        (DOCS / "headlines.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
