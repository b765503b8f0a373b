"""Masks what a shared report must not reveal: paths, host and user names, environment variables.

The same rules apply to texts of any length and to bytes whose length must not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from perfpipe.secrets import HIDDEN, blank, hide, is_secret, secrets_in
from perfpipe.source_paths import without_folders

#: An absolute path with at least one directory.
_PATH = re.compile(r"(?<![\w/.])/(?:[\w.+@~-]+/)+[\w.+-]*")
_ANY_PATH_BYTES = re.compile(rb"/(?=[\w.+@~-]{1,120}/)")
_PATH_BYTES = re.compile(rb"(?<![\w/.])/(?:[\w.+@~-]{1,120}/)+[\w.+-]+")

#: A text that is the path of a source file and nothing else: with spaces, of Windows, or relative.
_FILE = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?[\\/][^\n]*[\\/]?[^\n\\/]+\.\w{1,5}")

#: A variable that reveals a person or place; its value ends with the text.
_VARIABLE = re.compile(
    r"\b(?:USER|LOGNAME|HOME|HOSTNAME|PWD|OLDPWD|PATH|LD_LIBRARY_PATH|PYTHONPATH|MAIL|SSH_\w+|"
    r"XDG_\w+|\w*TOKEN\w*|\w*SECRET\w*|\w*PASSWORD\w*|\w*KEY)=[^\n\0;]*"
)
_HOME = re.compile(r"/(?:home|Users)/([\w.-]+)")
_ADDRESS = re.compile(r"127\.[\d.]+|::1")
_NAMING = re.compile(r"\b(?:USER|LOGNAME|HOSTNAME)=\"?([\w.-]+)")
_VARIABLE_BYTES = re.compile(
    rb"\b(?:USER|LOGNAME|HOME|HOSTNAME|PWD|OLDPWD|PATH|LD_LIBRARY_PATH|PYTHONPATH)=[!-:<-~]{1,4096}"
)

#: Names that reveal nothing and occur in other texts.
_COMMON = {"root", "user", "host", "localhost", "local", "cli", "nvidia", "python", "ubuntu"}

#: Shorter names occur in too many words.
_SHORTEST_NAME = 3


def names_in(texts: Iterable[str | None], *more: str | None) -> frozenset[str]:
    """Return user and host names found in texts, in addition to known names."""
    found = {name for name in more if name}
    for text in texts:
        found |= set(_HOME.findall(text or "")) | set(_NAMING.findall(text or ""))
    found = {name for name in found if not _ADDRESS.fullmatch(name)}
    short = {name.split(".")[0] for name in found}
    return frozenset(
        name
        for name in found | short
        if len(name) >= _SHORTEST_NAME and name.lower() not in _COMMON
    )


def mask(text: str, names: frozenset[str]) -> str:
    """Return a text without revealing variables, names, and directories in paths.

    Directories of installed Python code stay, because they say whose code it is.

    >>> mask("/home/ada/run/train.py on gpu-17", frozenset({"ada", "gpu-17"}))
    'train.py on xxxxxx'
    """
    text = _VARIABLE.sub("", hide(text))
    if _FILE.fullmatch(text):
        text = without_folders(text.replace("\\", "/"))
    text = _PATH.sub(lambda match: without_folders(match[0]), text)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "x" * len(name))
    return text


def mask_value(value: Any, names: frozenset[str]) -> Any:
    """Return JSON data with every text masked."""
    if isinstance(value, str):
        return mask(value, names)
    if isinstance(value, list):
        return [mask_value(item, names) for item in value]
    if isinstance(value, dict):
        return {
            mask(key, names): HIDDEN
            if isinstance(item, str) and is_secret(key, item)
            else mask_value(item, names)
            for key, item in value.items()
        }
    return value


def telling_bytes(content: bytes, names: frozenset[str]) -> set[int]:
    """Return places that `mask_bytes` may change, and some that it does not change."""
    # A byte before a text may look like one of its letters.
    places = {match.start() for match in _ANY_PATH_BYTES.finditer(content)}
    places |= {match.start() for match in _VARIABLE_BYTES.finditer(content)}
    places |= secrets_in(content)
    for name in names:
        places |= {match.start() for match in re.finditer(re.escape(name.encode()), content)}
    return places


def mask_bytes(content: bytes, names: frozenset[str]) -> bytes:
    """Return bytes of the same length: directories of paths become `./`, names x."""

    def shorten(match: re.Match[bytes]) -> bytes:
        name = match[0].rsplit(b"/", 1)[1]
        room = len(match[0]) - len(name)
        return (b"./" * room)[: room - room % 2] + b"/" * (room % 2) + name

    content = _PATH_BYTES.sub(shorten, blank(content))
    content = _VARIABLE_BYTES.sub(lambda match: b" " * len(match[0]), content)
    for name in sorted(names, key=len, reverse=True):
        content = content.replace(name.encode(), b"x" * len(name.encode()))
    return content
