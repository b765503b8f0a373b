"""Names of kernels that show what a loop does."""

from __future__ import annotations

import re

#: XLA while it tries kernels: checks that a trial wrote only its own output, buffers, delays and
#: comparisons of results.
_TRIAL = re.compile(r"redzone|RepeatBuffer|DelayKernel|xla_fp_comparison", re.IGNORECASE)

#: The choice of the next token.
_SAMPLING = re.compile(
    r"argmax|multinomial|top_?[kp](_|\b|sampl)|(?<!re)(?<!up)(?<!down)sampling", re.IGNORECASE
)


def is_trial(function_name: str) -> bool:
    """Return whether a kernel is only launched by an autotuner, by its name."""
    return _TRIAL.search(function_name) is not None


def is_sampling(name: str) -> bool:
    """Return whether a kernel chooses a token, by its name with template arguments."""
    return _SAMPLING.search(name) is not None
