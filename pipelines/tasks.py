"""Configurations of a workload: its parameters in every combination, each with its command."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.expression import evaluate
from perfpipe.pipelines.serving.block import OF_LOAD, Serve
from perfpipe.pipelines.serving.bodies import bodies_of
from perfpipe.pipelines.workload import Params, Scalar, Workload, load_workload

#: Bytes of an element, by type name.
DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}

#: Maximum number of configurations of a workload, which are all in memory.
MOST_CONFIGURATIONS = 100_000

#: Environment variable with the interpreter for {python}.
PYTHON_VARIABLE = "PERFPIPE_PYTHON"

#: {name} is replaced; {{name}} stands for the text {name}.
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>\w+)\}\}|\{(?P<name>\w+)\}")


@dataclass(frozen=True)
class Task:
    """One configuration: `flops`, `bytes`, `samples` and `tokens` per iteration, None if unknown.

    `key` is a hash of everything that its outcome depends on: command, parameters, environment,
    profilers, and the program's files.  `generation` counts the rounds of a search from 0;
    `default` marks the configuration that the search measures gains against.  `serve` is how
    its command is a server, if it is one.
    """

    index: int
    params: Mapping[str, Scalar]
    command: tuple[str, ...]
    flops: float | None
    bytes: float | None
    dtype: str | None
    key: str
    generation: int | None = None
    default: bool | None = None
    samples: float | None = None
    tokens: float | None = None
    serve: Serve | None = None

    @property
    def label(self) -> str:
        """The parameters as text: m=512 n=512."""
        return " ".join(f"{k}={v}" for k, v in self.params.items()) or "-"


def directory_of(workload: Workload, path: Path) -> Path:
    """Return the working directory of programs."""
    return path.resolve().parent / (workload.cwd or ".")


def program_file(path: Path, overrides: Mapping[str, list[Scalar]] | None = None) -> Workload:
    """Read a workload file of a program that ends by itself; raises InputError for a server."""
    found = load_workload(path, overrides)
    if found.serve is not None:
        raise InputError(f"{path} is a server, which only 'perfpipe run' measures")
    return found


def tasks(
    workload: Workload, path: Path, filters: Mapping[str, list[str]] | None = None
) -> list[Task]:
    """Return the configurations of a workload: every size with every matrix combination.

    `filters` maps a parameter to patterns (fnmatch), one of which its value must match.  Raises
    InputError if no configuration is left or a filter names an unknown parameter.
    """
    found = combinations(workload)
    _check_filters(found, filters or {}, path)
    made = [
        task_of(index, params, workload, path)
        for index, params in enumerate(p for p in found if passes(p, filters or {}))
    ]
    if not made:
        raise InputError(f"{path}: no configurations left (see matrix, sizes, exclude, --filter)")
    return made


def combinations(workload: Workload) -> list[Params]:
    """Return the parameters of every configuration, without those of a search.

    Raises InputError if there are too many.
    """
    names = list(workload.matrix)
    count = math.prod(map(len, workload.matrix.values())) * max(1, len(workload.sizes))
    if count > MOST_CONFIGURATIONS:
        raise InputError(
            f"{workload.name}: {count:,} configurations, more than {MOST_CONFIGURATIONS:,}; give "
            "fewer values, or search them with tune:"
        )
    products = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*workload.matrix.values())
    ]
    sizes = [{"size": size} if isinstance(size, int) else size for size in workload.sizes]
    whole = [{**size, **free} for size, free in itertools.product(sizes or [{}], products)]
    whole += [dict(more) for more in workload.include]
    return [
        params
        for params in whole
        if not any(rule.items() <= params.items() for rule in workload.exclude)
    ]


def _check_filters(found: Iterable[Params], filters: Mapping[str, list[str]], path: Path) -> None:
    known = {name for params in found for name in params}
    for name in filters:
        if name not in known:
            raise InputError(
                f"{path}: --filter {name}: no such parameter{did_you_mean(name, known)}"
            )


def passes(params: Mapping[str, Scalar], filters: Mapping[str, list[str]]) -> bool:
    """Return whether each named parameter matches one of its patterns."""
    return all(
        any(fnmatch.fnmatchcase(str(params.get(name)), pattern) for pattern in patterns)
        for name, patterns in filters.items()
    )


def task_of(
    index: int, params: Params, workload: Workload, path: Path, generation: int | None = None
) -> Task:
    """Return the task of some parameters; raises InputError for a wrong name or formula."""
    known: dict[str, Scalar] = {
        **params,
        "warmup": workload.warmup,
        "repeats": workload.repeats,
        "atol": workload.validate_.atol,
        "rtol": workload.validate_.rtol,
    }
    dtype = _substitute(workload.work.dtype, known, path) if workload.work.dtype else None
    numbers = dict(known)
    if dtype in DTYPE_BYTES:
        numbers["dtype_bytes"] = DTYPE_BYTES[dtype]
    values: dict[str, float | None] = {}
    for name in ("flops", "bytes", "samples", "tokens"):
        expression = getattr(workload.work, name)
        try:
            values[name] = None if expression is None else evaluate(str(expression), numbers)
        except ValueError as error:
            raise InputError(f"{path}: work.{name}: {error}") from error
    known["python"] = workload.execution.python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    words = [(word, _substitute(word, known, path)) for word in workload.command]
    command = tuple(made for word, made in words if made or not word)
    directory = directory_of(workload, path)
    serve = _served(workload.serve, known, path, directory)
    key = _key(command, params, workload, directory, serve)
    tune = workload.tune
    # A search without a default has an empty default, which no configuration equals.
    default = (
        None if tune is None else {name: params[name] for name in tune.parameters} == tune.default
    )
    return Task(
        index, params, command, dtype=dtype, key=key, generation=generation, default=default,
        serve=serve, **values,
    )  # fmt: skip


def _substitute(text: str, known: Mapping[str, Scalar], path: Path) -> str:
    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return f"{{{match['literal']}}}"
        if name not in known:
            raise InputError(
                f"{path}: unknown parameter {match[0]} (known: {', '.join(sorted(known))})"
                + did_you_mean(name, known)
            )
        return str(known[name])

    return _PLACEHOLDER.sub(replace, text)


def placeholders(words: Iterable[str]) -> set[str]:
    """Return the names that are replaced in a command.

    >>> sorted(placeholders(["{python}", "--size={size}", "{{literal}}"]))
    ['python', 'size']
    """
    names = (found["name"] for word in words for found in _PLACEHOLDER.finditer(word))
    return {name for name in names if name is not None}


def literal(text: str) -> str:
    """Return a text escaped for a workload file, so that no placeholder is replaced."""
    return re.sub(r"\{(\w+)\}", r"{{\1}}", text)


def _served(
    serve: Serve | None, known: Mapping[str, Scalar], path: Path, cwd: Path
) -> Serve | None:
    """Return how a command is a server, with the parameters of its configuration.

    Raises InputError if a value, or a file with bodies, is wrong.
    """
    if serve is None:
        return None
    # A load's own words are replaced for each load, unless they are parameters.
    names = {**{name: f"{{{name}}}" for name in OF_LOAD}, **known}
    try:
        found = serve.resolved(lambda text: _substitute(text, names, path))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, ("serve", *fault["loc"])))
        said = fault["msg"].removeprefix("Value error, ")
        raise InputError(f"{path}: {place}: {said}") from error
    except ValueError as error:
        raise InputError(f"{path}: serve.{error}") from error
    if not found.load:
        bodies_of(found, cwd)
    return found


def _key(
    command: tuple[str, ...], params: Params, workload: Workload, cwd: Path, serve: Serve | None
) -> str:
    content = {
        "command": list(command),
        "params": dict(params),
        "files": _files(command, cwd),
        **workload.model_dump(
            include={"env", "collect", "execution", "launches"},
            exclude={"collect": {"observe"}} if workload.collect.observe else None,
            mode="json",
        ),
        **({"duration": workload.duration} if workload.duration else {}),
    }
    if serve is not None:
        named = [serve.body] if isinstance(serve.body, str) else []
        content["serve"] = serve.model_dump(mode="json", exclude_defaults=True)
        content["load_files"] = _files(("", *serve.load, *named), cwd)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _files(command: tuple[str, ...], cwd: Path) -> dict[str, str]:
    """Return digests of the files that a command names, and of the Python modules next to them."""
    named = [cwd / word for word in command[1:] if word[:1] not in ("-", "/")]
    files = {path for path in named if _is_file(path)}
    files |= {
        beside for path in files if path.suffix == ".py" for beside in path.parent.glob("*.py")
    }
    return {path.name: _digest(path, path.stat().st_mtime_ns) for path in sorted(files)}


def _is_file(path: Path) -> bool:
    """Return whether a word is the name of a file; other words may be too long for a name."""
    try:
        return path.is_file()
    except OSError:
        return False


_DIGESTS: dict[tuple[Path, int], str] = {}


def _digest(path: Path, modified: int) -> str:
    key = (path, modified)
    if key not in _DIGESTS:
        _DIGESTS[key] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return _DIGESTS[key]
