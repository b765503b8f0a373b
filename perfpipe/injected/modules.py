"""Names the calls of PyTorch's modules in NVTX ranges, for a timeline that shows who launched what.

A range is named `nn.Module Net: layers.0.norm (LayerNorm)`: the class of the outermost module, the
path of the module in it, and the class of the module.  Wrappers, such as torch.compile and DDP, are
not part of paths.  No backward hooks are used, because they change programs.  Regions that
torch.compile compiled have no ranges: their graphs are those of a program without ranges.  See
sitecustomize.py for the contract of this file.
"""

import functools
import os
import re
import sys
import threading
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Names of the only child of a module that wraps another one: torch.compile, DDP, FSDP, checkpoint.
INNER = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")

#: Number of modules whose names are kept, of numbers for outermost modules of the same class, and
#: of times that the names in one are renewed.
MOST_MODULES, MOST_ALIKE, MOST_RENEWED = 1 << 17, 64, 64

#: Variable that says whether PyTorch itself is to name operators, for versions of nsys that cannot.
OPERATORS = "PERFPIPE_INJECT_OPERATORS"


def _nothing(*args: "Any") -> None:
    """Do nothing."""


#: Begin and end a range; PyTorch without CUDA has no ranges.
_push: "Callable[[str], Any]" = _nothing
_pop: "Callable[[], Any]" = _nothing

#: Sets what torch.compile does with the frames of this thread, and returns what it did before.
_set_eval_frame: "Callable[[Any], Any]" = _nothing


class _Names:
    """The names of the modules in an outermost module: by id, a reference, the path, the range."""

    def __init__(self, root: "Any") -> None:
        self._root, self._title, self._renewed = weakref.ref(root), _title(root), 0
        self._known: "dict[int, tuple[Any, str, str]]" = {}
        self._walk(root)

    def _walk(self, root: "Any") -> None:
        """Name all modules; of several paths to one module, the first counts."""
        self._known.clear()
        left = [(root, "")]
        while left:
            module, path = left.pop()
            if module is None or id(module) in self._known:
                continue
            self.add(module, path)
            _homes[id(module)] = self
            children = module._modules
            wraps = len(children) == 1 and next(iter(children)) in INNER
            for name, child in reversed(list(children.items())):
                left.append((child, path if wraps else path + "." + name if path else name))

    def add(self, module: "Any", path: str) -> "tuple[Any, str, str]":
        """Name a module."""
        where = self._title + ": " + path if path else self._title
        text = "nn.Module %s (%s)" % (where, _class(module))
        own = self._known[id(module)] = (weakref.ref(module), path, text)
        return own

    def of(self, module: "Any") -> "tuple[Any, str, str] | None":
        """Return the name of a module; None if it is not in the outermost one."""
        own = self._known.get(id(module))
        if own is not None and own[0]() is module:
            return own
        # Modules may be added or replaced at any time; those without content are often made anew.
        root = self._root()
        if root is None or self._renewed >= MOST_RENEWED or not _has_content(module):
            return None
        self._renewed += 1
        self._walk(root)
        return self._known.get(id(module))


class _Local(threading.local):
    """What a thread is in: the names in use, and the path of the innermost module."""

    names: "_Names | None" = None
    path = ""


_local = _Local()

#: The names that have a module, by its id.
_homes: "dict[int, _Names]" = {}

#: The titles of outermost modules by id, and how many modules of a class have one.
_titles: "dict[int, tuple[Any, str]]" = {}
_alike: "dict[str, int]" = {}


def _class(module: "Any") -> str:
    """Return the name of a class, as one word; of TorchScript, that of the original class."""
    kind = type(module)
    name = module.original_name if hasattr(kind, "original_name") else kind.__name__
    return re.sub(r"[\s():]", "_", name) or "_"


def _has_content(module: "Any") -> bool:
    """Return whether a module has parameters or contains modules."""
    return bool(module._modules) or next(iter(module.parameters()), None) is not None


def _title(module: "Any") -> str:
    """Return the class of an outermost module; the second one of a class is numbered: Net#2."""
    for _ in range(4):
        children = module._modules
        if len(children) != 1 or next(iter(children)) not in INNER:
            break
        module = next(iter(children.values()))
    known = _titles.get(id(module))
    if known is not None and known[0]() is module:
        return known[1]
    title = _class(module)
    if _has_content(module):
        number = _alike[title] = _alike.get(title, 0) + 1
        if 1 < number <= MOST_ALIKE:
            title += "#%d" % number
    _titles[id(module)] = (weakref.ref(module), title)
    return title


def _named_elsewhere(module: "Any") -> "tuple[_Names, tuple[Any, str, str]]":
    """Return the names of a module that is not in the outermost module, if there is one."""
    before = _set_eval_frame(None)
    try:
        around = _local.names
        for names in (_homes.get(id(module)), around):
            own = names.of(module) if names is not None else None
            if names is not None and own is not None:
                return names, own
        if around is not None and not module._modules:
            # Made during the call of the module around it, or kept in a list.
            path = "(%s)" % _class(module)
            return around, around.add(module, _local.path + "." + path if _local.path else path)
        if len(_homes) >= MOST_MODULES:
            _homes.clear()
            _titles.clear()
        names = _Names(module)
        own = names.of(module)
        assert own is not None  # noqa: S101
        return names, own
    finally:
        _set_eval_frame(before)


def _enter(module: "Any") -> None:
    """Begin the range of a module."""
    names = _local.names
    own = names._known.get(id(module)) if names is not None else None
    if own is None or own[0]() is not module:
        names, own = _named_elsewhere(module)
        _local.names = names
    _push(own[2])
    _local.path = own[1]


def _named(call: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a Module.__call__ that runs in a range."""
    local = _local

    @functools.wraps(call)
    def named_call(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        before = local.names, local.path
        try:
            _enter(self)
        except Exception:
            local.names, local.path = before
            return call(self, *args, **kwargs)
        try:
            return call(self, *args, **kwargs)
        finally:
            _pop()
            local.names, local.path = before

    # torch.compile traces this instead, so its graphs are those of a program without ranges.
    named_call._torchdynamo_inline = call  # type: ignore[attr-defined]
    return named_call


def after_modules(module: "Any") -> None:
    """Name calls, before other modules of PyTorch keep a reference to Module.__call__."""
    module.Module.__call__ = _named(module.Module.__call__)


def after_torch(torch: "Any") -> None:
    """Begin with the ranges."""
    global _push, _pop
    nvtx = getattr(torch._C, "_nvtx", None)
    if nvtx is None:
        return
    _push, _pop = nvtx.rangePushA, nvtx.rangePop
    if os.environ.get(OPERATORS):
        # As torch.autograd.profiler.emit_nvtx, which also synchronizes: that would initialize CUDA.
        own = torch._C._profiler
        config = own.ProfilerConfig(
            own.ProfilerState.NVTX, False, False, False, False, False, own._ExperimentalConfig()
        )
        torch._C._autograd._enable_profiler(config, set())


def after_dynamo(eval_frame: "Any") -> None:
    """Let torch.compile skip the functions of this file, as it skips those of PyTorch."""
    global _set_eval_frame
    named = sys.modules["torch.nn.modules.module"].Module.__call__
    names = [*globals().values(), *vars(_Names).values(), named]
    codes = [one.__code__ for one in names if isinstance(one, type(_nothing))]
    for code in codes:
        eval_frame.skip_code(code)
        codes += [one for one in code.co_consts if isinstance(one, type(code))]
    _set_eval_frame = eval_frame.set_eval_frame
