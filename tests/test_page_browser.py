"""Finding one's way through a page in a real browser: sections, search, files, paper."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import open_page, prepare
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from test_browser import _box, _shown, _tools

Visit = Callable[[str], webdriver.Chrome]
Page = Callable[[str], str]


def _folded(browser: webdriver.Chrome, address: str) -> webdriver.Chrome:
    prepare(browser)
    browser.get("about:blank")
    open_page(browser, address)
    return browser


def test_a_link_opens_the_section_that_it_leads_to(browser: webdriver.Chrome, page: Page) -> None:
    driver = _folded(browser, page("transformer_step"))
    for _ in range(2):
        driver.find_element(By.CSS_SELECTOR, 'nav a[href="#stalls"]').send_keys(Keys.ENTER)
        section = driver.find_element(By.ID, "stalls")
        assert section.get_attribute("open")
        assert 0 <= driver.execute_script(
            "return arguments[0].getBoundingClientRect().top", section
        ) < 200  # fmt: skip
        driver.execute_script("scrollTo(0, 0)")


@pytest.mark.parametrize(
    ("name", "least"),
    [("transformer_step", 20), ("ddp_step", 20), ("stacks/json_step.sqlite", 10)],
)
def test_every_table_is_within_two_clicks(
    name: str, least: int, browser: webdriver.Chrome, page: Page
) -> None:
    driver = _folded(browser, page(name))
    folds: list[int] = driver.execute_script("""
        return [...document.querySelectorAll(".scroll[data-id]")].map((box) => {
            let count = 0;
            for (let one = box; one = one.parentElement.closest("details"); ) count += !one.open;
            return count;
        });
    """)
    assert len(folds) > least and max(folds) <= 2


def test_words_are_found_in_folded_tables(browser: webdriver.Chrome, page: Page) -> None:
    driver = _folded(browser, page("transformer_step"))
    search = driver.find_element(By.CSS_SELECTOR, "nav input[type=search]")
    search.send_keys("LAYER_norm graph")
    found = driver.find_elements(By.CSS_SELECTOR, ".found button")
    assert 1 < len(found) <= 12
    title = "Stall reasons: top three of each launch"
    go = next(one for one in found if one.text.startswith(title))
    count = int(go.text.removeprefix(f"{title}: ").split(" ")[0])
    go.click()
    assert _box(driver, title).is_displayed()
    assert _shown(driver, title) == count
    assert not driver.find_elements(By.CSS_SELECTOR, ".found button")
    search.clear()
    search.send_keys("no such kernel")
    assert "No row" in driver.find_element(By.CSS_SELECTOR, ".found").text


def test_a_table_is_saved_whole(visit: Visit, tmp_path: Path) -> None:
    driver = visit("transformer_step")
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    title = "Profiled kernels"
    tools = _tools(driver, title)
    tools.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("layer_norm")
    button = tools.find_element(By.XPATH, ".//button[text()='Save CSV']")
    button.send_keys(Keys.ENTER)
    file = tmp_path / "profiled-kernels.csv"
    WebDriverWait(driver, 60).until(lambda _: file.exists())
    rows = list(csv.reader(file.read_text().splitlines()))
    table = _box(driver, title)
    assert len(rows) == 1 + len(table.find_elements(By.CSS_SELECTOR, "tbody tr"))
    assert {len(row) for row in rows} == {len(table.find_elements(By.TAG_NAME, "th"))}
    durations = [float(row[rows[0].index("Duration (ns)")]) for row in rows[1:]]
    assert durations == sorted(durations, reverse=True), "in nanoseconds, longest first"


def test_the_first_table_is_whole_and_leads_to_cards(visit: Visit) -> None:
    driver = visit("ncu/visible.ncu-rep")
    first = driver.find_element(By.CSS_SELECTOR, '#opening .scroll[data-id="first"]')
    names = driver.execute_script(
        "return [...arguments[0].querySelectorAll('tbody tr')].map((row) => row.dataset.key)", first
    )
    shares = driver.execute_script(
        "const at = [...arguments[0].querySelectorAll('th')]"
        ".findIndex((head) => head.dataset.name === 'share_pct');"
        "return [...arguments[0].querySelectorAll('tbody tr')]"
        ".map((row) => Number(row.cells[at].textContent))",
        first,
    )
    assert "bank_conflict" in names and len(names) == 15
    assert shares == sorted(shares, reverse=True)
    assert abs(sum(shares) - 100) < 1
    card = driver.find_element(By.CSS_SELECTOR, 'details.card[data-key="spill_local"]')
    first.find_element(By.XPATH, ".//a[text()='spill_local']").send_keys(Keys.ENTER)
    assert card.get_attribute("open")
    assert 0 <= driver.execute_script("return arguments[0].getBoundingClientRect().top", card) < 200


def test_paper_shows_what_is_folded(browser: webdriver.Chrome, page: Page) -> None:
    driver = _folded(browser, page("vector_add"))
    count = "return document.querySelectorAll('details:not([open]):not(.columns)').length"
    before = driver.execute_script(count)
    assert before > 5
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert driver.execute_script(count) == 0
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert driver.execute_script(count) == before
