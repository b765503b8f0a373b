"""The page of a batch in a real browser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from accessibility import violations
from batches import simulated
from browsing import HOSTILE, addresses_asked_for, log, open_anew, open_untouched, prepare
from selenium import webdriver
from selenium.webdriver.common.by import By
from test_browser import _box, _head, _heads, _shown, _tools

from perfpipe.analysis.batch.page import batch_report
from perfpipe.templates.renderers import render_html

TITLE = "Configurations"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a batch with a hostile name, reason, log and link."""
    batch, items = simulated(configurations=20, repeats=3)
    task = replace(items[7].state.task, label=HOSTILE)
    state = replace(items[7].state, task=task, reason=HOSTILE)
    items[7] = replace(items[7], state=state, log=HOSTILE)
    items[8] = replace(items[8], page="javascript:document.title='executed'")
    page = tmp_path_factory.mktemp("batch") / "report.html"
    page.write_text(render_html(batch_report(batch, items, {batch.runs[0].run_id: "run.html"})))
    return page.as_uri()


@pytest.fixture
def page(browser: webdriver.Chrome, address: str) -> webdriver.Chrome:
    prepare(browser)
    open_untouched(browser, address)
    return browser


def test_nothing_is_asked_for_and_nothing_fails(browser: webdriver.Chrome, address: str) -> None:
    prepare(browser)
    page = open_anew(browser, address)
    asked = addresses_asked_for(page)
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [entry for entry in log(page, "browser") if entry["level"] == "SEVERE"] == []


def test_links_lead_to_files_and_run_nothing(page: webdriver.Chrome) -> None:
    addresses: list[str] = page.execute_script(
        "return [...document.querySelectorAll('td a')].map((link) => link.href)"
    )
    assert len(addresses) > 170
    assert all(address.startswith("file:///") for address in addresses)
    hostile = page.find_element(By.CSS_SELECTOR, "td a[href*=executed]")
    page.execute_script("arguments[0].click()", hostile)
    assert page.title != "executed"
    page.back()
    assert not page.find_elements(By.TAG_NAME, "img")


def test_tasks_are_found_by_state_node_and_bound(page: webdriver.Chrome) -> None:
    whole = _shown(page, TITLE)
    assert whole == 180
    tools = _tools(page, TITLE)
    search = tools.find_element(By.CSS_SELECTOR, "input[type=search]")
    for words, count in (("timeout", 1), ("oom_kill", 0), ("gemm done", 55)):
        search.clear()
        search.send_keys(words)
        assert _shown(page, TITLE) == count
    search.clear()
    search.send_keys("node03")
    assert 20 < _shown(page, TITLE) < 80
    search.clear()
    search.send_keys(" ")
    chips = {chip.text: chip for chip in tools.find_elements(By.CSS_SELECTOR, ".chip")}
    assert {*chips} == {"compute", "launch overhead", "host-bound idle time"}
    chips["host-bound idle time"].click()
    assert 0 < _shown(page, TITLE) < 60


def test_configurations_are_sorted_by_time(page: webdriver.Chrome) -> None:
    box = _box(page, TITLE)
    at = next(i for i, head in enumerate(_heads(page, TITLE)) if head.startswith("Time"))
    button = _head(box, at).find_element(By.TAG_NAME, "button")
    page.execute_script("arguments[0].click()", button)
    texts = page.execute_script(
        "return [...arguments[0].querySelectorAll('tbody tr')].map((r) => r.cells[arguments[1]].textContent)",
        box, at,
    )  # fmt: skip
    times = [float(text) for text in texts[:175]]
    assert times == sorted(times, reverse=True)
    assert texts[175:] == ["-"] * 5


def test_logs_keep_their_lines(page: webdriver.Chrome) -> None:
    box = _box(page, "Failed tasks")
    shown = [pre.text for pre in box.find_elements(By.CSS_SELECTOR, "pre")]
    assert any(text.splitlines()[:1] == ["step 412/1000"] for text in shown)


def test_nothing_serious_stands_in_the_way_of_access(page: webdriver.Chrome) -> None:
    assert violations(page, {"link-name"}) == []


def test_a_narrow_page_does_not_run_over(page: webdriver.Chrome) -> None:
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert page.execute_script("return document.scrollingElement.scrollWidth") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
