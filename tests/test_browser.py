"""Reports in a real browser: Chromium, driven over WebDriver."""

from __future__ import annotations

from collections.abc import Callable

from accessibility import WHAT_DIFFERS
from browsing import HOSTILE, open_anew
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from perfpipe.visible import visible


def _box(driver: webdriver.Chrome, title: str) -> WebElement:
    return driver.find_element(By.CSS_SELECTOR, f'.scroll[aria-label="{title}"]')


def _values(box: WebElement, index: int) -> list[str | None]:
    texts: list[str] = box.parent.execute_script(
        "return [...arguments[0].tBodies[0].rows].map((r) => r.cells[arguments[1]].innerText.trim())",
        box.find_element(By.TAG_NAME, "table"), index,
    )  # fmt: skip
    return [None if text == "-" else text for text in texts]


def _heads(driver: webdriver.Chrome, title: str) -> list[str]:
    """Return what stands above the columns: each element asked for on its own takes long."""
    heads: list[str] = driver.execute_script(
        "return [...arguments[0].querySelectorAll('th')].map((head) => head.innerText)",
        _box(driver, title),
    )
    return heads


def _head(box: WebElement, index: int) -> WebElement:
    return box.find_element(By.CSS_SELECTOR, f"th:nth-child({index + 1})")


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
    tenth = box.find_elements(By.CSS_SELECTOR, "tr:nth-child(10), tr:nth-child(11)")
    assert [row.is_displayed() for row in tenth] == [True, False]
    more.click()
    assert "Show less" in more.text
    heads = _heads(driver, "Profiled kernels")
    index = next(i for i, head in enumerate(heads) if head.startswith("Compute SOL"))
    button = _head(box, index).find_element(By.TAG_NAME, "button")
    for direction in ("descending", "ascending"):
        button.send_keys(Keys.ENTER)
        assert _head(box, index).get_attribute("aria-sort") == direction
        found = _values(box, index)
        numbers = [float(value) for value in found if value is not None]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert None not in found[: len(numbers)], "what was not collected comes last"
    button = _head(box, 0).find_element(By.TAG_NAME, "button")
    for order in ("ascending", "descending", None):
        button.send_keys(Keys.ENTER)
        assert _head(box, index).get_attribute("aria-sort") is None
        assert _head(box, 0).get_attribute("aria-sort") == order


def _tools(driver: webdriver.Chrome, title: str) -> WebElement:
    box = _box(driver, title)
    tools: WebElement = driver.execute_script("return arguments[0].previousElementSibling", box)
    return tools


def _shown(driver: webdriver.Chrome, title: str) -> int:
    shown: int = driver.execute_script(
        "return arguments[0].querySelectorAll('tbody tr:not([hidden])').length", _box(driver, title)
    )
    return shown


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
    shown = len(_box(driver, title).find_elements(By.CSS_SELECTOR, "th:not([hidden])"))
    tools.find_element(By.CSS_SELECTOR, "label:nth-of-type(2) input[type=checkbox]").click()
    assert not _head(_box(driver, title), 1).is_displayed()
    button = tools.find_element(By.XPATH, ".//button[contains(text(), 'Copy')]")
    button.click()
    lines = str(driver.execute_script("return window.copied")).splitlines()
    assert len(lines) == 1 + _shown(driver, title)
    assert len(lines[0].split(",")) == shown - 1
    assert lines[1].startswith("add_kernel,")


def _reload(driver: webdriver.Chrome) -> None:
    """Open the address anew, as somebody does who was sent it."""
    open_anew(driver, driver.current_url)


def test_a_link_shows_what_its_sender_saw(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    title = "Profiled kernels"
    tools = _tools(driver, title)
    tools.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("layer_norm")
    tools.find_element(By.TAG_NAME, "summary").click()
    tools.find_element(By.CSS_SELECTOR, "label:nth-of-type(2) input[type=checkbox]").click()
    _head(_box(driver, title), 4).find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    driver.find_element(By.CSS_SELECTOR, ".theme").click()
    before = _shown(driver, title), _values(_box(driver, title), 4), _background(driver)
    _reload(driver)
    assert (_shown(driver, title), _values(_box(driver, title), 4), _background(driver)) == before
    box = _box(driver, title)
    assert _head(box, 4).get_attribute("aria-sort") == "descending"
    assert not _head(box, 1).is_displayed()


def test_one_kernel_is_followed_through_the_page(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("transformer_step")
    whole = _shown(driver, "Profiled kernels")
    link = _box(driver, "Profiled kernels").find_element(By.CSS_SELECTOR, "a.pick")
    link.send_keys(Keys.ENTER)
    for reloaded in (False, True):
        if reloaded:
            _reload(driver)
        assert "show only" in driver.find_element(By.CSS_SELECTOR, ".picked").text
        assert 0 < _shown(driver, "Profiled kernels") < whole
        assert 0 < _shown(driver, "Memory traffic of profiled kernels") < whole
        assert driver.find_element(By.CSS_SELECTOR, "svg .mark.dim")
        assert driver.find_element(By.CSS_SELECTOR, "svg .mark[data-key]:not(.dim)")
        assert "#kernel=" in driver.current_url
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


def test_every_control_is_reached_by_keyboard(visit: Callable[[str], webdriver.Chrome]) -> None:
    driver = visit("vector_add")
    driver.execute_script(WHAT_DIFFERS)
    count = driver.execute_script(
        "const all = [...document.querySelectorAll('a[href], button, input, summary, [tabindex]')]"
        ".filter((e) => e.checkVisibility());"
        "all.forEach((e, i) => { e.dataset.seen = ''; e.addEventListener('focus', () => "
        "{ e.dataset.seen = '1'; }); }); window.all = all; return all.length;"
    )
    assert count > 50
    # Chromium stops at more than these: at what scrolls, and at its own controls.
    for _ in range(4):
        ActionChains(driver, duration=0).send_keys(Keys.TAB * (count // 2 + 6)).perform()
        missed = driver.execute_script(
            "return window.all.filter((e) => !e.dataset.seen).map((e) => e.outerHTML.slice(0, 80))"
        )
        if not missed:
            break
    assert missed == []


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
