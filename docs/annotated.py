"""Writes the picture of docs/reading.md: a page with numbered callouts.

python docs/annotated.py

A recording is replayed, Chromium shows the page, and each callout is drawn where a CSS selector
finds its element, so that the picture can be made anew when the page changes.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver

DOCS = Path(__file__).resolve().parent
PICTURE = DOCS / "examples" / "reading.png"

#: Size of the window, px.
_WIDTH, _HEIGHT = 1300, 1000


@dataclass(frozen=True)
class Callout:
    """A number to the left of an element, or `after` it, on its right."""

    selector: str
    after: bool = False


#: In the order of the paragraphs in docs/reading.md.
CALLOUTS = (
    Callout("header .subject", after=True),
    Callout("#opening .verdict"),
    Callout("#opening .tiles"),
    Callout("#step .head", after=True),
    Callout("#step .drawing"),
    Callout("#opening .budgets .shares", after=True),
    Callout("#opening .actions li:first-child .tag", after=True),
    Callout("#opening .actions li:first-child .evidence", after=True),
    Callout("#opening .actions li:first-child .command", after=True),
    Callout("nav[aria-label='Sections']"),
)

#: Draws the callouts and returns the selectors that match no visible element, and the height.
_DRAW = """
const size = 26;
document.documentElement.dataset.theme = "light";
document.body.style.paddingInline = "44px";
const missing = [];
let bottom = 0;
arguments[0].forEach(({selector, after}, at) => {
  const element = document.querySelector(selector);
  const box = element && element.getBoundingClientRect();
  if (!box || !box.width || !box.height) { missing.push(selector); return; }
  const disc = document.createElement("b");
  disc.className = "callout";
  disc.textContent = at + 1;
  const left = after ? box.right + 6 : box.left - size - 8;
  const top = scrollY + box.top + (after ? (box.height - size) / 2 : 0);
  disc.style.cssText = `position:absolute;left:${left}px;top:${top}px;width:${size}px;` +
    `height:${size}px;border-radius:50%;background:#c2185b;color:#fff;box-shadow:0 0 0 2px #fff;` +
    `font:bold 15px/${size}px sans-serif;text-align:center;z-index:99`;
  document.body.append(disc);
  bottom = Math.max(bottom, scrollY + box.bottom);
});
return [missing, Math.ceil(bottom) + 12];
"""


def draw(browser: Any) -> int:
    """Draw the callouts on the page that is open, and return the height down to the last, px.

    Raises ValueError if a selector matches no visible element.
    """
    missing, height = browser.execute_script(_DRAW, [asdict(own) for own in CALLOUTS])
    if missing:
        raise ValueError(f"docs/annotated.py: the page has no visible {', '.join(missing)}")
    return int(height)


def picture(browser: Any) -> bytes:
    """Return the page that is open with its callouts, as PNG."""
    clip = {"x": 0, "y": 0, "width": _WIDTH, "height": draw(browser), "scale": 1}
    options = {"format": "png", "clip": clip, "captureBeyondViewport": True}
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


def main() -> None:
    """Replay the recording, and write the picture of its page."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        sys.exit("docs/annotated.py: install chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-prefers-reduced-motion",
        f"--window-size={_WIDTH},{_HEIGHT}",
    ):
        options.add_argument(word)
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        words = [
            "run",
            str(DOCS.parent / "workloads" / "slow_loader.yaml"),
            "--collector",
            "replay",
        ]
        places = [
            "--store",
            f"{scratch}/store",
            "--html",
            str(page),
            "--md",
            f"{scratch}/report.md",
        ]
        subprocess.run([sys.executable, "-m", "perfpipe", *words, *places], check=True)
        browser = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
        try:
            browser.get(page.as_uri())
            PICTURE.write_bytes(picture(browser))
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
