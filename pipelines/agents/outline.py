"""Writes an answer as text: all that its JSON says, in about two thirds of the characters.

Some clients show a model the text of a result, others the structured content, and few show both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: What stands between two cells of a row, and most columns of a table.
_BETWEEN, _COLUMNS = " | ", 10

#: Least share of cells of a table that are filled.
_FILLED = 0.7

#: Longest record on one line, as JSON, characters.
_SHORT = 120

#: Fields that an answer lacks if they say nothing.
_QUIET: tuple[object, ...] = (None, "", [], {})


def outline(answer: Mapping[str, Any]) -> str:
    """Return an answer as text: a line for each field, and a table for each list of records.

    No text of a capture begins a line of its own: what is not one printable line is quoted as JSON.
    """
    told = {key: one for key, one in answer.items() if key != "schema_version"}
    following = told.pop("next", None)
    lines = [
        line for key, one in told.items() if one not in _QUIET for line in _field(key, one, "")
    ]
    if following:
        lines.append(f"next: {following['tool']} {_json(following['arguments'])}")
    return "\n".join(lines)


def _field(key: str, found: Any, indent: str) -> Iterator[str]:
    name, inner = f"{indent}{_scalar(key)}:", f"{indent}  "
    if not isinstance(found, (dict, list)):
        yield f"{name} {_scalar(found)}"
    elif isinstance(found, list) and any(isinstance(one, (dict, list)) for one in found):
        yield from _list(name, found, inner)
    elif isinstance(found, list) or (indent and len(_json(found)) <= _SHORT):
        yield f"{name} {_json(found)}"
    else:
        yield name
        for below, one in found.items():
            yield from _field(below, one, inner)


def _list(name: str, found: Sequence[Any], indent: str) -> Iterator[str]:
    if all(isinstance(one, list) for one in found):
        yield name
        yield from (f"{indent}{_BETWEEN.join(map(_cell, one))}" for one in found)
        return
    records = [_flat(one) for one in found] if all(isinstance(one, dict) for one in found) else []
    columns = [*dict.fromkeys(key for one in records for key in one)]
    filled = sum(map(len, records)) / max(1, len(records) * len(columns))
    if len(records) > 1 and filled >= _FILLED and len(columns) <= _COLUMNS:
        yield f"{name} {_BETWEEN.join(map(_cell, columns))}"
        for one in records:
            yield indent + _BETWEEN.join(_cell(one[key]) if key in one else "" for key in columns)
        return
    yield name
    for one in found:
        if not isinstance(one, dict) or len(_json(one)) <= _SHORT:
            yield f"{indent}- {_cell(one)}"
            continue
        lines = [line for key, value in one.items() for line in _field(key, value, f"{indent}  ")]
        yield f"{indent}- {lines[0].lstrip()}"
        yield from lines[1:]


def _flat(record: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return a record without records in it: their fields have names like share.pct."""
    made: dict[str, Any] = {}
    for key, one in record.items():
        made |= _flat(one, f"{above}{key}.") if isinstance(one, dict) else {f"{above}{key}": one}
    return made


def _cell(found: Any) -> str:
    if isinstance(found, (list, dict)):
        return _json(found)
    text = _scalar(found)
    return _json(found) if isinstance(found, str) and (_BETWEEN.strip() in text) else text


def _scalar(found: Any) -> str:
    if not isinstance(found, str):
        return _json(found)
    plain = found.isprintable() and found == found.strip() and found[:1] not in ("", '"', "[", "{")
    return found if plain and found not in ("null", "true", "false") else _json(found)


def _json(found: Any) -> str:
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    # What is a line break to some readers only is none in JSON.
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    return json.dumps(letter)[1:-1]
