"""Watches a candidate from within its process: replaced functions, audited events."""

from __future__ import annotations

import builtins
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, type)

#: What PyTorch itself replaces, with its default type.
_SETTINGS = {"torch.Storage"}

#: Audited events by kind: see "Audit events table" in Python's documentation.
_KINDS = {
    "network": ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"),
    "harness": (
        "sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile",
        "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    ),
    "files": ("open",),
}  # fmt: skip
_KIND = {event: kind for kind, events in _KINDS.items() for event in events}


class Known:
    """The functions of PyTorch, of timers and of Python, as they were before a candidate."""

    def __init__(self, places: dict[str, Any]) -> None:
        self._held = [
            (f"{name}.{key}", place, key, found)
            for name, place in places.items()
            for key, found in vars(place).items()
            if isinstance(found, _FUNCTIONS) and f"{name}.{key}" not in _SETTINGS
        ]
        self._classes = [
            (name, place, {*vars(place)})
            for name, place in places.items()
            if isinstance(place, type)
        ]

    def replaced(self) -> list[str]:
        """Return the names of replaced functions, and of those that hide an inherited one."""
        found = [name for name, place, key, held in self._held if vars(place).get(key) is not held]
        for name, place, keys in self._classes:
            inherited = {key for base in place.__mro__[1:-1] for key in vars(base)}
            found += [f"{name}.{key}" for key in {*vars(place)} - keys if key in inherited]
        return found


def known(torch: Any) -> Known:
    """Return the functions whose replacement would change times or checks."""
    return Known(
        {
            "torch": torch,
            "torch.Tensor": torch.Tensor,
            "torch.nn.functional": torch.nn.functional,
            "torch.cuda": torch.cuda,
            "torch.cuda.Event": torch.cuda.Event,
            "torch.cuda.Stream": torch.cuda.Stream,
            "torch._C": torch._C,
            "time": time,
            "builtins": builtins,
            "os": os,
        }
    )


def operators_of(torch: Any, call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return the result of a call, and the PyTorch operators that it ran."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: dict[str, None] = {}

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, given: Any = (), named: Any = None
        ) -> Any:
            seen[function.overloadpacket._qualified_op_name] = None
            return function(*given, **(named or {}))

    with Watch():
        found = call()
    return found, [*seen]


def audit(asked: Mapping[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Report events caused by a candidate's own code, not by libraries for it.

    `asked` has its `directory`, and the `hidden` paths.
    """
    directory, library = asked["directory"], sysconfig.get_paths()["stdlib"]
    getframe, identity, own = sys._getframe, threading.get_ident, f"/proc/{os.getpid()}/"
    hidden = tuple(asked["hidden"])
    busy: set[int] = set()
    told: set[tuple[str, str]] = set()

    def hook(event: str, given: tuple[Any, ...]) -> None:
        kind = _KIND.get(event)
        if kind is None or (thread := identity()) in busy:
            return
        busy.add(thread)
        try:
            what = str(given[0]) if given else ""
            if kind == "files":
                if what.startswith(hidden):
                    kind = "reference called"
                elif _of_a_process(what) and not what.startswith(own):
                    kind = "harness"
                else:
                    return  # the kernel refuses what a candidate may not open
            frame: Any = getframe(1)
            # Libraries inspect the stack for themselves, as namedtuple does; files that they open
            # and processes that they start are attributed to their caller.
            while (
                kind != "harness"
                and frame is not None
                and _of_library(frame.f_code.co_filename, library)
            ):
                frame = frame.f_back
            where = frame.f_code.co_filename if frame is not None else ""
            ours = where.startswith(directory) or where.startswith("<")
            if frame is None or not ours or (event, where) in told:
                return
            told.add((event, where))
            name = os.path.relpath(where, directory) if where.startswith("/") else where
            say({"audit": {"kind": kind, "event": event, "what": what[:200], "file": name,
                           "line": frame.f_lineno}})  # fmt: skip
        finally:
            busy.discard(thread)

    sys.addaudithook(hook)


def _of_a_process(path: str) -> bool:
    return path.startswith("/proc/") and path[6:7].isdecimal()


def _of_library(name: str, library: str) -> bool:
    ours = name.startswith(library) and "-packages" not in name
    return ours or name.startswith("<frozen")
