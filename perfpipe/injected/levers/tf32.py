"""Lets matrix products and convolutions in FP32 use the tensor cores, in TF32."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "TF32 for matrix products in FP32"
ANSWERS = ("mixed_precision", "library_inputs", "tensor_cores")
FREE = True
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-3
DIFFICULTY = "low"
RISKS = "Products keep 10 bits of the mantissa: solvers and simulations may need more."
ORDER = 10


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return 'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True'


def _allowed(torch: "Any") -> bool:
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # the program uses the other interface of PyTorch
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def _allow(torch: "Any") -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def install(own: "Any") -> None:
    """Set the flags at the first call or step, behind what the program sets; and soon again."""
    torch, seen = own.torch, []

    def change(where: str) -> None:
        if _allowed(torch):
            if not own.places:
                own.refused("the program allows TF32 itself")
            return
        own.applied("%s: matrix products %s -> high" % (where, _precision(torch)))
        _allow(torch)

    def called(module: "Any") -> None:
        if not own.gpu:
            own.refused("no GPU")
            return
        parameters = [one for one in module.parameters() if one.is_cuda]
        if not any(one.dtype == torch.float32 and one.dim() > 1 for one in parameters):
            own.refused("%s: no FP32 matrices on a GPU" % own.title(module))
        elif not own.narrow():
            own.refused("the GPU has no TF32")
        else:
            seen.append(own.title(module))
            change(seen[-1])

    def stepped(number: int) -> None:
        if number <= 3 and seen and own.places and not _allowed(torch):
            change("after step %d" % number)

    def ended() -> None:
        if own.places:
            kept = _allowed(torch)
            own.effective(kept, "" if kept else "the program turned it off again")

    own.on_model(called)
    own.on_step(stepped)
    own.at_end(ended)


def _precision(torch: "Any") -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return "highest"
