"""Turns a function into the equivalent workload, whose program is driver.py."""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import perfpipe
from perfpipe.directories import storing
from perfpipe.errors import InputError, did_you_mean
from perfpipe.files import replacing
from perfpipe.functions import value_of
from perfpipe.pipelines.api.notebook import source_of
from perfpipe.pipelines.faults import explain
from perfpipe.pipelines.tasks import MOST_CONFIGURATIONS, literal
from perfpipe.pipelines.workload import Workload
from perfpipe.store import Store

_DRIVER = Path(perfpipe.__file__).with_name("driver.py")

#: What is collected unless stated: the steps, without what prepares them.
_COLLECT = {
    "nsys": {"capture_range": "cudaProfilerApi"},
    "ncu": {
        "set": "detailed",
        "launch_count": 50,
        "clock_control": "none",
        "capture_range": "cudaProfilerApi",
    },
}

#: Names that a command replaces by settings of the workload.
_RESERVED = ("warmup", "repeats", "atol", "rtol", "python")

#: Keys of a workload file that are not settings of a function.
_OWN = ("version", "name", "command", "sizes", "matrix", "include", "tune", "cwd", "evaluate")


@dataclass(frozen=True)
class _Place:
    """Where a launch finds a function: its file and module, and the folder for imports.

    Files that belong to the function, such as a recording, are relative to `folder`.
    """

    file: Path
    path: Path
    folder: Path
    module: str | None = None


def workload_of(
    function: Callable[..., Any], parameters: Any, settings: Mapping[str, Any], store: Store
) -> tuple[Workload, Path]:
    """Return the workload of a function, and its file; that of a notebook is in the store.

    Raises InputError for what a launch cannot find or call, and for settings that are none.
    """
    own = _checked(function)
    configurations = _configurations(own, parameters)
    place = _place(own, store)
    names = list(configurations[0])
    command = [
        "{python}", literal(str(_DRIVER)), "--path", literal(str(place.path)),
        "--file", literal(os.path.relpath(place.file)),
        *(["--module", place.module] if place.module else []),
        "--function", own.__qualname__, "--warmup", "{warmup}", "--repeats", "{repeats}",
        *(f"{name}={{{name}}}" for name in names),
    ]  # fmt: skip
    content = {
        "version": 1,
        "name": re.sub(r"[^A-Za-z0-9_]+", "", own.__name__).strip("_") or "function",
        "description": (inspect.getdoc(own) or "").partition("\n")[0],
        "command": command,
        "sizes": configurations if names else [],
        "cwd": str(Path.cwd()),
        "repeats": 20,
        "collect": _COLLECT,
        **_settings(own, settings, place.folder),
    }
    try:
        return Workload.model_validate(content), place.file
    except ValidationError as error:
        faults = (explain(Workload, fault) for fault in error.errors())
        raise InputError(f"{own.__name__}: {'; '.join(faults)}") from error


def _checked(function: Callable[..., Any]) -> Any:
    """Return the function behind decorators; raises InputError if no launch could find it."""
    own: Any = inspect.unwrap(function)
    if not inspect.isfunction(own):
        raise InputError(f"{_name(function)}: only a function written in Python can be profiled")
    if inspect.iscoroutinefunction(own) or inspect.isgeneratorfunction(own):
        raise InputError(f"{_name(own)}: an async function or a generator cannot be profiled")
    if "<" in own.__qualname__ or own.__closure__:
        raise InputError(
            f"{_name(own)} exists only inside {own.__qualname__.partition('.')[0]}: define it at "
            "the top level of a file or a notebook, where the launches can find it"
            if "<locals>" in own.__qualname__
            else f"{_name(own)}: define a function with a name, which the launches can find"
        )
    return own


