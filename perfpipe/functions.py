"""Functions to profile, as a program declares them and as a launch finds them.

Standard library only, for Python 3.8 or newer: the interpreter of a launch may lack what perfpipe
needs (see driver.py).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Values that are written as Python writes them.
NAMED = {"True": True, "False": False, "None": None}

#: Whether this process is a launch of perfpipe, which profiles a function; set by driver.py.
launched = False


class InLaunch(BaseException):
    """The file of a function asked for a profile in a launch: it must not start launches again."""


class Profiled:
    """A function with the parameters to profile it for; a call is a call of the function.

    `parameters` and `settings` are as for `perfpipe.profile`.
    """

    def __init__(self, function: Callable[..., Any], parameters: Any, settings: Any) -> None:
        self.parameters, self.settings = parameters, settings
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def profile(self, parameters: Any = None, /, **settings: Any) -> Any:
        """Profile the function and return its Results; `parameters` replace those of the decorator.

        `settings` and errors are those of `perfpipe.profile`, and replace those of the decorator.
        """
        from perfpipe import profile

        return profile(self, parameters, **settings)


def value_of(text: str) -> int | float | str | bool | None:
    """Return a value of the command line: a number, True, False, None, or else text.

    >>> [value_of(text) for text in ("512", "1e-3", "True", "fp16")]
    [512, 0.001, True, 'fp16']
    """
    return NAMED[text] if text in NAMED else scalar(text)


def scalar(text: str) -> int | float | str:
    """Return a value of the command line as an integer or a float if it can be parsed as one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
