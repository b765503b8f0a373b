"""Keeps activations instead of computing them again (torch.utils.checkpoint)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TITLE = "no activation checkpointing"
ANSWERS: "tuple[str, ...]" = ()
FREE = True
NEEDS = "checkpointing"
#: A step computes the forward pass twice, which is a quarter of it if backward takes two of them.
USUAL_PCT = 25.0
EXPECT, TOLERANCE = "scatter", None
DIFFICULTY = "low"
RISKS = "All activations stay in GPU memory until the backward pass."
ORDER = 30


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    if any("transformers" in one["where"] for one in applied):
        return "model.gradient_checkpointing_disable()  # or gradient_checkpointing=False"
    return "function(*args)  # instead of torch.utils.checkpoint.checkpoint(function, *args)"


def _directly(function: "Any", *args: "Any", **kwargs: "Any") -> "Any":
    """Call what transformers would checkpoint."""
    return function(*args, **kwargs)


def install(own: "Any") -> None:
    """Replace what `checkpoint` uses: `from ... import checkpoint` may have copied it itself."""
    calls = [0]

    def patch(module: "Any") -> None:
        if not hasattr(module, "_checkpoint_without_reentrant_generator"):
            own.refused("PyTorch %s checkpoints in another way" % own.torch.__version__)
            return

        class Direct:
            """Calls the function instead."""

            @staticmethod
            def apply(function: "Any", preserve: bool, *args: "Any") -> "Any":
                calls[0] += 1
                return function(*args)

        def around(function: "Any", *args: "Any", **kwargs: "Any") -> "Iterator[None]":
            calls[0] += 1
            yield

        module.CheckpointFunction = Direct
        module._checkpoint_without_reentrant_generator = around

    def called(module: "Any") -> None:
        for part in module.modules():
            if "_gradient_checkpointing_func" in vars(part):
                part._gradient_checkpointing_func = _directly
                if getattr(part, "gradient_checkpointing", False):
                    own.applied("transformers: %s" % type(part).__name__)

    def ended() -> "dict[str, int]":
        if calls[0] and not own.places:
            own.applied("torch.utils.checkpoint")
        if own.places:
            own.effective(True)
        return {"calls": calls[0]}

    own.after("torch.utils.checkpoint", patch)
    own.on_model(called)
    own.at_end(ended)
