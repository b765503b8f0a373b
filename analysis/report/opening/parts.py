"""What the first screens of all kinds of reports are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfpipe.viewmodel import Action, Fact, Tile


@dataclass(frozen=True)
class Part:
    """The verdict in a sentence, tiles, and the title of the table that leads, if one does.

    With `rows` its first rows are shown, not its figure; `reports` are the timelines whose steps
    are drawn.  `about` says which of several configurations the screen is about, empty if it is
    about all of them; only then it shows no numbers of others.
    """

    verdict: Fact
    tiles: tuple[Tile, ...] = ()
    lead: str = ""
    rows: int = 0
    reports: tuple[str, ...] = ()
    about: str = ""


def lever(actions: Sequence[Action]) -> Iterator[Tile]:
    """Yield the tile of the first action whose gain is known, as measured, else at most."""
    for action in actions:
        if action.saved:
            yield Tile("Measured gain", action.saved, action.what, action.source)
            return
        if action.bound.startswith("up to "):
            share, _, of = action.bound.partition(" % ")
            number = f"{share.replace('up to ', '≤ ')} %"
            yield Tile("Potential gain", number, f"{of}: {action.what}", action.source)
            return
