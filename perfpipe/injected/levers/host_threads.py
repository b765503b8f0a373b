"""Sets the number of threads that libraries use on the host."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "OpenMP, MKL and OpenBLAS threads: {threads}"
ANSWERS = ("host_work", "host_alone")
PRIOR = 0.1
FREE = False
NEEDS = "any"
EXPECT, TOLERANCE = "tolerance", 1e-5
DIFFICULTY = "low"
RISKS = "Sums on the host are added in another order."
VARIANTS = ({"threads": 1}, {"threads": "cores"})
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch."""
    threads = options.get("threads", 1)
    count = str(max(1, cores // max(1, ranks)) if threads == "cores" else threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, count)
