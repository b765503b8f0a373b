"""Lets transformers generate with a KV cache of fixed size, whose decoding steps it compiles."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "static KV cache with compiled decoding"
ANSWERS = ("static_shapes", "build_once", "cuda_graphs", "fused_pointwise")
PRIOR = 0.9
FREE = False
NEEDS = "transformers"
EXPECT, TOLERANCE = "tolerance", 1e-2
DIFFICULTY = "low"
RISKS = (
    "The cache takes its full size at once; each new maximum length allocates and compiles again; "
    "sampling draws other random numbers."
)
ORDER = 60

#: Arguments of `generate` that need a cache of their own, or another way of decoding.
OTHERS = (
    "past_key_values",
    "cache",
    "assistant_model",
    "custom_generate",
    "prompt_lookup_num_tokens",
)


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return 'model.generation_config.cache_implementation = "static"'


def _why_not(model: "Any", bound: "Any") -> "str | None":
    """Return why a call of `generate` cannot use a static cache."""
    given = {**bound.arguments, **bound.arguments.get("kwargs", {})}
    config = given.get("generation_config") or model.generation_config

    def setting(name: str) -> "Any":
        return given.get(name, getattr(config, name, None))

    for name in OTHERS:
        if given.get(name) is not None:
            return "generate(%s=...)" % name
    if setting("cache_implementation") is not None:
        return "the program uses cache_implementation=%r" % setting("cache_implementation")
    if setting("use_cache") is False:
        return "the program generates without a cache"
    if (setting("num_beams") or 1) > 1:
        return "beam search"
    supports = getattr(model, "_supports_static_cache", getattr(model, "_can_compile_fullgraph", 1))
    return None if supports else "the model does not support a static cache"


def install(own: "Any") -> None:
    """Change the arguments of `generate`."""
    own.after("transformers.generation.utils", lambda module: _patch(own, module))


def _patch(own: "Any", module: "Any") -> None:
    import functools
    import inspect

    mixin = module.GenerationMixin
    generate = mixin.generate
    signature = inspect.signature(generate)

    @functools.wraps(generate)
    def static_generate(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        try:
            why = _why_not(self, signature.bind(self, *args, **kwargs))
            if why is not None:
                own.refused("%s: %s" % (type(self).__name__, why))
            else:
                kwargs = {**kwargs, "cache_implementation": "static"}
                own.applied("%s.generate: dynamic -> static cache" % type(self).__name__)
        except Exception as error:
            own.failed("%s: %s" % (type(error).__name__, error))
        return generate(self, *args, **kwargs)

    def ended() -> "dict[str, int]":
        counters: "dict[str, int]" = own.compiler()
        if own.places:
            compiled = counters.get("graphs", 0)
            own.effective(compiled > 0, "" if compiled else "transformers compiled nothing")
        return counters

    mixin.generate = static_generate
    own.at_end(ended)
