"""The headline of a run: the verdict of its last report, kept with the run because it is computed.

Reading it takes no query, so that lists of runs can show it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfpipe.decoding import decode
from perfpipe.errors import StoreError
from perfpipe.jsonfile import read_versioned, write_json
from perfpipe.model import SCHEMA_VERSION
from perfpipe.runrecord import RunRecord
from perfpipe.store import Store


@dataclass(frozen=True)
class Headline:
    """The verdict, and when the run that it is about ended: a resumed run needs another one."""

    text: str
    run_ended_at: str | None


def keep(store: Store, run: RunRecord, text: str) -> None:
    """Keep the headline of a run; a store that cannot be written keeps none."""
    kept = Headline(text, run.ended_at)
    with suppress(OSError):
        write_json(_path(store, run), {"schema_version": SCHEMA_VERSION, **vars(kept)})


def headline_of(store: Store, run: RunRecord) -> str | None:
    """Return the headline of a run as it is now; None if none can be read."""
    path = _path(store, run)
    if not path.exists():
        return None
    try:
        kept: Headline = decode(Headline, read_versioned(path, "headline"))
    except (StoreError, ValueError):
        return None
    return kept.text if kept.run_ended_at == run.ended_at else None


def _path(store: Store, run: RunRecord) -> Path:
    return store.runs_dir / run.run_id / "headline.json"
