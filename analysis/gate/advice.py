"""What to do about a verdict that more measurements alone do not change."""

from __future__ import annotations

#: Advice if a configuration failed.
PROGRAM = "fix the program, then measure again"

#: Advice if a configuration of the baseline has no time on the other side.
LOST = "let both sides measure the same configurations, and print their times"
