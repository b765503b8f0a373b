"""Sends one HTTP request and notes when each piece of the response arrives.

Only the standard library: the load runs as a program of its own, beside the server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

#: Most bytes of a line, and of the part of a failed response that is kept.
_LINE, _KEPT = 1 << 20, 300

#: Content types of streams, each piece of which is one line or one event.
_EVENTS = "text/event-stream"


class Refused(Exception):
    """A response with an error, or not in HTTP."""


@dataclass
class Answer:
    """What is known of a response so far: times of time.time_ns, tokens as the server counts."""

    status: int | None = None
    first_ns: int | None = None
    token_ns: list[int] = field(default_factory=list)
    streamed: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    bytes: int = 0
    trouble: str = ""

    def counted(self, found: Any) -> None:
        """Read the number of tokens from a JSON object of the response, if it has any."""
        if not isinstance(found, dict):
            return
        usage = found.get("usage") or found.get("meta_info")
        if isinstance(usage, dict):
            self.input_tokens = _count(usage.get("prompt_tokens"), self.input_tokens)
            self.output_tokens = _count(usage.get("completion_tokens"), self.output_tokens)
        if error := found.get("error"):
            text = error.get("message", error) if isinstance(error, dict) else error
            self.trouble = f"error in the response: {text}"


def _count(value: Any, otherwise: int | None) -> int | None:
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if valid else otherwise


@dataclass(frozen=True)
class Target:
    """Where requests go: one connection for each request."""

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    headers: Mapping[str, str]

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> Target:
        """Return the target of a URL."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        tls = ssl.create_default_context() if secure else None
        default = {
            "Host": parts.netloc.rpartition("@")[2],
            "Content-Type": "application/json",
            "Accept": "*/*",
            "Connection": "close",
        }
        port = parts.port or (443 if secure else 80)
        return cls(parts.hostname or "", port, path, tls, {**default, **headers})

    def head(self, length: int) -> bytes:
        """Return the head of a request with a body of this length."""
        fields = {**self.headers, "Content-Length": str(length)}
        lines = [f"POST {self.path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


async def post(target: Target, body: bytes, answer: Answer) -> None:
    """Send a request and read its response into `answer`, piece by piece.

    Raises OSError without a connection, Refused for any response but a success.
    """
    reader, writer = await asyncio.open_connection(
        target.host, target.port, ssl=target.tls, limit=_LINE
    )
    try:
        writer.write(target.head(len(body)) + body)
        await writer.drain()
        await _read(reader, answer)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, answer: Answer) -> None:
    answer.status, headers = await _head(reader)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    events = _Events(answer) if kind == _EVENTS else None
    chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    kept = bytearray()
    pieces: list[int] = []
    whole = kind in ("application/json", "") and events is None
    async for piece in _pieces(reader, headers, chunked=chunked):
        now = time.time_ns()
        answer.bytes += len(piece)
        if answer.status >= 400:
            kept += piece[: _KEPT - len(kept)]
        elif events is not None:
            events.feed(piece, now)
        else:
            pieces.append(now)
            if whole:
                kept += piece
    if answer.status >= 400 or answer.status < 200 or 300 <= answer.status < 400:
        said = " ".join(bytes(kept).decode("utf-8", "replace").split())
        raise Refused(f"HTTP {answer.status}" + (f": {said}" if said else ""))
    if events is None:
        _unstreamed(answer, bytes(kept), pieces, chunked=chunked and not whole)
    if answer.trouble:
        raise Refused(answer.trouble)


def _unstreamed(answer: Answer, content: bytes, pieces: list[int], *, chunked: bool) -> None:
    """Read a response without events: one JSON object, or chunks, each of which is a token."""
    if chunked and pieces:
        answer.streamed, answer.first_ns, answer.token_ns = True, pieces[0], pieces
        return
    if content:
        try:
            answer.counted(json.loads(content))
        except (ValueError, RecursionError):
            return


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    while True:
        words = (await _line(reader)).split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdecimal():
            raise Refused("the response is not HTTP")
        headers = {}
        while line := await _line(reader):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        # 100 Continue and the like come before the response.
        if not words[1].startswith("1"):
            return int(words[1]), headers


async def _pieces(
    reader: asyncio.StreamReader, headers: Mapping[str, str], *, chunked: bool
) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive; raises Refused if it ends too early."""
    if chunked:
        while size := _size(await _line(reader)):
            yield await _exactly(reader, size)
            await _line(reader)
        while await _line(reader):
            pass
        return
    length = headers.get("content-length", "")
    left = int(length) if length.isdecimal() else None
    while left is None or left > 0:
        piece = await reader.read(1 << 16 if left is None else min(left, 1 << 16))
        if not piece:
            if left:
                raise Refused("the response ended early")
            return
        left = None if left is None else left - len(piece)
        yield piece


def _size(line: str) -> int:
    try:
        return int(line.partition(";")[0], 16)
    except ValueError:
        raise Refused("the response ended early" if not line else "damaged chunks") from None


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readline()
    except ValueError:
        raise Refused("a line of the response is too long") from None
    if not line.endswith(b"\n"):
        raise Refused("the connection was closed without a response" if not line else "cut off")
    return line.decode("latin-1").rstrip("\r\n")


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        raise Refused("the response ended early") from None


class _Events:
    """Server-sent events: each event with content is a token, as in OpenAI's interface."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._rest = answer, b""
        answer.streamed = True

    def feed(self, piece: bytes, now: int) -> None:
        """Read the events that a piece completes, which arrived at a time."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, data: bytes, now: int) -> None:
        if not data or data == b"[DONE]":
            return
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        self._answer.counted(found)
        if _has_content(found):
            if self._answer.first_ns is None:
                self._answer.first_ns = now
            self._answer.token_ns.append(now)


def _has_content(event: Any) -> bool:
    """Return whether an event has text: the first of a chat has only a role, the last the usage."""
    if not isinstance(event, dict) or "choices" not in event:
        return not (isinstance(event, dict) and "error" in event)
    choices = event["choices"]
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta", choice) if isinstance(choice, dict) else {}
        for key in ("content", "text", "reasoning_content", "reasoning", "tool_calls"):
            if isinstance(delta, dict) and delta.get(key):
                return True
    return False
