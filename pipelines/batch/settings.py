"""The Slurm options of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from perfpipe.errors import InputError
from perfpipe.pipelines.slurm.options import Slurm


def given(options: Mapping[str, Any]) -> Slurm:
    """Return the given options; raises InputError for an invalid value."""
    stated = {}
    for name, value in options.items():
        if value is not None and value != ():
            stated[name] = list(value) if isinstance(value, tuple) else value
    try:
        return Slurm.model_validate(stated)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-") if fault["loc"] else "options"
        text = fault["msg"].removeprefix("Value error, ")
        raise InputError(f"--{option}: {text}") from error
