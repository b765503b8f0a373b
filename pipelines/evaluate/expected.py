"""What the outputs of one call must be: exact results, or what the problem's own check accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfpipe.pipelines.evaluate.tolerance import Allowed, Difference, difference

#: Elements of a result that are kept for comparison with later ones.
_KEPT = 1 << 17


@dataclass(frozen=True)
class Exact:
    """Exact results, with the allowed error of each output and the number of summed terms.

    Only every `step`-th element of a large result is compared if it was thinned.
    """

    torch: Any
    results: Sequence[Any]
    allowed: Sequence[Allowed]
    reduction: float
    step: Sequence[int] = ()

    def differences(self, outputs: Sequence[Any]) -> list[Difference]:
        """Return how each output differs."""
        steps = self.step or [1] * len(self.results)
        return [
            difference(
                self.torch, one if step == 1 else one.reshape(-1)[::step], exact, may,
                self.reduction,
            )
            for one, exact, may, step in zip(
                outputs, self.results, self.allowed, steps, strict=False
            )
        ]  # fmt: skip

    def thinned(self) -> Exact:
        """Return it with few elements, in memory of its own."""
        steps = [-(-one.numel() // _KEPT) or 1 for one in self.results]
        thin = [
            one if step == 1 else one.reshape(-1)[::step].clone()
            for one, step in zip(self.results, steps, strict=True)
        ]
        return Exact(self.torch, thin, self.allowed, self.reduction, steps)


@dataclass(frozen=True)
class Accepted:
    """What the check of the problem's author accepts: it returns why it does not, else nothing."""

    check: Callable[[Sequence[Any]], str | None]

    def differences(self, outputs: Sequence[Any]) -> list[Difference]:
        """Return one difference per output; the first one has the reason."""
        reason = self.check(outputs)
        made = [Difference(0, one.numel(), None, None) for one in outputs]
        if reason is None:
            return made
        return [Difference(1, outputs[0].numel(), None, None, reason=reason), *made[1:]]

    def thinned(self) -> Accepted:
        """Return itself: it holds no results."""
        return self


Expected = Exact | Accepted
