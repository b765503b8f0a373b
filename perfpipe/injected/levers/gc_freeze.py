"""Keeps Python's garbage collector from looking at the objects that exist after the first steps."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "no garbage collection of long-lived objects"
ANSWERS = ("host_work", "host_alone")
PRIOR = 0.1
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "identical", None
DIFFICULTY = "low"
RISKS = "Objects that exist after the first steps are never freed if they are in a cycle."
ORDER = 80

#: Steps, and calls of a program that does not train, before the objects are counted as long-lived.
STEPS, CALLS = 3, 10


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    return "import gc\n\n# once, after the first steps\ngc.freeze()"


def install(own: "Any") -> None:
    """Freeze once."""
    import atexit
    import gc

    calls, steps, objects = [0], [0], [0]

    def freeze() -> None:
        if not gc.isenabled():
            own.refused("the program turns the garbage collector off")
            return
        # Collecting first would take longer than some steps, and would count as part of them.
        gc.freeze()
        # Else libraries report at exit that objects are left.
        atexit.register(gc.unfreeze)
        objects[0] = gc.get_freeze_count()
        own.applied("the garbage collector")

    def stepped(number: int) -> None:
        steps[0] = number
        if number == STEPS and not own.places:
            freeze()

    def around(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        calls[0] += 1
        if calls[0] == CALLS and not steps[0]:
            freeze()
        return call(module, *args, **kwargs)

    def ended() -> "dict[str, int]":
        if own.places:
            own.effective(objects[0] > 0)
        return {"objects": objects[0]}

    own.on_step(stepped)
    own.around_model(around)
    own.at_end(ended)
