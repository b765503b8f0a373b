"""The thresholds of all rules, from thresholds.toml."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from perfpipe.errors import InputError, did_you_mean, os_error_sentence
from perfpipe.files import packaged

#: Names a TOML file with thresholds of one's own, in the form of thresholds.toml.
THRESHOLDS_VARIABLE = "PERFPIPE_THRESHOLDS"


@cache
def thresholds() -> dict[str, float]:
    """Return the thresholds of all rules by dotted name, such as sol.high_pct.

    A TOML file named by $PERFPIPE_THRESHOLDS overrides some of them.  Raises InputError for a
    file that cannot be read or names what is no threshold.
    """
    text = packaged("perfpipe.analysis", "thresholds.toml")
    known = _flat(tomllib.loads(text))
    path = os.environ.get(THRESHOLDS_VARIABLE)
    if not path:
        return known
    try:
        own = _flat(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(os_error_sentence(error, "cannot read thresholds")) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    for name in own.keys() - known.keys():
        raise InputError(f"{path}: unknown threshold '{name}'{did_you_mean(name, known)}")
    return known | own


def _flat(document: dict[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for group, values in document.items():
        if isinstance(values, dict):
            flat |= {f"{group}.{name}": float(value) for name, value in values.items()}
        else:
            flat[group] = float(values)
    return flat
