"""The registry of formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Cli

from perfpipe.ingest import formats
from perfpipe.ingest.builder import ReportBuilder
from perfpipe.ingest.finding import expand_paths
from perfpipe.ingest.formats import FORMATS, Content, Format
from perfpipe.ingest.inputs import identify
from perfpipe.ingest.reading import ingest
from perfpipe.store import Store


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_each_format_has_what_it_names(form: Format) -> None:
    assert form.kind in ("ncu", "nsys", "torch", "modules", "attached", "serving", "hang", "memory")
    for place in filter(None, (form.reader, form.scrubber)):
        assert callable(formats._load(place))
    assert bool(form.reader) != bool(form.exported)
    assert not form.exported or FORMATS[form.exported].reader
    assert not form.scrubber or form.endings


def test_help_names_each_format(cli: Cli) -> None:
    assert cli("ingest", "--help") == 0
    said = " ".join(cli.out.split())
    for form in FORMATS.values():
        assert form.title in said


def read_lines(builder: ReportBuilder) -> None:
    """Read a format of this test: one environment value a line."""
    lines = builder.source.content.read_text(encoding="utf-8").split()[1:]
    builder.write(
        "nsys_environment",
        {"name": lines, "value": lines},
        len(lines),
    )


def test_a_new_format_is_a_reader_and_an_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Store
) -> None:
    added = Format(
        "lines",
        "nsys",
        "lines",
        lambda content: content.head.startswith(b"LINES"),
        reader=f"{__name__}:read_lines",
        endings=(".lines",),
    )
    monkeypatch.setitem(formats.FORMATS, "lines", added)
    (tmp_path / "a.lines").write_text("LINES one two")
    (found,) = expand_paths([str(tmp_path)])
    assert identify(found).kind == "nsys"
    assert ingest(found, store).rows == 2


def test_a_text_is_searched_as_far_as_needed() -> None:
    pieces = iter([b"a" * 10, b"\nsaid:\n", b"\xef\xbb\xbfID,1"])
    content = Content(Path("x"), pieces)
    assert content.head == b"a" * 10
    assert content.holds("ID,")
    assert not content.begins("ID,")
