from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfpipe.units import (
    DECIMAL_PREFIXES,
    ago,
    base_unit,
    counted,
    format_bytes,
    format_ns,
    in_unit,
    request_rate,
)


@pytest.mark.parametrize(
    ("unit", "scale", "base"),
    [
        ("", 1, ""),
        ("%", 1, "%"),
        ("Kbyte", 1e3, "byte"),
        ("Tbyte/s", 1e12, "byte/s"),
        ("Ghz", 1e9, "hz"),
        ("us", 1e3, "ns"),
        ("ms", 1e6, "ns"),
        ("second", 1e9, "ns"),
        ("sector/ns", 1e9, "sector/s"),
        ("sector/ms", 1e3, "sector/s"),
        ("Kbyte/cycle", 1e3, "byte/cycle"),
        ("Mbyte/block", 1e6, "byte/block"),
        ("register/thread", 1, "register/thread"),
        ("inst", 1, "inst"),
        # ncu multiplies for this one: 3350 %/byte is printed as 3.35 %/Kbyte.
        ("%/Kbyte", 1e3, "%/byte"),
    ],
)
def test_base_unit(unit: str, scale: float, base: str) -> None:
    assert base_unit(unit) == (scale, base)


@given(st.sampled_from(sorted(DECIMAL_PREFIXES)), st.sampled_from(["byte", "hz"]))
def test_prefixes_are_decimal(prefix: str, unit: str) -> None:
    assert base_unit(prefix + unit) == (DECIMAL_PREFIXES[prefix], unit)


@given(st.text(max_size=12))
def test_any_text_is_a_unit(text: str) -> None:
    scale, unit = base_unit(text)
    assert scale > 0
    assert base_unit(unit)[1] == unit


def test_one_request_is_no_plural() -> None:
    rates = [request_rate(rate) for rate in (0.5, 1.0, 2.5, 40.0)]
    assert rates == ["0.5 requests/s", "1 request/s", "2.5 requests/s", "40 requests/s"]


def test_sizes_and_times_for_people() -> None:
    sizes = [format_bytes(n) for n in (0, 999, 1500, 2.5e12)]
    assert sizes == ["0 B", "999 B", "1.5 kB", "2.5 TB"]
    assert [format_ns(n) for n in (5, 1234, 1234567, 1.5e9)] == [
        "5 ns",
        "1.23 us",
        "1.23 ms",
        "1.5 s",
    ]


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("idle_ns", 24786815, "24.8 ms"),
        ("median_ms", 0.004266, "4.27 us"),
        ("api_start_ns", 1234567890, "1,234,567,890 ns"),
        ("until_ns", 5, "5 ns"),
        ("share_pct", 75.2129, "75.2 %"),
        ("pct_of_peak", 97.0245, "97.0 %"),
        ("max_bytes", 1500, "1.5 kB"),
        ("flop_per_s", 7.56614e14, "757 TFLOP/s"),
        ("dram_bytes_per_s", 4.8e12, "4.8 TB/s"),
        ("sm_clock_hz", 1.672e9, "1.67 GHz"),
        ("sm_mhz", 1672.0, "1,672 MHz"),
        ("launches", 12, None),
        ("rank", 1, None),
        ("columns", 3, None),
    ],
)
def test_the_name_of_a_column_states_its_unit(column: str, value: float, shown: str | None) -> None:
    assert in_unit(column, value) == shown


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "copy", "1 copy"),
        (3, "copy", "3 copies"),
        (2, "day", "2 days"),
        (0, "batch", "0 batches"),
    ],
)
def test_counts(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_ages() -> None:
    ages = [ago(seconds) for seconds in (-5, 59, 60, 7300, 86_400, 9e5)]
    assert ages == [
        "just now", "just now", "1 minute ago", "2 hours ago", "1 day ago", "10 days ago",
    ]  # fmt: skip
