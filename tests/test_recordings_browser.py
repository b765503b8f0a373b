"""What holds for the page of each recording in a real browser; each page is loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from accessibility import violations
from browsing import addresses_asked_for, log, open_anew, open_page, prepare, unfold
from selenium import webdriver

Visit = Callable[[str], webdriver.Chrome]

RECORDINGS = ("vector_add", "transformer_step", "fused_matmul_tuning", "ddp_step", "gemm")

#: Tests of one page follow each other: it stays open.
of_each = pytest.mark.parametrize("name", RECORDINGS, scope="module")


@of_each
def test_no_request_and_no_error(
    name: str, browser: webdriver.Chrome, page: Callable[[str], str]
) -> None:
    _asks_for_nothing(browser, page(name))


def test_a_hostile_name_asks_for_nothing(
    browser: webdriver.Chrome, page: Callable[[str], str]
) -> None:
    _asks_for_nothing(browser, page("hostile"))


def _asks_for_nothing(browser: webdriver.Chrome, address: str) -> None:
    prepare(browser)
    driver = open_anew(browser, address)
    asked = addresses_asked_for(driver)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith(driver.current_url)], "the log holds requests"
    assert [entry for entry in log(driver, "browser") if entry["level"] == "SEVERE"] == []


@of_each
def test_ids_are_unique(name: str, visit: Visit) -> None:
    ids = visit(name).execute_script(
        "return [...document.querySelectorAll('[id]')].map((e) => e.id)"
    )
    assert sorted({one for one in ids if ids.count(one) > 1}) == []


@contextmanager
def _size(driver: webdriver.Chrome, width: int, height: int) -> Iterator[None]:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@of_each
def test_the_first_screen_needs_no_scrolling(name: str, visit: Visit) -> None:
    driver = visit(name)
    with _size(driver, 1300, 900):
        bottom = driver.execute_script(
            "return document.querySelector('#opening').getBoundingClientRect().bottom"
        )
    assert bottom <= 900


@of_each
def test_nothing_runs_over_at_any_width(name: str, visit: Visit) -> None:
    """Not the page, and no table, all of which are unfolded here."""
    driver = visit(name)
    for width in (360, 1300, 2560):
        with _size(driver, width, 800):
            unfold(driver)
            assert driver.execute_script("return document.scrollingElement.scrollWidth") <= width
            wide = driver.execute_script(
                "return [...document.querySelectorAll('.scroll')]"
                ".filter((box) => box.scrollWidth > box.clientWidth + 1)"
                ".map((box) => box.getAttribute('aria-label'))"
            )
            assert wide == [], width


@of_each
def test_a_page_is_short_until_it_is_unfolded(
    name: str, browser: webdriver.Chrome, page: Callable[[str], str]
) -> None:
    prepare(browser)
    browser.get("about:blank")
    open_page(browser, page(name))
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 6_000
    keys = browser.execute_script(
        "return [...document.querySelectorAll('details.section > summary')]"
        ".map((one) => one.querySelector('.key').textContent)"
    )
    assert len(keys) > 5 and all(keys), "every folded heading has a key figure"
    assert Path(page(name).removeprefix("file://")).stat().st_size < 1_500_000


# Those of gemm are the elements of the others, and so many that they take as long as two.
@pytest.mark.parametrize("name", RECORDINGS[:-1], scope="module")
def test_nothing_serious_stands_in_the_way_of_access(name: str, visit: Visit) -> None:
    # No table of ddp_step is too wide for its page.
    scrolled = {"scrollable-region-focusable"} if name != "ddp_step" else set()
    assert violations(visit(name), {"region"} | scrolled) == []
