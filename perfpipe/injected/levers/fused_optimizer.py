"""Lets PyTorch's optimizers update all parameters in one kernel (fused=True)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

TITLE = "fused optimizer"
ANSWERS = ("fused_optimizer", "fused_step", "larger_batch", "larger_training_batch")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-5
DIFFICULTY = "low"
RISKS = "Sparse gradients are not supported."
ORDER = 40

#: Optimizers with a fused implementation; it depends on the version which of them have it.
CLASSES = ("SGD", "Adam", "AdamW", "Adagrad")


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    changes = []
    for one in applied or [{"where": "AdamW: default"}]:
        name, before = one["where"].split(": ", 1)
        without = "  # without foreach=True" if before.startswith("foreach") else ""
        changes.append("torch.optim.%s(..., fused=True)%s" % (name, without))
    return "\n".join(changes)


def install(own: "Any") -> None:
    """Change the arguments of the optimizers, but not of classes that derive from them."""
    import inspect

    for name in CLASSES:
        kind = getattr(own.torch.optim, name, None)
        if kind is None:
            continue
        signature = inspect.signature(kind.__init__)
        if "fused" in signature.parameters:
            _patch(own, name, kind, signature)
        else:
            own.refused("PyTorch %s has no fused %s" % (own.torch.__version__, name))


def _groups(given: "dict[str, Any]") -> "list[dict[str, Any]]":
    """Return the groups of parameters that are dictionaries; parameters can be read twice then."""
    if hasattr(given["params"], "__next__"):
        given["params"] = list(given["params"])
    if not isinstance(given["params"], (list, tuple)):
        return []
    groups = [group for group in given["params"] if isinstance(group, dict)]
    for group in groups:
        if hasattr(group.get("params"), "__next__"):
            group["params"] = list(group["params"])
    return groups


def _parameters(torch: "Any", given: "Any") -> "Iterator[Any]":
    """Yield the tensors in what an optimizer was given: tensors, pairs with names, groups."""
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, dict):
        yield from _parameters(torch, given.get("params", ()))
    elif isinstance(given, (list, tuple)):
        for one in given:
            yield from _parameters(torch, one)


def _patch(own: "Any", name: str, kind: "Any", signature: "Any") -> None:
    import functools

    torch, init = own.torch, kind.__init__

    optimizers: "list[Any]" = []

    def fuse(self: "Any", bound: "Any") -> bool:
        """Construct the optimizer with fused=True, if that is possible."""
        given = bound.arguments
        before = "foreach" if given.get("foreach") else "default"
        for other in ("fused", "differentiable"):
            if given.get(other):
                own.refused("%s: the program sets %s=True" % (name, other))
                return False
        groups = _groups(given)
        if not all(map(torch.is_floating_point, _parameters(torch, given["params"]))):
            own.refused("%s: parameters that are not floating-point" % name)
            return False
        kept, contents = dict(given), [dict(group) for group in groups]
        given.update(fused=True, foreach=None)
        try:
            init(*bound.args, **bound.kwargs)
        except Exception as error:
            own.refused("%s: %s" % (name, str(error).strip().split("\n")[0]))
            given.clear()
            given.update(kept)
            for group, content in zip(groups, contents):  # noqa: B905
                group.clear()
                group.update(content)
            return False
        own.applied("%s: %s -> fused" % (name, before))
        optimizers.append(self)
        return True

    @functools.wraps(init)
    def fused_init(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        if type(self).__name__ not in CLASSES:
            own.refused("%s: derived from %s" % (type(self).__name__, name))
        bound = None
        if type(self) is kind:
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:  # as the constructor says itself
                pass
        if bound is None:
            init(self, *args, **kwargs)
        elif not fuse(self, bound):
            init(*bound.args, **bound.kwargs)

    def ended() -> None:
        if optimizers:
            kept = all(group.get("fused") for one in optimizers for group in one.param_groups)
            own.effective(kept, "" if kept else "%s: parameter groups are not fused" % name)

    kind.__init__ = fused_init
    own.at_end(ended)
