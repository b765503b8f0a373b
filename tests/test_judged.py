"""The page of what perfpipe says of known captures."""

from __future__ import annotations

import sys
from collections.abc import Callable

from conftest import ROOT

from analysis.session import Session
from perfpipe.store import Store

sys.path.insert(0, str(ROOT / "docs"))


def test_the_page_of_judgements_is_up_to_date(
    captures: Store, ingested: Callable[[str], str]
) -> None:
    from judged import page

    said = page(lambda names: Session.open(captures, [ingested(name) for name in names]))
    assert said == (ROOT / "docs" / "judged.md").read_text(), "python docs/judged.py writes it"
