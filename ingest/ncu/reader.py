"""NVIDIA's reader of .ncu-rep, the package `ncu-report`."""

from __future__ import annotations

from importlib.util import find_spec

from perfpipe.errors import ToolMissing


def require_reader() -> None:
    """Raise ToolMissing if the reader is not installed; it is not loaded."""
    if find_spec("ncu_report") is None:
        raise ToolMissing("NVIDIA's reader of .ncu-rep is not installed: pip install ncu-report")
