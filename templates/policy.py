"""The content security policy of a page: it runs and loads nothing but its own parts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)


def policy(styles: Iterable[str], scripts: Iterable[str], drawings: Iterable[str] = ()) -> str:
    """Return a policy that allows inline styles and scripts by their digests, and nothing else.

    `drawings` are our SVG, whose styles count.  Style attributes are allowed: they have no digest,
    and templates set only numbers in them.
    """
    own = [*styles, *(found for drawing in drawings for found in _STYLE.findall(drawing))]
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digests(scripts)}",
            f"style-src-elem {_digests(own)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digests(parts: Iterable[str]) -> str:
    found = dict.fromkeys(hashlib.sha256(part.encode()).digest() for part in parts)
    return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in found) or "'none'"
