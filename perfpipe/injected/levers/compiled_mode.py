"""Lets programs that call torch.compile themselves compile in another mode."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "mode {mode} in the program's own torch.compile"
ANSWERS = ("graph_of_compiled", "rest_in_graphs", "dependent_launch")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-4
DIFFICULTY = "low"
RISKS = (
    "CUDA graphs overwrite their outputs in the next call, and new shapes are captured again; "
    "autotuning takes minutes."
)
VARIANTS = ({"mode": "reduce-overhead"}, {"mode": "max-autotune-no-cudagraphs"})
ORDER = 90


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return 'model = torch.compile(model, mode="%s")' % options.get("mode", "reduce-overhead")


def install(own: "Any") -> None:
    """Change the mode of torch.compile where the program states none."""
    import functools

    torch, mode = own.torch, own.options.get("mode", "reduce-overhead")
    plain = getattr(torch, "compile", None)
    if plain is None:
        own.refused("PyTorch %s has no torch.compile" % torch.__version__)
        return

    @functools.wraps(plain)
    def compile_in_mode(model: "Any" = None, **given: "Any") -> "Any":
        if model is None or given.get("disable"):
            return plain(model, **given)  # a decorator calls again, with what it decorates
        stated = given.get("mode") or given.get("options")
        if given.get("backend", "inductor") != "inductor" or stated not in (None, "default"):
            own.refused("the program chooses the mode or the backend itself")
        else:
            given["mode"] = mode
            name = getattr(model, "__qualname__", type(model).__name__)
            own.applied("torch.compile of %s: mode default -> %s" % (name, mode))
        return plain(model, **given)

    torch.compile = compile_in_mode
    own.at_end(lambda: own.load("levers/compile.py")["effect"](own, mode))
