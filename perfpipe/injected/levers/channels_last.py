"""Stores the weights of 2-D convolutions in channels_last (NHWC), which their outputs follow."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "channels_last for convolutions"
ANSWERS = ("tuned_convolution", "no_conversions", "fused_batch_norm")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-3
DIFFICULTY = "low"
RISKS = (
    "`view` of an output that is in channels_last raises; without TF32 or BF16 it may be slower."
)
ORDER = 20


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return "model = model.to(memory_format=torch.channels_last)"


def install(own: "Any") -> None:
    """Convert the weights of each model before its first call; parameters stay the same objects."""
    torch = own.torch
    layout = torch.channels_last

    def called(module: "Any") -> None:
        name = own.title(module)
        kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
        weights = [part.weight for part in module.modules() if isinstance(part, kinds)]
        weights = [one for one in weights if one.dim() == 4]  # FSDP flattens them
        others = [one for one in weights if not one.is_contiguous(memory_format=layout)]
        for weight in others:
            weight.data = weight.data.contiguous(memory_format=layout)
        if others:
            own.applied("%s: weights of 2-D convolutions" % name, len(others))
        elif weights:
            own.refused("%s: its convolutions are in channels_last already" % name)
        else:
            own.refused("%s: no 2-D convolutions" % name)

    own.on_model(called)
    own.at_end(lambda: own.effective(True) if own.places else None)
