"""Makes random numbers alike in all launches of a program, so that results can be compared.

PyTorch and Python choose a new seed in each process unless the program sets one.  Here they get a
seed as soon as PyTorch is imported; a program that sets its own replaces it.  trying.py executes
this file.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def install(
    torch: "Any", seed: int, after: "Callable[[str, Callable[[Any], Any]], None]", pinned: bool
) -> None:
    """Set the seeds; with `pinned`, those of each batch are the same in any worker process."""
    import random

    torch.manual_seed(seed)
    random.seed(seed)
    after("numpy.random", lambda numpy: numpy.seed(seed))
    if pinned:
        after("torch.utils.data._utils.fetch", lambda fetch: _pin(torch, seed, fetch))


def _pin(torch: "Any", seed: int, fetch: "Any") -> None:
    """Let the random numbers of a batch depend on its indices only."""
    import random

    kind = fetch._MapDatasetFetcher
    plain = kind.fetch

    def pinned_fetch(self: "Any", indices: "Any") -> "Any":
        # NumPy imports its random numbers when they are first used.
        numpy = getattr(sys.modules.get("numpy"), "random", None)
        before = torch.get_rng_state(), random.getstate(), numpy and numpy.get_state()
        own = random.Random("%d %r" % (seed, indices)).getrandbits(32)  # noqa: S311
        torch.random.default_generator.manual_seed(own)
        random.seed(own)
        if numpy:
            numpy.seed(own)
        try:
            return plain(self, indices)
        finally:
            torch.set_rng_state(before[0])
            random.setstate(before[1])
            if numpy and before[2]:
                numpy.set_state(before[2])

    kind.fetch = pinned_fetch
