"""Numbers of ncu's CSV in the locale of the machine that printed them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.errors import InputError
from perfpipe.ingest.ncu.number_style import ENGLISH, NumberStyle, number_style

PATH = Path("x.csv")

#: Separators of thousands and decimals: English, German, Swiss, French, Polish, C, Portuguese.
LOCALES = [
    (",", "."),
    (".", ","),
    ("'", "."),
    ("\u2019", "."),
    ("\u202f", ","),
    ("\u00a0", ","),
    (" ", ","),
    ("", "."),
    ("", ","),
]


def _printed(number: float, decimals: int, group: str, decimal: str) -> str:
    text = f"{number:,.{decimals}f}"
    return text.replace(",", "\0").replace(".", decimal).replace("\0", group)


@given(
    st.sampled_from(LOCALES),
    st.lists(st.tuples(st.integers(-(10**12), 10**12), st.sampled_from([0, 1, 2, 6]))),
    st.integers(0, 9999),
)
def test_one_style_reads_all_numbers_of_a_locale(
    locale: tuple[str, str], numbers: list[tuple[int, int]], percent: int
) -> None:
    """What ncu prints: whole numbers, and numbers with 1, 2 or 6 decimals."""
    wanted = [(number / 10**decimals, decimals) for number, decimals in numbers]
    wanted.append((percent / 100, 2))
    cells = [_printed(number, decimals, *locale) for number, decimals in wanted]
    style = number_style(PATH, [(cell, "") for cell in cells])
    assert style == NumberStyle(locale[1])
    for cell, (number, _) in zip(cells, wanted, strict=True):
        assert style.number(cell) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        # Nothing to decide.
        ([], ENGLISH),
        ([("512", "block"), ("n/a", "%"), ("nan", ""), ("all", "")], ENGLISH),
        # A comma before three digits separates thousands: ncu never prints three decimals.
        ([("117,344", "ns")], ENGLISH),
        ([("2,508,800", "byte")], ENGLISH),
        # Values of these units are whole.
        ([("117.344", "ns")], NumberStyle(",")),
        ([("117.344", "ns"), ("98.112", "ns"), ("40", "register/thread")], NumberStyle(",")),
        ([("2.508.800", "byte")], NumberStyle(",")),
        # Decimals.
        ([("0.123", "")], ENGLISH),
        ([("1234.567", "us")], ENGLISH),
        ([("(!) 65,77", "%")], NumberStyle(",")),
        ([("1'234.567", "us")], ENGLISH),
        ([("12,34,567", "byte")], ENGLISH),
    ],
)
def test_what_decides(cells: list[tuple[str, str]], style: NumberStyle) -> None:
    assert number_style(PATH, cells) == style


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([("65.77", "%"), ("65,77", "%")], r"numbers of two locales \('65.77' and '65,77'\)"),
        ([("2.508.800", "byte"), ("1.5", "%")], "numbers of two locales"),
        (
            [("117.344", "us")],
            "it is unclear whether '117.344' has decimals or separated thousands",
        ),
        ([("12.345", "%"), ("117.344", "ns")], "it is unclear whether '12.345'"),
        ([("1.234", "")], "it is unclear"),
        ([("117.344", "ns"), ("1,234", "byte")], "it is unclear"),
    ],
)
def test_what_does_not_decide_is_refused(cells: list[tuple[str, str]], sentence: str) -> None:
    with pytest.raises(InputError, match=f"^x.csv: {sentence}.*LC_ALL=C"):
        number_style(PATH, cells)


def test_texts_are_no_numbers() -> None:
    for style in (ENGLISH, NumberStyle(",")):
        with pytest.raises(ValueError, match="convert"):
            style.number("all")
    assert NumberStyle(",").number("(!) 1.234,5") == 1234.5
