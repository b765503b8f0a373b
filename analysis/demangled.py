"""Parses demangled C++ names, as nsys (nvcc) and Kineto (GCC) spell them, into terms.

Brackets are matched once, from left to right, and a term is read out of the ranges between them:
the time grows with the length of the name.  Nothing is refused: names are cut off by tools, and
hold comparisons that look like brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Terms nested deeper than this are left as text, which has no parts.
_DEEPEST = 40

#: Where reading stops: at brackets, and at what is looked for.
_STOPS = {signs: re.compile(rf"[<(\[{{{signs}]") for signs in ("(", "<([", ":", ",")}
_BRACKET = re.compile(r"[<>()\[\]{}]")

_CLOSING = {">": "<", ")": "(", "]": "[", "}": "{"}
_OPENING = frozenset(_CLOSING.values())

#: Operators whose names hold brackets, arrows, and namespaces without a name.
_CALL = re.compile(r"\boperator ?\(\)")
_SIGNS = re.compile(r"\boperator ?(?:<=>|<<=|>>=|<<|>>|<=|>=|->\*|->|<|>|\[\])|->")
_NAMELESS = re.compile(r"(?:<unnamed>|\(anonymous namespace\)|\{anonymous\})(?:::)?")

_NUMBER = re.compile(r"(?:\([\w:. ]*\))?(-?\d+)(?:u|l|ul|ull|ll)?", re.IGNORECASE)
_LAMBDA = re.compile(r"'?lambda(\d*)'?")
_INSTANCE = re.compile(r"\(instance (\d+)\)|#(\d+)")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|typename|struct|class|enum)\b")


@dataclass(frozen=True)
class Term:
    """A function, type, functor or number.

    `name` has neither namespaces nor arguments, and holds no brackets.  `arguments` are template
    arguments.  A lambda has the name and arguments of the function or functor that it was written
    in, and its own parameters: `instance` counts the lambdas of that function from 1.
    """

    name: str
    arguments: tuple[Term, ...] = ()
    parameters: tuple[Term, ...] = ()
    instance: int = 0
    number: bool = False
    suffix: str = ""  # of a pointer or reference

    @property
    def is_lambda(self) -> bool:
        """Whether it stands for a lambda."""
        return self.instance > 0


def parse_function(demangled: str) -> Term:
    """Return the term of a function, without its return type and parameters.

    >>> term = parse_function("void at::native::fill<(int)4, float>(T1 *)")
    >>> term.name, [argument.name for argument in term.arguments]
    ('fill', ['4', 'float'])
    """
    reader = _Reader(demangled)
    start, end = 0, len(reader.text)
    # What follows the parameters is no part of the name, but a lambda is one of the function.
    for at in reader.stops(start, end, "("):
        after = reader.pairs[at] + 1
        if not reader.text.startswith("::", after):
            end = at
            break
    return reader.term(start, end, 0)


class _Reader:
    def __init__(self, demangled: str) -> None:
        text = _CALL.sub("operator", _NAMELESS.sub("", demangled))
        self.text = _SIGNS.sub("operator", text).strip()
        self.pairs = _pairs(self.text)

    def stops(self, start: int, end: int, signs: str) -> Iterator[int]:
        """Yield the places of signs in a range that are within no brackets of the range."""
        wanted = _STOPS[signs]
        found = wanted.search(self.text, start, end)
        while found:
            at = found.start()
            if self.text[at] in signs:
                yield at
            found = wanted.search(self.text, self.pairs.get(at, at) + 1, end)

    def split(self, start: int, end: int, sign: str) -> list[tuple[int, int]]:
        """Return the parts of a range between a sign of one or two equal characters."""
        parts, at = [], start
        for stop in self.stops(start, end, sign[0]):
            if stop >= at and self.text.startswith(sign, stop):
                parts.append((at, stop))
                at = stop + len(sign)
        return [*parts, (at, end)]

    def terms(self, start: int, end: int, depth: int) -> tuple[Term, ...]:
        """Return the terms of a list in brackets."""
        parts = self.split(start, end, ",")
        return tuple(self.term(*part, depth) for part in parts if self.text[slice(*part)].strip())

    def term(self, start: int, end: int, depth: int) -> Term:
        text = self.text[start:end].strip()
        if found := _NUMBER.fullmatch(text):
            return Term(found[1], number=True)
        if text in _TRUTH:
            return Term(_TRUTH[text], number=True)
        if depth > _DEEPEST:
            return Term(_plain(text))
        parts = self.split(start, end, "::")
        for place, (first, last) in enumerate(parts):
            if self._lambda_at(first, last):
                return self._lambda(parts, place, depth)
        named = [part for part in parts if self.text[slice(*part)].strip() != "operator"]
        return self._named(*(named or parts)[-1], depth)

    def _lambda_at(self, start: int, end: int) -> bool:
        """Return whether a part of a path is [lambda(...) (instance n)] or {lambda(...)#n}."""
        inner = self.text[start + 1 : end].lstrip()
        return self.text[start : start + 1] in tuple("[{'") and bool(_LAMBDA.match(inner))

    def _lambda(self, parts: list[tuple[int, int]], place: int, depth: int) -> Term:
        """Return the innermost lambda of a path whose first one is at `place`."""
        before = [p for p in parts[:place] if not self.text[slice(*p)].startswith("operator")]
        owner = self._named(*before[-1], depth) if before else Term("lambda")
        start, end = next(part for part in reversed(parts) if self._lambda_at(*part))
        opened = self.text.find("(", start, end)
        closed = self.pairs.get(opened, end)
        parameters = self.terms(opened + 1, closed, depth + 1) if opened >= 0 else ()
        found = _INSTANCE.search(self.text, closed, end)
        instance = int(found[1] or found[2]) if found else 1
        return Term(owner.name, owner.arguments, parameters, max(instance, 1))

    def _named(self, start: int, end: int, depth: int) -> Term:
        """Return the term of the last part of a path: a name, template arguments, parameters."""
        stop = next(self.stops(start, end, "<(["), end)
        arguments: tuple[Term, ...] = ()
        after = stop
        if self.text[stop : stop + 1] == "<" and stop < end and stop in self.pairs:
            closed = min(self.pairs[stop], end)
            arguments = self.terms(stop + 1, closed, depth + 1)
            after = closed + 1
        if stop == start:  # in brackets throughout, such as a pointer to a function
            return Term(_plain(self.text[start:end]))
        words = _QUALIFIERS.sub(" ", self.text[start:stop]).replace("*", " ").replace("&", " ")
        tail = self.text[after:end] if arguments else self.text[start:end]
        suffix = "*" if tail.split("(")[0].rstrip().endswith("*") else ""
        return Term(_last_word(words) or _plain(self.text[start:end]), arguments, suffix=suffix)


#: Tools differ in how they spell these.
_TRUTH = {"false": "0", "true": "1"}

#: Words of types that have several.
_COMPOUND = frozenset("unsigned signed long short int char".split())


def _last_word(words: str) -> str:
    """Return the name in `void name`, but all words of `unsigned int`."""
    split = _plain(words).split()
    if split and all(word in _COMPOUND for word in split):
        return " ".join(split)
    return split[-1] if split else ""


def _plain(text: str) -> str:
    """Return text without brackets and namespaces."""
    without = re.sub(r"[<>()\[\]{}]", " ", text)
    return " ".join(word.rpartition("::")[2] for word in without.split()).strip()


def _pairs(text: str) -> dict[int, int]:
    """Return where each bracket is closed; one that never is, in a name cut off, at the end.

    A sign that closes nothing is text, and so is a < within parentheses that end before it is
    closed: both are comparisons.
    """
    pairs: dict[int, int] = {}
    opened: list[int] = []
    counts = dict.fromkeys(_OPENING, 0)
    for found in _BRACKET.finditer(text):
        at, sign = found.start(), found[0]
        if sign in _OPENING:
            opened.append(at)
            counts[sign] += 1
        elif (wanted := _CLOSING.get(sign)) and counts[wanted]:
            if sign == ">" and text[opened[-1]] != "<":
                continue
            while text[opened[-1]] != wanted:
                counts[text[opened.pop()]] -= 1
            counts[wanted] -= 1
            pairs[opened.pop()] = at
    return pairs | dict.fromkeys(opened, len(text))
