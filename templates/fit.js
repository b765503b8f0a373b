"use strict";
// Tables that fit their page: columns of detail are hidden where there is no room, and a narrow screen shows each row as a block.
const NARROW = matchMedia("(max-width: 40rem)");

/** Call `hide` with the indexes of the columns to hide, whenever the width of a table's box changes. */
function fitted(box, table, heads, hide) {
  const details = Array.from(heads.keys()).filter((at) => "detail" in heads[at].dataset);
  let width = 0;
  const fit = () => {
    // A scroll bar that comes and goes with the height changes only the inner width.
    if (!box.offsetWidth || box.offsetWidth === width) return;
    width = box.offsetWidth;
    labelled(table);
    if (NARROW.matches) return hide(details);
    const hidden = [];
    hide(hidden);
    while (hidden.length < details.length && table.scrollWidth > box.clientWidth) {
      hidden.push(details[details.length - 1 - hidden.length]);
      hide(hidden);
    }
  };
  // Folded tables have no width until they are shown.
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(box);
  return { shrink: () => hide(details), again: () => { width = 0; fit(); } };
}

/** Name each cell by its column, where rows are blocks. */
function labelled(table) {
  if (!NARROW.matches) return NARROW.addEventListener("change", () => labelled(table), { once: true });
  const names = Array.from(table.tHead.rows[0].cells, (head) => head.textContent);
  for (const row of table.tBodies[0].rows) {
    Array.from(row.cells).forEach((cell, at) => { cell.dataset.label = names[at]; });
  }
}
