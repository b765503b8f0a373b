"""What a lever may use, and what is known about it in a process; trying.py executes this file."""

import functools
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Number of different texts that are kept about a lever, and of their characters.
MOST_TEXTS, MOST_CHARACTERS = 64, 300


def _text(error: BaseException) -> str:
    """Return the kind of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, lines[0]) if lines else type(error).__name__


class Own:
    """What a lever may use, and what is known about it in this process.

    `options` are those of the plan, `places` says where the lever was applied, and how often, and
    `load` returns the globals of another file of this folder.  trying.py calls the functions in
    `models`, `around` and `steps`, by `safely` and `call`.
    """

    def __init__(
        self,
        name: str,
        options: "dict[str, Any]",
        torch: "Any",
        after: "Callable[[str, Callable[[Any], Any]], None]",
        load: "Callable[[str], dict[str, Any]]",
        unwrapped: "Callable[[Any], Any]",
    ) -> None:
        self.name, self.options, self.torch = name, options, torch
        self.load, self._after, self._unwrapped = load, after, unwrapped
        self.places: "dict[str, int]" = {}  # where it was applied, and how often
        self._refused: "list[str]" = []
        self._failed: "list[str]" = []
        self._effective: "bool | None" = None
        self._why = ""
        self.models: "list[Callable[[Any], Any]]" = []
        self.around: "list[Callable[..., Any]]" = []
        self.steps: "list[Callable[[int], Any]]" = []
        self._ends: "list[Callable[[], Any]]" = []

    @property
    def gpu(self) -> bool:
        """Whether there is a GPU; asking does not initialize CUDA, so the program can fork."""
        cuda = getattr(self.torch, "cuda", None)
        if cuda is None:
            return False
        if cuda.is_initialized():
            return True
        count = getattr(cuda, "_device_count_nvml", None)
        if count is not None and self.torch.version.cuda is not None:
            found = count()
            if found >= 0:  # otherwise NVML is missing
                return bool(found)
        return bool(cuda.is_available())

    def narrow(self) -> bool:
        """Return whether the tensor cores of the current GPU compute in TF32 and BF16."""
        return bool(self.torch.version.hip) or self.torch.cuda.get_device_capability() >= (8, 0)

    def title(self, module: "Any") -> str:
        """Return the class of a module, or of the module that DDP or another wrapper contains."""
        return str(type(self._unwrapped(module)).__name__)

    def after(self, module_name: str, function: "Callable[[Any], Any]") -> None:
        """Run a function after the program has imported a module; now, if it already has."""
        self._after(module_name, functools.partial(self.safely, function))

    def on_model(self, function: "Callable[[Any], Any]") -> None:
        """Run a function before the first outermost call of each module with parameters."""
        self.models.append(function)

    def around_model(self, function: "Callable[..., Any]") -> None:
        """Let a function make the outermost calls of modules with parameters."""
        self.around.append(function)

    def on_step(self, function: "Callable[[int], Any]") -> None:
        """Run a function after each optimizer step; the first one has number 1."""
        self.steps.append(function)

    def at_end(self, function: "Callable[[], Any]") -> None:
        """Let a function add counters to every report."""
        self._ends.append(function)

    def applied(self, where: str, count: int = 1) -> None:
        """Say where the lever was applied; equal texts are counted."""
        where = where[:MOST_CHARACTERS]
        if where in self.places or len(self.places) < MOST_TEXTS:
            self.places[where] = self.places.get(where, 0) + count

    def refused(self, why: str) -> None:
        """Say why the lever does not apply to something."""
        self._add(self._refused, why)

    def failed(self, text: str) -> None:
        """Say that an attempt to apply the lever failed; the program goes on without it."""
        self._add(self._failed, text)

    def effective(self, effective: bool, why: str = "") -> None:
        """Say whether what was applied had an effect."""
        self._effective, self._why = effective, why[:MOST_CHARACTERS]

    def compiler(self) -> "dict[str, int]":
        """Return what torch.compile counted in this process."""
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return {}
        counters = utils.counters  # asking for a kind that is missing would add it

        def count(kind: str, *names: str) -> int:
            own = counters.get(kind, {})
            return sum(own.get(name, 0) for name in names or own)

        return {
            "frames": count("frames", "total"),
            "frames_compiled": count("frames", "ok"),
            "graphs": count("stats", "unique_graphs"),
            "graph_breaks": count("graph_break"),
            "cudagraph_skips": count("inductor", "cudagraph_skips"),
        }

    def _add(self, texts: "list[str]", text: str) -> None:
        text = text[:MOST_CHARACTERS]
        if text not in texts and len(texts) < MOST_TEXTS:
            texts.append(text)

    def safely(self, function: "Callable[..., Any]", *args: "Any") -> "Any":
        """Run a function of the lever; if it fails, the program goes on."""
        try:
            return function(*args)
        except Exception as error:
            self.failed(_text(error))
            return None

    def call(
        self, function: "Callable[..., Any]", call: "Any", module: "Any", args: "Any", kwargs: "Any"
    ) -> "Any":
        """Let a function make a call; the program sees errors of the call only."""
        results: "list[Any]" = []
        errors: "list[BaseException]" = []

        def made(module: "Any", /, *args: "Any", **kwargs: "Any") -> "Any":
            try:
                result = call(module, *args, **kwargs)
            except BaseException as error:
                errors.append(error)
                raise
            results.append(result)
            return result

        try:
            return function(made, module, args, kwargs)
        except Exception as error:
            if errors:
                raise
            self.around.remove(function)
            self.failed(_text(error))
            return results[0] if results else call(module, *args, **kwargs)

    def report(self) -> "dict[str, Any]":
        counters: "dict[str, Any]" = {}
        for function in self._ends:
            counters.update(self.safely(function) or {})
        return {
            "name": self.name,
            "options": self.options,
            "applied": [{"where": where, "count": n} for where, n in self.places.items()],
            "refused": self._refused,
            "failed": self._failed,
            "effective": self._effective,
            "why": self._why,
            "counters": counters,
        }
