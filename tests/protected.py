"""Programs in protected places: a working directory, its protection, and what a launch changes."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from perfpipe.pipelines.process import Finished, run
from perfpipe.pipelines.trying import overlay, protecting
from perfpipe.pipelines.trying.protecting import Place
from perfpipe.scratch import scratch

EMPTY = hashlib.sha256().hexdigest()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test have its own home and temporary files."""
    for name, variable in (("home", "HOME"), ("temporary", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    places = [tmp_path / "home", tmp_path / "temporary"]
    monkeypatch.setattr(protecting, "usual_places", lambda: places)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "sub" / "inner").mkdir(parents=True)
    (made / "a.txt").write_text("a\n")
    (made / "sub" / "x").write_text("x\n")
    (made / "sub" / "inner" / "y").write_text("y\n")
    return made


def needs_overlay(directory: Path) -> None:
    """A sandbox may forbid namespaces; copies are tested there too."""
    with scratch() as room:
        why = overlay.impossible(directory, room)
    if why is not None:
        pytest.skip(f"no overlays here: {why}")


@pytest.fixture(params=["overlay", "copy"])
def mode(request: pytest.FixtureRequest, project: Path) -> str:
    if request.param == "overlay":
        needs_overlay(project)
    return str(request.param)


def settle() -> None:
    """Let files be older than the ticks of the clock for their times."""
    time.sleep(0.05)


def state(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything that must stay as it is."""
    found = {}
    for path in sorted(top.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        # git renews the time of an object that it would write again.
        ns = 0 if "objects" in path.parts else path.lstat().st_mtime_ns
        found[str(path)] = (path.lstat().st_mode, ns, content)
    return found


def launch(place: Place, *words: str, **options: Any) -> Finished:
    command = place.rewritten(words)
    return run([*place.wrapper, *command], cwd=place.cwd, env=place.env, **options)


def sh(place: Place, script: str) -> Finished:
    return launch(place, "sh", "-c", script)


def git(directory: Path, *words: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *settings, *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
