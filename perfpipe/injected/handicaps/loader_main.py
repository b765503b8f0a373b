"""Delays the main thread each time it takes a batch from a DataLoader.

This is the time of the thread that takes the batch.  It is not the time that loading takes, which
loader.py delays.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    load: "Any" = None  # given to every helper by imports.py


def install(own: "Any") -> None:
    """Delay the main thread before it takes a batch."""
    names = load("handicaps/_delays.py")
    events, delay = names["Events"](own), names["Delay"](own)

    def after_loader(module: "Any") -> None:
        take = module._BaseDataLoaderIter.__next__

        def delayed_next(self: "Any") -> "Any":
            delay()
            batch = take(self)
            if not events.count:
                own.applied("DataLoader.__next__")
            events.add()
            return batch

        module._BaseDataLoaderIter.__next__ = delayed_next

    own.after("torch.utils.data.dataloader", after_loader)
