"use strict";
// Finds words in all tables of the page, and shows the rows that hold them.
function finder(nav, boxes, show) {
  const LEAST = 2, MOST = 12;
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Search all tables";
  search.setAttribute("aria-label", "Search kernels, ranges and code in all tables");
  const found = document.createElement("ul");
  found.className = "found";
  found.setAttribute("role", "status");
  nav.append(search, found);

  search.addEventListener("input", () => {
    const words = wordsIn(search.value);
    found.replaceChildren();
    found.classList.toggle("above", search.getBoundingClientRect().bottom > innerHeight / 2);
    if (search.value.trim().length < LEAST) return;
    const hits = boxes.map((box) => ({ box, rows: Array.from(box.querySelector("tbody").rows).filter((row) => hasWords(row, words)) }))
      .filter((hit) => hit.rows.length);
    for (const { box, rows } of hits.slice(0, MOST)) {
      const item = document.createElement("li"), go = document.createElement("button");
      go.type = "button";
      go.textContent = `${box.getAttribute("aria-label")}: ${rows.length} row${rows.length === 1 ? "" : "s"}, ${rows[0].cells[0].textContent.trim().slice(0, 60)}`;
      go.addEventListener("click", () => { show(box, search.value); found.replaceChildren(); });
      item.append(go);
      found.append(item);
    }
    if (!hits.length) found.append("No row has these words.");
    if (hits.length > MOST) found.append(`${hits.length - MOST} more tables have rows with these words.`);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; found.replaceChildren(); }
    if (event.key === "Enter") found.querySelector("button")?.click();
  });
}
