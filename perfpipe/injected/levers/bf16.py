"""Calls models in BF16 autocast, and casts their outputs back to FP32: the program sees no BF16."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "BF16 autocast around the model"
ANSWERS = ("mixed_precision", "narrower_types", "tensor_cores", "library_inputs")
PRIOR = 0.7
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-2
DIFFICULTY = "low"
RISKS = (
    "Activations have 8 bits of mantissa; an autograd.Function of the program that does not expect "
    "BF16 fails."
)
ORDER = 10


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    device = "cpu" if any("on the CPU" in one["where"] for one in applied) else "cuda"
    return (
        'with torch.autocast("%s", dtype=torch.bfloat16):\n'
        "    output = model(...)\n"
        "output = output.float()  # of several outputs, each that is in BF16"
    ) % device


def _autocasting(torch: "Any", device: str) -> bool:
    """Return whether the program itself uses autocast now."""
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before PyTorch 2.4
        on_cpu = device == "cpu"
        return bool(torch.is_autocast_cpu_enabled() if on_cpu else torch.is_autocast_enabled())


def _widened(torch: "Any", value: "Any") -> "Any":
    """Return a value with FP32 tensors instead of BF16 tensors."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    kind = type(value)
    if isinstance(value, (list, tuple)):
        parts = [_widened(torch, one) for one in value]
        if all(new is old for new, old in zip(parts, value)):  # noqa: B905
            return value
        return kind(*parts) if hasattr(value, "_fields") else kind(parts)
    if isinstance(value, dict):
        pairs = {key: _widened(torch, one) for key, one in value.items()}
        if all(new is value[key] for key, new in pairs.items()):
            return value
        return kind(pairs)
    if hasattr(kind, "__dataclass_fields__"):
        for name in kind.__dataclass_fields__:
            old = getattr(value, name, None)
            new = _widened(torch, old)
            if new is not old:
                object.__setattr__(value, name, new)
    return value


def install(own: "Any") -> None:
    """Call models whose matrices are in FP32 in autocast."""
    torch = own.torch
    devices: "dict[int, Any]" = {}  # by id of a model: the type of its device, if it fits
    calls = [0]

    def called(module: "Any") -> None:
        name = own.title(module)
        parameters = list(module.parameters())
        size = sum([one.numel() for one in parameters])
        narrow = [one.numel() for one in parameters if one.dtype != torch.float32]
        device = parameters[0].device.type
        devices[id(module)] = None
        if 2 * sum(narrow) > size:
            own.refused("%s: most of its parameters are not in FP32" % name)
        elif all(one.dim() < 2 for one in parameters):
            own.refused("%s: no matrices" % name)
        elif device == "cuda" and not own.narrow():
            own.refused("the GPU has no BF16")
        elif device not in ("cuda", "cpu"):
            own.refused("%s: on device %s" % (name, device))
        elif _autocasting(torch, device):
            own.refused("%s: the program uses autocast" % name)
        else:
            devices[id(module)] = device
            where = " on the CPU" if device == "cpu" else ""
            own.applied("autocast%s around %s (%.3g M parameters)" % (where, name, size / 1e6))

    def around(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        device = devices.get(id(module))
        if device is None or _autocasting(torch, device):
            return call(module, *args, **kwargs)
        calls[0] += 1
        with torch.autocast(device, dtype=torch.bfloat16):
            result = call(module, *args, **kwargs)
        return _widened(torch, result)

    def ended() -> "dict[str, int]":
        if own.places:
            own.effective(calls[0] > 0, "" if calls[0] else "the program uses autocast")
        return {"calls": calls[0]}

    own.on_model(called)
    own.around_model(around)
    own.at_end(ended)
