"""What a client asks for first is made in advance, and never gets in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfpipe.analysis.session import Session
from perfpipe.ingest.reading import ingest
from perfpipe.pipelines.agents import warming
from perfpipe.pipelines.agents.desk import Desk
from perfpipe.pipelines.agents.overview import listed
from perfpipe.pipelines.agents.warming import Warming
from perfpipe.store import Store


@pytest.fixture
def desk(
    store: Store, expand: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A desk whose overview needs one view only."""
    ingest(expand("nsys/memcpy.sqlite"), store)
    monkeypatch.setattr(warming, "VIEWS", ("steps",))
    made = Desk(store)
    yield made
    made.close()


def test_the_first_session_is_ready(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Warming(desk)
    following = listed(desk).next
    assert following is not None
    chosen = desk.select(following.arguments["target"])
    assert made.taken(desk.key(chosen, "whole")) is None, "another window"
    monkeypatch.setattr(Session, "open", lambda *_, **__: pytest.fail("it is there already"))
    session = desk.session(chosen)
    assert session.con.execute("SELECT count(*) FROM steps").fetchone() is not None
    assert made.taken(desk.key(chosen)) is None, "once only"
    assert desk.session(chosen) is session
    made.end()
    assert session.con.execute("SELECT 1").fetchone() == (1,), "it is the desk's now"


def test_what_nobody_took_is_closed(desk: Desk) -> None:
    made = Warming(desk)
    made.end()
    following = listed(desk).next
    assert following is not None
    assert desk.session(desk.select(following.arguments["target"])), "made as usual"


def test_a_store_without_anything_is_told_by_the_call(store: Store) -> None:
    desk = Desk(store)
    made = Warming(desk)
    assert made.taken(("any",)) is None
    made.end()
