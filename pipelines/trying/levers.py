"""The levers: changes that perfpipe makes to a program.

Each lever of perfpipe is a file in perfpipe/injected/levers (docs/architecture.md, "Adding a
lever").  A workload's own levers are settings of the workload file.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from perfpipe.cores import cores
from perfpipe.errors import InputError, did_you_mean
from perfpipe.pipelines.collectors.observing import INJECTED
from perfpipe.pipelines.workload import Params

#: The files of levers.
FOLDER = INJECTED / "levers"

#: Share of its bound that a lever is expected to gain before any trial has shown it.
USUAL_SHARE = 0.4

#: Stands for a folder of the trial, which a lever fills in its first launch.
CACHE = "{cache}"

#: What is applied when: levers of the program's own environment come first.
_FIRST = 0


@dataclass(frozen=True)
class Lever:
    """A change that can be tried.

    `base` is the name of its file; a variant is named BASE:VALUE.  `answers` are the techniques of
    findings that it carries out, `prefers` those for which it is the best variant, and `prior` the
    share of their bound that it is expected to gain.  `free` levers are tried without a finding.
    `usual_pct` is what a lever is expected to gain without a bound, 0 if little.  `needs` is torch,
    transformers, jax, checkpointing (of activations) or any.  `expect` is what the results should
    be: identical, scatter or tolerance, the latter with a relative error `tolerance` at the first
    step. A lever that `regroups` divides the work of a step into other calls, so that steps are
    compared, not calls. `verify` are options for one more launch, which is not timed and shows
    whether results are right. `env` are variables for the launch; `arguments`, `patch` and
    `build` are those of a workload's own lever. `by_hand` returns the change to make by hand;
    without it, the change is to export the variables.
    """

    base: str
    options: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    answers: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    prior: float = USUAL_SHARE
    usual_pct: float = 0.0
    free: bool = False
    needs: str = "any"
    expect: str = "identical"
    tolerance: float | None = None
    regroups: bool = False
    difficulty: str = "low"
    risks: str = ""
    order: int = _FIRST
    compiles: bool = False
    file: Path | None = None
    verify: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Params = field(default_factory=dict)
    patch: Path | None = None
    build: str | None = None
    by_hand: Callable[..., str] | None = None
    default: bool = True

    @property
    def name(self) -> str:
        """Its name: that of the file, and the value of the variant unless it is the default."""
        if self.default or not self.options:
            return self.base
        return f"{self.base}:{'-'.join(str(value) for value in self.options.values())}"

    @property
    def injected(self) -> bool:
        """Whether it acts in the program's Python."""
        return self.file is not None

    @property
    def fills(self) -> bool:
        """Whether its first launch fills a folder, so that only later ones show what it gains."""
        return any(CACHE in value for value in self.env.values())

    @property
    def change(self) -> tuple[object, ...]:
        """What it changes besides the program's Python."""
        return self.env, self.arguments, self.patch, self.build

    def entry(self) -> dict[str, Any]:
        """Return its entry in the plan of a launch."""
        return {"name": self.name, "file": str(self.file), "options": {**self.options}}

    def manual(self, applied: Sequence[Mapping[str, Any]]) -> str:
        """Return the change to make by hand, given what it was applied to."""
        if self.by_hand is None:
            return exported(self.env)
        return self.by_hand(dict(self.options), [*applied])


def exported(env: Mapping[str, str]) -> str:
    """Return the commands of a shell that set variables."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items())


@cache
def levers() -> dict[str, Lever]:
    """Return the levers by name, with all their variants, in the order of application."""
    found = [lever for path in sorted(FOLDER.glob("*.py")) for lever in _of_file(path)]
    return {lever.name: lever for lever in sorted(found, key=lambda own: (own.order, own.base))}


def named(names: Sequence[str], own: Mapping[str, Lever]) -> list[Lever]:
    """Return levers by name, those of the workload included; raises InputError if unknown.

    The name of a file with variants stands for all of them if it ends with a star.
    """
    known = {**levers(), **own}
    found: dict[str, Lever] = {}
    for name in names:
        matching = [key for key in known if key.split(":")[0] + "*" == name] or [name]
        for key in matching:
            if key not in known:
                raise InputError(
                    f"no lever {key}{did_you_mean(key, known)} (known: {', '.join(known)})"
                )
            found[key] = known[key]
    return [*found.values()]


def exclusive(one: Lever, other: Lever) -> bool:
    """Return whether two levers cannot be applied together.

    They are variants, both compile, or make the same change.
    """
    alike = any(one.change) and one.change == other.change
    return alike or one.base == other.base or (one.compiles and other.compiles)


def _of_file(path: Path) -> list[Lever]:
    names: dict[str, Any] = {"__name__": f"perfpipe_lever_{path.stem}"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)  # noqa: S102
    made = []
    for number, options in enumerate(names.get("VARIANTS") or ({},)):
        prefers = names.get("PREFERS") or {}
        env = names["env"]({"folder": CACHE, **options}, cores(), 1) if "env" in names else {}
        made.append(
            Lever(
                base=path.stem,
                options=options,
                title=names["TITLE"].format(**options),
                answers=tuple(names["ANSWERS"]),
                prefers=tuple(
                    key for value in options.values() for key in prefers.get(str(value), ())
                ),
                prior=names.get("PRIOR", USUAL_SHARE),
                usual_pct=names.get("USUAL_PCT", 0.0),
                free=names["FREE"],
                needs=names["NEEDS"],
                expect=names["EXPECT"],
                tolerance=names.get("TOLERANCE"),
                regroups=names.get("REGROUPS", False),
                difficulty=names["DIFFICULTY"],
                risks=names["RISKS"],
                order=names.get("ORDER", _FIRST),
                compiles=path.stem.startswith("compile"),
                file=path if "install" in names else None,
                verify=names.get("VERIFY") or {},
                env={name: str(value) for name, value in env.items()},
                by_hand=names.get("manual"),
                default=number == 0,
            )
        )
    return made
