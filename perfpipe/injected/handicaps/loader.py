"""Delays each batch of a DataLoader where it is loaded: in the worker, if there are workers.

The delay is a sleep, so it takes no core from the workers.  Batches are counted where the program
takes them, because workers load some of them ahead.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    load: "Any" = None  # given to every helper by imports.py


def install(own: "Any") -> None:
    """Delay batches."""
    names = load("handicaps/_delays.py")
    taken: "dict[tuple[int, int], int]" = {}  # batches by workers and batches that they hold

    def counters() -> "dict[str, Any]":
        workers, held = max(taken, key=lambda key: taken[key], default=(0, 0))
        return {"parallel": max(1, workers), "batches_held": held}

    events, delay = names["Events"](own, counters), names["Delay"](own, sleeps=True)

    def delayed(fetch: "Callable[..., Any]") -> "Callable[..., Any]":
        def delayed_fetch(self: "Any", index: "Any") -> "Any":
            delay()
            return fetch(self, index)

        return delayed_fetch

    def after_fetch(module: "Any") -> None:
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            kind = getattr(module, name)
            kind.fetch = delayed(kind.fetch)

    def after_loader(module: "Any") -> None:
        take = module._BaseDataLoaderIter.__next__

        def counted_next(self: "Any") -> "Any":
            batch = take(self)
            workers = self._num_workers
            key = (workers, workers * (getattr(self, "_prefetch_factor", 0) or 0))
            if key not in taken:
                own.applied("DataLoader with %d workers" % workers)
            taken[key] = taken.get(key, 0) + 1
            events.add()
            return batch

        module._BaseDataLoaderIter.__next__ = counted_next

    own.after("torch.utils.data._utils.fetch", after_fetch)
    own.after("torch.utils.data.dataloader", after_loader)
