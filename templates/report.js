"use strict";
// Adds sorting, filtering, column choice, copying, search, zoom and deep links to a report, which is complete without it.
(function () {
  const root = document.documentElement;
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const make = (tag, attributes, text) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const button = (text, action, attributes) => {
    const made = make("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", action);
    return made;
  };

  // ---- state: kept in the URL fragment, so that a link shows what its sender saw
  const stated = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  let state = stated();
  function keep(name, value, jumps) {
    if (value) state.set(name, value); else state.delete(name);
    const text = state.toString();
    // The whole address: in a notebook, a fragment alone would be one of the notebook.
    history[jumps ? "pushState" : "replaceState"](null, "", location.href.split("#")[0] + (text ? "#" + text : ""));
  }

  // ---- theme: the system's, unless chosen
  const themes = ["auto", "light", "dark"];
  const show = (name) => {
    root.dataset.theme = themes.includes(name) ? name : "auto";
    theme.textContent = "Theme: " + root.dataset.theme;
  };
  const theme = button("", () => {
    show(themes[(themes.indexOf(root.dataset.theme) + 1) % 3]);
    keep("theme", root.dataset.theme === "auto" ? "" : root.dataset.theme);
  }, { class: "theme" });
  const header = document.querySelector("header");
  if (header) header.insertBefore(theme, header.querySelector(".notice"));

  const text = (cell) => cell.textContent.trim();
  // Numbers with a unit and truncated texts are in data-v; other cells are their own text.
  const plain = (cell) => cell.dataset.v ?? (cell.classList.contains("n") ? text(cell).replaceAll(",", "") : text(cell));
  const raw = (cell) => (text(cell) === "-" ? null : Number(plain(cell)));

  const quote = (value) => (/[",\n]/.test(value) ? '"' + value.replaceAll('"', '""') + '"' : value);

  async function copy(content, pressed) {
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
    const before = pressed.textContent;
    pressed.textContent = done ? "Copied" : "Copy failed";
    setTimeout(() => { pressed.textContent = before; }, 1500);
  }

  // What is folded is opened to show a part of it.
  function reveal(element) {
    for (let folded = element.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
    element.scrollIntoView();
  }

  const fittings = [];
  let picked = "";
  const BRIEF = 10, FIRST_SCREEN = 900, LEAST_LINES = 2, MOST_LINES = 6;

  // ---- a table: returns a function that restores its state from the URL
  function equip(box) {
    const table = box.querySelector("table");
    const name = box.getAttribute("aria-label");
    const id = box.dataset.id;
    const heads = Array.from(table.tHead.rows[0].cells);
    const body = table.tBodies[0];
    const initial = Array.from(body.rows);
    const tools = make("div", { class: "tools" });
    const search = make("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows of " + name });
    const count = make("span", { class: "soft", "aria-live": "polite" });
    const columns = make("summary", {}, "Columns");
    const boxes = [];
    let bound = "", whole = false;
    const tree = initial.length && initial[0].dataset.depth !== undefined
      ? foldable(initial, (open) => { whole = false; keep(id + ".open", open); filter(); }) : null;
    // The first rows, and the rest on demand.
    const more = button("", () => { whole = !whole; filter(); keep(id + ".all", whole ? "1" : ""); }, { class: "more" });
    if (initial.length > BRIEF) box.after(more);

    function sort(index, up) {
      const sorted = heads.some((head) => head.hasAttribute("aria-sort"));
      if (index < 0 && !sorted) return;
      for (const head of heads) head.removeAttribute("aria-sort");
      if (index < 0) return body.append(...initial);
      heads[index].setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = heads[index].classList.contains("n");
      const entries = new Map(initial.map((row, at) => {
        const cell = row.cells[index];
        return [row, { at, key: numeric ? raw(cell) : text(cell) }];
      }));
      // Missing values sort last in either direction.
      const compare = (one, other) => {
        const a = entries.get(one), b = entries.get(other);
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.at - b.at;
        const order = numeric ? a.key - b.key : a.key.localeCompare(b.key, undefined, { numeric: true });
        return (up ? order : -order) || a.at - b.at;
      };
      body.append(...(tree ? tree.sorted(compare) : [...initial].sort(compare)));
    }

    function filter() {
      const words = wordsIn(search.value);
      const chosen = picked && (tree ? tree.leaves : initial).some((row) => row.dataset.key);
      const narrow = Boolean(words.length || bound || chosen);
      const fits = (row) => (!words.length || hasWords(row, words)) && (!bound || row.dataset.bound === bound) &&
        (!chosen || row.dataset.key === picked);
      let shown = 0;
      if (tree) shown = tree.show(narrow ? fits : null, whole);
      for (const row of tree ? [] : initial) {
        row.hidden = !fits(row);
        shown += !row.hidden;
      }
      box.classList.toggle("brief", !tree && !whole && !narrow && initial.length > BRIEF);
      more.textContent = whole ? "Show less" : "Show all " + initial.length + " rows";
      count.textContent = shown < initial.length ? shown + " of " + initial.length : "";
      for (const chip of all(".chip", tools)) chip.setAttribute("aria-pressed", String(chip.textContent === bound));
    }

    function hide() {
      boxes.forEach((check, index) => {
        if (heads[index].hidden === !check.checked) return;
        for (const row of table.rows) row.cells[index].hidden = !check.checked;
      });
      const hidden = boxes.filter((check) => !check.checked).length;
      columns.textContent = "Columns" + (hidden ? ` (${hidden} hidden)` : "");
    }

    heads.forEach((head, index) => {
      // Numbers fall first and texts rise first; a third click restores the order of the report.
      const orders = head.classList.contains("n") ? ["descending", "ascending"] : ["ascending", "descending"];
      const sorting = button(text(head), () => {
        const order = orders[orders.indexOf(head.getAttribute("aria-sort")) + 1];
        const up = order === "ascending";
        sort(order ? index : -1, up);
        keep(id + ".sort", order ? head.dataset.name + (up ? ".up" : ".down") : "");
      }, { class: "sort" });
      head.textContent = "";
      head.append(sorting);
    });
    for (const row of table.classList.contains("keyed") ? tree ? tree.leaves : initial : []) {
      const cell = row.cells[0];
      row.dataset.key = plain(cell);
      const link = make("a", { href: "#kernel=" + encodeURIComponent(row.dataset.key), class: "pick" }, cell.textContent);
      cell.replaceChildren(link);
    }
    if (initial.length > 3) {
      search.addEventListener("input", () => { filter(); keep(id + ".text", search.value); });
      box.addEventListener("perfpipe:find", (event) => { search.value = event.detail; filter(); keep(id + ".text", search.value); });
      tools.append(search);
      const bounds = new Set(initial.map((row) => row.dataset.bound).filter(Boolean));
      if (bounds.size > 1) {
        for (const one of bounds) {
          tools.append(button(one, () => {
            bound = bound === one ? "" : one;
            filter();
            keep(id + ".bound", bound);
          }, { class: "chip", "aria-pressed": "false" }));
        }
      }
    }
    const menu = make("details", { class: "columns" });
    menu.append(columns);
    for (const head of heads) {
      const label = make("label");
      const check = make("input", { type: "checkbox" });
      check.checked = true;
      check.addEventListener("change", () => {
        hide();
        keep(id + ".hide", heads.filter((_, at) => !boxes[at].checked).map((other) => other.dataset.name).join(".") || "-");
      });
      boxes.push(check);
      label.append(check, " " + text(head));
      menu.append(label);
    }
    const value = (cell) => {
      const said = cell.tagName === "TH" ? text(cell) + (cell.dataset.unit ? ` (${cell.dataset.unit})` : "") : plain(cell);
      return quote(said === "-" ? "" : said);
    };
    const csv = (rows, cells) => rows.map((row) => cells(row).map(value).join(",")).join("\n") + "\n";
    const copying = button("Copy CSV", () => {
      const shown = (some) => Array.from(some).filter((one) => !one.hidden);
      copy(csv(shown(table.rows), (row) => shown(row.cells)), copying);
    }, { title: "Copy the columns that are shown, and all rows that fit the filter" });
    const saving = button("Save CSV", () => saveFile(csv([table.tHead.rows[0], ...initial], (row) => Array.from(row.cells)), id + ".csv", "text/csv"),
      { title: "Save all rows and columns" });
    tools.append(menu, copying, saving, count);
    box.before(tools);
    fittings.push(fitted(box, table, heads, (hidden) => {
      if (state.get(id + ".hide")) return;
      boxes.forEach((check, at) => { check.checked = !hidden.includes(at); });
      hide();
    }));

    return () => {
      const [column, way] = (state.get(id + ".sort") || "").split(".");
      sort(heads.findIndex((head) => head.dataset.name === column), way === "up");
      search.value = state.get(id + ".text") || "";
      bound = state.get(id + ".bound") || "";
      whole = Boolean(state.get(id + ".all"));
      if (tree) tree.restore(state.get(id + ".open"));
      const hidden = state.get(id + ".hide");
      if (hidden) boxes.forEach((check, at) => { check.checked = !hidden.split(".").includes(heads[at].dataset.name); });
      filter();
      hide();
    };
  }

  // ---- a figure: zoom, pan, and legend entries that toggle their marks
  function enlarge(figure) {
    const drawing = figure.querySelector(".drawing");
    const svg = drawing.querySelector("svg");
    const whole = svg.getAttribute("viewBox").split(/\s+/).map(Number);
    let [x, y, width, height] = whole;
    const put = () => {
      width = Math.min(width, whole[2]);
      height = Math.min(height, whole[3]);
      x = Math.max(whole[0], Math.min(x, whole[0] + whole[2] - width));
      y = Math.max(whole[1], Math.min(y, whole[1] + whole[3] - height));
      svg.setAttribute("viewBox", [x, y, width, height].join(" "));
      drawing.classList.toggle("zoomed", width < whole[2]);
    };
    // Zooms about a point given as fractions of the visible part.
    const zoom = (factor, across, down) => {
      x += width * (1 - factor) * across;
      y += height * (1 - factor) * down;
      width *= factor;
      height *= factor;
      put();
    };
    const pan = (across, down) => { x += width * across; y += height * down; put(); };
    const place = (event) => {
      const seen = svg.getBoundingClientRect();
      return [(event.clientX - seen.left) / seen.width, (event.clientY - seen.top) / seen.height];
    };
    drawing.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, ...place(event));
    }, { passive: false });
    let from = null;
    drawing.addEventListener("pointerdown", (event) => { from = width < whole[2] ? place(event) : null; });
    drawing.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [across, down] = place(event);
      pan(from[0] - across, from[1] - down);
      from = place(event);
    });
    const tools = make("div", { class: "tools" });
    const bar = [["+", "Zoom in", () => zoom(0.8, 0.5, 0.5)], ["\u2212", "Zoom out", () => zoom(1.25, 0.5, 0.5)],
      ["\u2190", "Pan left", () => pan(-0.2, 0)], ["\u2192", "Pan right", () => pan(0.2, 0)],
      ["\u2191", "Pan up", () => pan(0, -0.2)], ["\u2193", "Pan down", () => pan(0, 0.2)],
      ["Reset zoom", "Reset zoom", () => { [x, y, width, height] = whole; put(); }]];
    const many = all(".mark", svg).length > 12;
    for (const [sign, label, action] of many ? bar : []) tools.append(button(sign, action, { "aria-label": label, title: label }));
    // Elements inside an image cannot be buttons: the legend goes before it.
    const legend = drawing.querySelector(".legend");
    if (legend) drawing.before(legend);
    const marks = all("[data-series]", svg);
    const entries = legend ? all("li", legend).filter((item) => marks.some((mark) => mark.dataset.series === item.dataset.legend)) : [];
    for (const item of entries.length > 1 ? entries : []) {
      const chip = button("", () => {
        const on = chip.getAttribute("aria-pressed") !== "true";
        chip.setAttribute("aria-pressed", String(on));
        for (const mark of marks) if (mark.dataset.series === item.dataset.legend) mark.classList.toggle("off", !on);
      }, { class: "series", "aria-pressed": "true" });
      chip.append(...item.childNodes);
      item.append(chip);
    }
    if (tools.childElementCount) drawing.before(tools);
  }

  for (const line of all(".command, .change")) {
    const copying = button("Copy", () => copy(line.querySelector("code").textContent, copying), { "aria-label": `Copy the ${line.className}` });
    line.append(copying);
  }

  const equipped = all(".scroll[data-id]");
  const tables = equipped.map(equip);
  const nav = document.querySelector("nav");
  if (nav) {
    finder(nav, equipped, (box, words) => {
      box.dispatchEvent(new CustomEvent("perfpipe:find", { detail: words }));
      reveal(document.getElementById("table-" + box.dataset.id) || box.previousElementSibling);
    });
    new ResizeObserver(() => root.style.setProperty("--nav", nav.offsetHeight < innerHeight / 2 ? nav.offsetHeight + "px" : "0px")).observe(nav);
  }
  for (const table of all(".scroll.whole table")) labelled(table);
  all("figure:not(.step)").forEach((figure) => (figure.querySelector("svg.icicle") ? dive : enlarge)(figure));

  // ---- one kernel, selected by a link, a name or a mark: its rows stay, its marks stand out
  const chosen = make("p", { class: "picked", role: "status" });
  const clear = button("Show all kernels", () => { keep("kernel", ""); apply(); });
  const main = document.querySelector("main");
  if (main) main.before(chosen);
  const marks = all("svg [data-key]");
  function apply() {
    picked = state.get("kernel") || "";
    show(state.get("theme"));
    for (const restore of tables) restore();
    for (const mark of marks) mark.classList.toggle("dim", Boolean(picked) && mark.dataset.key !== picked);
    chosen.replaceChildren();
    document.dispatchEvent(new CustomEvent("perfpipe:picked", { detail: picked }));
    if (picked) {
      const own = cards.filter((card) => card.dataset.key === picked);
      for (const card of own) card.open = true;
      const view = button("Show its details", () => reveal(own[0]));
      chosen.append("Tables and figures show only " + picked + ". ", ...(own.length ? [view, " "] : []), clear);
    }
  }
  const cards = all("details.card");
  // A link to what is folded opens it.
  const unfold = () => {
    const target = location.hash.includes("=") ? null : document.getElementById(location.hash.slice(1));
    if (target && target.closest("details")) reveal(target);
  };
  for (const mark of marks) {
    mark.addEventListener("click", () => { keep("kernel", mark.dataset.key === picked ? "" : mark.dataset.key); apply(); });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.pick");
    if (!link) return;
    event.preventDefault();
    keep("kernel", new URLSearchParams(link.hash.slice(1)).get("kernel"), true);
    apply();
    goTo();
  });
  // A jump keeps what was chosen, and can be undone.  In the frame of a notebook, the browser would load the notebook.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]:not(.pick)');
    if (!link) return;
    event.preventDefault();
    const target = document.getElementById(link.hash.slice(1));
    if (!target) return;
    keep("at", target.id, true);
    reveal(target);
  });
  // What a link is about: a place, a kernel, or a table.
  function goTo() {
    const id = (Array.from(state.keys()).find((key) => key.includes(".")) || "").split(".")[0];
    const target = document.getElementById(state.get("at") || "") || picked && cards.find((card) => card.dataset.key === picked) ||
      document.getElementById("table-" + id);
    if (target) reveal(target);
  }
  document.addEventListener("perfpipe:pick", (event) => {
    keep("kernel", event.detail === picked ? "" : event.detail);
    apply();
  });
  window.addEventListener("hashchange", () => {
    if (location.hash && !location.hash.includes("=")) return unfold();
    state = stated();
    apply();
    goTo();
  });

  // ---- a mark and the rows of its kernel are highlighted together
  const light = (key, on) => {
    for (const element of all("[data-key]")) {
      if (element.dataset.key === key) element.classList.toggle("lit", on);
    }
  };
  for (const element of all("[data-key]")) {
    element.addEventListener("mouseenter", () => light(element.dataset.key, true));
    element.addEventListener("mouseleave", () => light(element.dataset.key, false));
  }
  // Paper shows all sections, and of tables what is not detail.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open]):not(.columns)");
    for (const one of folded) one.open = true;
    for (const fitting of fittings) fitting.shrink();
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    for (const fitting of fittings) fitting.again();
  });

  root.classList.add("js");
  apply();
  // As much of the evidence as the first screen has room for, once the step is drawn.
  const opening = document.querySelector("#opening");
  function fill() {
    for (let lines = MOST_LINES; lines >= LEAST_LINES; lines -= 1) {
      opening.style.setProperty("--lines", lines);
      if (opening.getBoundingClientRect().bottom + scrollY <= FIRST_SCREEN) return;
    }
  }
  const drawn = document.querySelector("#opening .step") || opening;
  if (opening) new ResizeObserver(fill).observe(drawn);
  if (location.hash.includes("=")) goTo(); else unfold();
})();
