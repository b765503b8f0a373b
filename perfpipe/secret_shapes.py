"""Secrets that their shape gives away, or the program that takes them; the rules are secrets.toml.

Each function takes a text and returns it with `mask` applied to the secrets in it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from perfpipe.files import packaged

Mask = Callable[[str], str]

#: Endings of a command in a shell, as words.
_ENDS = frozenset({"|", "||", "&&", ";", "&"})

#: A simple command in a text, with what is quoted in it, which may itself be a command.
_COMMAND = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^|;&\n'\"])+")
_QUOTED = re.compile(r"(?<=\")[^\"\n]+(?=\")|(?<=')[^'\n]+(?=')")

#: Separates words where they are matched as one text.
_BETWEEN = "\0"


@cache
def _rules() -> dict[str, Any]:
    return tomllib.loads(packaged("perfpipe", "secrets.toml"))


@cache
def _shapes() -> dict[str, str]:
    """Return shapes as regular expressions, each by a literal that it contains."""
    rules = _rules()
    tokens = {
        literal: re.escape(literal) + f"(?:{rest})" for literal, rest in rules["tokens"].items()
    }
    return {
        literal: rf"(?<!\w)(?:{pattern})" for literal, pattern in (tokens | rules["shapes"]).items()
    }


# Most shapes and programs never occur.
@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def shapes_in(content: bytes) -> set[int]:
    """Return places in bytes near which there may be a secret of known shape."""
    known = [literal.encode() for literal in _shapes()]
    known += [f"{name} ".encode() for name in _names_of_programs()]
    runs = _RUN_BYTES.finditer(content)
    places = {found.start() for found in runs if is_random(found[0].decode())}
    for literal in known:
        at = content.find(literal)
        while at >= 0:
            places.add(at)
            at = content.find(literal, at + 1)
    return places


def without_tokens(text: str, mask: Mask) -> str:
    """Mask tokens of known shape."""
    for literal, pattern in _shapes().items():
        if literal in text:
            text = _compiled(pattern).sub(lambda found: _masked(found, mask), text)
    return text


def _masked(found: re.Match[str], mask: Mask) -> str:
    named = found.re.groupindex.get("secret", 0)
    start, end = (place - found.start() for place in found.span(named))
    return found[0][:start] + mask(found[0][start:end]) + found[0][end:]


class _Syntax(NamedTuple):
    """Regular expressions for a command: a character of a word, a password, and a gap."""

    word: str
    password: str
    gap: str


#: Of a text of a shell, where a password may be in quotes; of words, which may contain anything.
_TEXT = _Syntax(r"[^\s|;&]", r"(?:\"[^\"]*\"|'[^']*'|[^\s|;&'\"])+", r"\s+")
_WORDS = _Syntax(r"[^\0]", r"[^\0]+", r"\0")


class _Program:
    """What follows the name of a program: further words, and the patterns of its secrets."""

    def __init__(self, name: str, templates: Sequence[str], syntax: _Syntax, of: str) -> None:
        def whole(pattern: str) -> str:
            return rf"(?<!{syntax.word}){pattern}(?!{syntax.word})"

        self._further = [whole(re.escape(further)) for further in name.split()[1:]]
        self._patterns = [whole(_expanded(template, syntax, of)) for template in templates]

    def masked(self, rest: str, mask: Mask) -> str:
        begin = 0
        for further in self._further:
            if not (found := _compiled(further).search(rest, begin)):
                return rest
            begin = found.end()
        said = rest[begin:]
        for pattern in self._patterns:
            said = _compiled(pattern).sub(lambda found: _masked(found, mask), said)
        return rest[:begin] + said


def _expanded(template: str, syntax: _Syntax, of: str) -> str:
    """Return the regular expression of a template in secrets.toml."""
    word, password, gap = syntax
    known = {
        "X": f"(?P<secret>{password})",
        "ME": r"[^\s\0:%,'\"]*",
        "*": "[A-Za-z]*",
        "KEY": f"(?P<secret>(?!-)(?!{word}*://){word}{{16,}})",
        "NAME": f"{word}*?{of}",
        " ": gap,
    }
    parts = re.split(r"(X|ME|KEY|NAME|\*| )", template)
    return "".join(known.get(part, re.escape(part)) for part in parts)


@cache
def _programs(syntax: _Syntax, of: str) -> dict[str, list[_Program]]:
    """Return the known programs by name."""
    found: dict[str, list[_Program]] = {}
    for name, templates in _rules()["programs"].items():
        program = _Program(name, templates, syntax, of)
        found.setdefault(name.split()[0], []).append(program)
    return found


@cache
def _names_of_programs() -> tuple[str, ...]:
    return tuple({name.split()[0]: None for name in _rules()["programs"]})


@cache
def _name_of_program() -> re.Pattern[str]:
    names = "|".join(sorted(map(re.escape, _names_of_programs()), key=len, reverse=True))
    return re.compile(rf"(?<![\w.=-])(?:{names})(?=[ \t])")


def without_passwords(text: str, mask: Mask, of: str) -> str:
    """Mask what known programs take as passwords in a text of a shell.

    `of` is a regular expression for the end of a name whose value is secret.
    """
    if not any(name in text for name in _names_of_programs()):
        return text
    return _COMMAND.sub(lambda found: _masked_command(found[0], mask, of), text)


def _masked_command(command: str, mask: Mask, of: str) -> str:
    """Mask the passwords of a simple command; what a program takes may follow at any distance.

    The first place of a name stands for all: long texts have many.
    """
    places: dict[str, int] = {}
    for found in _name_of_program().finditer(command):
        places.setdefault(found[0], found.end())
    # From the last one, so that places before it stay.
    for name, place in reversed(places.items()):
        rest = command[place:]
        for program in _programs(_TEXT, of)[name]:
            rest = program.masked(rest, mask)
        command = command[:place] + rest
    if not places:
        return command
    return _QUOTED.sub(lambda found: without_passwords(found[0], mask, of), command)


def words_without_passwords(words: Sequence[str], mask: Mask, of: str) -> list[str]:
    """Mask what known programs take as passwords in the words of a command."""
    done: list[str] = [*words]
    begun: set[str] = set()
    for at, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        if word in _ENDS:
            begun.clear()
        for program in () if name in begun else _programs(_WORDS, of).get(name, ()):
            end = next((n for n in range(at + 1, len(done)) if done[n] in _ENDS), len(done))
            rest = program.masked(_BETWEEN.join(done[at + 1 : end]), mask)
            done[at + 1 : end] = rest.split(_BETWEEN) if end > at + 1 else []
        begun.add(name)
    return done


#: Words that may be random.  Numba's names of kernels have such a word after "v1,".
_RUN = re.compile(r"(?<![\w+/.-])(?<!v1,)[A-Za-z0-9+/]{24,}={0,2}(?![\w+/.-])")
_RUN_BYTES = re.compile(rb"[A-Za-z0-9+/]{24,}")


def without_random(text: str, mask: Mask) -> str:
    """Mask words of random letters and digits.

    Hexadecimal numbers (commits, digests, UUIDs), names and paths are not random by this measure.
    """
    return _RUN.sub(lambda found: mask(found[0]) if is_random(found[0]) else found[0], text)


#: A part of a name that can be read if it has a vowel, such as Hopper: random words have few.
_PART = re.compile(r"[A-Z]?[a-z]{3,}")
_VOWEL = re.compile(r"[aeiouy]")


def is_random(word: str) -> bool:
    """Return whether the kinds of characters of a word alternate as in a random one.

    >>> is_random("q8Zr2LxVb7KwT0mPd4NsYc9G"), is_random("ATTNv3Hopper2CausalBf16WithLSE8x")
    (True, False)
    """
    rules = _rules()["random"]
    readable = sum(len(part) for part in _PART.findall(word) if _VOWEL.search(part))
    kinds = "".join(
        "l" if c.islower() else "u" if c.isupper() else "d" for c in word if c.isalnum()
    )
    changes = sum(one != other for one, other in pairwise(kinds))
    return (
        len(kinds) >= rules["characters"]
        and len(set(kinds)) == 3
        and changes >= rules["changes"] * (len(kinds) - 1)
        and readable < rules["readable"] * len(word)
    )
