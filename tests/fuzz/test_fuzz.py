"""Some mutated inputs of every format; `make fuzz` runs as many as there is time for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.mutations import MAKERS
from fuzz.running import Judged, Order, run

SEED = 20_261_122

#: How many of each, 253 in all; those that take longest are fewest.
INPUTS = {
    "sqlite": 12,
    "parquetdir": 8,
    "arrowdir": 8,
    "csv-raw": 30,
    "csv-details": 25,
    "ncu-rep": 10,
    "kineto": 25,
    "serving": 15,
    "nsys-rep": 10,
    "recording": 20,
    "snapshot": 30,
    "hang": 20,
    "packed": 40,
}


@pytest.mark.parametrize("form", MAKERS)
def test_mutated_inputs(form: str) -> None:
    found = list(run(Order(SEED, form, number) for number in range(INPUTS[form])))
    assert [f"{one.order.name}: {one.wrong}" for one in found if one.wrong] == []
    outcomes = {one.outcome for one in found}
    # What is only refused, or only read, tests half of it.
    assert {"read", "refused"} <= outcomes


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    for form in MAKERS:
        contents = []
        for turn in ("one", "other"):
            folder = tmp_path / f"{form}-{turn}"
            folder.mkdir()
            Order(7, form, 3).make(folder)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            contents.append([(path.name, path.read_bytes()) for path in files])
        assert contents[0] == contents[1]


def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The judge is not blind: a reader that loses rows, raises, or leaves files is told."""
    from fuzz import running

    def judged(order: Order) -> Judged:
        return running.judge(order)

    def raises(*_: object) -> None:
        raise KeyError("end")

    whole = Order(1, "csv-raw", 0)
    monkeypatch.setitem(MAKERS, "csv-raw", _whole)
    assert judged(whole).wrong == ()
    monkeypatch.setattr("perfpipe.ingest.ncu.csv_tables.tables", raises)
    monkeypatch.setattr("perfpipe.ingest.ncu.csv_pages.tables", raises)
    assert judged(whole).outcome == "traceback"
    monkeypatch.undo()
    monkeypatch.setitem(MAKERS, "csv-raw", _whole)
    monkeypatch.setattr("perfpipe.ingest.ncu.csv_pages.records", _fewer)
    assert "2 stored" in judged(whole).wrong[0]


def _whole(chance: object, folder: Path) -> Path:
    from fuzz import bases

    path = folder / "input.csv"
    path.write_text("".join(bases.csv_lines("raw")), encoding="utf-8")
    return path


def _fewer(path: Path, header: list[str], rows: list[list[str]]) -> list[dict[str, str]]:
    return [dict(zip(header, row, strict=True)) for row in rows[:-1]]
