"""Explains errors that pydantic found in a file."""

from __future__ import annotations

from typing import Any, get_origin

from pydantic import BaseModel

from perfpipe.errors import did_you_mean

#: Last step to a key that is wrong itself.
_KEY = "[key]"


def explain(model: type[BaseModel], fault: Any) -> str:
    """Return a sentence for an error in the content of a model."""
    location = ".".join(str(step) for step in fault["loc"] if step != _KEY)
    if fault["type"] == "extra_forbidden":
        known = _known_keys(model, fault["loc"][:-1])
        return f"unknown key '{fault['loc'][-1]}'" + did_you_mean(str(fault["loc"][-1]), known)
    sentence = fault["msg"].removeprefix("Value error, ")
    return f"{location}: {sentence[0].lower()}{sentence[1:]}"


def _known_keys(model: Any, location: tuple[str | int, ...]) -> list[str]:
    steps = iter(location)
    for step in steps:
        fields = {f.alias or name: f for name, f in model.model_fields.items()}
        annotation = fields[str(step)].annotation
        options = [
            a for a in getattr(annotation, "__args__", (annotation,)) if hasattr(a, "model_fields")
        ]
        if not options:
            return []
        if get_origin(annotation) in (dict, list):
            next(steps, None)  # a key or index, not a field
        model = options[0]
    return [f.alias or name for name, f in model.model_fields.items()]
