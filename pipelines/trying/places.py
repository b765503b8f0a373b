"""The protected directories of a trial: one for each lever that changes files, one for others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfpipe.pipelines.trying.levers import Lever
from perfpipe.pipelines.trying.protecting import Protection


class Places:
    """One protection for all levers without a patch or a build, and one for each of the others."""

    def __init__(self, directory: Path, mode: str, root: Path, env: Mapping[str, str]) -> None:
        self._directory, self._mode, self._root, self._env = directory, mode, root, env
        self._also: list[Path] = []
        self._known: dict[str, Protection] = {}

    def of(self, lever: Lever | None) -> Protection:
        """Return the protection for a launch with a lever that has a patch or a build, or None."""
        name = lever.name if lever else ""
        if name not in self._known:
            self._known[name] = Protection(
                self._directory,
                self._mode,
                through=(self._root,),
                patch=lever.patch if lever else None,
                build=lever.build if lever else None,
                env=self._env,
                also=self._also,
            )
        return self._known[name]

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        for own in self._known.values():
            own.close()
