"""The docs as pages of GitHub and of the site: every page has a place, and links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, lacking
from markdown_it import MarkdownIt
from markdown_it.token import Token

DOCS = ROOT / "docs"

#: Pages of the repository: what GitHub shows.
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "skills").rglob("*.md")),
)

#: Pages of the site that lie elsewhere in the repository.
OUTSIDE = {
    "index.md": ROOT / "README.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
}

GITHUB = MarkdownIt("commonmark", {"html": True}).enable("table")


@cache
def _tokens(page: Path) -> list[Token]:
    return [
        token
        for block in GITHUB.parse(page.read_text(encoding="utf-8"))
        for token in (block, *(block.children or ()))
    ]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page as GitHub makes them: of headings, and of <a id="...">."""
    found: list[str] = []
    tokens = _tokens(page)
    for token, heading in pairwise(tokens):
        if token.type == "heading_open":
            parts = heading.children or []
            text = "".join(part.content for part in parts if part.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
        elif token.type in ("html_inline", "html_block"):
            found += re.findall(r'<a id="([^"]+)">', token.content)
    return frozenset(found)


def links(page: Path) -> Iterator[str]:
    """Yield where the links and pictures of a page lead."""
    for token in _tokens(page):
        if token.type in ("link_open", "image"):
            yield str(token.attrs["href" if token.type == "link_open" else "src"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page}: {link}"
        assert target.is_relative_to(ROOT), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page}: {link}"


def _named(nav: Any) -> Iterator[str]:
    """Yield the files of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(entry)


def test_each_page_has_one_place_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = Counter(_named(nav))
    assert max(named.values()) == 1
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert named.keys() == pages | OUTSIDE.keys()


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What's `a_b.c`, 2 - and [d](e.md)?\n\nSame\n====\n\n## Same\n\n"
        '```\n# code\n```\n\n<a id="kept"></a>text\n'
    )
    assert anchors(page) == {"whats-a_bc-2---and-d", "same", "same-1", "kept"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    if find_spec("mkdocs") is None or find_spec("material") is None:
        lacking("MkDocs and its theme are not installed")
    where = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return where


def _source(page: Path, site: Path) -> Path:
    folder = page.parent.relative_to(site)
    name = f"{folder}.md" if folder.parts else "index.md"
    return OUTSIDE.get(name, DOCS / name)


def _parts(html: str) -> dict[str, int]:
    """Return how many lists, items, blocks of code, rows and links without anchors a text has."""
    html = re.sub(r'<a class="headerlink".*?</a>|<tbody>\s*</tbody>', "", html)
    return {part: len(re.findall(rf"<{part}\b", html)) for part in ("ul", "ol", "li", "pre", "h2")}


def test_the_site_has_the_parts_that_github_shows(site: Path) -> None:
    pages = [page for page in site.rglob("index.html") if page.read_text(encoding="utf-8")]
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        article = text[text.index("<article") : text.index("</article>")]
        expected = GITHUB.render(_source(page, site).read_text(encoding="utf-8"))
        assert _parts(article) == _parts(expected), page


def test_the_site_asks_no_other_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', text)
        assert not loaded, page


def test_no_code_or_data_of_the_docs_is_in_the_site(site: Path) -> None:
    assert not [*site.rglob("*.py"), *site.rglob("*.toml"), *(site / "trials").glob("*")]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_page_on_installation_lists_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(encoding="utf-8"), re.M)
    assert {*listed, "dev"} == project["optional-dependencies"].keys()
