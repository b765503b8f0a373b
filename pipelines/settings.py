"""Settings of a project, a user and a site, in TOML files.

Order of precedence: option, environment variable, workload file, the project's perfpipe.toml, the
user's ~/.config/perfpipe/config.toml, the site's file, default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.errors import InputError, did_you_mean, os_error_sentence
from perfpipe.files import text_of

if TYPE_CHECKING:
    from perfpipe.pipelines.slurm.options import Slurm
    from perfpipe.pipelines.workload import Workload

#: Looked for in the working directory and above it.
PROJECT_FILE = "perfpipe.toml"

#: The file of a site, and the variable that names another one.
SITE_FILE, SITE_VARIABLE = Path("/etc/perfpipe.toml"), "PERFPIPE_SITE_CONFIG"

#: Environment variables of settings; variables for [slurm] begin with SLURM_PREFIX.
VARIABLES = {
    "store": "PERFPIPE_STORE",
    "step_range": "PERFPIPE_STEP_RANGE",
}
SLURM_PREFIX = "PERFPIPE_SLURM_"

#: Settings that are paths, relative to the file that states them.
_PATHS = ("store",)

_TABLE = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True)
class Layer:
    """The settings of one source: values and origins by dotted key."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]

    @property
    def slurm(self) -> Slurm:
        """The Slurm options."""
        from perfpipe.pipelines.slurm.options import Slurm

        below = {key: value for key, value in self.values.items() if key.startswith("slurm.")}
        return Slurm.model_validate(_nested(below).get("slurm", {}))


@dataclass(frozen=True)
class Setting:
    """A setting in effect, and where it comes from."""

    key: str
    value: Any
    origin: str


def files() -> list[Path]:
    """Return the existing files of site, user and project, highest precedence last.

    Raises InputError if the file that SITE_VARIABLE names does not exist.
    """
    named = os.environ.get(SITE_VARIABLE)
    site = Path(named) if named else SITE_FILE
    if named and not site.is_file():
        raise InputError(f"${SITE_VARIABLE}: no such file: {named}")
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    user = Path(home) / "perfpipe" / "config.toml"
    here = Path.cwd()
    project = next((p for d in (here, *here.parents) if (p := d / PROJECT_FILE).is_file()), None)
    return [path for path in (site, user, project) if path is not None and path.is_file()]


def read(path: Path) -> Layer:
    """Return the settings of a file; raises InputError with file and line of every error."""
    from pydantic import ValidationError

    from perfpipe.pipelines.faults import explain
    from perfpipe.pipelines.settings_model import Settings

    try:
        text = text_of(path)
        content = tomllib.loads(text)
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read")) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(_placed(path, str(error), text)) from error
    lines = key_lines(text)
    try:
        stated = Settings.model_validate(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise InputError(
            "; ".join(
                f"{path}:{_line(lines, fault['loc'])}: {explain(Settings, fault)}"
                for fault in error.errors()
            )
        ) from error
    values = dict(_flat(stated))
    for name in _PATHS:
        if name in values:
            values[name] = str(path.parent / Path(values[name]).expanduser())
    return Layer(values, {key: f"{path}:{_line(lines, key.split('.'))}" for key in values})


def environment() -> Layer:
    """Return the settings of environment variables."""
    values: dict[str, Any] = {}
    origins = {}
    for key, name in VARIABLES.items():
        if os.environ.get(name):
            values[key], origins[key] = os.environ[name], f"${name}"
    for name in sorted(os.environ):
        if name.startswith(SLURM_PREFIX):
            key = f"slurm.{name.removeprefix(SLURM_PREFIX).lower()}"
            values[key], origins[key] = _of_slurm(name, os.environ[name]), f"${name}"
    return Layer(values, origins)


def slurm_options(workload: Slurm | None = None, flags: Slurm | None = None) -> Slurm:
    """Return Slurm options, merged from files, workload, environment variables and flags."""
    from perfpipe.pipelines.slurm.options import merged

    of_files = [read(path).slurm for path in files()]
    return merged(*of_files, workload, environment().slurm, flags)


def effective(workload: tuple[Workload, Path] | None = None) -> list[Setting]:
    """Return all settings, and where each comes from."""
    from perfpipe.pipelines.settings_model import Settings

    layers = [read(path) for path in files()]
    if workload is not None:
        stated, path = workload
        slurm = stated.slurm.model_dump(exclude_unset=True) if stated.slurm else {}
        values = dict(_flat({"slurm": slurm}))
        layers.append(Layer(values, dict.fromkeys(values, str(path))))
    layers.append(environment())
    found = {k: Setting(k, v, "default") for k, v in _flat(Settings().model_dump())}
    for layer in layers:
        found |= {k: Setting(k, v, layer.origins[k]) for k, v in layer.values.items()}
    return list(found.values())


def stated(key: str) -> str | None:
    """Return a setting from the files, the default of its option; None if it is not set."""
    for path in reversed(files()):
        values = read(path).values
        if key in values:
            return str(values[key])
    return None


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key of a TOML file."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = _steps(match[1])
            found.setdefault(table, number)
        elif match := _KEY.match(line):
            found.setdefault(table + _steps(match[1]), number)
    return found


def _steps(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _line(lines: Mapping[tuple[str, ...], int], location: Iterable[str | int]) -> int:
    """Return the line of a key, or of its closest parent."""
    steps = tuple(str(step) for step in location)
    known = (lines[steps[:n]] for n in range(len(steps), 0, -1) if steps[:n] in lines)
    return next(known, 1)


def _placed(path: Path, complaint: str, text: str) -> str:
    """Return a parser error in the usual form FILE:LINE: ERROR."""
    match = _PLACE.fullmatch(complaint)
    if not match:
        return f"{path}: {complaint}"
    line = match[2] or str(len(text.splitlines()))
    return f"{path}:{line}: {match[1][0].lower()}{match[1][1:]}"


def _flat(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        place = found
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return found


def _of_slurm(name: str, text: str) -> Any:
    """Return the value of a variable for a Slurm option; a list has one entry per line."""
    from pydantic import ValidationError

    from perfpipe.pipelines.slurm.options import Slurm

    key = name.removeprefix(SLURM_PREFIX).lower()
    fields = {key: field for key, field in Slurm.model_fields.items() if key != "container"}
    if key not in fields:
        known = [SLURM_PREFIX + field.upper() for field in fields]
        raise InputError(f"${name}: no such setting{did_you_mean(name, known)}")
    value = text.splitlines() if isinstance(fields[key].get_default(), list) else text
    try:
        return getattr(Slurm.model_validate({key: value}), key)
    except ValidationError as error:
        sentence = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"${name}: {sentence[0].lower()}{sentence[1:]}") from error
