"""What axe finds in a page that stands in the way of people who cannot see or point well."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from selenium import webdriver

#: Removes the rows of tables of which two like ones stand above: of the same classes, cell by cell.
ROWS_THAT_DIFFER = """
const rows = [...document.querySelectorAll('tbody tr')];
const seen = new Map();
let left = 0;
for (const row of rows) {
  const cells = [...row.cells].map((cell) => cell.className + !cell.children.length);
  const look = [row.closest('.scroll').dataset.id, row.className, row.dataset.bound, ...cells].join();
  seen.set(look, (seen.get(look) || 0) + 1);
  if (seen.get(look) > 2) { row.remove(); } else { left += 1; }
}
return [rows.length, left];
"""


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
