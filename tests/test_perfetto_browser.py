"""What the page hands to Perfetto: the step as its view has it, to a stand-in page or as a file."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browsing import addresses_asked_for, open_anew, prepare
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from test_step_browser import _press, _step

from perfpipe.analysis.session import Session
from perfpipe.database import in_list
from perfpipe.store import Store
from perfpipe.units import words

Page = Callable[[str], str]
Json = dict[str, Any]

#: Answers like ui.perfetto.dev once it has loaded, and keeps what it receives.
STAND_IN = """<!doctype html><title>stand-in</title><script>
window.asked = 0;
addEventListener("message", (event) => {
  if (event.source !== opener) return;
  if (event.data !== "PING") window.received = event.data.perfetto;
  else if (++window.asked > 2) event.source.postMessage("PONG", "*");
});
</script>"""

#: Never answers.
SILENT = "<!doctype html><title>silent</title>"


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = (SILENT if self.path == "/silent" else STAND_IN).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    """The address of the stand-in."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def opened_page(
    browser: webdriver.Chrome, page: Page, tmp_path: Path
) -> Iterator[Callable[..., webdriver.Chrome]]:
    """Open a recording's page, with another address of Perfetto; files are saved in `tmp_path`."""
    first = browser.current_window_handle

    def go(name: str, **settings: str) -> webdriver.Chrome:
        prepare(browser)
        open_anew(browser, page(name))
        browser.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
        )
        browser.execute_script(
            "Object.assign(document.querySelector('.step').dataset, arguments[0])", settings
        )
        return browser

    yield go
    for handle in browser.window_handles:
        if handle != first:
            browser.switch_to.window(handle)
            browser.close()
    browser.switch_to.window(first)
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "default"})


def _received(driver: webdriver.Chrome) -> tuple[Json, Json]:
    """Return what the stand-in was sent: the trace, and its title and name."""
    here = driver.current_window_handle
    WebDriverWait(driver, 60).until(lambda seen: len(seen.window_handles) == 2)
    driver.switch_to.window(next(h for h in driver.window_handles if h != here))
    WebDriverWait(driver, 60).until(lambda seen: seen.execute_script("return window.received"))
    text, sent = driver.execute_script(
        "const { buffer, ...rest } = window.received;"
        "return [new TextDecoder().decode(buffer), rest];"
    )
    driver.close()
    driver.switch_to.window(here)
    return json.loads(text), sent


def _saved(driver: webdriver.Chrome, folder: Path) -> Json:
    def whole(_: object) -> list[Path]:
        return [*folder.glob("*.json")]

    (path,) = WebDriverWait(driver, 60).until(whole)
    return dict(json.loads(path.read_text()))


def _said(driver: webdriver.Chrome, text: str) -> str:
    WebDriverWait(driver, 60).until(
        lambda seen: text in seen.find_element(By.CSS_SELECTOR, ".said").text
    )
    return driver.find_element(By.CSS_SELECTOR, ".said").text


def _slices(trace: Json) -> Counter[tuple[int, str, int, int]]:
    """Return process, name, start and duration, ns, of each slice but of calls and ranges."""
    return Counter(
        (e["pid"], e["name"], round(1000 * e["ts"]), round(1000 * e["dur"]))
        for e in trace["traceEvents"]
        if e["ph"] == "X" and e["cat"] not in ("CUDA call", "NVTX range", "line of code")
    )


def _operations(root: Path, role: str, trace: Json) -> Counter[tuple[int, str, int, int]]:
    """Return the same from the view, as far as it lies in the step, of the reports of a trace."""
    reports = in_list(re.findall(r"\b[0-9a-f]{16}\b", " ".join(trace["otherData"]["whole"])))
    sql = f"""
        WITH numbered AS (
            SELECT *, end_ns - start_ns AS length_ns,
                dense_rank() OVER (ORDER BY position NULLS LAST, label, report_id, device) AS pid,
                start_ns + offset_ns - min(start_ns + offset_ns) OVER (PARTITION BY job) AS shift_ns
            FROM step_pictures JOIN _labels USING (report_id)
            WHERE role = '{role}' AND report_id IN {reports}
        )
        SELECT p.pid, s.kind, s.name, greatest(s.start_ns, 0) + p.shift_ns,
            least(s.start_ns + s.dur_ns, p.length_ns) - greatest(s.start_ns, 0)
        FROM step_slices AS s
        JOIN numbered AS p ON (p.report_id, p.device, p.role) = (s.report_id, s.device, s.role)
        WHERE s.kind NOT IN ('call', 'range', 'code')
    """
    with Session.open(Store(root)) as session:
        rows = session.execute(sql).fetchall()
    return Counter(
        (pid, words(name) if kind == "idle" else name, start, dur)
        for pid, kind, name, start, dur in rows
    )


