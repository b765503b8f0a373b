"use strict";
// What several parts of a page need.

/** The words of a search. */
function wordsIn(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

// Texts of rows are looked up once: large pages have thousands of rows.
const TEXTS = new WeakMap();

/** Whether the row of a table has all words, its hover texts included. */
function hasWords(row, words) {
  if (!TEXTS.has(row)) {
    const hovers = Array.from(row.querySelectorAll("td[title]"), (cell) => cell.title);
    TEXTS.set(row, [row.textContent, ...hovers].join(" ").toLowerCase());
  }
  return words.every((word) => TEXTS.get(row).includes(word));
}

function saveFile(text, file, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
