"""Reports how much of the machine the program has: host cores, threads of PyTorch, and SMs.

perfpipe takes cores and SMs away before the program starts.  With `threads`, PyTorch has as many
threads as with all cores: otherwise there would be two handicaps in one.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def install(own: "Any") -> None:
    """Set the number of threads, and report what the program has."""
    threads = own.options.get("threads")
    if threads:
        own.torch.set_num_threads(threads)

    def counters() -> "dict[str, Any]":
        found = {"cores": len(os.sched_getaffinity(0)), "threads": own.torch.get_num_threads()}
        if own.gpu and own.torch.cuda.is_initialized():
            found["sms"] = own.torch.cuda.get_device_properties(0).multi_processor_count
        return found

    own.applied("the whole program")
    own.at_end(counters)
