"""Keeps what JAX compiles in a folder, for later runs."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "JAX's persistent compilation cache"
ANSWERS = ("cache_compiled", "cache_tuned")
FREE = False
NEEDS = "jax"
EXPECT, TOLERANCE = "identical", None
DIFFICULTY = "low"
RISKS = "The folder grows; only start-up becomes shorter, and not in the first run."
ORDER = 5


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(options["folder"]),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    # The folder of the trial is gone, so the change names a lasting one.
    return "\n".join(
        "export %s=%s" % one for one in env({"folder": "$HOME/.cache/jax"}, 1, 1).items()
    )
