"""Clients of the protocol: where each keeps its servers, and in what form."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError

#: Name of the server in configurations.
SERVER = "perfpipe"

#: The command of the server, and its arguments.
Entry = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Client:
    """A client with its files; `key` holds its servers.

    `local` is its file in a directory, if it has one, and `own` that of the user.
    `typed` clients state the transport, and `programs` or directories show that a client is there.
    """

    title: str
    key: str
    local: str | None
    own: str
    programs: tuple[str, ...]
    typed: bool = False

    def path(self, for_user: bool) -> Path:
        """Return the file to change: the one of this directory unless it is for the user."""
        return Path(self.own if for_user or self.local is None else self.local).expanduser()

    @property
    def is_toml(self) -> bool:
        """Whether its files are TOML; the others are JSON."""
        return self.path(for_user=True).suffix == ".toml"

    def stated(self, entry: Entry) -> dict[str, Any]:
        """Return the entry in this client's form."""
        return {"type": "stdio", **entry} if self.typed else dict(entry)

    def lines(self, entry: Entry) -> str:
        """Return the lines that a configuration needs."""
        stated = self.stated(entry)
        if self.is_toml:
            return _toml(self.key, stated)
        return _json({self.key: {SERVER: stated}}, "  ")

    def added(self, text: str, entry: Entry) -> str:
        """Return a configuration with the server; raises InputError if it cannot be changed."""
        stated = self.stated(entry)
        return (
            _in_toml(text, self.key, stated) if self.is_toml else _in_json(text, self.key, stated)
        )


def _config(folder: str, mac: str = "~/.config") -> str:
    """Return where a program keeps the files of the user."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return f"{mac if sys.platform == 'darwin' else home}/{folder}"


_MAC = "~/Library/Application Support"

CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        "Claude Code", "mcpServers", ".mcp.json", "~/.claude.json", ("claude",), typed=True
    ),
    "claude-desktop": Client(
        "Claude Desktop", "mcpServers", None,
        _config("Claude/claude_desktop_config.json", _MAC), (),
    ),
    "codex": Client(
        "Codex", "mcp_servers", None,
        f"{os.environ.get('CODEX_HOME') or '~/.codex'}/config.toml", ("codex",),
    ),
    "cursor": Client(
        "Cursor", "mcpServers", ".cursor/mcp.json", "~/.cursor/mcp.json", ("cursor", "cursor-agent")
    ),
    "gemini": Client(
        "Gemini CLI", "mcpServers", ".gemini/settings.json", "~/.gemini/settings.json", ("gemini",)
    ),
    "vscode": Client(
        "VS Code", "servers", ".vscode/mcp.json", _config("Code/User/mcp.json", _MAC), ("code",),
        typed=True,
    ),
    "zed": Client(
        "Zed", "context_servers", None, _config("zed/settings.json"), ("zed", "zeditor")
    ),
}  # fmt: skip


def _in_json(text: str, key: str, stated: Mapping[str, Any]) -> str:
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise InputError("it is not plain JSON (it may have comments)") from error
    if not isinstance(found, dict) or not isinstance(found.get(key, {}), dict):
        raise InputError(f"it does not hold an object '{key}'")
    servers = found.get(key, {})
    old = servers.get(SERVER)
    made = {**(old if isinstance(old, dict) else {}), **stated}
    if made == old:
        return text
    margin = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return _json({**found, key: {**servers, SERVER: made}}, margin[1] if margin else "  ") + "\n"


def _json(found: Any, indent: str) -> str:
    return json.dumps(found, indent=indent, ensure_ascii=False)


def _in_toml(text: str, key: str, stated: Mapping[str, Any]) -> str:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is not TOML ({error})") from error
    servers = found.get(key, {})
    old = servers.get(SERVER) if isinstance(servers, dict) else None
    if isinstance(old, dict) and {**old, **stated} == old:
        return text
    if old is not None:
        raise InputError(f"it has another [{key}.{SERVER}]")
    before = text.rstrip("\n")
    made = f"{before}\n\n" * bool(before) + _toml(key, stated) + "\n"
    try:
        if tomllib.loads(made) == {**found, key: {**servers, SERVER: dict(stated)}}:
            return made
    except (tomllib.TOMLDecodeError, TypeError):
        pass
    raise InputError(f"a table [{key}.{SERVER}] cannot be appended to it")


def _toml(key: str, stated: Mapping[str, Any]) -> str:
    # Strings of JSON are strings of TOML, except for one character that JSON may leave as it is.
    rows = (
        f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
        for name, value in stated.items()
    )
    return "\n".join([f"[{key}.{SERVER}]", *rows])
