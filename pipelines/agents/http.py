"""The protocol over HTTP: on this machine only, and with a token."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfpipe.errors import InputError, os_error_sentence
from perfpipe.pipelines.console import say

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

#: Variable with the token, and characters of a token that are enough.
TOKEN_VARIABLE, _LEAST = "PERFPIPE_MCP_TOKEN", 16

#: The only interface, and the path of the endpoint.
_HOST, _PATH = "127.0.0.1", "/mcp"

#: Bytes of a request: the files of a candidate fit.
_BODY = 64 << 20

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Endpoint:
    """An address on the loopback interface; it is taken at once."""

    def __init__(self, port: int, token: str, shown: bool) -> None:
        """Take a port (0: any free one); raises InputError if that is impossible.

        A token is `shown` if nobody else knows it.
        """
        self._token, self._shown = token, shown
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((_HOST, port))
            self._socket.listen()  # connections wait until the server has started
        except OSError as error:
            self._socket.close()
            why = os_error_sentence(error, "cannot listen")
            raise InputError(f"--http {port}: {why}") from error
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"http://{_HOST}:{self.port}{_PATH}"

    async def serve(self, server: Server[Any]) -> None:
        """Answer requests that have the token, until a signal ends the process."""
        import uvicorn
        from mcp.server.transport_security import TransportSecuritySettings

        # A page in a browser that has been led to this address has another Host or Origin.
        names = [f"{name}:{self.port}" for name in (_HOST, "localhost")]
        safe = TransportSecuritySettings(
            allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
        )
        app = server.streamable_http_app(
            streamable_http_path=_PATH, transport_security=safe, max_request_body_size=_BODY
        )
        config = uvicorn.Config(
            with_token(app, self._token), log_level="warning", timeout_graceful_shutdown=2
        )
        ending = f"; token: {self._token}" if self._shown else ""
        say(f"serving {self.url} (Authorization: Bearer TOKEN){ending}")
        await uvicorn.Server(config).serve([self._socket])


def token_of(file: Path | None) -> tuple[str, bool]:
    """Return the token of clients, and whether it was made here.

    It is that of a file, else of $PERFPIPE_MCP_TOKEN, else a new one.  Raises InputError if others
    can read the file, or if the token is short.
    """
    if file is not None:
        return _long_enough(_secret(file), str(file)), False
    if stated := os.environ.pop(TOKEN_VARIABLE, None):  # programs that are launched need no token
        return _long_enough(stated, f"${TOKEN_VARIABLE}"), False
    return secrets.token_urlsafe(32), True


def _secret(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read().strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"--token-file {file}: cannot be read ({error})") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"--token-file {file}: others can read it; run 'chmod 600 {file}'")
    return text


def _long_enough(token: str, where: str) -> str:
    if len(token) < _LEAST or not token.isascii() or any(map(str.isspace, token)):
        raise InputError(
            f"{where}: a token has at least {_LEAST} ASCII characters, and no spaces between them"
        )
    return token


def with_token(app: App, token: str) -> App:
    """Return an application that answers 401 to requests without the token."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _stated(scope, token.encode()):
            await app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"a valid bearer token is required\n"})

    return guarded


def _stated(scope: Scope, token: bytes) -> bool:
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, given = (found[0] if len(found) == 1 else b"").partition(b" ")
    return kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), token)
