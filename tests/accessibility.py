"""What axe finds in a page that stands in the way of people who cannot see or point well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from selenium import webdriver

#: Removes the rows of tables of which two alike stand above: tag by tag, but for texts and addresses.
ROWS_THAT_DIFFER = r"""
const judged = /^(class|role|aria-.*|tabindex|scope|headers|hidden|type|lang|data-bound)$/;
function attribute(a) { return a.name + '=' + (judged.test(a.name) ? a.value : !!a.value.trim()); }
function look(node) {
  if (node.nodeType === Node.TEXT_NODE) { return node.data.trim() ? 'text' : ''; }
  const start = [node.tagName, ...[...node.attributes].map(attribute)].join(' ');
  return `<${start}>${[...node.childNodes].map(look).join('')}</>`;
}
const rows = [...document.querySelectorAll('tbody tr')];
const seen = new Map();
let left = 0;
for (const row of rows) {
  const key = row.closest('.scroll').dataset.id + look(row);
  seen.set(key, (seen.get(key) || 0) + 1);
  if (seen.get(key) > 2) { row.remove(); } else { left += 1; }
}
return [rows.length, left];
"""

#: What axe judges of a page as a whole, and not element by element.
OF_WHOLE_PAGES = ["duplicate-id-aria", "scrollable-region-focusable"]


def violations(
    driver: webdriver.Chrome, options: dict[str, Any], passed: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Return what axe finds serious; the rules in `passed` must have found something to judge."""
    result: dict[str, Any] = driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run(arguments[0])"
        ".then(done, (error) => done({violations: [{impact: 'critical', id: String(error)}]}));",
        {"resultTypes": ["violations"], **options},
    )
    assert {*passed} <= {rule["id"] for rule in result.get("passes", [])}
    return [
        (v["id"], v.get("nodes", [{}])[0].get("html", "")[:200])
        for v in result["violations"]
        if v["impact"] in ("serious", "critical")
    ]
