"""Lets cuDNN choose the algorithms of convolutions by timing them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "cuDNN autotuning of convolutions"
ANSWERS = ("tuned_convolution", "tried_convolution")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-3
DIFFICULTY = "low"
RISKS = (
    "Each new shape is timed once; the choice, and the last bits of results, vary from run to run."
)
ORDER = 20


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return "torch.backends.cudnn.benchmark = True"


def install(own: "Any") -> None:
    """Set the flag before the first call of a model with convolutions."""
    torch = own.torch
    cudnn = torch.backends.cudnn

    def called(module: "Any") -> None:
        name = own.title(module)
        convolutions = getattr(torch.nn.modules.conv, "_ConvNd", ())
        if not own.gpu:
            own.refused("no GPU")
        elif not any(isinstance(part, convolutions) for part in module.modules()):
            own.refused("%s: no convolutions" % name)
        elif cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
            own.refused("the program asks for deterministic algorithms")
        elif not cudnn.benchmark:
            cudnn.benchmark = True
            own.applied("%s: cudnn.benchmark False -> True" % name)
        elif not own.places:
            own.refused("the program sets cudnn.benchmark itself")

    def stepped(number: int) -> None:
        if number <= 3 and own.places and not cudnn.benchmark:
            cudnn.benchmark = True
            own.applied("after step %d: cudnn.benchmark False -> True" % number)

    def ended() -> None:
        if own.places:
            kept = bool(cudnn.benchmark)
            own.effective(kept, "" if kept else "the program turned it off again")

    own.on_model(called)
    own.on_step(stepped)
    own.at_end(ended)
