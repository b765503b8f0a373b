"""Loads the code of kernels at start-up, or each kernel at its first launch."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "{loading} loading of kernels by CUDA"
ANSWERS = ("preload",)
PRIOR = 0.1
FREE = False
NEEDS = "any"
EXPECT, TOLERANCE = "identical", None
DIFFICULTY = "low"
RISKS = "EAGER lengthens start-up and takes GPU memory for kernels that are never launched."
VARIANTS = ({"loading": "EAGER"}, {"loading": "LAZY"})
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch."""
    return {"CUDA_MODULE_LOADING": options.get("loading", "EAGER")}
