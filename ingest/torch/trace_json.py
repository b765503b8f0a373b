"""Reads the JSON of a trace event by event, even if Kineto or an interruption damaged it."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perfpipe.ingest.torch.repair import repaired

#: Member of a trace that contains its events.
EVENTS = "traceEvents"

#: The longest event or other value, characters.
_LONGEST = 64 << 20

#: An error this close to the end of a window may be caused by that end, characters.
_NEAR_END = 16

_SEPARATORS = re.compile(r"[\s,:]*")

#: End of an event: another event, or the end of the events, follows.
_EVENT_END = re.compile(
    r"\}(?=\s*,\s*\{\s*\"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)\"\s*:"
    r"|\s*,?\s*\]\s*(?:,\s*\"|\}?\s*\Z))"
)

#: End of another member: another member, or the end of the trace, follows.
_MEMBER_END = re.compile(r'(?=\s*,\s*"[^"\\\n]{1,80}"\s*:|\s*\}\s*\Z)')

#: A byte that is not UTF-8, as it was decoded.
_STRAY = re.compile("[\udc80-\udcff]")


class Written(str):
    """A decimal number as written in the trace, as opposed to text."""

    __slots__ = ()


#: What is wrong with a trace that cannot be read, or not to its end.
DAMAGED = "the trace is truncated or damaged"


class Damaged(ValueError):
    """A text that is not the JSON of a trace; the message is a sentence."""


class TooLong(Damaged):
    """A value that is longer than any of a trace."""

    def __init__(self) -> None:
        super().__init__(f"a value has more than {_LONGEST:,} characters")


class TraceJson:
    """The JSON of a trace, read once and piece by piece: memory does not grow with its size.

    After `events` is exhausted, `members` are the other members of the trace.  The numbers of
    events that were `read`, `repaired` and `lost` are counted; `cut` is true if the text ends too
    early.
    """

    def __init__(
        self, pieces: Iterable[bytes], parse_float: Callable[[str], Any] = Written
    ) -> None:
        self.members: dict[str, Any] = {}
        self.read = self.repaired = self.lost = 0
        self.cut = False
        self._text = _Text(pieces, parse_float)
        self._parse_float = parse_float

    @property
    def stray(self) -> int:
        """Number of bytes that are not UTF-8."""
        return self._text.stray

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events in the order of the text; raises Damaged if this is not a trace."""
        text = self._text
        if text.next() == "[":
            yield from self._array()
        elif text.next() == "{":
            yield from self._object()
        else:
            raise Damaged(f"{DAMAGED} (it is not JSON)")
        if not self.cut and text.next():
            raise Damaged(f"{DAMAGED} (more text follows its end)")

    def _object(self) -> Iterator[dict[str, Any]]:
        text, found = self._text, False
        text.skip(1)
        while text.next() == '"':
            try:
                key = text.value()
            except TooLong:
                raise
            except Damaged:
                break
            if text.next() == "[" and key == EVENTS:
                found = True
                yield from self._array()
            else:
                self._member(key)
        if text.next() == "}" and not self.cut:
            text.skip(1)
            if not found:
                raise Damaged(f"JSON, but not a trace (no {EVENTS})")
        elif found:
            self.cut = True
        else:
            raise Damaged(f"{DAMAGED} (it ends before its events)")

    def _member(self, key: str) -> None:
        try:
            self.members[key] = self._text.value()
        except TooLong:
            raise
        except Damaged:
            self.cut = self._text.until(_MEMBER_END) is None

    def _array(self) -> Iterator[dict[str, Any]]:
        text = self._text
        text.skip(1)
        while (char := text.next()) != "]":
            if not char:
                self.cut = True
                return
            event = self._event()
            if event is not None:
                self.read += 1
                yield event
            elif self.cut:
                return
            else:
                self.lost += 1
        text.skip(1)

    def _event(self) -> dict[str, Any] | None:
        """Return the next event, None if it is beyond repair, or cut."""
        try:
            event = self._text.value()
        except TooLong:
            raise
        except Damaged:
            damaged = self._text.until(_EVENT_END)
            if damaged is None:
                self.cut = True
                return None
            self._text.skip(1)
            event = repaired(damaged + "}", self._parse_float)
            self.repaired += event is not None
        return event if isinstance(event, dict) else None


class _Text:
    """A window on a text that is decoded piece by piece, and a place in it."""

    def __init__(self, pieces: Iterable[bytes], parse_float: Callable[[str], Any]) -> None:
        self.stray = 0
        self._pieces = iter(pieces)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._scan = json.JSONDecoder(parse_float=parse_float).raw_decode
        self._window = ""
        self._at = 0
        self._ended = False

    def next(self) -> str:
        """Skip separators and return the next character, without passing it; empty at the end."""
        while True:
            match = _SEPARATORS.match(self._window, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._window) or not self._more():
                return self._window[self._at : self._at + 1]

    def skip(self, characters: int) -> None:
        self._at += characters

    def value(self) -> Any:
        """Return the JSON value at this place and pass it; raises Damaged, without passing it."""
        while True:
            try:
                value, end = self._scan(self._window, self._at)
            except json.JSONDecodeError as error:
                place, why = error.pos, error.msg
            except RecursionError as error:
                raise Damaged("it is nested too deeply") from error
            except ValueError as error:
                raise Damaged("a number has too many digits") from error
            else:
                # The end of the window may cut a number.
                enclosed = self._window[self._at] in '{["'
                if not enclosed and end > len(self._window) - _NEAR_END and self._more():
                    continue
                self._at = end
                return value
            unfinished = why.startswith("Unterminated") or place > len(self._window) - _NEAR_END
            if unfinished and self._rest() > _LONGEST:
                raise TooLong
            if not unfinished or not self._more():
                raise Damaged(why)

    def until(self, end: re.Pattern[str]) -> str | None:
        """Return the text up to a pattern and pass it; None, at the end, if there is none."""
        while (match := end.search(self._window, self._at)) is None or self._may_grow(match):
            if self._rest() > _LONGEST or not self._more():
                if match is None:
                    return None
                break
        text = self._window[self._at : match.start()]
        self._at = match.start()
        return text

    def _may_grow(self, match: re.Match[str]) -> bool:
        """Return whether a pattern for the end of the text only met the end of the window."""
        return not self._ended and match.end() >= len(self._window) - _NEAR_END

    def _rest(self) -> int:
        return len(self._window) - self._at

    def _more(self) -> bool:
        """Add at least as much as is left to the window; False at the end of the text."""
        if self._ended:
            return False
        left, added = self._window[self._at :], list[str]()
        while not self._ended and sum(map(len, added)) <= len(left):
            piece = next(self._pieces, b"")
            self._ended = not piece
            added.append(self._decoder.decode(piece, self._ended))
        text = "".join(added)
        if not text.isascii():
            self.stray += len(_STRAY.findall(text))
        self._window, self._at = left + text, 0
        return True
