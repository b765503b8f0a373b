"""Text in Markdown: escaped, and as code."""

from __future__ import annotations

import re

#: Characters with a meaning anywhere in a line; an underscore only next to a non-letter, and a
#: sharp sign or a bang only before characters that are escaped anyway.
_SIGNS = re.compile(r"[\\`*\[\]<>|~$&]|(?<![^\W_])_|_(?![^\W_])|^[#+-](?=\s)|(?<=^\d)[.)](?=\s|$)")


def markdown_text(text: str) -> str:
    """Escape text for Markdown, so that a hostile name stays text and a plain one legible."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return _SIGNS.sub(lambda found: f"\\{found[0]}", plain)


def markdown_code(text: str) -> str:
    """Return text as code, in a fence of more backticks than it has in a row."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    fence = "`" * (1 + max(map(len, re.findall("`+", plain)), default=0))
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def markdown_block(text: str) -> str:
    """Return lines as a code block, in a fence of more backticks than they have in a row."""
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in text.splitlines()]
    runs = map(len, re.findall("`+", text))
    fence = "`" * max(3, 1 + max(runs, default=0))
    return "\n".join([fence, *lines, fence])
