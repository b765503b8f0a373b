"""What a candidate is, apart from comments and whitespace: its digest, and the modules it uses."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path

#: Files of languages with comments as in C.
_LIKE_C = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".hip"}

#: A literal, which is kept, or a comment.
_C_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//(?:\\\n|[^\n])*|/\*.*?\*/""", re.DOTALL
)

#: A raw string of C++, in which everything is literal.
_RAW = re.compile(r'R"[^\s()\\]{0,16}\(')


def digest_of(directory: Path) -> str:
    """Return a digest of a candidate's files that ignores comments and whitespace.

    A file that cannot be read as what its name says counts by its bytes.
    """
    whole = hashlib.sha256()
    for path in files_of(directory):
        name = path.relative_to(directory).as_posix()
        content = path.read_bytes()
        whole.update(f"{name}\0{hashlib.sha256(_normal(path, content)).hexdigest()}\n".encode())
    return whole.hexdigest()[:16]


def files_of(directory: Path) -> list[Path]:
    """Return the files of a candidate, sorted, without links."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def _normal(path: Path, content: bytes) -> bytes:
    try:
        if path.suffix == ".py":
            return ast.dump(ast.parse(content)).encode("utf-8", "surrogatepass")
        if path.suffix == ".json":
            return json.dumps(json.loads(content), sort_keys=True).encode()
        if path.suffix in _LIKE_C:
            return _without_comments(content.decode("utf-8")).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return content


def _without_comments(text: str) -> str:
    """Return C, C++ or CUDA without comments, blank lines, and runs of spaces.

    >>> _without_comments('int  a; // one\\n\\n/* two */ char *b = "// no";')
    'int a;\\nchar *b = "// no";'
    """
    if _RAW.search(text):
        return text
    bare = _C_COMMENT.sub(lambda found: found[1] or " ", text)
    lines = (_spaces(line) for line in bare.splitlines())
    return "\n".join(line for line in lines if line)


def _spaces(line: str) -> str:
    """Return a line with single spaces outside of literals."""
    parts = re.split(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", line)
    return "".join(
        part if number % 2 else re.sub(r"\s+", " ", part) for number, part in enumerate(parts)
    ).strip()


def modules_used(directory: Path) -> tuple[str, ...]:
    """Return the top-level modules that the Python files of a candidate import, sorted."""
    found = set()
    own = {path.stem for path in files_of(directory)}
    for path in files_of(directory):
        if path.suffix != ".py":
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return tuple(sorted(found - own - {"__future__", "typing"}))
