"""Reports in a real browser: Chromium, driven over WebDriver."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import pytest
from accessibility import OF_WHOLE_PAGES, ROWS_THAT_DIFFER, violations
from browsing import HOSTILE, addresses_asked_for, log, open_page
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from perfpipe.visible import visible

WORKLOADS = ("vector_add", "transformer_step", "fused_matmul_tuning", "ddp_step")


def _box(driver: webdriver.Chrome, title: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, f'.scroll[aria-label="{title}"]')


def _values(box: WebElement, index: int) -> list[str | None]:
    rows = box.find_elements(By.CSS_SELECTOR, "tbody tr")
    texts = [r.find_elements(By.TAG_NAME, "td")[index].text for r in rows]
    return [None if text == "-" else text for text in texts]


@pytest.mark.parametrize("name", [*WORKLOADS, "hostile"])
def test_no_request_and_no_error(name: str, visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit(name)
    asked = addresses_asked_for(driver)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert [url for url in asked if url.startswith(driver.current_url)], "the log holds requests"
    assert [entry for entry in log(driver, "browser") if entry["level"] == "SEVERE"] == []


def test_hostile_names_are_shown(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("hostile")
    assert driver.title != "executed"
    assert not driver.find_elements(By.TAG_NAME, "img")
    hovers = driver.find_elements(By.CSS_SELECTOR, "td[title]")
    assert visible(HOSTILE) in [hover.get_attribute("title") for hover in hovers]


def test_columns_are_sorted(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    box = _box(driver, "Profiled kernels")
    more = driver.execute_script("return arguments[0].nextElementSibling", box)
    assert [row.is_displayed() for row in box.find_elements(By.CSS_SELECTOR, "tbody tr")][9:11] == [
        True, False,
    ]  # fmt: skip
    more.click()
    assert "Show less" in more.text
    heads = box.find_elements(By.CSS_SELECTOR, "th")
    index = next(i for i, head in enumerate(heads) if head.text.startswith("Compute SOL"))
    button = heads[index].find_element(By.TAG_NAME, "button")
    for direction in ("descending", "ascending"):
        button.send_keys(Keys.ENTER)
        assert heads[index].get_attribute("aria-sort") == direction
        found = _values(box, index)
        numbers = [float(value) for value in found if value is not None]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert None not in found[: len(numbers)], "what was not collected comes last"
    name = heads[0].find_element(By.TAG_NAME, "button")
    name.send_keys(Keys.ENTER)
    assert heads[index].get_attribute("aria-sort") is None
    assert heads[0].get_attribute("aria-sort") == "descending"


def _tools(driver: webdriver.Chrome, title: str) -> WebElement:
    box = _box(driver, title)
    tools: WebElement = driver.execute_script("return arguments[0].previousElementSibling", box)
    return tools


def _shown(driver: webdriver.Chrome, title: str) -> int:
    rows = _box(driver, title).find_elements(By.CSS_SELECTOR, "tbody tr:not([hidden])")
    return len(rows)


def test_rows_are_filtered(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    title = "Profiled kernels"
    whole = _shown(driver, title)
    tools = _tools(driver, title)
    search = tools.find_element(By.CSS_SELECTOR, "input[type=search]")
    search.send_keys("mode=GRAPH layer_norm")
    some = _shown(driver, title)
    assert 0 < some < whole
    assert f"{some} of {whole}" in tools.text
    search.clear()
    search.send_keys(Keys.SPACE, Keys.BACKSPACE)
    assert _shown(driver, title) == whole
    chip = tools.find_element(By.CSS_SELECTOR, ".chip")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert 0 < _shown(driver, title) < whole
    chip.click()
    assert _shown(driver, title) == whole


def test_columns_are_chosen_and_copied(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("vector_add")
    title = "Profiled kernels"
    driver.execute_script(
        "Object.defineProperty(navigator, 'clipboard', {value: "
        "{writeText: async (text) => { window.copied = text; }}});"
    )
    tools = _tools(driver, title)
    tools.find_element(By.TAG_NAME, "summary").click()
    boxes = tools.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")
    boxes[1].click()
    heads = _box(driver, title).find_elements(By.CSS_SELECTOR, "th")
    assert not heads[1].is_displayed()
    button = next(b for b in tools.find_elements(By.TAG_NAME, "button") if "Copy" in b.text)
    button.click()
    lines = str(driver.execute_script("return window.copied")).splitlines()
    assert len(lines) == 1 + _shown(driver, title)
    assert len(lines[0].split(",")) == len(heads) - 1
    assert lines[1].startswith("add_kernel,")


def _reload(driver: webdriver.Chrome) -> None:
    """Open the address anew, as somebody does who was sent it."""
    address = driver.current_url
    driver.get("about:blank")
    open_page(driver, address)


def test_a_link_shows_what_its_sender_saw(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    title = "Profiled kernels"
    tools = _tools(driver, title)
    tools.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("layer_norm")
    tools.find_element(By.TAG_NAME, "summary").click()
    tools.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")[1].click()
    heads = _box(driver, title).find_elements(By.CSS_SELECTOR, "th")
    heads[3].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    driver.find_element(By.CSS_SELECTOR, ".theme").click()
    before = _shown(driver, title), _values(_box(driver, title), 3), _background(driver)
    _reload(driver)
    assert (_shown(driver, title), _values(_box(driver, title), 3), _background(driver)) == before
    heads = _box(driver, title).find_elements(By.CSS_SELECTOR, "th")
    assert heads[3].get_attribute("aria-sort") == "descending"
    assert not heads[1].is_displayed()


def test_one_kernel_is_followed_through_the_page(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    whole = _shown(driver, "Profiled kernels")
    link = _box(driver, "Profiled kernels").find_element(By.CSS_SELECTOR, "a.pick")
    link.send_keys(Keys.ENTER)
    for _ in range(2):
        assert "show only" in driver.find_element(By.CSS_SELECTOR, ".picked").text
        assert 0 < _shown(driver, "Profiled kernels") < whole
        assert 0 < _shown(driver, "Memory") < whole
        assert driver.find_elements(By.CSS_SELECTOR, "svg .mark.dim")
        assert driver.find_elements(By.CSS_SELECTOR, "svg .mark[data-key]:not(.dim)")
        assert "#kernel=" in driver.current_url
        _reload(driver)
    (clear,) = driver.find_elements(
        By.XPATH, "//*[@class='picked']/button[text()='Show all kernels']"
    )
    clear.click()
    assert _shown(driver, "Profiled kernels") == whole
    assert not driver.find_elements(By.CSS_SELECTOR, "svg .dim")
    assert "#" not in driver.current_url


def test_a_hostile_kernel_is_followed(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("hostile")
    row = driver.find_element(By.CSS_SELECTOR, "tr[data-key]")
    row.find_element(By.CSS_SELECTOR, "a.pick").send_keys(Keys.ENTER)
    key = row.get_attribute("data-key")
    _reload(driver)
    assert driver.title != "executed"
    assert key and key in driver.find_element(By.CSS_SELECTOR, ".picked").text
    assert _shown(driver, "Profiled kernels") == 1


def test_ids_are_unique(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    ids = driver.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_every_control_is_reached_by_keyboard(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("vector_add")
    driver.execute_script(ROWS_THAT_DIFFER)
    count = driver.execute_script(
        "const all = [...document.querySelectorAll('a[href], button, input, summary, [tabindex]')]"
        ".filter((e) => e.checkVisibility());"
        "all.forEach((e, i) => { e.dataset.seen = ''; e.addEventListener('focus', () => "
        "{ e.dataset.seen = '1'; }); }); window.all = all; return all.length;"
    )
    assert count > 50
    ActionChains(driver, duration=0).send_keys(Keys.TAB * (count + 6)).perform()
    missed = driver.execute_script(
        "return window.all.filter((e) => !e.dataset.seen).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert missed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_serious_stands_in_the_way_of_access(
    name: str, scheme: str, visit: Callable[[str], webdriver.Chrome]
) -> None:
    driver = visit(name)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    driver.execute_script(axe)
    driver.set_script_timeout(120)
    contrast = {"color-contrast"}
    if scheme == "light":
        assert violations(driver, {"runOnly": OF_WHOLE_PAGES}) == []
    # Each element takes long: of rows that are alike two are asked for.
    whole, left = driver.execute_script(ROWS_THAT_DIFFER)
    assert 0 < left <= whole
    # But for their colors the elements of the dark page are the same.
    asked = {} if scheme == "light" else {"runOnly": sorted(contrast)}
    assert violations(driver, asked, contrast) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_narrow_page_does_not_run_over(
    name: str, visit: Callable[[str], webdriver.Chrome]
) -> None:
    driver = visit(name)
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        width = driver.execute_script("return document.scrollingElement.scrollWidth")
        assert width <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_theme_is_chosen(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("vector_add")
    button = driver.find_element(By.CSS_SELECTOR, ".theme")
    colours = []
    for _ in range(3):
        button.click()
        colours.append((button.text, _background(driver)))
    assert [text for text, _ in colours] == ["Theme: light", "Theme: dark", "Theme: auto"]
    assert colours[0][1] != colours[1][1]


def _background(driver: webdriver.Chrome) -> str:
    return str(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_without_scripts_the_report_is_whole(
    scriptless: webdriver.Chrome, page: Callable[[str], str]
) -> None:
    driver = scriptless
    driver.get(page("transformer_step"))
    assert not driver.find_elements(By.CSS_SELECTOR, "html.js")
    assert "launch-bound" in driver.find_element(By.CSS_SELECTOR, ".verdict").text
    assert "launch overhead" in driver.find_element(By.CSS_SELECTOR, ".statements").text
    assert len(driver.find_elements(By.CSS_SELECTOR, "figure svg")) >= 4
    assert len(driver.find_elements(By.CSS_SELECTOR, "tbody tr")) > 100
    assert not driver.find_elements(By.CSS_SELECTOR, ".tools")
    assert driver.find_element(By.ID, "recommendations").text
