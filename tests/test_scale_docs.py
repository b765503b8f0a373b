"""The commands and the Python code of docs/scale.md, one after another, in one directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT

from perfpipe.store import Store

PAGE = ROOT / "docs" / "scale.md"

#: The bucket of the page.
BUCKET = "s3://fleet/store"


def _blocks() -> list[tuple[str, str]]:
    """Return the blocks of code: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_segments_travel_as_the_page_says(expand: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    for number, name in enumerate(("memcpy", "h2d")):
        (tmp_path / "captures" / f"{number}.sqlite").write_bytes(
            expand(f"nsys/{name}.sqlite").read_bytes()
        )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    said = {}
    for language, text in _blocks():
        words = ["bash", "-ec"] if language == "sh" else [sys.executable, "-c"]
        done = subprocess.run(
            [*words, text.replace(BUCKET, f"file://{tmp_path}/bucket/store")],
            cwd=tmp_path, env={**os.environ, "PATH": programs}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        said[language] = done.stdout
    reports = Store(tmp_path / "shared-store").report_ids()
    assert len(reports) == 2
    assert "│            2 │" in said["python"], "the reports of a GPU"
    assert Store(tmp_path / "local-store").report_ids() == reports
    assert (tmp_path / "kernels.parquet").exists()
