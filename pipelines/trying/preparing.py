"""Applies a patch and runs a build in the place that launches begin with."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfpipe.errors import InputError, TaskFailed
from perfpipe.files import printable
from perfpipe.pipelines.complaint import exit_sentence
from perfpipe.pipelines.process import Finished

#: How long a build, and a patch, may take, s.
BUILD_S, _PATCH_S = 7200.0, 60.0

#: Numbers of leading directories in the names of a patch, the usual one first.
_STRIPPED = (1, 0, 2, 3)

#: Runs words in the place, for a time at most, with variables.
Run = Callable[[Sequence[str], float, Mapping[str, str]], Finished]


def apply(patch: Path, shown: str, run: Run, changed: Callable[[], bool]) -> None:
    """Apply a patch in a directory, which is shown by this name.

    `changed` returns whether that changed anything: git passes over files that are not below the
    directory.  Raises InputError if there is no patch, TaskFailed if it does not fit.
    """
    if not patch.is_file():
        raise InputError(f"{printable(str(patch))}: no such patch")
    ways = []
    if shutil.which("git"):
        words = ["git", "apply", "--whitespace=nowarn"]
        ways += [([*words, f"-p{n}"], ["--check"], str(patch)) for n in _STRIPPED]
    if shutil.which("patch"):
        words = ["patch", "--batch", "--forward", "--fuzz=0", "--no-backup-if-mismatch"]
        ways += [([*words, f"-p{n}"], ["--dry-run"], f"--input={patch}") for n in _STRIPPED]
    if not ways:
        raise InputError("a patch needs git or patch, and neither is installed")
    # Names in the patch are relative to the directory, whatever repository it is in.
    env = {"GIT_DIR": os.devnull}
    reasons = []
    for begin, trial, name in ways:
        done = run([*begin, *trial, name], _PATCH_S, env)
        if done.ok:
            done = run([*begin, name], _PATCH_S, env)
            if done.ok and changed():
                return
        reasons.append(_reason(done))
    raise TaskFailed(f"{printable(str(patch))} cannot be applied in {shown}: {reasons[0]}")


def build(words: Sequence[str], run: Run, most_s: float = BUILD_S) -> None:
    """Run a build command for a time at most; raises TaskFailed if it fails."""
    done = run(words, min(most_s, BUILD_S), {})
    if done.timed_out:
        raise TaskFailed(f"{shlex.join(words)} took longer than {done.seconds:.0f} s")
    if not done.ok:
        raise TaskFailed(f"{shlex.join(words)} failed: {_reason(done)}")


def _reason(done: Finished) -> str:
    return done.complaint() or exit_sentence(done.returncode)
