"""The versions of a package for a bisection, each installed into an environment of its own.

An environment sees the packages of the program's Python, behind its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from perfpipe.errors import InputError, TaskFailed, ToolMissing, did_you_mean
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.gate.arms import Arm, Source, arm_of
from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.program import python_in
from perfpipe.scratch import scratch

#: How long an installation, and a question to Python, may take, s.
_INSTALL_S, _ASK_S = 3600.0, 120.0

#: Prints where packages of an interpreter are, and whether pip is among them.
_FACTS = (
    "import importlib.util as u, json, sys; print(json.dumps({"
    "'pip': u.find_spec('pip') is not None, 'paths': "
    "[p for p in sys.path if p.rstrip('/').endswith(('site-packages', 'dist-packages'))]}))"
)

#: Prints where a package would be imported from.
_WHERE = "import sys; from importlib.metadata import distribution as d; print(d(sys.argv[1])._path)"

_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<first>[^=.][^=]*?)\.\.(?P<last>[^.].*)")

_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


@dataclass(frozen=True)
class Wanted:
    """A package and the options for pip: those that find packages, and --pre or --no-deps."""

    name: str
    first: str
    last: str
    finding: tuple[str, ...] = ()
    pre: bool = False
    no_deps: bool = False


def wanted(text: str, finding: Sequence[str], *, pre: bool, no_deps: bool) -> Wanted:
    """Return what --package NAME==A..B means; raises InputError for another form."""
    found = _PACKAGE.fullmatch(text)
    if found is None:
        raise InputError(f"--package {text}: expected NAME==A..B, such as torch==2.5.0..2.6.0")
    if found["first"] == found["last"]:
        raise InputError(f"--package {text}: both versions are the same")
    return Wanted(found["name"], found["first"], found["last"], tuple(finding), pre, no_deps)


class Versions:
    """Versions of a package from GOOD to BAD, in environments in a folder."""

    noun = "version"

    def __init__(self, package: Wanted, source: Source, folder: Path) -> None:
        self._package, self._source, self._folder = package, source, folder
        self._python = _interpreter(source)
        facts = json.loads(self._asked([self._python, "-c", _FACTS]).stdout)
        self._pip, self._paths = bool(facts["pip"]), [str(path) for path in facts["paths"]]
        self._made: dict[int, Path] = {}
        self.names = self._between(self._known())

    def label(self, place: int) -> str:
        """Return the package with its version."""
        return f"{self._package.name} {self.names[place]}"

    def arm(self, place: int) -> Arm:
        """Return the program with a version; raises TaskFailed if it cannot be installed."""
        if place not in self._made:
            self._made[place] = self._installed(self.names[place])
        python = self._made[place] / "bin" / "python"
        arm = arm_of(self.names[place], self._source, [f"python={python}"])
        return replace(arm, variant=(f"{self._package.name}={self.names[place]}",))

    def span(self, before: int, after: int) -> str:
        """Return the options that search the versions after `before`, up to `after`."""
        return f"--package {self._package.name}=={self.names[before]}..{self.names[after]}"

    def _between(self, known: list[str]) -> list[str]:
        first, last = self._package.first, self._package.last
        for version in (first, last):
            if version not in known:
                raise InputError(
                    f"--package: pip finds no version {version} of {self._package.name}"
                    f"{did_you_mean(version, known)}"
                )
        at, to = known.index(first), known.index(last)
        return known[at : to + 1] if at < to else known[to : at + 1][::-1]

    def _known(self) -> list[str]:
        """Return the versions that pip finds, the oldest first."""
        package = self._package
        python = self._python if self._pip else str(self._environment("pip") / "bin" / "python")
        pre = ["--pre"] if package.pre else []
        words = [python, *_PIP, "index", "versions", package.name, *package.finding]
        lines = self._asked([*words, *pre]).stdout.splitlines()
        named = [own.partition(":")[2] for own in lines if own.startswith("Available versions:")]
        found = [version.strip() for own in named for version in own.split(",")]
        if ends := [own for own in (package.first, package.last) if own not in found]:
            # A pre-release at an end does not ask for others.
            known = self._asked([*words, "--pre"]).stdout.partition("Available versions:")[2]
            every = [version.strip() for version in known.partition("\n")[0].split(",")]
            found = [version for version in every if version in found or version in ends]
        return found[::-1]

    def _environment(self, name: str) -> Path:
        """Make an environment that sees the packages of the program's Python."""
        made = self._folder / name
        bare = ["--without-pip"] if self._pip else []
        _check(run([self._python, "-m", "venv", *bare, made], timeout=_ASK_S), "python -m venv")
        (packages,) = made.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in self._paths]
        (packages / "perfpipe_behind.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return made

    def _installed(self, version: str) -> Path:
        package = self._package
        made = self._environment(version)
        python = made / "bin" / "python"
        words = [str(python), *_PIP, "install", "--quiet", *package.finding]
        what = f"{package.name}=={version}"
        alone = run([*words, "--no-deps", "--ignore-installed", what], timeout=_INSTALL_S)
        _check(alone, f"pip install {what}")
        if not package.no_deps:
            _check(run([*words, what], timeout=_INSTALL_S), f"pip install {what}")
        where = self._asked([str(python), "-c", _WHERE, package.name]).stdout.strip()
        if not Path(where).resolve().is_relative_to(made.resolve()):
            raise TaskFailed(f"{what}: the program would import {where} instead")
        return made

    def _asked(self, words: Sequence[str]) -> Finished:
        """Run Python as the program runs, and return what it printed."""
        workload = self._source.workload()
        done = run(words, cwd=self._source.directory, env=workload.env, timeout=_ASK_S)
        if not done.ok:
            raise InputError(f"--package {self._package.name}: {done.complaint()}")
        return done


@contextmanager
def versions(source: Source, package: Wanted) -> Iterator[Versions]:
    """Yield the versions of a package, whose environments are removed in the end."""
    with scratch() as folder:
        yield Versions(package, source, folder)


def _interpreter(source: Source) -> str:
    """Return the path of the program's Python."""
    workload = source.workload()
    command = source.command
    word = command[python_in(command)]
    if "/" in word:
        return str(source.directory / word)
    path = os.pathsep.join(os.get_exec_path({**os.environ, **workload.env}))
    found = shutil.which(word, path=path)
    if found is None:
        raise ToolMissing(f"{word}: no such program")
    return found


def _check(done: Finished, what: str) -> None:
    if not done.ok:
        why = "it took too long" if done.timed_out else done.complaint()
        raise TaskFailed(f"{what}: {why or exit_sentence(done.returncode)}")
