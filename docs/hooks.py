"""Hooks of the site: pages from the root of the repository, and Markdown as GitHub reads it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent

#: Files outside docs/ that are pages of the site.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

_SOURCES = {page: source for source, page in OUTSIDE.items()}

#: A link outside of code: its text in brackets, and where it leads.
_CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[[^\[\]]*\])\((?![a-z]+:|#)([^()#\s]+)(#[^()\s]*)?\)")


class _AsOnGitHub(Extension):
    """Lists within lists are indented by two spaces."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name is Markdown's
        md.tab_length = 2
        md.build_parser()  # what reads blocks takes the length from there


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let lists and anchors be what they are on GitHub."""
    extensions: list[Any] = config.markdown_extensions
    extensions.insert(0, _AsOnGitHub())  # before those that add to the parser
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links lead to pages of the site."""
    uri = page.file.src_uri
    return site_links(markdown, _SOURCES.get(uri, f"docs/{uri}"), uri)


def site_links(text: str, source: str, page: str) -> str:
    """Return the text of a file of the repository, as a page, with the links of the site.

    A link to a file that the site does not have becomes plain text.
    """

    def leads(link: re.Match[str]) -> str:
        label, path, anchor = link[1], link[2], link[3] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if target in OUTSIDE:
            target = OUTSIDE[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        else:
            return label.lstrip("!")[1:-1]
        return f"{label}({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"

    parts = _CODE.split(text)
    # Code is kept; a link whose text is code has the code between two parts, so it is joined first.
    marks = {f"\x00{at}\x00": part for at, part in enumerate(parts) if at % 2}
    joined = "".join(f"\x00{at}\x00" if at % 2 else part for at, part in enumerate(parts))
    return re.sub("\x00\\d+\x00", lambda mark: marks[mark[0]], _LINK.sub(leads, joined))
