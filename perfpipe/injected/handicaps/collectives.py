"""Delays the host before each collective of torch.distributed.

This delays the launch of a collective.  It does not slow the collective itself, and a full queue of
the GPU hides it.  DistributedDataParallel launches its collectives from C++, unless it has a
communication hook: it gets the one of PyTorch that does the same.
"""

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    load: "Any" = None  # given to every helper by imports.py


#: Functions of torch.distributed that launch a collective.
FUNCTIONS = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor",
    "_all_gather_base", "all_gather_coalesced", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "_reduce_scatter_base", "all_to_all", "all_to_all_single",
    "broadcast", "gather", "scatter", "barrier",
)  # fmt: skip


def install(own: "Any") -> None:
    """Delay collectives."""
    names = load("handicaps/_delays.py")
    events, delay = names["Events"](own), names["Delay"](own)
    local = threading.local()

    def event(where: str) -> None:
        own.applied(where)
        delay()
        events.add()

    def delayed(function: "Callable[..., Any]", where: str) -> "Callable[..., Any]":
        def delayed_collective(*args: "Any", **kwargs: "Any") -> "Any":
            if getattr(local, "inside", False):  # one collective in terms of another one
                return function(*args, **kwargs)
            event(where)
            local.inside = True
            try:
                return function(*args, **kwargs)
            finally:
                local.inside = False

        # torch.compile traces the function of PyTorch.
        delayed_collective._torchdynamo_inline = function  # type: ignore[attr-defined]
        return delayed_collective

    def after_distributed(module: "Any") -> None:
        for name in FUNCTIONS:
            function = getattr(module, name, None)
            if function is not None:
                replacement = delayed(function, name)
                setattr(module, name, replacement)
                package = sys.modules.get("torch.distributed")
                if getattr(package, name, None) is function:
                    setattr(package, name, replacement)

    def on_model(module: "Any") -> None:
        if type(module).__name__ != "DistributedDataParallel":
            return
        if getattr(module, "_comm_hooks", None):  # it calls the functions that are delayed
            return
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
            allreduce_hook,
        )

        def hook(state: "Any", bucket: "Any") -> "Any":
            event("DistributedDataParallel")
            local.inside = True
            try:
                return allreduce_hook(state, bucket)
            finally:
                local.inside = False

        # PyTorch refuses a hook whose annotations are not its own.
        module.register_comm_hook(None, lambda state, bucket: hook(state, bucket))

    own.after("torch.distributed.distributed_c10d", after_distributed)
    own.on_model(on_model)
