"""Sets the number of queues between host and GPU, which streams share."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "hardware queues for streams: {connections}"
ANSWERS = ("earlier_dependencies", "overlap_communication", "overlapped_copies")
PRIOR = 0.1
FREE = False
NEEDS = "any"
EXPECT, TOLERANCE = "scatter", None
DIFFICULTY = "low"
RISKS = "Frameworks that order kernels by a single queue (tensor parallelism) need 1."
VARIANTS = ({"connections": 32}, {"connections": 1})
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch."""
    return {"CUDA_DEVICE_MAX_CONNECTIONS": str(options.get("connections", 32))}
