"""Starts the command line: perfpipe, or python -m pipelines."""

import atexit
import gc

from pipelines import signals

#: Objects after which garbage is collected: commands make many, and few that refer to each other.
_OBJECTS = 100_000


def main() -> None:
    """Run the command line and exit.

    Its modules are imported behind the handlers: Python can lose a Ctrl-C that comes meanwhile.
    """
    signals.install()
    gc.set_threshold(_OBJECTS)
    # What a process holds when it ends goes with it: to look through that takes time after a page.
    atexit.register(gc.freeze)
    from pipelines.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
