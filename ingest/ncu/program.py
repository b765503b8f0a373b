"""Finds the script that an interpreter ran, from ncu's command line."""

from __future__ import annotations

import re
import shlex

from perfpipe.secrets import hide

_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*")

#: Options of Python before its script.  Others (-m, -c) run no script.
_PLAIN, _VALUED = re.compile(r"-[bBdEiIOPqRsSuvx]+"), frozenset({"-X", "-W"})

#: Options of ncu without a value.  If one is missing here, the program is taken as its value; then
#: the next word is not an interpreter, and no script is reported.
_FLAGS = frozenset(
    "-f --force-overwrite --nvtx --call-stack --csv --verbose --quiet --open-in-ui --null-stdin "
    "--lockstep-kernel-launch --disable-profiler-start-stop".split()
)


def program(executable: str | None, command: str | None) -> str | None:
    """Return the executable, with the file name of its script if ncu's command line is plain.

    >>> program("/usr/bin/python3.12", "/opt/ncu --nvtx -o a python3 -u /x/train.py --key K")
    '/usr/bin/python3.12 train.py'
    >>> program("/usr/bin/python3.12", "ncu torchrun train.py")
    '/usr/bin/python3.12'
    """
    if executable and command and _PYTHON.fullmatch(executable) and (script := _script(command)):
        return f"{executable} {script}"
    return executable


def _script(command: str) -> str | None:
    try:
        words = shlex.split(command)[1:]
    except ValueError:
        return None
    while words and words[0].startswith("-"):
        option = words.pop(0)
        valued = "=" not in option and option not in _FLAGS
        if valued and words and not words[0].startswith("-"):
            words.pop(0)
    if not words or not _PYTHON.fullmatch(words.pop(0)):
        return None
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in _VALUED:
            del words[:1]
        elif not (_PLAIN.fullmatch(option) or option[:2] in _VALUED):
            return None
    # The command of a timeline is not quoted, so the end of a path with spaces is unknown.
    if not words or re.search(r"\s", words[0]):
        return None
    name = words[0].rsplit("/", 1)[-1]
    return name if hide(name) == name else None
