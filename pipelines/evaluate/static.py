"""Inspects a candidate's source before it runs.

What only a cheat needs is cheating; what perfpipe does not run is refused.  The inspection is no
security boundary, and no verdict depends on it: the confined process, fresh inputs, results that
are compared elsewhere, and the judge's clock are what a candidate cannot get around.  So whatever
they make harmless may be used: subprocesses, introspection, and the environment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfpipe.pipelines.evaluate.result import Evidence

#: Modules by kind of evidence.
_MODULES = {
    "network": "socket http urllib requests ftplib smtplib aiohttp httpx xmlrpc",
    "processes": "multiprocessing pty",
    "harness": "perfpipe pipelines analysis ingest templates workloads",
    "unread code": "marshal code codeop imp runpy timeit",
}
_OF_MODULE = {name: kind for kind, names in _MODULES.items() for name in names.split()}

#: Functions, as written in source, by kind of evidence.
_CALLS = {
    "unread code": "eval exec compile builtins.eval builtins.exec builtins.compile",
    "processes": "os.fork os.forkpty os.kill os.killpg torch.multiprocessing.spawn",
    "harness": "sys._getframe sys.settrace sys.setprofile sys._current_frames sys.addaudithook "
    "gc.get_objects gc.get_referrers gc.get_referents ctypes.pythonapi",
}
_OF_CALL = {name: kind for kind, names in _CALLS.items() for name in names.split()}

#: Why what is refused is.
_WHY = {
    "network": "a candidate has no network",
    "processes": "processes other than its own are not timed",
    "files": "a candidate can open libraries and its own directory only",
    "unread code": "perfpipe runs only code that it can read",
}

#: Functions that import the module in their first argument.
_IMPORTING = {"importlib.import_module", "__import__", "builtins.__import__"}

#: Functions that open the file in their first argument.
_OPENING = {"open", "os.open", "io.open", "pathlib.Path", "torch.load", "torch.from_file"}

#: Paths outside its directory that a candidate can open.
_OPEN = ("/proc/self/", "/proc/cpuinfo", "/proc/meminfo", "/dev/null", "/usr/", "/opt/", "/sys/")

#: Attributes that reach what called a function, or all that is loaded.
_HIDDEN = {
    "__globals__", "__builtins__", "__subclasses__", "f_back", "f_globals", "f_locals", "gi_frame",
    "tb_frame",
}  # fmt: skip

#: Packages whose parts may be looked up by computed names, such as types and functions.
_TABLES = {"torch", "numpy", "math", "tl", "F"}

#: Packages whose parts must not be replaced.
_FOREIGN = {"torch", "time", "triton", "numpy", "os", "sys", "builtins", "math", "tl", "F"}

#: Largest file that is read, bytes.
_LONGEST = 4 << 20


def look(directory: Path, reference: str) -> list[Evidence]:
    """Return the offences of a candidate's files; it must not use the module `reference`."""
    found: list[Evidence] = []
    for path in sorted(directory.rglob("*.py")):
        name = path.relative_to(directory).as_posix()
        if path.stat().st_size > _LONGEST:
            found.append(Evidence("unread code", f"{name} is longer than 4 MiB", name))
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue  # it cannot run either, and running it reports that
        # A file cannot take the place of a module that is loaded already.
        beside = {other.stem for other in directory.glob("*.py")}
        beside |= {other.name for other in directory.iterdir() if other.is_dir()}
        beside -= _OF_MODULE.keys()
        found += _Look(name, reference, beside).offences(tree)
    return found


class _Look:
    def __init__(self, name: str, reference: str, beside: set[str]) -> None:
        self._name, self._reference, self._beside = name, reference, beside
        #: Imported objects by local name.
        self._names: dict[str, str] = {}

    def offences(self, tree: ast.AST) -> list[Evidence]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    self._names[one.asname or one.name.split(".")[0]] = (
                        one.name if one.asname else one.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self._names[one.asname or one.name] = f"{node.module}.{one.name}"
        return [
            Evidence(kind, _explained(kind, text), self._name, getattr(node, "lineno", None))
            for node in ast.walk(tree)
            for kind, text in self._of(node)
        ]

    def _of(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        match node:
            case ast.Import(names=names):
                for one in names:
                    yield from self._imported(one.name)
            case ast.ImportFrom(module=module, names=names):
                yield from self._imported(module or "")
                for one in names:
                    yield from self._used(f"{module}.{one.name}")
            case ast.Call(func=function, args=given):
                yield from self._called(function, given)
            case ast.Attribute(attr=name) if name in _HIDDEN:
                yield "hidden code", f"uses {ast.unparse(node)}"
            case ast.Attribute(ctx=ast.Load()):
                yield from self._used(self._path(node))
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from self._assigned(target)
            case ast.AugAssign(target=target) | ast.Delete(targets=[target]):
                yield from self._assigned(target)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                yield from self._assigned(target)

    def _imported(self, module: str) -> Iterator[tuple[str, str]]:
        first = module.split(".")[0]
        if first in self._beside:
            return
        if first == self._reference:
            yield "reference called", f"imports the reference, {module}"
        elif first in _OF_MODULE:
            yield _OF_MODULE[first], f"imports {module}"

    def _used(self, path: str) -> Iterator[tuple[str, str]]:
        if path in _OF_CALL and "." in path:
            yield _OF_CALL[path], f"uses {path}"

    def _called(self, function: ast.expr, given: Sequence[ast.expr]) -> Iterator[tuple[str, str]]:
        path = self._path(function)
        first = given[0] if given else None
        if path in _OF_CALL and "." not in path:
            yield _OF_CALL[path], f"calls {path}"
        elif path in ("setattr", "delattr") and first is not None and self._is_foreign(first):
            yield "timer patched", f"replaces a part of {ast.unparse(first)}"
        elif path == "getattr" and len(given) > 1 and not isinstance(given[1], ast.Constant):
            table = first is not None and self._path(first).split(".")[0] in _TABLES
            if first is not None and self._is_foreign(first) and not table:
                yield "unread code", f"looks up a part of {ast.unparse(first)} by a computed name"
        elif path in _IMPORTING and isinstance(first, ast.Constant):
            yield from self._imported(str(first.value))
        elif path in _OPENING and (name := _outside(first)):
            yield "files", f"opens {name[:100]}"

    def _assigned(self, target: ast.expr) -> Iterator[tuple[str, str]]:
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                yield from self._assigned(one)
        elif isinstance(target, ast.Attribute) and self._is_foreign(target.value):
            path = self._path(target)
            # Settings that PyTorch has for this.
            if not path.startswith(("torch.backends.", "torch._dynamo.config", "torch._inductor.")):
                yield "timer patched", f"replaces {path}"
        elif isinstance(target, ast.Subscript) and self._path(target.value) == "sys.modules":
            yield "timer patched", f"replaces {ast.unparse(target)}"

    def _is_foreign(self, node: ast.expr) -> bool:
        """Return whether an expression is a foreign module, or a class or function of one."""
        path = self._path(node)
        first = path.split(".")[0]
        bound = isinstance(node, ast.Name) and node.id not in self._names
        return first in _FOREIGN and not bound

    def _path(self, node: ast.AST) -> str:
        """Return a dotted name with its first part resolved; empty for anything else."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._names.get(node.id, node.id), *reversed(parts)])


def _outside(node: ast.expr | None) -> str:
    """Return a literal path that a candidate cannot open; empty for others."""
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return text if text.startswith(("/", "..", "~")) and not text.startswith(_OPEN) else ""


def _explained(kind: str, text: str) -> str:
    return f"{text}: {_WHY[kind]}" if kind in _WHY else text
