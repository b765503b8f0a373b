"""Fixtures: Chromium driven over WebDriver, one of a worker, and pages to open in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import lacking, publish, succeed
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

HOSTILE = (
    "k</script><script>document.title='executed'</script>\"'<img src=x onerror=alert(1)>\u202e"
)

#: What tells that a page was changed since it was loaded: its address, elements and what was entered.
STATE = """
const state = () => [
  location.href,
  document.documentElement.outerHTML.replaceAll(' class=""', "").replace(/ data-ms="[^"]*"/g, ""),
  ...[...document.querySelectorAll("input")].map((input) => input.value + input.checked),
].join("\\n");
"""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser that all tests of a worker visit pages with: it has a long start-up phase."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        lacking("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update",
                 # Else what runs while nothing is drawn waits for others.
                 "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                 "--disable-sync", "--force-prefers-reduced-motion", "--window-size=1300,1200",
                 f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def page(shared: Path, pages: Callable[..., Path]) -> Callable[[str], str]:
    """Return the address of a report: of a recording, or the one with a hostile name."""

    def hostile(folder: Path) -> None:
        folder.mkdir()
        names = '"ID","Process ID","Process Name","Kernel Name","gpu__time_duration.sum"'
        text = HOSTILE.replace('"', '""')
        (folder / "x.csv").write_text(f'{names}\n"","","","","us"\n"0","1","p","{text}","2.5"\n')
        store = f"{folder}/store"
        succeed("ingest", f"{folder}/x.csv", "--store", store)
        succeed("report", "--html", f"{folder}/report.html", "--store", store)

    def address(name: str) -> str:
        folder = publish(shared / "pages-hostile", hostile) if name == "hostile" else pages(name)
        return (folder / "report.html").as_uri()

    return address


def log(driver: Any, kind: str) -> list[dict[str, Any]]:
    """Return what was logged since this was last asked."""
    return list(driver.get_log(kind))


@contextmanager
def unseen(browser: webdriver.Chrome) -> Iterator[None]:
    """Minimize the window meanwhile: a page of which nothing is drawn loads in half the CPU time."""
    window = browser.execute_cdp_cmd("Browser.getWindowForTarget", {})["windowId"]

    def put(state: str) -> None:
        bounds = {"windowId": window, "bounds": {"windowState": state}}
        browser.execute_cdp_cmd("Browser.setWindowBounds", bounds)

    put("minimized")
    try:
        yield
    finally:
        put("normal")


def open_page(browser: webdriver.Chrome, address: str) -> None:
    """Open a page and wait for its scripts to end: Chromium may answer before."""
    done = (By.CSS_SELECTOR, "html.js:not(:has(.step:not(.live)))")
    with unseen(browser):
        browser.get(address)
        WebDriverWait(browser, 120).until(lambda driver: driver.find_elements(*done))


def unfold(browser: webdriver.Chrome) -> None:
    """Open all sections and tables of a page, and wait until its tables fit."""
    browser.execute_async_script("""
        const done = arguments[arguments.length - 1];
        for (const one of document.querySelectorAll("details.section, details.part")) one.open = true;
        let frames = 4;
        const next = () => --frames ? requestAnimationFrame(next) : done();
        next();
    """)


def open_untouched(browser: webdriver.Chrome, address: str) -> None:
    """Open a page, unless it is open and as it was when it was loaded."""
    if browser.current_url == address and browser.execute_script(
        STATE + "scrollTo(0, 0); document.activeElement.blur(); return window.loaded === state();"
    ):
        return
    open_anew(browser, address)


def open_anew(browser: webdriver.Chrome, address: str) -> webdriver.Chrome:
    """Load a page, and unfold it, also where only the fragment of its address is another."""
    browser.get("about:blank")
    open_page(browser, address)
    unfold(browser)
    browser.execute_script(STATE + "window.loaded = state();")
    return browser


def addresses_asked_for(browser: webdriver.Chrome) -> list[str]:
    """Return the addresses that the page has asked for; the browser's own tab may ask for more."""
    messages = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
        and message["params"]["documentURL"] == browser.current_url.partition("#")[0]
    ]


def prepare(browser: webdriver.Chrome) -> None:
    """Undo what a test has set in the browser, and forget what was logged."""
    browser.set_window_size(1300, 1200)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    for kind in ("performance", "browser"):
        log(browser, kind)


@pytest.fixture
def visit(
    browser: webdriver.Chrome, page: Callable[[str], str]
) -> Callable[[str], webdriver.Chrome]:
    """Return what opens a page, as `page` names it, or leaves it open where nothing changed it."""

    def go(name: str) -> webdriver.Chrome:
        prepare(browser)
        open_untouched(browser, page(name))
        return browser

    return go


@pytest.fixture
def scriptless(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, which runs no script of a page meanwhile."""
    prepare(browser)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield browser
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
