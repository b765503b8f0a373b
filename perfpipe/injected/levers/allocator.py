"""Lets PyTorch's allocator grow its segments, so that it frees and allocates less."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "expandable segments of PyTorch's allocator"
ANSWERS = ("fewer_allocations", "allocate_once")
PRIOR = 0.1
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "identical", None
DIFFICULTY = "low"
RISKS = "Memory that is shared between processes (CUDA IPC) may not be supported."
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch; none if the user chose."""
    newer, older = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
    name = newer if os.environ.get(newer) else older
    known = os.environ.get(name, "")
    if "expandable_segments" in known or "backend:" in known:
        return {}
    return {name: ",".join([*([known] if known else []), "expandable_segments:True"])}
