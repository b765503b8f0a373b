"""Inspects a candidate's source before it runs.

Offences are refused: a kernel does not need them.  Code that hides its purpose is an offence.  The
inspection is not a security boundary: the confined process and the judge's clock are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfpipe.pipelines.evaluate.result import Evidence

#: Modules that a kernel does not need, by purpose.
_MODULES = {
    "network": "socket ssl http urllib requests ftplib smtplib asyncio aiohttp httpx xmlrpc",
    "process": "subprocess multiprocessing pty signal concurrent",
    "harness": "perfpipe pipelines analysis ingest templates workloads inspect gc faulthandler "
    "importlib pickle marshal dis code codeop imp runpy builtins __main__ unittest pytest mmap "
    "resource fcntl tracemalloc",
    "files": "shutil tempfile glob fileinput",
}
_OF_MODULE = {name: kind for kind, names in _MODULES.items() for name in names.split()}

#: Functions, as written in source, by purpose.
_CALLS = {
    "hidden code": "eval exec compile __import__ globals locals vars breakpoint input",
    "process": "os.system os.popen os.fork os.forkpty os.execv os.execve os.execvp os.kill "
    "os.killpg os.posix_spawn os.spawnv os._exit torch.multiprocessing.spawn",
    "harness": "sys._getframe sys.settrace sys.setprofile sys._current_frames sys.addaudithook "
    "torch.multiprocessing.set_start_method ctypes.pythonapi",
}
_OF_CALL = {name: kind for kind, names in _CALLS.items() for name in names.split()}

#: Functions that open the file in their first argument.
_OPENING = {"open", "os.open", "io.open", "pathlib.Path", "torch.load", "torch.from_file"}

#: Attributes that bypass everything above.
_HIDDEN = {
    "__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__", "f_back",
    "f_globals", "f_locals", "gi_frame", "tb_frame", "__loader__", "__spec__", "__dict__",
}  # fmt: skip

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
            found.append(Evidence("hidden code", f"{name} is longer than 4 MiB", name))
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError):
            continue  # it cannot run either, and running it reports that
        beside = {other.stem for other in directory.glob("*.py")} | {
            other.name for other in directory.iterdir() if other.is_dir()
        }
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
            Evidence(kind, text, self._name, getattr(node, "lineno", None))
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
        elif path == "sys.modules":
            yield "harness", "uses sys.modules"

    def _called(self, function: ast.expr, given: Sequence[ast.expr]) -> Iterator[tuple[str, str]]:
        path = self._path(function)
        first = given[0] if given else None
        if path in _OF_CALL and "." not in path:
            yield _OF_CALL[path], f"calls {path}"
        elif path in ("setattr", "delattr") and first is not None and self._is_foreign(first):
            yield "timer patched", f"replaces a part of {ast.unparse(first)}"
        elif path == "getattr" and len(given) > 1 and not isinstance(given[1], ast.Constant):
            if first is not None and self._is_foreign(first):
                yield "hidden code", f"looks up a part of {ast.unparse(first)} by a computed name"
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
        elif isinstance(target, ast.Subscript) and self._path(target.value) == "os.environ":
            yield "harness", "changes the environment"

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
    """Return a literal path outside the working directory; empty for others."""
    text = str(node.value) if isinstance(node, ast.Constant) else ""
    return text if text.startswith(("/", "..", "~")) else ""
