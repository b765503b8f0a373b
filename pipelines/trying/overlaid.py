"""Runs a program in overlays of directories: its changes go elsewhere, and it sees them in place.

    python -I -S overlaid.py SPEC PROGRAM ARGUMENT...

Runs as a separate program that becomes PROGRAM, with the same process id, and does not import
perfpipe.  SPEC is a JSON file with paths as Latin-1 text, one character per byte:

    directory   where the program starts
    layers      directory, lowers, upper and work of each overlay; if an `optional` one fails, the
                directory stays as it is, and must be shown again if another overlay `covered` it
    uncovered   other mounts below these directories, which would otherwise be hidden
    said        where to write a failure, or which optional overlays failed

The mounts are in a namespace of this process.  Without the right to mount, it gets a namespace of
users too, in which it keeps its user and group, and loses all rights when the program starts.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from typing import Any, NoReturn

#: Exit codes: the overlays failed; the program could not be started.
FAILED, NOT_STARTED = 125, 127

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1


def main() -> NoReturn:
    """Mount what the file says and become the program."""
    parent = os.getppid()
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        spec = json.load(file)
    try:
        unprotected = _mounted(spec)
        os.chdir(_bytes(spec["directory"]))
    except OSError as error:
        what = f"{error.filename or 'overlay'}: {os.strerror(error.errno or 0)}"
        _say(spec, {"failed": what})
        sys.stderr.write(f"perfpipe: the working directory cannot be protected ({what})\n")
        os._exit(FAILED)
    _say(spec, {"unprotected": unprotected})
    # Other rights may have cleared this, which the supervisor set.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(FAILED)
    # Python ignores these signals, and the program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _become(sys.argv[2:])


def _become(words: list[str]) -> NoReturn:
    """Become the program, with the variables as they were given: Python may have added some."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        given = file.read().split(b"\0")
    env = dict(entry.split(b"=", 1) for entry in given if b"=" in entry)
    try:
        os.execvpe(os.fsencode(words[0]), [os.fsencode(word) for word in words], env)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {os.strerror(error.errno or errno.ENOENT)}\n")
    os._exit(NOT_STARTED)


def _mounted(spec: dict[str, Any]) -> list[str]:
    """Mount all overlays; return the directories of the optional ones that failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    layers = spec["layers"]
    _unshare(libc, os.getuid(), os.getgid())
    _check(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None), "mount")
    # Descriptors name directories whatever their names are, and stay valid below other mounts.
    lowers = [[_opened(path) for path in layer["lowers"]] for layer in layers]
    uncovered = [(_bytes(path), _opened(path)) for path in spec["uncovered"]]
    failed = []
    pending = sorted(
        [(len(_bytes(layer["directory"])), 0, index) for index, layer in enumerate(layers)]
        + [(len(path), 1, index) for index, (path, _) in enumerate(uncovered)]
    )
    for _, kind, index in pending:
        if kind:
            path, shown = uncovered[index]
            _show(libc, shown, path)
            continue
        layer = layers[index]
        try:
            _overlay(libc, layer, lowers[index])
        except OSError:
            if not layer["optional"]:
                raise
            failed.append(layer["directory"])
            if layer["covered"]:
                _show(libc, lowers[index][-1], _bytes(layer["directory"]))
    return failed


def _unshare(libc: Any, uid: int, gid: int) -> None:
    """Get a namespace for mounts, and one of users if that needs it."""
    if libc.unshare(_NEWNS) == 0:
        return
    _check(libc.unshare(_NEWNS | _NEWUSER), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        try:
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(text)
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error


def _overlay(libc: Any, layer: dict[str, Any], lowers: list[int]) -> None:
    parts = [b":".join(b"/proc/self/fd/%d" % number for number in lowers)]
    parts += [b"/proc/self/fd/%d" % _opened(layer[name]) for name in ("upper", "work")]
    options = b"lowerdir=%b,upperdir=%b,workdir=%b" % tuple(parts)
    directory = _bytes(layer["directory"])
    # Other attributes need rights that a namespace of users does not give; Linux before 5.11 has
    # no others.
    if libc.mount(b"perfpipe", directory, b"overlay", 0, options + b",userxattr"):
        _check(libc.mount(b"perfpipe", directory, b"overlay", 0, options), "mount overlay")
    if os.stat(directory).st_dev == os.fstat(lowers[-1]).st_dev:  # noqa: PTH116
        raise OSError(errno.EINVAL, "", "mount overlay")


def _show(libc: Any, directory: int, path: bytes) -> None:
    """Mount an open directory at a path."""
    source = b"/proc/self/fd/%d" % directory
    _check(libc.mount(source, path, None, _BIND | _REC, None), "mount --bind")


def _opened(path: str) -> int:
    return os.open(_bytes(path), os.O_PATH | os.O_CLOEXEC)


def _bytes(path: str) -> bytes:
    return path.encode("latin-1")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _say(spec: dict[str, Any], content: dict[str, Any]) -> None:
    with open(_bytes(spec["said"]), "w") as file:  # noqa: PTH123
        json.dump(content, file)


if __name__ == "__main__":
    main()
