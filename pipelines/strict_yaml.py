"""YAML without surprises: no yes/no booleans, sexagesimal numbers, dates or duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from perfpipe.errors import InputError, brief, os_error_sentence
from perfpipe.files import text_of


class StrictLoader(yaml.SafeLoader):
    """Resolves only true/false, null, decimal integers and floats; everything else is text."""


StrictLoader.yaml_implicit_resolvers = {}
_RESOLVERS = (
    ("tag:yaml.org,2002:bool", r"true|false", "tf"),
    ("tag:yaml.org,2002:null", r"null|~|", "n~\0"),
    ("tag:yaml.org,2002:int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        "-+.0123456789",
    ),
)
for _tag, _pattern, _first in _RESOLVERS:
    StrictLoader.add_implicit_resolver(
        _tag, re.compile(f"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )


def _mapping(loader: StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is not a string; quote it", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"duplicate key '{key}', first defined in line {seen[key]}",
                key_node.start_mark,
            )
        seen[key] = line
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load(path: Path) -> tuple[Any, yaml.Node | None]:
    """Return the value of a YAML file and its node tree, which has line numbers.

    Raises InputError with file and line.
    """
    try:
        text = text_of(path)
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read")) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text") from error
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise InputError(f"{where}: {brief(error.problem or error)}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({brief(error)})") from error


def line_of(node: yaml.Node | None, location: Iterable[str | int]) -> int:
    """Return the line of the value at a path of keys and indices, or of its closest parent."""
    line = 1
    for step in location:
        if isinstance(node, yaml.MappingNode):
            pair = next((p for p in node.value if p[0].value == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            if step >= len(node.value):
                break
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
