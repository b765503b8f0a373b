"""Names traces in Chrome's format that perfpipe does not read, and what to give instead."""

from __future__ import annotations

from collections.abc import Collection, Set

from perfpipe.errors import brief
from perfpipe.ingest.foreign import NSYS, TORCH

#: Categories that a refusal lists.
_NAMED = 3

#: Accelerators without a reader, by the beginning of the categories of their events.
_ACCELERATORS = {"mtia_": "an MTIA", "hpu_": "a Gaudi"}

_RECORD = "record the program with torch.profiler.profile, and export_chrome_trace"


def kind_of_trace(categories: Collection[str], processes: Set[str]) -> str:
    """Return what a trace is that torch.profiler did not write for a GPU; empty otherwise.

    `categories` are those of its events, `processes` the names of its processes and text ids.
    """
    for beginning, which in _ACCELERATORS.items():
        if any(name.startswith(beginning) for name in categories):
            return (
                f"a torch.profiler trace of {which} accelerator, which perfpipe does not read; it "
                "reads traces of NVIDIA, AMD and Intel GPUs"
            )
    if any(name.startswith(("/device:", "/host:", "/job:")) for name in processes):
        return f"a profile of JAX (XLA) or TensorFlow, which perfpipe does not read; {NSYS}"
    if processes & {"CPU functions", "CUDA functions"}:
        return f"an export of torch.autograd.profiler, which has no launches; {_RECORD}"
    if "CPU HIP API" in processes:
        return f"a trace of AMD's rocprof, which perfpipe does not read; {_RECORD}"
    return ""


def without_events(categories: Collection[str]) -> str:
    """Return what a trace is that has no events of PyTorch or a GPU."""
    named = ", ".join(repr(brief(name, 20)) for name in sorted(categories)[:_NAMED])
    found = f"its categories include {named}" if named else "its events have no categories"
    return f"a trace in Chrome's format without events of PyTorch or CUDA ({found}); give a {TORCH}"
