"""Notebooks: functions of cells are profiled, and reports are shown in place."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browsing import log, prepare
from conftest import ROOT, Cli, lacking
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import frame_to_be_available_and_switch_to_it
from selenium.webdriver.support.ui import WebDriverWait

import perfpipe
from perfpipe.store import Store

#: Runs the cells of a notebook and returns their outputs, a list for each.
Notebook = Callable[..., list[list[Any]]]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    for module in ("nbclient", "ipykernel"):
        if find_spec(module) is None:
            lacking(f"{module} is not installed")
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))

    def run(*cells: str) -> list[list[Any]]:
        book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        client = NotebookClient(
            book,
            timeout=200,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute()
        return [cell.outputs for cell in book.cells]

    return run


def _shown(outputs: Sequence[Any], kind: str) -> str:
    (found,) = [one.data[kind] for one in outputs if kind in one.get("data", {})]
    return str(found)


def _printed(outputs: Sequence[Any]) -> str:
    return "".join(one.text for one in outputs if one.get("name") == "stdout")


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Store:
    """A store with a replayed run of two configurations."""
    words = ("--set", "size=512,4096", "--set", "dtype=fp16", "--collector", "replay")
    assert cli("run", ROOT / "workloads/gemm.yaml", *words) == 0
    return Store(tmp_path / "store")


REPLAY = f"""
import perfpipe
result = perfpipe.profile("{ROOT}/workloads/gemm.yaml", {{"size": [512, 4096]}}, collector="replay")
result
"""


def test_a_report_is_shown_in_place(notebook: Notebook) -> None:
    page, plot = notebook(REPLAY, 'result.plot("size", "model_flop_per_s")')
    frame = _shown(page, "text/html")
    (inside,) = re.findall(
        r'^<iframe srcdoc="([^"]*)" sandbox="allow-scripts [^>]*></iframe>$', frame
    )
    whole = html.unescape(inside)
    assert whole.startswith("<!DOCTYPE html>") or whole.startswith("<!doctype html>")
    assert "Replayed from a recording" in whole
    assert "NVIDIA H200" in _shown(page, "text/plain")
    assert _shown(plot, "image/png").startswith("iVBORw0KGgo")


def test_a_page_in_a_frame_works(browser: webdriver.Chrome, store: Store, tmp_path: Path) -> None:
    """Its links and buttons act on the page, not on the notebook around it."""
    frame = perfpipe.report(store=store.root)._repr_html_()
    host = tmp_path / "host.html"
    host.write_text(f"<!doctype html><meta charset=utf-8><title>host</title>{frame}")
    prepare(browser)
    browser.get(host.as_uri())
    inside = (By.CSS_SELECTOR, "iframe")
    WebDriverWait(browser, 60).until(frame_to_be_available_and_switch_to_it(inside))
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, "html.js"))
    title, theme, there = browser.execute_script("""
        document.querySelector("button.theme").click();
        document.querySelector('nav a[href="#glossary"]').click();
        const at = document.getElementById("glossary").getBoundingClientRect().top;
        return [document.title, document.documentElement.dataset.theme, at < innerHeight];
    """)
    assert (title, theme, there) == ("gemm \N{EN DASH} perfpipe", "light", True)
    picked = browser.execute_script("""
        document.querySelector("a.pick").click();
        return document.body.innerText.includes("Tables and figures show only");
    """)
    assert picked
    browser.switch_to.default_content()
    assert browser.title == "host"
    assert not [entry for entry in log(browser, "browser") if entry["level"] == "SEVERE"]


CELLS = (
    """
import hashlib, os
from pathlib import Path as Where
import xml.dom.minidom
import perfpipe
Where("ran").open("a").write("x")
SIZES = {"n": [10, 20], "name": ["md5", "sha1"]}
""",
    """
BLOCK = 1 << 10
class Data:
    block = b"x" * BLOCK

def digest(name, data):
    return hashlib.new(name, data).hexdigest()
""",
    """
@perfpipe.profiled(SIZES, repeats=3, collector="timing")
def hashing(n, name):
    assert not Where("out of reach").exists()
    xml.dom.minidom.Document()
    return lambda: [digest(name, Data.block) for _ in range(n)]

frame = hashing.profile().frame()
print(list(frame["n"]), list(frame["name"]), list(frame["status"]), (frame["median_ms"] > 0).all())
""",
    """
@perfpipe.profiled({"size": [512], "dtype": ["fp16"]}, recording="recorded", collector="replay")
def gemm(size, dtype):
    raise AssertionError("nothing is launched")

print(gemm.profile().frame()["median_ms"][0])
""",
    """
held = object()
def holding():
    return held

try:
    perfpipe.profile(holding, collector="timing")
except Exception as error:
    print(type(error).__name__, error)
""",
)


def test_a_function_of_a_cell_is_profiled(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "recorded").symlink_to(ROOT / "workloads/recordings/gemm-h200")
    *_, printed, replayed, refused = notebook(*CELLS)
    assert _printed(replayed).startswith("0.004265")
    assert (
        _printed(printed)
        == "[10, 10, 20, 20] ['md5', 'sha1', 'md5', 'sha1'] ['done', 'done', 'done', 'done'] True\n"
    )
    assert _printed(refused) == (
        "InputError holding uses held, an object of type object in the memory of the notebook, which "
        "a launch does not have: create it inside holding, or pass it as a parameter\n"
    )
    # The launches ran what the function needs, not the cells.
    assert (tmp_path / "ran").read_text() == "x"
    (source,) = (tmp_path / "perfpipe-store" / "functions").glob("*/hashing.py")
    assert "class Data" in source.read_text() and "BLOCK = 1024" in source.read_text()
