"""Patches and builds, which launches begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from protected import git, sh, sha, state

from perfpipe.errors import InputError, TaskFailed
from perfpipe.pipelines.trying.protecting import Protection

pytestmark = pytest.mark.usefixtures("own_places")


PATCH = """\
--- a/a.txt
+++ b/a.txt
@@ -1 +1,2 @@
 a
+patched
"""


@pytest.mark.parametrize("program", ["git", "patch"])
def test_a_patch_and_a_build_are_made_once(
    project: Path, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    patch, count = tmp_path / "change.patch", tmp_path / "count"
    patch.write_text(PATCH)
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    known = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **_: None if name in {"git", "patch"} - {program} else known(name)
    )  # fmt: skip
    before = state(project)
    build = f"sh -c 'cat a.txt > built; rm -r sub/inner; echo >> {count}'"
    with Protection(project, mode, patch=patch, build=build) as protection:
        for _ in range(2):
            with protection.launch() as place:
                done = sh(
                    place, "cat built; ls sub; echo run > built; mkdir sub/inner; ls sub/inner"
                )
                assert done.stdout == "a\npatched\nx\n"
                assert place.written() == {"built": sha("run\n")}
    assert count.read_text() == "\n"
    assert state(project) == before
    assert not [*(tmp_path / "temporary").iterdir()]


def test_a_patch_of_the_repository_in_a_subdirectory(
    project: Path, mode: str, tmp_path: Path
) -> None:
    """Names in the patch begin at the repository; git passes over those that do not."""
    git(tmp_path, "init", "-q")
    patch = tmp_path / "change.patch"
    patch.write_text(
        PATCH.replace("a/a.txt", "a/project/a.txt").replace("b/a.txt", "b/project/a.txt")
    )
    with Protection(project, mode, patch=patch) as protection, protection.launch() as place:
        assert sh(place, "cat a.txt").stdout == "a\npatched\n"


def test_a_patch_that_does_not_fit(project: Path, mode: str, tmp_path: Path) -> None:
    patch = tmp_path / "change.patch"
    patch.write_text(PATCH.replace(" a\n", " other\n"))
    with (
        Protection(project, mode, patch=patch) as protection,
        pytest.raises(TaskFailed, match=r"change.patch cannot be applied in .*project: .*a\.txt"),
        protection.launch(),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"missing.patch: no such patch"),
        Protection(project, mode, patch=tmp_path / "missing.patch").launch(),
    ):
        pass


def test_a_build_takes_no_longer_than_the_budget(project: Path) -> None:
    protection = Protection(project, "copy", build="sleep 60")
    with (
        pytest.raises(TaskFailed, match=r"sleep 60 took longer than \d+ s"),
        protection.launch(build_s=0.2),
    ):
        pass


def test_a_build_that_fails(project: Path, mode: str) -> None:
    build = "sh -c 'echo \"make: *** broken\" >&2; exit 2'"
    with (
        pytest.raises(TaskFailed, match=r"failed: make: \*\*\* broken"),
        Protection(project, mode, build=build).launch(),
    ):
        pass


def test_nothing_is_patched_in_place(project: Path) -> None:
    with pytest.raises(InputError, match="not tried in place"):
        Protection(project, "in-place", build="make")


def test_links_to_originals_stay_in_prepared_copies(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").touch()
    protection = Protection(project, "copy", build=f"ln -s {project}/a.txt made")
    with protection, protection.launch() as place:
        assert (place.cwd / ".venv").readlink() == project / ".venv"
        assert (place.cwd / "made").readlink() == place.cwd / "a.txt"
        assert place.rewritten(["x", f"{project}/.venv/x", f"{project}/sub"])[1:] == [
            f"{project}/.venv/x", f"{place.cwd}/sub",
        ]  # fmt: skip
