"""Detects secrets in command lines, variables and messages, and hides them.

The same rules apply to stored data (run records, the command of a report) and shared data (scrubbed
reports, recordings).  A secret is recognized by the name before it (option, variable, JSON key), by
its place in a URL, by the program that takes it, or by its shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from perfpipe.secret_shapes import (
    Mask,
    shapes_in,
    without_passwords,
    without_random,
    without_tokens,
    words_without_passwords,
)

#: Replaces a secret.
HIDDEN = "***"

#: What no secret is, between a name and the end of a value: "=8", "': 512,", " true".
_TO, _END = r"(?!['\":=,\s\[(]{1,4}", r"(?=[\s'\"\])}>|\\\0]|[.,;&:](?!\w)|\Z))"
_SWITCH = r"true|false|none|null|auto"
_SMALL = rf"{_TO}(?:\d{{1,7}}|{_SWITCH}){_END}"
_FEW = rf"{_TO}(?:\d{{1,3}}|{_SWITCH}){_END}"
_AMOUNT = rf"{_TO}(?:\d[\d.,_]{{0,18}}(?:e[+-]?\d+)?[kmbt]?|{_SWITCH}){_END}"

_KEY = (
    r"(?:api|access|private|secret|account|shared|signing|encryption|license)"
    r"[-_.]?keys?(?:[-_.]?id)?"
)

#: Words in a name whose value is secret.  A token may be a number of a text, a pass a count.
_WORDS = (
    rf"pass(?:word|wd|phrase|code)s?|pass{_FEW}|pwd|pw|pswd|secrets?|(?<!per[-_])token{_SMALL}"
    rf"|(?<!per[-_])tokens{_AMOUNT}|credentials?|bearer|cookies?"
    rf"|auth(?:orization|[-_]?keys?|[-_]?tokens?{_SMALL})?|{_KEY}|key|dsn|sig(?:nature)?|pat"
)

#: Words that are secret also where a name has no sign before them: dbpassword, userpass.
_JOINED = (
    rf"pass(?:word|wd|phrase|code)s?|secrets?|{_KEY}|auth[-_]?(?:keys?|tokens?{_SMALL})"
    rf"|(?:user|root|admin|db|my|key|store|proxy|http|smtp|mail|ftp|ssh|sql|redis)pass{_FEW}"
    rf"|(?:api|access|refresh|bearer|session|id|user|bot|hf|hub|git|gh|wandb)tokens?{_SMALL}"
)

#: Words with a capital, and words after capitals: apiKey, PGPASSWORD.
_CAMEL = rf"(?:Key|Token{_SMALL}|Secret|Password|Auth|Cookie)"
_CAPITAL = rf"(?:PASSWORD|PASSWD|PWD|SECRET|TOKEN{_SMALL})"

#: A name that ends with such a word, to its end or to the value: API_KEY, --api-key, X-Auth-Token.
_SECRET_NAME = re.compile(
    rf"(?:(?:[^=]*(?:[^\w=]|_))?(?i:{_WORDS})|[^=]*(?i:{_JOINED})|[^=]*[a-z]{_CAMEL}"
    rf"|[^=]*[A-Z]{_CAPITAL}|[^=]*SSHPASS)(?==|\Z)"
)

#: Variables of libraries and clients that hold secrets under other names.
_SECRET_VARIABLE = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|_URL|_URI|_DSN|WEBHOOK|PRIVATE"
)

_WORD = (
    rf"(?:(?<![A-Za-z0-9$])(?i:{_WORDS})|(?<!\$)(?i:{_JOINED})|(?<=[a-z]){_CAMEL}"
    rf"|(?<=[A-Z]){_CAPITAL}|SSHPASS)"
)

#: A value in a text of a shell, in which quotes, escapes and commands may have spaces.
_PARTS = r"\\\"[^\"\\]*\\\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|\\."

#: What HTTP puts before the secret of an Authorization header, and is none.
_SCHEME = r"(?:(?i:bearer|basic|token|apikey)\s+)?"

#: An option, a variable or a header with its value as one argument, which may contain spaces.
_OPTION = re.compile(r"((?:--?)?([\w.-]+)=)(.+)", re.DOTALL)
_HEADER = re.compile(rf"((?:-H|--header=)?([\w-]+):\s*{_SCHEME})(.+)", re.DOTALL)

#: Words that messages also use for other things: "unexpected token: x".
_MESSAGE_WORD = (
    r"(?<![A-Za-z0-9])(?i:pass(?:word|wd|phrase)|secret|authorization|cookie"
    r"|(?:api|access|auth|private|secret)[-_ .]?(?:key|token))"
)
_RULES = tuple(
    (re.compile(pattern, re.DOTALL), to)
    for pattern, to in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", HIDDEN),
        # scheme://user:password@host, scheme://token@host
        (r"(?<=://)[^\s/'\"?#]+(?=@)", HIDDEN),
        (r"((?i:bearer|authorization\W+(?:basic|token|apikey))\s+)[\w.~+/=-]{6,}",
         rf"\g<1>{HIDDEN}"),
        # -H 'Name: x y', a header whose value has several words
        (rf"((?:-H|--header)[\s=]*(['\"])[\w-]*?{_WORD}:\s*{_SCHEME})((?!\s|\2|{_SCHEME}\*\*\*)(?:(?!\2).)+)",
         rf"\g<1>{HIDDEN}"),
        # a header of a name, such as X-Vault-Token: x
        (rf"((?<![\w-])[Xx]-[\w-]*?{_WORD}:\s*)([^\s'\"]+)", rf"\g<1>{HIDDEN}"),
        # echo x | sudo -S, echo x | docker login --password-stdin
        (r"(\becho\s+(?:-n\s+)?)(\"[^\"]*\"|'[^']*'|[^\s|'\"]+)"
         r"(?=\s*\|\s*(?:sudo\s+-S|[^|;&\n]*--password-stdin))", rf"\g<1>{HIDDEN}"),
        # "password": "x", 'token': 'x'
        (rf"({_WORD}[\"']\s*:\s*)([bru]{{0,2}}(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|[^\s,}}]+)",
         rf'\g<1>"{HIDDEN}"'),
        # ["--password", "x"], a command as a list
        (rf"([\"']--?[\w.-]*?{_WORD}([\"']),\s*\2)(?!--)((?:(?!\2)[^\\]|\\.)+)", rf"\g<1>{HIDDEN}"),
        # --name=value, in which ; & , may occur
        (rf"((?<![\w/-])--?[\w.-]*?{_WORD}=)"
         rf"((?:{_PARTS}|[^\s\0;&,]|[;&,](?=[^\s\0;&,]))+)", rf"\g<1>{HIDDEN}"),
        # NAME=value, name: value, ?sig=value, each also in quotes
        (rf"({_WORD}=)((?:{_PARTS}|[^\s\0;&,])+)", rf"\g<1>{HIDDEN}"),
        (rf"({_MESSAGE_WORD}:(?!:)\s*)(?!(?i:bearer|basic|token|apikey)\s)([^\s,;'\"]+)",
         rf"\g<1>{HIDDEN}"),
        # --name:value, /name:value
        (rf"((?<![\w/-])(?:--?|/)[\w.-]*?{_WORD}:)(?!:)([^\s'\"]+)", rf"\g<1>{HIDDEN}"),
        # --name value
        (rf"(?<![\w-])(--?[\w.-]*?{_WORD}\s+)(?!--)((?:{_PARTS}|\S)+)", rf"\g<1>{HIDDEN}"),
    )
)  # fmt: skip

#: A text without a match has no secret by any of the rules above.
_MAYBE = re.compile(
    r"(?i:pass|pwd|pw|pswd|secret|token|credential|auth|bearer|basic|cookie|key|dsn|sig|pat|://"
    r"|echo)"
)

_MAYBE_BYTES = re.compile(
    rb"://[^\s/@\"'?#\0]{1,200}@|-----BEGIN|echo\s"
    rb"|(?i:pass|pass(?:word|wd|phrase|code)s?|pwd|pw|pswd|secrets?|tokens?|credentials?|auth"
    rb"|authorization|bearer|cookies?|keys?|keys?.?id|dsn|sig|signature|pat)"
    rb"(?:[\"']?\s*[:=]\s*|[\"'],\s*|\s+)[\x21-\x7e]"
)

#: Beginnings of matches of _MAYBE_BYTES, in lower case, which are much faster to find.
_BEGINNINGS = (
    b"://", b"-----begin", b"echo", b"pass", b"pwd", b"pw", b"pswd", b"secret", b"token",
    b"credential", b"auth", b"bearer", b"cookie", b"key", b"dsn", b"sig", b"pat",
)  # fmt: skip

#: 1 for bytes that occur in texts, 0 for others.
_TEXT = bytes(byte in b"\t\n\r" or (byte >= 0x20 and byte != 0x7F) for byte in range(256))

#: Bytes to scan at a time for the ends of a text.
_STRIDE = 1 << 12


def is_secret(name: str, value: str = "") -> bool:
    """Return whether the value of a name is secret; numbers are not, for some names.

    >>> is_secret("--api-key"), is_secret("DB_PASSWORD"), is_secret("--max-tokens", "512")
    (True, True, False)
    """
    return _SECRET_NAME.match(f"{name}={value}" if value else name) is not None


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable may hold a secret; if in doubt, it does."""
    return _SECRET_VARIABLE.search(name.upper()) is not None


