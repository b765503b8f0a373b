"""The cookbook, and pages with examples from its store: commands print what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Cli
from histories import committed, git

TEXT = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")

#: Pages whose examples use the store of the cookbook.
OTHERS = ("timeline-analysis", "profile-plan", "kernel-analysis")

#: Exit codes that the page states.
CODES = {"Is the new version slower?": 3, "How do I gate it in CI?": 3}

#: Hashes of commits, which differ each time.
_HASH = re.compile(r"\b[0-9a-f]{12}\b")


def _sections() -> list[tuple[str, str]]:
    """Return the sections: title and text; the first one sets up the store."""
    first, *rest = re.split(r"^## (.*)\n", TEXT, flags=re.MULTILINE)
    return [("set-up", first), *zip(rest[::2], rest[1::2], strict=True)]


def _blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _commands(text: str) -> Iterator[list[str]]:
    for block in _blocks(text, "sh"):
        for line in block.splitlines():
            program, *words = shlex.split(line, comments=True) or [""]
            if program == "perfpipe":
                yield words


def _flat(text: str) -> str:
    return " ".join(_HASH.sub("#", text).split())


def _shown(said: str, block: str) -> None:
    """Check that the parts of a block, with any lines between them, are in the output in order."""
    rest = _flat(said)
    for part in filter(str.strip, re.split(r"^\.\.\.\n", block, flags=re.MULTILINE)):
        before, found, rest = rest.partition(_flat(part))
        assert found, f"{part}\nis not in\n{before}"


@pytest.fixture
def checkout(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like a checkout, with a history of eleven commits whose program is timed."""
    where = tmp_path / "checkout"
    where.mkdir()
    for number in range(11):
        ms = 11 if number >= 7 else 10
        (where / "bench.py").write_text(f'print(\'{{"perfpipe": "time", "ms": [{ms}]}}\')\n')
        committed(where, f"change {number}")
        if number == 0:
            git(where, "tag", "v1.2")
    for name in ("workloads", "tests"):
        (where / name).symlink_to(ROOT / name)
    monkeypatch.chdir(where)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return where


def _examples() -> Iterator[tuple[str, str]]:
    """Yield what other pages have: each block of commands with the text below it."""
    for name in OTHERS:
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        found = re.findall(
            r"^```sh\n(?:(?!```).*\n)+```\n\n```text\n(?:(?!```).*\n)+```$", text, re.MULTILINE
        )
        assert found, name
        yield from ((name, example) for example in found)


def _said(cli: Cli, title: str, text: str) -> list[str]:
    """Run the commands of a section, and return what those print that print anything."""
    said = []
    for words in _commands(text):
        assert cli(*words) == CODES.get(title, 0), f"{words}: {cli.err}"
        said.append(cli.out)
    return [*filter(None, said)]


def test_what_is_recorded_is_printed_as_shown(checkout: Path, cli: Cli) -> None:
    for title, text in (*_sections(), *_examples()):
        if not _blocks(text, "console"):
            said, shown = _said(cli, title, text), _blocks(text, "text")
            for out, block in zip(said[len(said) - len(shown) :], shown, strict=True):
                _shown(out, block)


def test_what_is_measured_is_printed_as_shown(checkout: Path, cli: Cli) -> None:
    measured = [own for own in _sections() if _blocks(own[1], "console")]
    assert len(measured) == 3
    for title, text in measured:
        for out, block in zip(_said(cli, title, text), _blocks(text, "console"), strict=True):
            _shown(out, block)
    assert (checkout / "check.xml").exists() and (checkout / "comment.md").exists()


def test_each_question_has_a_command_its_output_and_what_to_do() -> None:
    questions = _sections()[1:]
    assert len(questions) >= 12
    listed = re.findall(r"^\| \[(.*?)\]\(#", TEXT, re.MULTILINE)
    assert [title for title, _ in questions] == listed
    for title, text in questions:
        assert [*_commands(text)], title
        assert _blocks(text, "text") or _blocks(text, "console"), title
        assert "**Read it.**" in text and "**Do.**" in text, title


def test_comments_are_no_words() -> None:
    block = "# Both.\n\nperfpipe ls     # a comment\nperfpipe query 'a # b'\n"
    assert [*_commands(f"```sh\n{block}```\n")] == [["ls"], ["query", "a # b"]]


def test_other_output_is_noticed() -> None:
    _shown("a 1.5 ms\nb\nc", "a 1.5 ms\n...\nc\n")
    _shown("at 0123456789ab", "at ba9876543210\n")
    for block in ("a 1.6 ms\n", "c\n...\na\n"):
        with pytest.raises(AssertionError):
            _shown("a 1.5 ms\nb\nc", block)