def _assert_same(trace: Json, operations: Counter[tuple[int, str, int, int]]) -> None:
    """A process has exactly these operations; some of them if its name says that streams lack."""
    found = _slices(trace)
    names = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    assert {pid for pid, *_ in found} == {*names} == {1, 2}
    assert found <= operations
    lacking = {pid for pid, *_ in operations - found}
    assert lacking <= {pid for pid, name in names.items() if "more streams" in name} <= {2}


def test_the_step_is_handed_over(
    opened_page: Callable[..., webdriver.Chrome], site: str, replayed: Callable[[str], Path]
) -> None:
    driver = opened_page("transformer_step", perfetto=site)
    assert not [a for a in addresses_asked_for(driver) if not a.startswith(("file:", "data:"))]
    figure, _ = _step(driver)
    _press(figure, "Open in Perfetto")
    trace, sent = _received(driver)
    assert sent["title"] == "Median steps under nsys"
    assert sent["fileName"].startswith("perfpipe-") and sent["fileName"].endswith(".json")
    _assert_same(trace, _operations(replayed("transformer_step"), "median", trace))
    assert "127.0.0.1" in _said(driver, "has the trace")
    names = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    assert len(names) == 2
    _assert_arrows(trace)


def _assert_arrows(trace: Json) -> None:
    """Arrows of launches begin with a call and end with an operation after it."""
    begins = {
        (e["pid"], e["tid"], e["ts"]): e["cat"] for e in trace["traceEvents"] if e["ph"] == "X"
    }
    ends: dict[int, Json] = {}
    found = 0
    for event in trace["traceEvents"]:
        if event["name"] != "launch":
            continue
        category = begins[event["pid"], event["tid"], event["ts"]]
        if event["ph"] == "s":
            ends[event["id"]] = event
            assert category == "CUDA call"
        else:
            found += 1
            assert category not in ("CUDA call", "NVTX range")
            assert event["ts"] >= ends.pop(event["id"])["ts"]
    assert found > 250 and not ends


def test_what_is_zoomed_is_handed_over_with_its_calls(
    opened_page: Callable[..., webdriver.Chrome], site: str, replayed: Callable[[str], Path]
) -> None:
    driver = opened_page("ddp_step", perfetto=site)
    figure, _ = _step(driver)
    _press(figure, "Slowest step")
    for _ in range(3):
        _press(figure, "Zoom in")
    begun, ended = (int(figure.get_attribute(f"data-{name}") or 0) for name in ("from", "until"))
    _press(figure, "Open in Perfetto")
    trace, _ = _received(driver)
    every = _operations(replayed("ddp_step"), "slowest", trace)
    inside = Counter(
        {own: n for own, n in every.items() if own[2] < ended and own[2] + own[3] > begun}
    )
    assert 0 < inside.total() < every.total()
    _assert_same(trace, inside)
    calls = [e for e in trace["traceEvents"] if e.get("cat") == "CUDA call" and e["ph"] == "X"]
    assert any(1000 * (e["ts"] + e["dur"]) < begun for e in calls), "a call before what is seen"
    ranks = {e["id"]: set[int]() for e in trace["traceEvents"] if e["name"] == "collective"}
    for event in trace["traceEvents"]:
        if event["name"] == "collective":
            ranks[event["id"]].add(event["pid"])
    assert ranks and all(own == {1, 2} for own in ranks.values())
    (command,) = trace["otherData"]["whole"]
    assert command.endswith("--window 'iteration 9'")


@pytest.mark.parametrize("why", ["blocked", "silent"])
def test_a_trace_that_cannot_be_handed_over_is_saved(
    opened_page: Callable[..., webdriver.Chrome],
    site: str,
    replayed: Callable[[str], Path],
    tmp_path: Path,
    why: str,
) -> None:
    driver = opened_page("transformer_step", perfetto=f"{site}/{why}", wait="400")
    figure, _ = _step(driver)
    if why == "blocked":
        driver.execute_script("window.open = () => null")
    _press(figure, "Open in Perfetto")
    # An answer of another window counts for nothing.
    driver.execute_script("postMessage('PONG', '*')")
    said = _said(driver, "Saved as perfpipe-")
    because = "the browser blocked the new tab" if why == "blocked" else "did not answer"
    assert because in said and "\n" not in said
    trace = _saved(driver, tmp_path)
    _assert_same(trace, _operations(replayed("transformer_step"), "median", trace))


def test_the_command_of_the_whole_step_is_copied(
    opened_page: Callable[..., webdriver.Chrome],
) -> None:
    driver = opened_page("slow_loader")
    figure, _ = _step(driver)
    assert "(drawn: step 9)" in figure.find_element(By.CSS_SELECTOR, ".view").text
    _press(figure, "Copy the export command")
    assert _said(driver, "perfpipe export perfetto ").endswith("--window 'step 9'")