def hide(text: str) -> str:
    """Return a text with its secrets hidden.

    >>> hide("train.py --api-key=abc --password hunter2 --db postgres://u:pw@host/x --lr 0.1")
    'train.py --api-key=*** --password *** --db postgres://***@host/x --lr 0.1'
    """
    return _hide(text)


@lru_cache(4096)
def _hide(text: str) -> str:
    if _MAYBE.search(text):
        for pattern, to in _RULES:
            text = pattern.sub(to, text)
    return _by_shape(text, _starred)


def _by_shape(text: str, mask: Mask) -> str:
    text = without_tokens(text, mask)
    return without_random(without_passwords(text, mask, _WORD), mask)


def _starred(_: str) -> str:
    return HIDDEN


def blank(content: bytes) -> bytes:
    """Return bytes of the same length with every secret in their texts replaced by x."""
    blanked = bytearray(content)
    reached = 0
    for place in sorted(secrets_in(content)):
        if place >= reached:
            start, reached = _text_around(content, place)
            text = content[start:reached].decode("latin-1")
            for pattern, _ in _RULES:
                text = pattern.sub(_blanked, text)
            text = _by_shape(text, lambda secret: "x" * len(secret))
            blanked[start:reached] = text.encode("latin-1")
    return bytes(blanked)


