"use strict";
// Adds sorting, filtering, column choice and copying to the tables of a report, which are whole without it.
(function () {
  const root = document.documentElement;
  const make = (tag, attributes, text) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // ---- theme: as the system has it, until it is chosen
  const themes = ["auto", "light", "dark"];
  const theme = make("button", { type: "button", class: "theme" });
  const show = (name) => {
    root.dataset.theme = name;
    theme.textContent = "Theme: " + name;
  };
  theme.addEventListener("click", () => show(themes[(themes.indexOf(root.dataset.theme) + 1) % 3]));
  show("auto");
  const nav = document.querySelector("nav");
  if (nav) nav.append(theme);

  const text = (cell) => cell.textContent.trim();
  // A number with a unit stands in data-v; one without is its own text.
  const plain = (cell) => cell.dataset.v ?? (cell.classList.contains("n") ? text(cell).replaceAll(",", "") : text(cell));
  const raw = (cell) => (text(cell) === "-" ? null : Number(plain(cell)));

  function sort(table, index, button) {
    const head = button.closest("th");
    const up = head.getAttribute("aria-sort") === "descending";
    for (const th of table.tHead.rows[0].cells) th.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const numeric = head.classList.contains("n");
    const rows = Array.from(table.tBodies[0].rows, (row, at) => {
      const cell = row.cells[index];
      return { row, at, key: numeric ? raw(cell) : text(cell) };
    });
    // What was not collected comes last either way.
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.at - b.at;
      const order = numeric ? a.key - b.key : a.key.localeCompare(b.key);
      return (up ? order : -order) || a.at - b.at;
    });
    table.tBodies[0].append(...rows.map((entry) => entry.row));
  }

  function filter(table, state, count) {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const hovers = Array.from(row.querySelectorAll("td[title]"), (cell) => cell.title);
      const content = [row.textContent, ...hovers].join(" ").toLowerCase();
      const fits = words.every((word) => content.includes(word)) &&
        (!state.bound || row.dataset.bound === state.bound);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = words.length || state.bound ? shown + " of " + table.tBodies[0].rows.length : "";
  }

  const quote = (value) => (/[",\n]/.test(value) ? '"' + value.replaceAll('"', '""') + '"' : value);

  function csv(table) {
    const visible = (row) => Array.from(row.cells).filter((cell) => !cell.hidden);
    const value = (cell) => quote(plain(cell));
    const rows = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.hidden);
    return rows.map((row) => visible(row).map(value).join(",")).join("\n") + "\n";
  }

  async function copy(content, button) {
    let done = false;
    try {
      await navigator.clipboard.writeText(content);
      done = true;
    } catch {
      const area = make("textarea");
      area.value = content;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = done ? "Copied" : "Cannot copy";
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  function columns(table, menu) {
    Array.from(table.tHead.rows[0].cells).forEach((head, index) => {
      const label = make("label");
      const box = make("input", { type: "checkbox" });
      box.checked = true;
      box.addEventListener("change", () => {
        for (const row of table.rows) row.cells[index].hidden = !box.checked;
      });
      label.append(box, " " + text(head));
      menu.append(label);
    });
  }

  for (const box of document.querySelectorAll(".scroll")) {
    const table = box.querySelector("table");
    const name = box.getAttribute("aria-label");
    Array.from(table.tHead.rows[0].cells).forEach((head, index) => {
      const button = make("button", { type: "button", class: "sort" }, text(head));
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", () => sort(table, index, button));
    });
    const rows = table.tBodies[0].rows.length;
    if (rows < 4) continue;
    const tools = make("div", { class: "tools" });
    const state = { text: "", bound: "" };
    const count = make("span", { class: "soft", "aria-live": "polite" });
    const search = make("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows of " + name });
    search.addEventListener("input", () => { state.text = search.value; filter(table, state, count); });
    tools.append(search);
    const bounds = new Set(Array.from(table.tBodies[0].rows, (row) => row.dataset.bound).filter(Boolean));
    if (bounds.size > 1) {
      for (const bound of bounds) {
        const chip = make("button", { type: "button", class: "chip", "aria-pressed": "false" }, bound);
        chip.addEventListener("click", () => {
          state.bound = state.bound === bound ? "" : bound;
          for (const other of tools.querySelectorAll(".chip")) {
            other.setAttribute("aria-pressed", String(other.textContent === state.bound));
          }
          filter(table, state, count);
        });
        tools.append(chip);
      }
    }
    const menu = make("details", { class: "columns" });
    menu.append(make("summary", {}, "Columns"));
    columns(table, menu);
    const copying = make("button", { type: "button" }, "Copy CSV");
    copying.addEventListener("click", () => copy(csv(table), copying));
    tools.append(menu, copying, count);
    box.before(tools);
  }

  // ---- a mark of a figure and the rows of its kernel light up together
  const light = (key, on) => {
    for (const element of document.querySelectorAll("[data-key]")) {
      if (element.dataset.key === key) element.classList.toggle("lit", on);
    }
  };
  for (const element of document.querySelectorAll("[data-key]")) {
    element.addEventListener("mouseenter", () => light(element.dataset.key, true));
    element.addEventListener("mouseleave", () => light(element.dataset.key, false));
  }
  root.classList.add("js");
})();
