"""Figures and the picture of a step in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from browsing import HOSTILE, open_page
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from perfpipe.picture import Label, Lane, Panel, Picture, Slice, View
from perfpipe.templates.renderers import render_html
from perfpipe.viewmodel import Report

Visit = Callable[[str], webdriver.Chrome]


def test_figures_are_enlarged_and_moved(visit: Visit) -> None:
    driver = visit("transformer_step")
    zoomed = (By.XPATH, "//figure[.//button[@aria-label='Zoom in'] and .//*[@class='drawing']]")
    figure = driver.find_element(*zoomed)
    svg = figure.find_element(By.CSS_SELECTOR, ".drawing svg")

    def box() -> list[float]:
        return [float(part) for part in str(svg.get_dom_attribute("viewBox")).split()]

    def press(label: str) -> list[float]:
        figure.find_element(By.CSS_SELECTOR, f'button[aria-label="{label}"]').send_keys(Keys.ENTER)
        return box()

    whole = box()
    inside = press("Zoom in")
    assert inside[2:] == pytest.approx([part * 0.8 for part in whole[2:]])
    assert press("Pan right")[0] > inside[0]
    for _ in range(5):
        at = press("Pan left")
    assert at[0] == whole[0], "not beyond the border"
    assert press("Zoom out")[2] == pytest.approx(whole[2])
    press("Zoom in")
    assert press("Reset zoom") == whole


def test_entries_of_the_legend_hide_their_marks(visit: Visit) -> None:
    driver = visit("transformer_step")
    figure = driver.find_element(By.XPATH, "//figure[.//button[@class='series']]")
    chip = figure.find_element(By.CSS_SELECTOR, "button.series")
    name = chip.text
    selector = f'.mark[data-series="{name}"]'
    marks = figure.find_elements(By.CSS_SELECTOR, selector)
    assert marks and all(mark.is_displayed() for mark in marks)
    chip.send_keys(Keys.ENTER)
    assert chip.get_attribute("aria-pressed") == "false"
    assert not any(mark.is_displayed() for mark in marks)
    others = figure.find_elements(By.CSS_SELECTOR, f".mark:not({selector})")
    assert any(mark.is_displayed() for mark in others)
    chip.send_keys(Keys.ENTER)
    assert all(mark.is_displayed() for mark in marks)


def _step(driver: webdriver.Chrome) -> tuple[WebElement, WebElement]:
    live = (By.CSS_SELECTOR, ".step.live")
    figure = WebDriverWait(driver, 60).until(lambda seen: seen.find_element(*live))
    return figure, figure.find_element(By.TAG_NAME, "canvas")


def _seen(figure: WebElement) -> tuple[float, float]:
    """Return the part of the step that is seen, ns."""
    return float(figure.get_attribute("data-from") or 0), float(
        figure.get_attribute("data-until") or "inf"
    )


def _tip(figure: WebElement) -> str:
    return figure.find_element(By.CSS_SELECTOR, ".tip").text


def _press(figure: WebElement, name: str) -> None:
    figure.find_element(By.XPATH, f".//button[text()='{name}']").click()


def test_the_step_is_zoomed_and_moved(visit: Visit) -> None:
    driver = visit("transformer_step")
    figure, canvas = _step(driver)
    _press(figure, "Zoom in")
    inside = _seen(figure)
    assert inside[1] - inside[0] < 13_265_088
    canvas.send_keys("d")
    moved = _seen(figure)
    assert moved[0] > inside[0] and moved[1] - moved[0] == pytest.approx(
        inside[1] - inside[0], abs=2
    )
    ActionChains(driver, duration=0).move_to_element(canvas).click_and_hold().move_by_offset(
        60, 0
    ).release().perform()
    assert _seen(figure)[0] < moved[0], "what is dragged to the right shows what came before"
    canvas.send_keys("0")
    assert _seen(figure) == (0, 13_265_088)


def test_the_longest_idle_interval_and_the_slowest_step(visit: Visit) -> None:
    driver = visit("transformer_step")
    figure, _ = _step(driver)
    _press(figure, "Longest idle")
    assert "launch gap · 703 us at" in _tip(figure)
    begun, ended = _seen(figure)
    assert ended - begun == pytest.approx(3 * 703_000, rel=1e-3)
    view = figure.find_element(By.CSS_SELECTOR, ".view")
    assert view.text == "Median steps under nsys"
    _press(figure, "Slowest step")
    assert view.text == "Slowest steps under nsys"
    _press(figure, "Median step")
    assert view.text == "Median steps under nsys"


def test_marks_in_the_strip_of_the_capture_choose_the_step(visit: Visit) -> None:
    driver = visit("ddp_step")
    figure, _ = _step(driver)
    view = figure.find_element(By.CSS_SELECTOR, ".view")

    def filled() -> list[str | None]:
        marks = figure.find_elements(By.CSS_SELECTOR, ".strip [data-role] path")
        return [mark.get_attribute("fill") for mark in marks]

    assert filled() == ["currentColor", "none"] * 2
    for role, words in (("slowest", "Slowest step"), ("median", "Median step")):
        figure.find_element(By.CSS_SELECTOR, f".strip [data-role={role}] rect").click()
        assert view.text.startswith(words)
    _press(figure, "Slowest step")
    assert filled() == ["none", "currentColor"] * 2
    _press(figure, "Median step")


#: Drawn share of each idle lane, %: the opacity of its pixels; and the true share of the time.
_SHARES = """
const [canvas, done] = arguments, sharp = devicePixelRatio || 1, left = Math.round(130 * sharp);
const text = atob(document.getElementById("step-data").textContent);
const packed = new Blob([Uint8Array.from(text, (c) => c.charCodeAt(0))]);
const unpacked = packed.stream().pipeThrough(new DecompressionStream("gzip"));
const sum = (values) => values.reduce((a, b) => a + b, 0);
new Response(unpacked).json().then((data) => {
  const [view] = data.views, pen = canvas.getContext("2d"), found = [];
  let y = 0;
  for (const panel of view.panels) {
    y += 15;
    for (const lane of panel.lanes) {
      const height = data.heights[lane.kind], middle = Math.round((y + height / 2) * sharp);
      if (lane.kind === "idle") {
        const row = pen.getImageData(left, middle, canvas.width - left, 1).data;
        const drawn = sum([...row].filter((_, i) => i % 4 === 3)) / 255 / (row.length / 4);
        found.push([100 * drawn, 100 * sum(lane.dur) / view.dur, lane.levels.length]);
      }
      y += height + 2;
    }
  }
  done(found);
});
"""


def test_idle_time_is_drawn_to_scale(visit: Visit) -> None:
    """In a replayed graph, hundreds of gaps between kernels take a few percent of the time."""
    driver = visit("transformer_step")
    _, canvas = _step(driver)
    found = driver.execute_async_script(_SHARES, canvas)
    assert len(found) == 2
    for drawn, true, levels in found:
        assert drawn == pytest.approx(true, abs=1) and not levels
    assert found[0][1] > 80 and found[1][1] < 3


def test_a_kernel_is_selected_by_keyboard(visit: Visit) -> None:
    driver = visit("transformer_step")
    figure, canvas = _step(driver)
    for _ in range(5):
        canvas.send_keys(Keys.ARROW_DOWN)
    assert "vectorized_elementwise_kernel<FillFunctor<float>> · 8.064 us" in _tip(figure)
    assert "<<<8192,1,1; 128,1,1>>>" in _tip(figure)
    canvas.send_keys(Keys.ARROW_RIGHT)
    name = _tip(figure).partition(" \u00b7 ")[0]
    canvas.send_keys(Keys.ENTER)
    assert f"#kernel={urlencode({'': name})[1:]}" in driver.current_url
    assert name in driver.find_element(By.CSS_SELECTOR, ".picked").text
    canvas.send_keys(Keys.ENTER)
    assert "kernel=" not in driver.current_url


def test_hover_names_what_lies_there(visit: Visit) -> None:
    driver = visit("ddp_step")
    figure, canvas = _step(driver)
    size = canvas.size
    at = driver.execute_script("return 40 / arguments[0].clientHeight", canvas)
    ActionChains(driver, duration=0).move_to_element_with_offset(
        canvas, 0, int(size["height"] * (at - 0.5))
    ).perform()
    assert "step 10" in _tip(figure) or "iteration 5" in _tip(figure)


def test_on_paper_the_step_is_drawn(visit: Visit) -> None:
    driver = visit("transformer_step")
    figure, canvas = _step(driver)
    assert canvas.is_displayed()
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not canvas.is_displayed()
    assert figure.find_element(By.CSS_SELECTOR, ".drawing svg").is_displayed()
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_scripts_the_step_is_drawn(
    scriptless: webdriver.Chrome, page: Callable[[str], str]
) -> None:
    scriptless.get(page("transformer_step"))
    drawn = scriptless.find_element(By.CSS_SELECTOR, ".step .drawing svg")
    assert drawn.is_displayed()
    assert "forward" in drawn.text and "Idle, by cause" in drawn.text
    assert not scriptless.find_elements(By.CSS_SELECTOR, ".step canvas")


def _large(operations: int) -> Picture:
    """Return a step of as many operations on two streams, with their calls and idle time."""
    labels = [Label(f"kernel_{n}<{HOSTILE}>", c, f"kernel_{n}", "<<<1; 2>>>")
              for n in range(100) for c in ("gemm", "elementwise")]  # fmt: skip
    labels += [Label("cudaLaunchKernel", "call"), Label("launch gap", "launch_gap", "", "before k")]
    calls, gap = len(labels) - 2, len(labels) - 1
    streams: list[list[Slice]] = [[], []]
    launches, idle, now = [], [], 0
    for number in range(operations):
        # As irregular as what is measured, so that it compresses no better.
        dur, wait = 1000 + 7919 * number**2 % 30011, 300 + 104729 * number**2 % 4001
        launches.append(Slice(now, 300 + wait // 2, calls))
        streams[number % 2].append(Slice(now + 500, dur, 611 * number**2 % calls))
        idle.append(Slice(now + 500 + dur, wait, gap))
        now += dur + wait + 500
    lanes = (Lane("Thread 1 calls", "call", tuple(launches)), *(
        Lane(f"Stream {n}", "stream", tuple(own)) for n, own in enumerate(streams)
    ), Lane("Idle, by cause", "idle", tuple(idle)))  # fmt: skip
    panel = Panel("GPU 0", now, lanes, "perfpipe export perfetto x --step 1")
    return Picture((View("Median step", (panel,)),), tuple(labels))


def test_a_step_of_20000_operations_is_light_and_fast(
    browser: webdriver.Chrome,
    tmp_path: Path,
) -> None:
    report = Report("R", None, (), (), (), (), 0, "", (), (), (), (), picture=_large(20_000))
    file = tmp_path / "page.html"
    file.write_text(render_html(report))
    assert file.stat().st_size < 600_000
    open_page(browser, file.as_uri())
    _step(browser)
    assert browser.title != "executed"
    times: list[list[float]] = browser.execute_script(
        """
        const figure = document.querySelector(".step"), times = [];
        const press = (name) => [...figure.querySelectorAll("button")]
            .find((one) => one.textContent === name).click();
        const work = () => {
            const begin = performance.now();
            let sum = 0;
            for (let i = 0; i < 4e6; i++) sum += Math.sqrt(i);
            return performance.now() - begin + 0 * sum;
        };
        for (let zoom = 0; zoom < 12; zoom++) {
            for (let n = 0; n < 5; n++) {
                figure.redraw();
                times.push([Number(figure.dataset.ms), work()]);
            }
            press("Zoom in");
        }
        return times;
        """
    )
    assert len(times) == 60
    frame, work = (sorted(column)[30] for column in zip(*times, strict=True))
    # The work takes 11 ms on a quiet core, and longer where others compute as well; a frame, 2.
    assert frame < work, "a frame of a screen with 60 of them a second"
