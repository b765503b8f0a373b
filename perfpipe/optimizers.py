"""Names of optimizer kernels, which are a kernel category and end the steps of a loop.

Regular expressions over the function name, in upper or lower case.
"""

from __future__ import annotations

import re

#: Foreach kernels of torch.compile, which optimizers launch.
FOREACH = "^triton_for_"

#: Foreach kernels of PyTorch and apex, and optimizers by name.
OPTIMIZER = "|".join(
    (
        "^multi_tensor_apply",
        r"ada(m|grad|delta|factor)",
        "rmsprop",
        r"(^|_)lamb(_|\d|$)",
        r"(^|_)lion(_|\d|$)",
        "sgd_",
        "(^|_)sgd",
        "optimi[sz]er",
    )
)

_EITHER = re.compile(f"{FOREACH}|{OPTIMIZER}", re.IGNORECASE)


def is_optimizer(function_name: str) -> bool:
    """Return whether a kernel belongs to an optimizer, by its name."""
    return _EITHER.search(function_name) is not None
