"""Kernels folded as a tree, the card of a kernel, and the icicle of ranges, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import open_page
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from test_browser import _box, _head, _heads, _reload, _shown, _tools

Visit = Callable[[str], webdriver.Chrome]

TREE = "Kernels by category and library"


def _rows(driver: webdriver.Chrome) -> list[tuple[int, str]]:
    """Return depth and name of the rows of the tree that are seen."""
    rows: list[list[object]] = driver.execute_script(
        "return [...arguments[0].querySelectorAll('tbody tr')].filter((r) => r.checkVisibility())"
        ".map((r) => [Number(r.dataset.depth), r.cells[0].textContent.trim()])",
        _box(driver, TREE),
    )
    return [(int(str(depth)), str(name)) for depth, name in rows]


def _fold(driver: webdriver.Chrome, name: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, f'button.fold[aria-label="Parts of {name}"]')


def test_kernels_are_folded(visit: Visit) -> None:
    driver = visit("ddp_step")
    before = _rows(driver)
    assert 1 < len(before) <= 12
    closed = next(
        sign for sign in _box(driver, TREE).find_elements(By.CSS_SELECTOR, "tr:not([hidden]) .fold")
        if sign.get_attribute("aria-expanded") == "false"
    )  # fmt: skip
    name = str(closed.get_attribute("aria-label")).removeprefix("Parts of ")
    closed.send_keys(Keys.ENTER)
    after = _rows(driver)
    at = [text for _, text in after].index(name)
    assert after[at + 1][0] == after[at][0] + 1 and len(after) > len(before)
    _reload(driver)
    assert _rows(driver) == after, "a link shows what its sender saw"
    _fold(driver, name).send_keys(Keys.ENTER)
    assert _rows(driver) == before


def test_what_is_found_stands_below_what_it_is_part_of(visit: Visit) -> None:
    driver = visit("ddp_step")
    search = _tools(driver, TREE).find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("nccl")
    rows = _rows(driver)
    assert rows[0] == (0, "communication")
    assert all("nccl" in name.lower() or depth < 2 for depth, name in rows)
    assert rows[-1][0] > 0


def test_siblings_are_sorted(visit: Visit) -> None:
    driver = visit("ddp_step")
    box = _box(driver, TREE)
    driver.execute_script("return arguments[0].nextElementSibling", box).click()
    heads = _heads(driver, TREE)
    index = next(at for at, head in enumerate(heads) if head.startswith("Launches"))
    _head(box, index).find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    rows = driver.execute_script(
        "return [...arguments[0].querySelectorAll('tbody tr')].map((r) => [Number(r.dataset.depth), "
        "Number(r.cells[arguments[1]].textContent.replaceAll(',', ''))])",
        box, index,
    )  # fmt: skip
    last: list[float] = []
    for depth, launches in rows:
        assert depth <= len(last)
        if len(last) > depth:
            assert launches <= last[depth], "the most launches first among what stands side by side"
        last[depth:] = [launches]


def test_the_card_of_a_kernel_is_opened(visit: Visit) -> None:
    driver = visit("transformer_step")
    cards = driver.find_elements(By.CSS_SELECTOR, "details.card")
    assert 1 < len(cards) <= 12
    assert not any(card.get_attribute("open") for card in cards)
    link = _box(driver, "Profiled kernels").find_element(By.CSS_SELECTOR, "a.pick")
    key = link.text
    link.send_keys(Keys.ENTER)
    for reloaded in (False, True):
        if reloaded:
            _reload(driver)
        opened = driver.find_elements(By.CSS_SELECTOR, "details.card[open]")
        assert [card.get_attribute("data-key") for card in opened] == [key]
        titles = driver.execute_script(
            "return [...arguments[0].querySelectorAll('caption')].map((one) => one.innerText)",
            opened[0],
        )
        assert {
            "SOL breakdown",
            "Traffic by memory level",
            "Warp states",
            "Blocks that fit on an SM",
        } <= {*titles}
    driver.find_element(By.XPATH, "//button[text()='Show its details']").click()
    top = driver.execute_script(
        "return document.querySelector('details.card[open]').getBoundingClientRect().top"
    )
    assert 0 <= top < 200


def test_a_link_to_a_card_opens_it(browser: webdriver.Chrome, page: Callable[[str], str]) -> None:
    driver = browser
    driver.get("about:blank")
    open_page(driver, page("transformer_step") + "#kernel-2")
    assert driver.find_element(By.ID, "kernel-2").get_attribute("open")
    assert not driver.find_element(By.ID, "kernel-1").get_attribute("open")


def test_a_kernel_of_the_picture_has_its_rows(visit: Visit) -> None:
    """What is selected in the picture is called as in the tables."""
    driver = visit("transformer_step")
    named = driver.execute_script(
        "return [...document.querySelectorAll('details.card')].map((card) => card.dataset.key)"
    )
    driver.execute_script(
        "document.dispatchEvent(new CustomEvent('perfpipe:pick', {detail: arguments[0]}))", named[0]
    )
    assert _shown(driver, "Profiled kernels") > 0
    assert driver.find_elements(By.CSS_SELECTOR, "details.card[open]")


def test_the_icicle_is_enlarged(visit: Visit) -> None:
    driver = visit("transformer_step")
    icicle = driver.find_element(By.CSS_SELECTOR, "svg.icicle")
    boxes = icicle.find_elements(By.CSS_SELECTOR, ":scope > svg")
    whole = icicle.rect["width"]
    deep = next(box for box in boxes if box.get_attribute("data-depth") == "1")
    narrow = deep.rect["width"]
    assert narrow < whole
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", icicle)
    ActionChains(driver, duration=0).click(deep).perform()
    assert deep.rect["width"] == pytest.approx(whole, abs=2)
    ActionChains(driver, duration=0).click(deep).perform()
    assert deep.rect["width"] < whole + 2
    reset = driver.find_element(
        By.XPATH, "//figure[.//*[contains(@class, 'icicle')]]//button[text()='Reset zoom']"
    )
    if reset.is_displayed():
        reset.click()
    assert deep.rect["width"] == pytest.approx(narrow, abs=2)


def test_stacks_are_found_with_their_share(visit: Visit) -> None:
    driver = visit("stacks/json_step.sqlite")
    figure = driver.find_element(By.CSS_SELECTOR, "#host figure")
    assert figure.find_element(By.CSS_SELECTOR, ".legend li").text == "user"
    search = figure.find_element(By.CSS_SELECTOR, "input[type=search]")
    count = figure.find_element(By.CSS_SELECTOR, "[role=status]")
    boxes = figure.find_elements(By.CSS_SELECTOR, "svg.icicle > svg")
    assert count.text == ""
    # Encoding is called by log_step: both count once.
    search.send_keys("JSON/")
    within = count.text
    search.clear()
    search.send_keys("json_step.py:5")
    assert count.text.startswith("1 found, ")
    share = float(count.text.removeprefix("1 found, ").removesuffix(" %"))
    assert 90 < share < 100
    number, _, found = within.partition(" found, ")
    assert int(number) > 1 and float(found.removesuffix(" %")) <= share
    seen = driver.execute_script(
        "return arguments[0].map((box) => [box.classList.contains('found'), "
        "getComputedStyle(box).opacity])",
        boxes,
    )
    assert [opacity for found, opacity in seen if found] == ["1"]
    assert {opacity for found, opacity in seen if not found} == {"0.25"}
    search.clear()
    search.send_keys(" ")
    assert count.text == "" and not figure.find_elements(By.CSS_SELECTOR, ".found")


def test_a_folded_table_is_shown_on_demand(visit: Visit) -> None:
    driver = visit("stacks/json_step.sqlite")
    table = driver.find_element(By.CSS_SELECTOR, '[data-id="idle-time-by-stack"] table')
    assert not table.is_displayed()
    summary = driver.find_element(By.CSS_SELECTOR, "#host details.folded > summary")
    assert summary.text.startswith("Show the table (")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", summary)
    summary.click()
    assert table.is_displayed()
