"""Keeps what torch.compile and Triton compile in a folder, for later runs."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "persistent caches of torch.compile and Triton"
ANSWERS = ("cache_compiled", "cache_tuned")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "identical", None
DIFFICULTY = "low"
RISKS = "The folder grows; only start-up becomes shorter, and not in the first run."
VARIANTS: "tuple[dict[str, Any], ...]" = ({},)
ENV: "dict[str, str]" = {}
ORDER = 5
VERIFY: "dict[str, Any]" = {}


def env(options: "dict[str, Any]", cores: int, ranks: int) -> "dict[str, str]":
    """Return the variables of a launch; none without a folder."""
    if not options.get("folder"):
        return {}
    return {
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_CACHE_DIR": "%s/inductor" % options["folder"],
        "TRITON_CACHE_DIR": "%s/triton" % options["folder"],
    }


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return (
        "export TORCHINDUCTOR_CACHE_DIR=$HOME/.cache/torchinductor\n"
        "export TRITON_CACHE_DIR=$HOME/.cache/triton"
    )
