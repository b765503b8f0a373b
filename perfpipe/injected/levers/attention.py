"""Takes one implementation away from scaled_dot_product_attention, so that it uses another one."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "scaled_dot_product_attention without {without}"
ANSWERS = ("build_once", "static_shapes", "fused_attention")
PRIOR = 0.1
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-3
DIFFICULTY = "low"
RISKS = "Another GPU, shape or version of PyTorch may prefer the implementation that is taken away."
VARIANTS = ({"without": "cudnn"}, {"without": "flash"})
ORDER = 20


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return "torch.backends.cuda.enable_%s_sdp(False)" % options.get("without", "cudnn")


def install(own: "Any") -> None:
    """Turn the implementation off before the first call of a model."""
    without = own.options.get("without", "cudnn")
    cuda = own.torch.backends.cuda
    enable = getattr(cuda, "enable_%s_sdp" % without, None)
    enabled = getattr(cuda, "%s_sdp_enabled" % without, None)

    def called(module: "Any") -> None:
        if not own.gpu:
            own.refused("no GPU")
        elif enable is None or enabled is None:
            own.refused("PyTorch %s has no such switch" % own.torch.__version__)
        elif enabled():
            enable(False)
            own.applied("scaled_dot_product_attention without %s" % without)
        elif not own.places:
            own.refused("the program turns it off itself")

    def ended() -> None:
        if own.places and enabled is not None:
            kept = not enabled()
            own.effective(kept, "" if kept else "the program turned it on again")

    own.on_model(called)
    own.at_end(ended)
