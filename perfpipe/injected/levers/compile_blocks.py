"""Compiles the repeated blocks of models, each on its own: code between blocks is not traced."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "torch.compile of repeated blocks, mode {mode}"
ANSWERS = (
    "cuda_graphs",
    "dependent_launch",
    "fusion",
    "fused_operator",
    "fused_pointwise",
    "fused_normalization",
    "fused_batch_norm",
    "compiled_batch_norm",
)
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-4
DIFFICULTY = "low"
RISKS = "Before PyTorch 2.5 each block is compiled anew, up to the recompile limit of 8."
VARIANTS = ({"mode": "default"}, {"mode": "max-autotune-no-cudagraphs"})
ORDER = 90
VERIFY = {"fallback_random": True}

#: What the report says of a block, in front of its class.
APPLIED = "torch.compile of "


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    mode = options.get("mode", "default")
    given = "" if mode == "default" else 'mode="%s"' % mode
    names = [one["where"][len(APPLIED) :].split(",")[0] for one in applied]
    return (
        "for block in model.modules():\n"
        "    if type(block).__name__ in %r:\n"
        "        block.compile(%s)"
    ) % (names or ["Block"], given)


def _blocks(torch: "Any", module: "Any") -> "list[Any]":
    """Return the outermost children of lists that have siblings of their class."""
    lists, left, found = (torch.nn.ModuleList, torch.nn.Sequential), [module], []
    while left:
        one = left.pop()
        children = [child for child in one._modules.values() if child is not None]
        alike: "dict[type, list[Any]]" = {}
        for child in children if isinstance(one, lists) else ():
            if child._modules and next(iter(child.parameters()), None) is not None:
                alike.setdefault(type(child), []).append(child)
        chosen = [child for same in alike.values() if len(same) > 1 for child in same]
        found += chosen
        left += [child for child in children if not any(child is own for own in chosen)]
    return found


def install(own: "Any") -> None:
    """Compile the blocks of each model before its first call."""
    shared, torch, options = own.load("levers/compile.py"), own.torch, dict(own.options)
    mode = options.get("mode", "default")
    random = options.pop("fallback_random", False)

    def called(module: "Any") -> None:
        name, theirs = own.title(module), shared["compiled_by_program"](torch, module)
        blocks = _blocks(torch, module)
        if theirs is not None:
            own.refused("%s: the program compiles %s itself" % (name, theirs))
        elif not blocks:
            own.refused("%s: no repeated blocks" % name)
        elif not hasattr(module, "compile"):
            own.refused("PyTorch %s cannot compile a module in place" % torch.__version__)
        else:
            if random:
                import torch._inductor.config as inductor

                inductor.fallback_random = True
            for block in blocks:
                shared["compile_in_place"](torch, block, options)
                own.applied("%s%s, mode %s" % (APPLIED, type(block).__name__, mode))

    own.on_model(called)
    own.at_end(lambda: shared["effect"](own, mode))
