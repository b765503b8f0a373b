"""Starts the command line: perfpipe, or python -m perfpipe."""

from perfpipe.pipelines import signals


def main() -> None:
    """Run the command line and exit.

    Its modules are imported after the handlers: Python can lose a Ctrl-C during imports.
    """
    signals.install()
    from perfpipe.pipelines.startup import collect_rarely

    collect_rarely()
    from perfpipe.pipelines.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
