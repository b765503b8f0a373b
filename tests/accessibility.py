"""What axe finds in a page that stands in the way of people who cannot see or point well."""

from __future__ import annotations

from collections.abc import Collection
from importlib import resources
from typing import Any

from browsing import unseen
from selenium import webdriver

#: Removes elements of which two alike stand above, at the same place of alike ones: tag by tag, but
#: for texts, addresses and lengths.  A row of a table stays whole, and so does a term with its text.
WHAT_DIFFERS = r"""
const judged = new RegExp("^(class|role|aria-.*|tabindex|scope|headers|hidden|type|lang|data-bound|" +
  "fill|stroke|opacity|style)$");
const said = /^aria-(label|labelledby|describedby|controls|owns)$/;
const kept = /^(TD|TH|DT|DD|CAPTION|THEAD|TBODY|TABLE|MAIN)$/;
const numbers = new Map();
function number(text) {
  if (!numbers.has(text)) { numbers.set(text, numbers.size); }
  return numbers.get(text);
}
function attribute({ name, value }) {
  if (!judged.test(name) || said.test(name)) { return name + !!value.trim(); }
  return name + '=' + (name === 'style' ? value.replace(/[\d.]+%/g, '%') : value);
}
const looks = new Map();
function look(node) {
  if (node.nodeType === Node.TEXT_NODE) { return node.data.trim() ? 'text' : ''; }
  if (node.nodeType !== Node.ELEMENT_NODE) { return ''; }
  const own = number([node.tagName, ...[...node.attributes].map(attribute)].join(' '));
  const whole = number(own + ':' + [...node.childNodes].map(look));
  looks.set(node, { own, whole });
  return whole;
}
const seen = new Map();
function thin(node, path) {
  for (const child of [...node.children]) {
    if (!child.isConnected) { continue; }
    const below = path + '>' + looks.get(child).own;
    const term = node.tagName === 'DL' && child.tagName === 'DT';
    if (term || !kept.test(child.tagName)) {
      const group = term ? [child, child.nextElementSibling] : [child];
      const key = path + '>' + group.map((one) => looks.get(one).whole);
      seen.set(key, (seen.get(key) || 0) + 1);
      if (seen.get(key) > 2) { group.forEach((one) => one.remove()); continue; }
    }
    thin(child, below);
  }
}
const count = () => document.body.getElementsByTagName('*').length;
const whole = count();
look(document.body);
thin(document.body, '');
return [whole, count()];
"""

#: Of the texts that are seen, two of each kind: alike in all that makes colors, up to the page.
_COLORED = """
const properties = ['color', 'background-color', 'background-image', 'opacity', 'fill', 'font-size',
  'font-weight', 'text-shadow'];
const numbers = new Map(), looks = new Map(), seen = new Map();
function look(node) {
  if (!node) { return ''; }
  if (!looks.has(node)) {
    const style = getComputedStyle(node);
    const text = [look(node.parentElement), node.tagName,
      ...properties.map((name) => style.getPropertyValue(name))].join();
    if (!numbers.has(text)) { numbers.set(text, numbers.size); }
    looks.set(node, numbers.get(text));
  }
  return looks.get(node);
}
const said = (node) => node.tagName === 'INPUT' ||
  [...node.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());
const context = { include: [...document.body.querySelectorAll('*')].filter((node) => {
  if (!said(node) || !node.checkVisibility()) { return false; }
  const key = look(node);
  seen.set(key, (seen.get(key) || 0) + 1);
  return seen.get(key) <= 2;
}) };
"""

#: What can be scrolled, but not the rows in it.
_SCROLLED = """
const scrolled = (node) => /auto|scroll/.test(getComputedStyle(node).overflow) &&
  (node.scrollHeight > node.clientHeight || node.scrollWidth > node.clientWidth);
const context = { include: [...document.querySelectorAll('body *')].filter(scrolled), exclude: ['tbody'] };
"""

_COLORS = "color-contrast"
_SCROLLING = "scrollable-region-focusable"


def _ask(driver: webdriver.Chrome, context: str, options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = driver.execute_async_script(
        f"{context} const done = arguments[arguments.length - 1]; axe.run(context, arguments[0])"
        ".then(done, (error) => done({violations: [{impact: 'critical', id: String(error)}]}));",
        {"resultTypes": ["violations"], "preload": False, **options},
    )
    return found


def violations(
    driver: webdriver.Chrome, passed: Collection[str] = ()
) -> list[tuple[str, str, str]]:
    """Return what axe finds serious in light and in dark, where, and in which of both.

    Colors must have been judged in both, and the rules in `passed` have found something to judge.
    Each element takes long: but for what scrolls, of those that are alike two are asked for.  The
    page is not to be used afterwards.
    """
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    driver.set_script_timeout(120)
    found = {}
    with unseen(driver):
        driver.execute_script(axe)
        found["scrolling"] = _ask(driver, _SCROLLED, {"runOnly": [_SCROLLING]})
        whole, left = driver.execute_script(WHAT_DIFFERS)
        assert 0 < left <= whole
        others = {"rules": {rule: {"enabled": False} for rule in (_COLORS, _SCROLLING)}}
        found["all"] = _ask(driver, "const context = document;", others)
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            found[scheme] = _ask(driver, _COLORED, {"runOnly": [_COLORS]})
            assert _COLORS in {rule["id"] for rule in found[scheme].get("passes", [])}
    assert {*passed} <= {r["id"] for result in found.values() for r in result.get("passes", [])}
    return [
        (kind, v["id"], v.get("nodes", [{}])[0].get("html", "")[:200])
        for kind, result in found.items()
        for v in result["violations"]
        # Who cannot reach with keys what scrolls cannot read it, though axe says that is moderate.
        if kind == "scrolling" or v["impact"] in ("serious", "critical")
    ]