def _name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return f"partial of {_name(function.func)}"
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _configurations(own: Any, parameters: Any) -> list[dict[str, Any]]:
    """Return the arguments of each call, as a workload has them; raises InputError."""
    if parameters is None:
        found: list[dict[str, Any]] = [{}]
    elif isinstance(parameters, Mapping):
        lists = [_values(own, name, values) for name, values in parameters.items()]
        if math.prod(map(len, lists)) > MOST_CONFIGURATIONS:
            raise InputError(f"{own.__name__}: more than {MOST_CONFIGURATIONS:,} configurations")
        found = [dict(zip(parameters, row, strict=True)) for row in itertools.product(*lists)]
    elif isinstance(parameters, Sequence) and all(isinstance(row, Mapping) for row in parameters):
        found = [dict(row) for row in parameters]
    else:
        raise InputError(
            f"{own.__name__}: give the values of each parameter, such as {{'size': [512, 4096]}}, "
            "or a list of configurations, such as [{'size': 512}]"
        )
    if not found:
        raise InputError(f"{own.__name__}: no configurations")
    for row in found:
        if row.keys() != found[0].keys():
            raise InputError(f"{own.__name__}: every configuration needs the same parameters")
    _check_names(own, found[0])
    return [{name: _stated(own, name, value) for name, value in row.items()} for row in found]


def _values(own: Any, name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{own.__name__}: {name} needs a list of values, such as [{values!r}]")
    return list(values)


def _check_names(own: Any, names: Iterable[str]) -> None:
    """Raise InputError if the function cannot be called with these parameters."""
    signature = inspect.signature(own)
    known = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    if wrong := [name for name in names if not str(name).isidentifier()]:
        raise InputError(f"{own.__name__}: {wrong[0]!r} is not the name of a parameter")
    if reserved := [name for name in names if name in _RESERVED]:
        raise InputError(
            f"{own.__name__}: the parameter {reserved[0]} has the name of a setting; rename it"
        )
    every = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    for name in () if every else names:
        if name not in known:
            raise InputError(f"{own.__name__} has no parameter {name}{did_you_mean(name, known)}")
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise InputError(f"{own.__name__}: {error}; give its values") from error


def _stated(own: Any, name: str, value: Any) -> int | float | str:
    """Return a value as a workload has it; raises InputError if the launch would get another."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    text = str(value)
    read = value_of(text)
    if type(read) is not type(value) or read != value or not text:
        raise InputError(
            f"{own.__name__}: {name}={value!r} cannot be a parameter: use a number, a boolean, "
            "None, or a text that does not read as one of these"
        )
    return text if isinstance(value, bool) or value is None else value


def _settings(own: Any, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the keys of a workload file; a recording is beside the function."""
    known = [name for name in _keys() if name not in _OWN]
    for name in settings:
        if name not in known:
            raise InputError(
                f"{own.__name__}: no setting {name}{did_you_mean(name, known)} (settings are the "
                f"keys {', '.join(known)} of a workload file)"
            )
    recording = settings.get("recording")
    beside = {"recording": str(folder / recording)} if recording is not None else {}
    return {**settings, **beside}


def _keys() -> Sequence[str]:
    return [field.alias or name for name, field in Workload.model_fields.items()]


def _place(own: Any, store: Store) -> _Place:
    """Return where a launch finds a function."""
    main = sys.modules["__main__"]
    if own.__module__ == "__main__" and not hasattr(main, "__file__"):
        return _Place(_written(own, store), Path.cwd(), Path.cwd())
    named = inspect.getsourcefile(own)
    file = Path(named).resolve() if named else Path()
    if not file.is_file():
        raise InputError(
            f"{own.__name__}: its source is not in a file; define it in a file or in a notebook"
        )
    module = own.__module__
    if module == "__main__":
        module = main.__spec__.name if main.__spec__ else ""
    # A module that was loaded under another name than that of its file is loaded as a script.
    parts = module.split(".")
    inside = file.parent if file.name == "__init__.py" else file.with_suffix("")
    if module and list(inside.parts[-len(parts) :]) == parts:
        return _Place(file, inside.parents[len(parts) - 1], file.parent, module)
    return _Place(file, file.parent, file.parent)


def _written(own: Any, store: Store) -> Path:
    """Write the source of a function of a notebook into the store, and return the file."""
    text = source_of(own)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = store.root.resolve() / "functions" / digest / f"{own.__name__}.py"
    if not path.exists():
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
    return path
