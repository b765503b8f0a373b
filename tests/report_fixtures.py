"""Fixtures: reports that are built once where they are shown in several ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import publish, succeed

from perfpipe.pipelines import reporting
from perfpipe.store import Store
from perfpipe.templates.figures import Drawing
from perfpipe.viewmodel import Report


@pytest.fixture(scope="session")
def texts(shared: Path, captures: Store, ingested: Callable[[str], str]) -> Callable[..., Path]:
    """Return a directory with report.md and .json of captures whose page no test looks at.

    With the page they are one more report (`pages`): a third of its time is that of its figures.
    """

    def report(*names: str) -> Path:
        of = [ingested(name) for name in names]

        def make(at: Path) -> None:
            at.mkdir()
            files = [f"--{kind}={at}/report.{kind}" for kind in ("md", "json")]
            succeed("report", *of, *files, "--store", str(captures.root))

        return publish(shared / f"texts-{'-'.join(names).replace('/', '-')}", make)

    return report


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures empty in pages of which others are drawn elsewhere, and a test looks at none.

    Drawing them takes a third of the time of a page.
    """
    monkeypatch.setattr(Drawing, "svg", lambda _, name: f'<svg id="{name}"></svg>')


@pytest.fixture
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build a report once in a test that shows it in several ways, and adds nothing meanwhile."""
    make, made = reporting.make_report, dict[str, Report]()

    def once(store: Store, *args: Any, **options: Any) -> Report:
        key = repr((store.root, args, options))
        if key not in made:
            made[key] = make(store, *args, **options)
        return made[key]

    monkeypatch.setattr(reporting, "make_report", once)