def _text_around(content: bytes, place: int) -> tuple[int, int]:
    """Return the start and end of the text around a place."""
    start = place
    while start > 0:
        low = max(0, start - _STRIDE)
        found = content[low:start].translate(_TEXT).rfind(0)
        start = low + found + 1
        if found >= 0:
            break
    end = place
    while end < len(content):
        found = content[end : end + _STRIDE].translate(_TEXT).find(0)
        if found >= 0:
            return start, end + found
        end = min(len(content), end + _STRIDE)
    return start, end


def _blanked(found: re.Match[str]) -> str:
    before = found[1] if found.re.groups else ""
    return before + "x" * (len(found[0]) - len(before))


def secrets_in(content: bytes) -> set[int]:
    """Return places that `blank` may change, and some that it does not change."""
    lower = content.lower()
    places = set()
    for beginning in _BEGINNINGS:
        at = lower.find(beginning)
        while at >= 0:
            if _MAYBE_BYTES.match(content, at):
                places.add(at)
            at = lower.find(beginning, at + 1)
    return places | shapes_in(content)


def hide_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with their secrets hidden.

    >>> hide_words(["curl", "--token", "a b c", "-H", "Authorization: Basic eHl6eHl6"])
    ('curl', '--token', '***', '-H', 'Authorization: Basic ***')
    """
    hidden = []
    before = ""
    for word in words:
        option = before.startswith("-") and "=" not in before
        if option and not word.startswith("--") and is_secret(before.lstrip("-"), word):
            hidden.append(HIDDEN)
        elif (found := _valued(before, word)) and is_secret(found[2], found[3]):
            hidden.append(found[1] + HIDDEN)
        else:
            hidden.append(hide(word))
        before = word
    return tuple(words_without_passwords(hidden, _starred, _WORD))


def _valued(before: str, word: str) -> re.Match[str] | None:
    """Return an argument that is a name and a value; a header only where it is certainly one.

    The text of a program, after -c, is no value.
    """
    if re.fullmatch(r"-[a-z]*c", before):
        return None
    header = before in {"-H", "--header"} or word.startswith(("-H", "--header="))
    return (_HEADER.fullmatch(word) if header else None) or _OPTION.fullmatch(word)


def hidden(value: Any) -> Any:
    """Return texts and bytes, also in lists and dicts, without secrets; numbers are not secret."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, bytes):
        return blank(value)
    if isinstance(value, Mapping):
        return {
            name: _every_text_hidden(item)
            if is_secret(str(name), item if isinstance(item, str) else "")
            else hidden(item)
            for name, item in value.items()
        }
    if isinstance(value, tuple):
        texts = any(isinstance(v, (str, bytes)) for v in value)
        return tuple(map(hidden, value)) if texts else value
    return [hidden(item) for item in value] if isinstance(value, list) else value


def _every_text_hidden(value: Any) -> Any:
    """Return the value of a secret name: no text of it stays, also in lists and dicts."""
    if isinstance(value, (str, bytes)):
        return HIDDEN if isinstance(value, str) else HIDDEN.encode()
    if isinstance(value, Mapping):
        return {name: _every_text_hidden(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_every_text_hidden, value))
    return [_every_text_hidden(item) for item in value] if isinstance(value, list) else value
