"use strict";
// Rows that are part of others: folded, sorted among their siblings, and found together with what they are part of.
function foldable(rows, kept) {
  const FIRST = 12;
  const path = [], roots = [];
  const nodes = rows.map((row, number) => {
    const depth = Number(row.dataset.depth), above = depth ? path[depth - 1] : null;
    const node = { row, number, above, below: [], open: false };
    (above ? above.below : roots).push(node);
    path[depth] = node;
    return node;
  });
  const sums = nodes.filter((node) => node.below.length);

  // The first ones, if there is room.
  function unfold() {
    let shown = Math.min(roots.length, FIRST), room = true;
    for (const node of nodes) {
      const seen = node.below.length > 0 && (!node.above || node.above.open);
      if (seen && shown + node.below.length > FIRST) room = false;
      node.open = seen && room;
      if (node.open) shown += node.below.length;
    }
  }

  for (const node of sums) {
    const sign = document.createElement("button");
    sign.type = "button";
    sign.className = "fold";
    sign.setAttribute("aria-label", "Parts of " + node.row.cells[0].textContent.trim());
    node.sign = sign;
    node.row.cells[0].prepend(sign);
    sign.addEventListener("click", () => {
      node.open = !node.open;
      kept(sums.filter((one) => one.open).map((one) => one.number).join(".") || "-");
    });
  }

  return {
    leaves: nodes.filter((node) => !node.below.length).map((node) => node.row),

    /** Fold as a link says, or as there is room. */
    restore(text) {
      if (!text) return unfold();
      const open = new Set(text.split("."));
      for (const node of sums) node.open = open.has(String(node.number));
    },

    /** The rows in order, siblings compared with each other. */
    sorted(compare) {
      const walk = (some) => [...some].sort((a, b) => compare(a.row, b.row)).flatMap((node) => [node.row, ...walk(node.below)]);
      return walk(roots);
    },

    /** Show what is open, all rows, or those that fit with what they are part of; returns how many fit. */
    show(fits, whole) {
      let found = 0;
      for (const node of [...nodes].reverse()) {
        const fit = !fits || fits(node.row);
        found += fit;
        node.holds = fit || node.below.some((one) => one.holds);
      }
      const first = new Set(roots.slice(0, FIRST));
      for (const node of nodes) {
        const top = !node.above && (whole || Boolean(fits) || first.has(node));
        const seen = top || node.above && node.above.seen && (whole || Boolean(fits) || node.above.open);
        node.seen = seen && node.holds;
        node.row.hidden = !node.seen;
        if (node.sign) node.sign.setAttribute("aria-expanded", String(node.below.some((one) => one.holds) && (whole || Boolean(fits) || node.open)));
      }
      return found;
    },
  };
}
