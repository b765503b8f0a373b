"""Delays the host before each outermost call of a module, such as the forward pass of the model."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    load: "Any" = None  # given to every helper by imports.py


def install(own: "Any") -> None:
    """Delay outermost calls."""
    names = load("handicaps/_delays.py")
    events, delay = names["Events"](own), names["Delay"](own)

    def delayed_call(call: "Any", module: "Any", args: "Any", kwargs: "Any") -> "Any":
        if not events.count:
            own.applied(type(module).__name__)
        delay()
        events.add()
        return call(module, *args, **kwargs)

    own.around_model(delayed_call)
