"""The house style, as far as patterns can show it, in all that a user reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

#: Habits that the house style (CONTRIBUTING.md) forbids.
PATTERNS = {
    "tell": r"\b(tells?|told|telling)\b",
    # "There is no ..." is plain; "no longer", "no narrower" compare.
    "is no": r"(?<!there )\b(is|are|was|were) no\b(?! (more|less|fewer|\w+er)\b)",
    "a fronted Of": r"(^|[.:;!?] )Of (?!course)[a-z]",
    "left out": r"\bleft out\b",
    "side by side": r"\bside by side\b",
}

#: Folders whose Python has messages, and files of other kinds that users read.
PYTHON = ("perfpipe", "ingest", "analysis", "templates", "pipelines")
PAGES = (
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "pipelines").rglob("*.md")),
)  # fmt: skip


def _files(folder: str, ending: str) -> Iterator[Path]:
    for path in sorted((ROOT / folder).rglob(f"*{ending}")):
        if not any(part.is_symlink() for part in path.parents):
            yield path


def _messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of several words in a module, without docstrings but for those of commands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            is_help = isinstance(node, ast.FunctionDef) and any(
                re.search(r"\b(command|group)\(", ast.unparse(one)) for one in node.decorator_list
            )
            first = node.body[0]
            if not is_help and isinstance(first, ast.Expr):
                docstrings.add(id(first.value))
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    for node in texts:
        if id(node) not in docstrings and " " in str(node.value):
            yield node.lineno, str(node.value)


def _sql(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the documentation of a public view, and the texts that its rows hold."""
    text = path.read_text(encoding="utf-8")
    head, _, query = text.partition("CREATE VIEW")
    if not path.name.startswith("_"):
        yield 1, re.sub(r"\n--\s*", " ", f"\n{head}")
    for said in re.findall(r"'((?:[^']|'')*)'", re.sub(r"--[^\n]*", "", query)):
        if " " in said:
            yield 1, said


def _texts() -> Iterator[tuple[str, str]]:
    for folder in PYTHON:
        for path in _files(folder, ".py"):
            yield from ((f"{path.relative_to(ROOT)}:{at}", said) for at, said in _messages(path))
        for path in _files(folder, ".toml"):
            for said in re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8")):
                if " " in said:
                    yield str(path.relative_to(ROOT)), said
        for path in _files(folder, ".sql"):
            yield from ((f"{path.relative_to(ROOT)}:{at}", said) for at, said in _sql(path))
        for ending in (".j2", ".js"):
            for path in _files(folder, ending):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in PAGES:
        text = re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))
        yield str(path.relative_to(ROOT)), text


@pytest.mark.parametrize("habit", PATTERNS)
def test_no_text_has_the_habit(habit: str) -> None:
    pattern = re.compile(
        PATTERNS[habit], re.MULTILINE | re.IGNORECASE if habit == "is no" else re.MULTILINE
    )
    found = [
        f"{place}: ...{said[max(0, match.start() - 60) : match.end() + 40]!r}"
        for place, said in _texts()
        for match in pattern.finditer(said)
    ]
    assert not found, "\n".join(found)


def test_the_lint_sees_messages_help_and_pages() -> None:
    seen = "\n".join(said for _, said in _texts())
    for text in ("create one with 'perfpipe ingest", "under nsys and ncu, ingest", "## Layout"):
        assert text in seen
