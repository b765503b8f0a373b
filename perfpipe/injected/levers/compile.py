"""Compiles models in place with torch.compile."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "torch.compile of the model, mode {mode}"
ANSWERS = (
    "cuda_graphs",
    "dependent_launch",
    "larger_batch",
    "larger_training_batch",
    "fusion",
    "fused_operator",
    "fused_pointwise",
    "fused_normalization",
    "fused_batch_norm",
    "compiled_batch_norm",
    "no_conversions",
)
PRIOR = 0.8
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-4
DIFFICULTY = "low"
RISKS = (
    "Compilation takes from seconds to minutes and is repeated for new shapes; dropout draws other "
    "random numbers."
)
VARIANTS = (
    {"mode": "default"},
    {"mode": "reduce-overhead"},
    {"mode": "max-autotune-no-cudagraphs"},
)
#: Variants that carry out some techniques best, by the value of their option.
PREFERS = {"reduce-overhead": ("cuda_graphs",)}
ORDER = 90
VERIFY = {"fallback_random": True}


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    mode = options.get("mode", "default")
    return "model = torch.compile(model%s)" % ("" if mode == "default" else ', mode="%s"' % mode)


def compiled_by_program(torch: "Any", module: "Any") -> "str | None":
    """Return the name of a part of a module that the program compiles, or has compiled."""
    kinds = [torch.jit.ScriptModule]
    frames = getattr(getattr(torch, "_dynamo", None), "eval_frame", None)
    if frames is not None:
        kinds.append(frames.OptimizedModule)
    for name, part in module.named_modules():
        if isinstance(part, tuple(kinds)) or getattr(part, "_compiled_call_impl", None) is not None:
            return name or type(part).__name__
    return None


def compile_in_place(torch: "Any", module: "Any", options: "dict[str, Any]") -> None:
    """Compile the calls of a module, which stays the same object with the same state_dict."""
    given = {key: value for key, value in options.items() if value != "default"}
    if type(module).forward.__module__.startswith("torch."):
        # Module.compile compiles nothing here: PyTorch's own functions are not traced from outside.
        from torch._dynamo.external_utils import wrap_inline

        module._compiled_call_impl = torch.compile(wrap_inline(module._call_impl), **given)
    else:
        module.compile(**given)
    compiled, tracing = module._compiled_call_impl, torch.jit.is_tracing

    def called(*args: "Any", **kwargs: "Any") -> "Any":
        # The program may export its model at the end; what is compiled cannot be traced.
        return module._call_impl(*args, **kwargs) if tracing() else compiled(*args, **kwargs)

    module._compiled_call_impl = called


def install(own: "Any") -> None:
    """Compile each model before its first call."""
    import weakref

    torch, options = own.torch, dict(own.options)
    compiled: "Any" = weakref.WeakSet()
    mode = options.get("mode", "default")
    random = options.pop("fallback_random", False)

    def called(module: "Any") -> None:
        if any(module is part for model in compiled for part in model.modules()):
            # The change by hand compiles the model alone.  A part that generates keeps its outputs
            # from call to call, and CUDA graphs would overwrite them.
            return
        name, theirs = own.title(module), compiled_by_program(torch, module)
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            module = module.module
        if isinstance(module, torch.nn.DataParallel):
            own.refused("%s: replicas of DataParallel cannot be compiled in place" % name)
        elif theirs is not None:
            own.refused("%s: the program compiles %s itself" % (name, theirs))
        elif not hasattr(module, "compile"):
            own.refused("PyTorch %s cannot compile a module in place" % torch.__version__)
        else:
            if random:
                import torch._inductor.config as inductor

                inductor.fallback_random = True
            compile_in_place(torch, module, options)
            compiled.add(module)
            own.applied("torch.compile of %s, mode %s" % (name, mode))

    def around(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        try:
            return call(module, *args, **kwargs)
        except Exception as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                text = str(error).strip().splitlines()
                own.failed("torch.compile: %s" % (text[0] if text else type(error).__name__))
            raise

    own.on_model(called)
    own.around_model(around)
    own.at_end(lambda: effect(own, mode))


def effect(own: "Any", mode: str) -> "dict[str, int]":
    """Say whether anything was compiled, and return what torch.compile counted."""
    counters: "dict[str, int]" = own.compiler()
    if own.places and counters:
        frames, compiled = counters["frames"], counters["frames_compiled"]
        skips = counters["cudagraph_skips"]
        if not compiled and not counters["graphs"]:
            own.effective(False, "nothing was compiled")
        elif mode == "reduce-overhead" and skips >= counters["graphs"]:
            own.effective(False, "no graph could be captured as a CUDA graph")
        elif mode == "reduce-overhead" and skips:
            own.effective(True, "%d graphs were not captured as CUDA graphs" % skips)
        elif frames > compiled:
            left = frames - compiled
            own.effective(True, "%d of %d frames are not compiled" % (left, frames))
        else:
            own.effective(True)
    return counters
