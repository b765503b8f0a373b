"""Sets a flag of XLA, behind those of the user."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "XLA flag {flags}"
ANSWERS = ("overlap_communication", "graph_of_compiled", "rest_in_graphs", "library_inputs")
PRIOR = 0.1
FREE = False
NEEDS = "jax"
EXPECT, TOLERANCE = "tolerance", 1e-3
DIFFICULTY = "low"
RISKS = "A flag that this version of XLA does not know ends the program."
VARIANTS = (
    {"flags": "--xla_gpu_enable_latency_hiding_scheduler=true"},
    {"flags": "--xla_gpu_enable_triton_gemm=false"},
    {"flags": "--xla_gpu_graph_min_graph_size=1"},
)
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch."""
    words = [os.environ.get("XLA_FLAGS", ""), options.get("flags", VARIANTS[0]["flags"])]
    return {"XLA_FLAGS": " ".join(words).strip()}
