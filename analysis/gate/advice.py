"""What to do about a verdict that more measurements alone do not change."""

from __future__ import annotations

from perfpipe.analysis.gate.compare.comparison import Compared
from perfpipe.analysis.gate.sides import CAPTURE, ITERATION, STEP, WALL

#: Advice if a configuration failed.
PROGRAM = "fix the program, then measure again"

#: Advice if a configuration of the baseline has no time on the other side.
LOST = "let both sides measure the same configurations, and print their times"

#: Advice if a side is a replay.
REPLAY = "measure both sides on a machine instead of replaying a recording"

#: Advice if the sides differ in what makes times comparable.
UNLIKE = "measure both sides with the same workload, machine model and driver"

#: Advice if the energy of a side is unknown.
ENERGY = "measure executions whose energy is known on both sides"

#: Advice if no measurement has a counterpart.
ALIKE = "measure both sides in the same way"

#: Advice if drift may explain a change.
ALTERNATE = "compare with 'perfpipe ab', which alternates the two sides"

#: Advice if one run on each side shows which one is faster.
DIRECTION = "rely on the direction; measure more runs only if the factor matters"

#: Advice if more runs may not decide.
STEADIER = (
    "make the times steadier (idle machine, locked clocks, more iterations per run), then measure "
    "again"
)


def comparable_if(pair: Compared) -> str:
    """Return what would make a pair comparable."""
    if pair.change is None and pair.key.part in (ITERATION, WALL):
        return "let both sides print times, or neither"
    if pair.change is None and pair.key.part in (STEP, CAPTURE):
        return "mark the steps on both sides, or on neither"
    if "clock" in (pair.note or ""):
        return "measure both sides with the same clocks (lock them with 'nvidia-smi -lgc')"
    return "let both sides do the same work"
