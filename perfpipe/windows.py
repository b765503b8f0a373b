"""Parts of a timeline that verdicts are about, besides the name or number of a step."""

from __future__ import annotations

#: The steady steps, or the whole where nothing repeats: what is looked at unless another is chosen.
STEADY = "steady"

WHOLE = "whole"
STARTUP = "startup"

WINDOWS = (STEADY, WHOLE, STARTUP)
