"""Parts of a timeline to analyze, besides the name or number of a step."""

from __future__ import annotations

#: The default: the steady steps, or the whole timeline if nothing repeats.
STEADY = "steady"

WHOLE = "whole"
STARTUP = "startup"

WINDOWS = (STEADY, WHOLE, STARTUP)
