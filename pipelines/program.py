"""Turns a program on the command line into the equivalent workload file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml
from pydantic import ValidationError

from perfpipe.errors import InputError, ToolMissing
from perfpipe.pipelines.tasks import literal
from perfpipe.pipelines.workload import Scalar, Workload
from perfpipe.pipelines.writing import write_text

#: What nsys collects: the defaults of a workload file, and operating system calls, which show what
#: the host does while the GPU is idle.
_NSYS = {"trace": ["cuda", "nvtx", "osrt"]}

_SCRIPT = re.compile(r".+\.(py|sh|bash|jl|pl|rb|lua|js)")

#: Programs that run another program, after which the run is named.
_RUNS_ANOTHER = re.compile(
    r"python[0-9.]*|(ba|da|z|k)?sh|env|nice|numactl|taskset|time|stdbuf|uv|poetry|conda|pixi|torchrun"
    r"|accelerate|deepspeed|horovodrun|mpirun|mpiexec(\.\w+)?|orterun|srun|julia"
)

#: Path of the workload file of a program that has none.
PROGRAM = Path("the program")

_PYTHON = re.compile(r"python[0-9.]*")

#: Options of srun without a value, or with a value only after "=".
_SRUN_FLAGS = frozenset(
    "--contiguous --disable-status --exact --exclusive --help --hold --immediate "
    "--kill-on-bad-exit --label --multi-prog --no-allocate --no-kill --overcommit "
    "--overlap --oversubscribe "
    "--preserve-env --propagate --pty --quiet --quit-on-interrupt --reboot --send-libs "
    "--spread-job --unbuffered --usage --use-min-nodes --verbose --version --wait-all-nodes "
    "--whole --x11".split()
)
_SRUN_SHORT_FLAGS = frozenset("EHIKOQXZhklsuvV")

#: Settings that are allowed without a workload file.
_SETTINGS = ("timeout", "duration", "launches")


@dataclass(frozen=True)
class Program:
    """A program as given: its words, environment variables, directory, and the _SETTINGS given.

    `collector` comes from the command line; `collect` are settings of the workload file's block.
    `stacks` is whether nsys samples stacks; `serve` is the file's block, if it is a server.
    """

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path()
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    quick: bool = False
    collector: str = "auto"
    collect: Mapping[str, bool] = field(default_factory=dict)
    stacks: bool = True
    serve: Mapping[str, Any] | None = None

    @property
    def directory(self) -> Path:
        """Its working directory."""
        return Path.cwd() / self.cwd

    def check(self, *, elsewhere: bool = False, prepared: bool = False) -> None:
        """Raise an error if it cannot be launched.

        `elsewhere` says that its files are not here yet; `prepared`, that what prepares its launch
        may provide the program.
        """
        first = self.words[0]
        name = PurePath(first).name
        if not first:
            raise InputError("the program name after -- is empty")
        if name in ("nsys", "ncu"):
            raise InputError(f"perfpipe starts {name} itself: give only your program after --")
        if not self.directory.is_dir():
            raise InputError(f"--cwd {self.cwd}: no such directory")
        if elsewhere and "/" in first:
            return
        path = os.pathsep.join(os.get_exec_path({**os.environ, **self.env}))
        place = str(self.directory / first) if "/" in first else first
        if shutil.which(place, path=path):
            return
        there = self.directory / first
        if there.suffix in (".yaml", ".yml") and there.is_file():
            raise InputError(f"{first} is a workload file; use: perfpipe run {shlex.quote(first)}")
        if there.suffix == ".py" and there.is_file():
            meant = shlex.join(["perfpipe", "run", "--", "python", *self.words])
            raise InputError(f"{first} is not executable; did you mean '{meant}'?")
        if "/" in first and there.is_file():
            raise InputError(f"{first} is not executable")
        if not prepared:
            raise ToolMissing(f"{first}: no such program")

    def document(self, cwd: str | None = None) -> dict[str, Any]:
        """Return the workload file as data; `cwd` is as in the file."""
        wrapper, command = _split_srun(self.words)
        content: dict[str, Any] = {"version": 1, "name": name_of(command)}
        content["command"] = [literal(word) for word in command]
        if self.env:
            content["env"] = dict(self.env)
        if cwd is not None:
            content["cwd"] = cwd
        content.update(self.settings)
        content["collect"] = self._collect()
        if self.serve is not None:
            content["serve"] = dict(self.serve)
        if wrapper:
            content["execution"] = {"kind": "srun", "wrapper": list(wrapper)}
        return content

    def _collect(self) -> dict[str, Any]:
        nsys = _NSYS if self.stacks else {**_NSYS, "stacks": False}
        known = {"nsys": nsys, "ncu": {"set": "basic"} if self.quick else {}, "torch": {}}
        names = {"timing": (), "auto": ("nsys", "ncu"), "all": ("nsys", "ncu")}
        if self.serve is not None:
            # ncu replays kernels, so a server runs under it only if it is asked for.
            names = {"timing": (), "auto": ("nsys",), "all": ("nsys",), "ncu": ("nsys", "ncu")}
        chosen = names.get(self.collector, (self.collector,))
        return {**{name: known[name] for name in chosen}, **self.collect}

    def workload(self) -> Workload:
        """Return it as a workload."""
        try:
            return Workload.model_validate(self.document(str(self.directory)))
        except ValidationError as error:
            fault = error.errors()[0]
            place = "".join(f"--set {name}: " for name in fault["loc"])
            if fault["loc"][:1] == ("serve",):
                place = "".join(f"--{str(name).replace('_', '-')}: " for name in fault["loc"][1:2])
            raise InputError(f"{place}{fault['msg'].removeprefix('Value error, ')}") from error

    def save(self, path: Path, *, force: bool) -> None:
        """Write the workload file; raises InputError if the file exists, unless `force`."""
        if path.exists() and not force:
            raise InputError(f"{path} already exists; --force overwrites it")
        beside, cwd = path.resolve().parent, self.directory.resolve()
        inside = str(cwd.relative_to(beside)) if cwd.is_relative_to(beside) else str(cwd)
        content = self.document(None if inside == "." else inside)
        what = "--" if self.serve is None else "--serve"
        words = self.words if self.serve is None else [shlex.join(self.words)]
        text = f"# Written by: perfpipe run --save {path.name} {what} {_one_line(words)}\n"
        text += yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=98, allow_unicode=True)
        write_text(path, text)


#: Words that YAML does not read as text.
_NOT_TEXT = ("true", "false", "null", ".")


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not a plain word, and writes lists on one line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", text) and text not in _NOT_TEXT
    style = None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def _one_line(words: Sequence[str]) -> str:
    return "".join(c if c.isprintable() else " " for c in shlex.join(words))


def program_of(
    words: Sequence[str],
    *,
    env: Sequence[str] = (),
    cwd: Path | None = None,
    settings: Mapping[str, list[Scalar]] | None = None,
    quick: bool = False,
    collector: str = "auto",
    collect: Mapping[str, bool] | None = None,
    stacks: bool = True,
    elsewhere: bool = False,
    prepared: bool = False,
    serve: Mapping[str, Any] | None = None,
) -> Program:
    """Return a program that can be launched, from its words and options.

    `env` are texts NAME=VALUE; `elsewhere` says that it runs in another checkout, `prepared` that
    a module, a container or a shell line may provide it.  Raises InputError, or ToolMissing if
    there is no such program.
    """
    if not words:
        raise InputError("no program after --, as in: perfpipe run -- python train.py")
    variables = {}
    for text in env:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--env {text}: expected NAME=VALUE")
        variables[name] = value
    for name, values in (settings or {}).items():
        if name not in _SETTINGS or len(values) != 1:
            raise InputError(
                f"--set {name}: without a workload file only timeout, duration and launches can be "
                "set (--save writes a file, which can have parameters)"
            )
    chosen = {name: values[0] for name, values in (settings or {}).items()}
    if collector == "replay":
        raise InputError("a program without a workload file has no recording to replay")
    program = Program(
        tuple(words), variables, cwd or Path(), chosen, quick, collector, collect or {}, stacks,
        serve,
    )  # fmt: skip
    program.check(elsewhere=elsewhere, prepared=prepared)
    return program


def name_of(words: Sequence[str]) -> str:
    """Return the name of a run: that of the program, without its interpreter or launcher.

    >>> name_of(["torchrun", "--nproc-per-node", "2", "src/train.py", "--lr", "3e-4"])
    'train'
    """
    name = next(_names(words))
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-._") or "program"


def python_in(words: Sequence[str]) -> int:
    """Return the position of the Python interpreter in a command; raises InputError if none."""
    for at, word in enumerate(words):
        if _PYTHON.fullmatch(PurePath(word).name):
            return at
    raise InputError(
        f"{shlex.join(words)}: no Python interpreter to replace; begin the program with python, "
        "as in: python -m torch.distributed.run train.py"
    )


def _names(words: Sequence[str]) -> Iterator[str]:
    first = PurePath(words[0]).name
    if not _RUNS_ANOTHER.fullmatch(first):
        yield PurePath(first).stem if _SCRIPT.fullmatch(first) else first
    yield from (PurePath(word).stem for word in words[1:] if _SCRIPT.fullmatch(word))
    if "-m" in words[1:-1]:
        yield words[words.index("-m") + 1].rpartition(".")[2]
    for at, word in enumerate(words[1:], 1):
        if word[:1] not in ("-", "") and "=" not in word and shutil.which(word):
            yield from _names(words[at:])
    yield first


def _split_srun(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return srun with its options, and the program after them; empty if the program is not srun.

    Processes that srun starts are not its children, so profilers must come after srun.
    """
    if PurePath(words[0]).name != "srun":
        return (), words
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            at += "=" not in word and word not in _SRUN_FLAGS
        else:
            # Flags may be joined, and the last flag of a group may need a value: -ln 2.
            valued = next((i for i, c in enumerate(word[1:], 1) if c not in _SRUN_SHORT_FLAGS), 0)
            at += valued == len(word) - 1
    if at >= len(words):
        raise InputError(f"{shlex.join(words)}: no program after the options of srun")
    return words[:at], words[at:]
