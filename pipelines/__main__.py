"""Runs the command line: python -m pipelines."""

from pipelines.cli import main

main()
