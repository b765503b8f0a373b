"""Writes the server into the configurations of clients, after asking."""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from perfpipe.errors import InputError, did_you_mean, os_error_sentence
from perfpipe.pipelines.agents.clients import CLIENTS, Client, Entry
from perfpipe.pipelines.console import say
from perfpipe.pipelines.writing import written
from perfpipe.visible import visible_line


def chosen(names: Sequence[str]) -> list[Client]:
    """Return the named clients, else those that are found on this machine.

    Raises InputError for an unknown name, and if there are none.
    """
    for name in names:
        if name not in CLIENTS:
            hint = did_you_mean(name, CLIENTS) or f"; known: {', '.join(CLIENTS)}"
            raise InputError(f"no client '{name}'{hint}")
    found = [CLIENTS[name] for name in dict.fromkeys(names)]
    found = found or [client for client in CLIENTS.values() if _is_there(client)]
    if not found:
        raise InputError(f"no client was found; name one of {', '.join(CLIENTS)}")
    return found


def _is_there(client: Client) -> bool:
    home = client.path(for_user=True)
    # The directory of a file in the home directory itself shows nothing.
    there = home.exists() or (home.parent != Path.home() and home.parent.is_dir())
    return there or any(shutil.which(program) for program in client.programs)


def entry(store: Path, allowed: Sequence[Path]) -> Entry:
    """Return how to start the server, with absolute paths: clients start it anywhere."""
    program = Path(sys.executable).with_name("perfpipe")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "perfpipe"]
    runs = [word for path in allowed for word in ("--allow-run", str(path.absolute()))]
    words = [*command[1:], "mcp", "--store", str(store.absolute()), *runs]
    return {"command": command[0], "args": words}


def write(clients: Sequence[Client], entry: Entry, for_user: bool, yes: bool) -> None:
    """Change the file of each client after asking.

    Raises InputError if nobody can be asked, and at the end if a file cannot be changed.
    """
    if not yes and not sys.stdin.isatty():
        raise InputError("stdin is not a terminal, so setup cannot ask: use --yes or --print")
    refused = []
    for client in clients:
        path = client.path(for_user)
        try:
            _write(client, path, entry, yes)
        except InputError as error:
            refused.append(client.title)
            say(f"{client.title}: {path} was not changed: {error}; add these lines:")
            click.echo(client.lines(entry))
    if refused:
        raise InputError(f"not configured: {', '.join(refused)}")


def _write(client: Client, path: Path, entry: Entry, yes: bool) -> None:
    old = _read(path)
    new = client.added(old, entry)
    if new == old:
        say(f"{client.title}: {path} has this server already")
        return
    for line in _difference(old, new, path):
        click.echo(visible_line(line))
    if yes or click.confirm(f"Change {path}?", err=True):
        _replace(path.resolve(), new)  # dot files are often links
        say(f"{client.title}: wrote {path}; restart it, or reload its servers")


def _replace(path: Path, text: str) -> None:
    """Write a file atomically; others can read it only if they could before."""
    with written(path) as temporary:
        temporary.touch()
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeError) as error:
        why = os_error_sentence(error, "cannot read") if isinstance(error, OSError) else str(error)
        raise InputError(why) from error


def _difference(old: str, new: str, path: Path) -> list[str]:
    sides = (old.splitlines(), new.splitlines())
    return [*difflib.unified_diff(*sides, str(path), str(path), lineterm="", n=2)]
