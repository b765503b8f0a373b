"""Runs a program with a file as its input: fed.py FILE PROGRAM [ARGUMENT]..."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Replace this process by the program."""
    file, program, *rest = sys.argv[1:]
    given = os.open(file, os.O_RDONLY)
    os.dup2(given, 0)
    os.close(given)
    os.execvp(program, [program, *rest])  # noqa: S606


if __name__ == "__main__":
    main()
