"use strict";
// An icicle: a click enlarges a part to the whole width, a click on what is enlarged shows what it is part of.
// A search shows which parts have a text in their names, and their share of the whole.
function dive(figure) {
  const whole = { x: 0, wide: 100 };
  const boxes = Array.from(figure.querySelectorAll("svg.icicle > svg"), (part) => ({
    part, x: parseFloat(part.getAttribute("x")), wide: parseFloat(part.getAttribute("width")), depth: Number(part.dataset.depth),
    text: part.querySelector("title").textContent.replace(/: [^:]*$/, "").toLowerCase(),
  }));
  const make = (tag, attributes) => Object.assign(document.createElement(tag), attributes);
  const inside = (a, b) => a.x >= b.x - 1e-6 && a.x + a.wide <= b.x + b.wide + 1e-6;
  let seen = whole;
  function show(next) {
    seen = next;
    for (const { part, x, wide } of boxes) {
      const left = 100 * (x - seen.x) / seen.wide, right = left + 100 * wide / seen.wide;
      const from = Math.max(left, 0), until = Math.min(right, 100);
      part.style.display = until - from > 1e-6 ? "" : "none";
      part.setAttribute("x", from + "%");
      part.setAttribute("width", Math.max(until - from, 0) + "%");
    }
    reset.hidden = seen === whole;
  }
  for (const box of boxes) {
    box.part.style.cursor = "pointer";
    box.part.addEventListener("click", () => {
      const around = boxes.filter((one) => one.depth < box.depth && inside(box, one)).pop();
      show(seen === box ? around || whole : box);
    });
  }
  function find() {
    const text = search.value.trim().toLowerCase();
    const found = text ? boxes.filter((box) => box.text.includes(text)) : [];
    figure.classList.toggle("searched", Boolean(text));
    for (const box of boxes) box.part.classList.toggle("found", found.includes(box));
    // What is found within what is found counts once.
    let share = 0, until = 0;
    for (const { x, wide } of [...found].sort((a, b) => a.x - b.x)) {
      share += Math.max(0, x + wide - Math.max(until, x));
      until = Math.max(until, x + wide);
    }
    count.textContent = text ? found.length + " found, " + share.toFixed(1) + " %" : "";
  }
  const reset = make("button", { type: "button", textContent: "Reset zoom", hidden: true });
  reset.addEventListener("click", () => show(whole));
  const search = make("input", { type: "search", placeholder: "Search", ariaLabel: "Search the figure" });
  search.addEventListener("input", find);
  const count = make("span", { className: "soft", role: "status" });
  const tools = make("div", { className: "tools" });
  tools.append(search, count, reset);
  const drawing = figure.querySelector(".drawing"), legend = drawing.querySelector(".legend");
  // Elements inside an image are not read: the legend goes before it.
  if (legend) drawing.before(legend);
  drawing.before(tools);
}
