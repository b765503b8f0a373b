"""Ends the command line by Ctrl-C while its modules are imported: in a word, without a traceback.

Python raises KeyboardInterrupt wherever it is then, also where nothing can handle it.
"""

import os
import signal
import sys


def heed_interrupts() -> None:
    """End this process by Ctrl-C, if it is the command line; there is nothing to clean up yet."""
    if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _is_command_line() -> bool:
    """Return whether this process is the console script, or imports `python -m perfpipe`."""
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":
        words = getattr(sys, "orig_argv", [])
        return words[words.index("-m") + 1 :][:1] == ["perfpipe"] if "-m" in words else False
    return name.rpartition("/")[2] == "perfpipe"


def raise_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, as in any program."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(128 + signal.SIGINT)
