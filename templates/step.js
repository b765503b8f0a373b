"use strict";
// Draws the step on a canvas: zoom, pan, names on hover, selection of a kernel, all by keyboard as well.
(async function () {
  const figure = document.querySelector(".step");
  const packed = Uint8Array.from(atob(document.getElementById("step-data").textContent), (c) => c.charCodeAt(0));
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const make = (tag, attributes, text) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const LINKS = 120;
  const LEFT = 130, GAP = 2, HEAD = 15, AXIS = 18, LETTER = 6.2;

  // ---- columns: starts become absolute, blocks get the slices where they begin and end
  for (const view of data.views) {
    for (const panel of view.panels) {
      for (const lane of panel.lanes) {
        if (!lane.gap) continue;
        let at = 0;
        lane.end = Float64Array.from(lane.gap, (gap, i) => (at += gap + lane.dur[i]));
        lane.start = lane.end.map((end, i) => end - lane.dur[i]);
        let call = 0;
        lane.calls = lane.call.map((step) => (step === null ? -1 : (call += step)));
        for (const level of lane.levels) {
          let first = 0;
          level.first = level.count.map((count) => (first += count) - count);
          level.last = level.count.map((count, i) => level.first[i] + count - 1);
        }
      }
    }
  }

  const canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": "The step. W and S zoom, A and D pan, arrow keys move between slices, Enter selects a kernel, 0 resets the zoom." });
  const tip = make("p", { class: "tip", role: "status" });
  const tools = make("div", { class: "tools" });
  const pen = canvas.getContext("2d");
  let view = data.views[0], from = 0, until = view.dur, width = 0, rows = [], hover = null, picked = "", colours = {};

  const ns = (time) => {
    for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
      if (Math.abs(time) >= scale) return Number((time / scale).toPrecision(4)) + " " + unit;
    }
    return Math.round(time) + " ns";
  };

  // ---- hatches for idle time, one of each color
  const hatches = new Map();
  function paint(category) {
    const [, colour, hatched] = data.categories[category];
    if (!hatched) return colour;
    if (!hatches.has(colour)) {
      const tile = make("canvas", { width: 8, height: 8 }), ink = tile.getContext("2d");
      ink.fillStyle = colour;
      ink.fillRect(0, 0, 8, 8);
      ink.strokeStyle = "rgba(255,255,255,.5)";
      ink.lineWidth = 2;
      for (const x of [-8, 0, 8]) { ink.beginPath(); ink.moveTo(x, 8); ink.lineTo(x + 8, 0); ink.stroke(); }
      hatches.set(colour, pen.createPattern(tile, "repeat"));
    }
    return hatches.get(colour);
  }

  // ---- where lanes lie, and the canvas as sharp as the screen
  function lay() {
    rows = [];
    let y = 0;
    for (const panel of view.panels) {
      rows.push({ y, head: panel.name });
      y += HEAD;
      for (const lane of panel.lanes) {
        lane.y = y;
        rows.push({ y, lane, height: data.heights[lane.kind] });
        y += data.heights[lane.kind] + GAP;
      }
    }
    const height = y + AXIS, sharp = window.devicePixelRatio || 1;
    width = Math.max(canvas.parentElement.clientWidth, 300);
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    const style = getComputedStyle(figure);
    colours = { ink: style.color, back: getComputedStyle(document.body).backgroundColor, line: style.getPropertyValue("--line") };
    draw();
  }

  const left = () => Math.min(LEFT, width / 4);
  const x = (time) => left() + (time - from) * (width - left()) / (until - from);
  const time = (at) => from + (at - left()) * (until - from) / (width - left());

  // The first index whose value is greater than a time.
  function after(values, at) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > at) high = middle; else low = middle + 1;
    }
    return low;
  }

  function draw() {
    const begun = performance.now();
    pen.clearRect(0, 0, width, canvas.height);
    pen.font = "11px system-ui, sans-serif";
    for (const row of rows) {
      if (row.head !== undefined) {
        pen.globalAlpha = 1;
        pen.fillStyle = colours.ink;
        pen.font = "600 11px system-ui, sans-serif";
        pen.fillText(row.head, 0, row.y + 12, width);
        pen.font = "11px system-ui, sans-serif";
      } else {
        pen.save();
        pen.beginPath();
        pen.rect(left(), row.y, width - left(), row.height);
        pen.clip();
        if (row.lane.ends) curve(row); else if (row.lane.kind === "idle") shares(row); else slices(row);
        if (hover && hover.lane === row.lane) outline(row);
        pen.restore();
        pen.globalAlpha = 1;
        pen.fillStyle = colours.ink;
        pen.fillText(row.lane.name, 0, row.y + Math.max(row.height - 3, 8), left() - 6);
      }
    }
    links();
    axis();
    figure.dataset.ms = (performance.now() - begun).toFixed(2);
  }

  function slices({ lane, y, height }) {
    const pixel = (until - from) / (width - left());
    const level = lane.levels.find((one) => one.unit <= 1.01 * pixel);
    let i = after(lane.end, from);
    const stop = Math.max(after(lane.start, until), i);
    const bar = (first, last, category, alpha) => {
      // Lines of code follow each other without a gap.
      const at = x(lane.start[first]), wide = Math.max(x(lane.end[last]) - at - (lane.kind === "code"), 0.5);
      pen.globalAlpha = alpha;
      pen.fillStyle = paint(category);
      pen.fillRect(at, y, wide, height);
      return [at, wide];
    };
    if (level) {
      const end = after(level.first, stop - 1);
      for (let b = Math.max(after(level.first, i) - 1, 0); b < end; b++) {
        const alone = level.count[b] === 1, label = data.labels[lane.label[level.first[b]]];
        const dim = picked && !(alone && label[2] === picked);
        bar(level.first[b], level.last[b], level.category[b], (dim ? 0.15 : 1) * Math.max(level.fill[b] / 9, 0.2));
      }
    }
    // Slices that have room for their name, or all of them where no level is coarse enough.
    for (; i < stop; i++) {
      if (level && lane.dur[i] < 42 * pixel) continue;
      const [name, category, kernel] = data.labels[lane.label[i]];
      const [at, wide] = level ? [x(lane.start[i]), lane.dur[i] / pixel] : bar(i, i, category, picked && kernel !== picked ? 0.15 : 1);
      if (wide < 42 || lane.kind === "idle" || lane.kind === "call") continue;
      const shown = Math.max(at, left()) + 3, room = Math.floor((Math.min(at + wide, width) - shown - 3) / LETTER);
      if (room < 4) continue;
      pen.globalAlpha = 1;
      pen.fillStyle = "#fff";
      pen.fillText(name.length > room ? name.slice(0, room - 1) + "\u2026" : name, shown, y + height - 3);
    }
  }

  // Idle time to scale: each column of pixels is as opaque as its share of the time.
  function shares({ lane, y, height }) {
    const sharp = window.devicePixelRatio || 1, first = Math.round(left() * sharp);
    const count = Math.max(Math.round(width * sharp) - first, 1), pixel = (until - from) / count;
    const times = new Map(), sum = new Float64Array(count), most = new Float64Array(count), category = new Int16Array(count);
    for (let i = after(lane.end, from); i < lane.start.length && lane.start[i] < until; i++) {
      const own = data.labels[lane.label[i]][1], begin = Math.max((lane.start[i] - from) / pixel, 0), end = Math.min((lane.end[i] - from) / pixel, count);
      if (!times.has(own)) times.set(own, new Float64Array(count));
      const spent = times.get(own);
      for (let at = Math.floor(begin); at < end; at++) {
        const share = Math.min(end, at + 1) - Math.max(begin, at);
        spent[at] += share;
        sum[at] += share;
        if (spent[at] > most[at]) { most[at] = spent[at]; category[at] = own; }
      }
    }
    const like = (a, b) => Math.abs(sum[a] - sum[b]) < 0.002 && category[a] === category[b];
    for (let at = 0, next; at < count; at = next) {
      for (next = at + 1; next < count && like(at, next);) next++;
      if (!sum[at]) continue;
      pen.globalAlpha = Math.min(sum[at], 1) * (picked ? 0.15 : 1);
      pen.fillStyle = paint(category[at]);
      pen.fillRect((first + at) / sharp, y, (next - at) / sharp, height);
    }
  }

  function outline({ lane, y, height }) {
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    const at = x(lane.start[hover.index]);
    pen.strokeRect(at, y + 1, Math.max(x(lane.end[hover.index]) - at, 2), height - 2);
  }

  function curve({ lane, y, height }) {
    pen.strokeStyle = data.categories.length ? "#2f6fde" : colours.ink;
    pen.beginPath();
    pen.moveTo(left(), y + height);
    lane.ends.forEach((end, i) => {
      const level = y + height * (1 - Math.min(lane.pct[i], 100) / 100);
      pen.lineTo(x(i ? lane.ends[i - 1] : 0), level);
      pen.lineTo(x(end), level);
    });
    pen.stroke();
  }

  // ---- the same collective on several ranks; all that are seen where they are few, else that which is pointed at
  const ends = (link) => link.map(([panel, lane, start]) => ({ lane: view.panels[panel].lanes[lane], start }));
  const linked = () => hover && view.links.map(ends).find((link) => link.some((one) => one.lane === hover.lane && one.start === hover.lane.start[hover.index]));
  function links() {
    const seen = view.links.filter((link) => link.some((one) => one[2] >= from && one[2] <= until)).map(ends), own = linked();
    pen.save();
    pen.beginPath();
    pen.rect(left(), 0, width - left(), canvas.height);
    pen.clip();
    pen.strokeStyle = colours.ink;
    for (const link of seen.length <= LINKS ? seen : []) line(link, 1, 0.5);
    if (own) line(own, 2, 1);
    pen.restore();
    figure.dataset.links = seen.length;
  }
  function line(link, thick, alpha) {
    pen.globalAlpha = alpha;
    pen.lineWidth = thick;
    pen.beginPath();
    link.forEach((one, at) => {
      if (at) pen.lineTo(x(one.start), one.lane.y);
      pen.moveTo(x(one.start), one.lane.y + data.heights[one.lane.kind]);
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function axis() {
    const y = canvas.height / (window.devicePixelRatio || 1) - AXIS, rough = (until - from) / Math.max(2, width / 160);
    const power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    pen.fillStyle = colours.ink;
    pen.textAlign = "center";
    for (let at = Math.ceil(from / step) * step; at <= until; at += step) {
      pen.fillRect(x(at), y, 1, 4);
      pen.fillText(at ? ns(at) : "0", Math.min(x(at), width - 24), y + 15);
    }
    pen.textAlign = "start";
  }

  // ---- what is seen
  let waiting = 0;
  const redraw = () => { waiting = waiting || requestAnimationFrame(() => { waiting = 0; draw(); }); };
  function show(a, b) {
    const span = Math.min(Math.max(b - a, 50), view.dur);
    from = Math.min(Math.max(a, 0), view.dur - span);
    until = from + span;
    figure.dataset.from = Math.round(from);
    figure.dataset.until = Math.round(until);
    redraw();
  }
  const zoom = (factor, about) => show(about - (about - from) * factor, about + (until - about) * factor);
  const pan = (share) => show(from + share * (until - from), until + share * (until - from));
  const middle = () => hover ? (hover.lane.start[hover.index] + hover.lane.end[hover.index]) / 2 : (from + until) / 2;

  function describe() {
    if (!hover) { tip.textContent = ""; return; }
    const [name, category, kernel, detail] = data.labels[hover.lane.label[hover.index]];
    const link = linked(), late = link && hover.lane.start[hover.index] - Math.min(...link.map((one) => one.start));
    const arrived = link && (late ? ns(late) + " after the first of " + link.length + " ranks" : "first of " + link.length + " ranks");
    const said = [name, ns(hover.lane.dur[hover.index]) + " at " + ns(hover.lane.start[hover.index]), arrived, detail, data.categories[category][0]];
    tip.textContent = said.filter((part) => part && part !== name).reduce((all, part) => all + " \u00b7 " + part, name);
    canvas.style.cursor = kernel ? "pointer" : "default";
  }
  function point(lane, index) {
    hover = lane && index >= 0 && index < lane.start.length ? { lane, index } : null;
    describe();
    redraw();
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), at = time(event.clientX - box.left), y = event.clientY - box.top;
    const row = rows.find((one) => one.lane && one.lane.start && y >= one.y && y < one.y + one.height + GAP);
    if (!row || event.clientX - box.left < left()) return point(null);
    const near = 3 * (until - from) / (width - left());
    let index = after(row.lane.start, at) - 1;
    if (index < 0 || row.lane.end[index] < at - near) index = index + 1 < row.lane.start.length && row.lane.start[index + 1] < at + near ? index + 1 : -1;
    return point(row.lane, index);
  }
  function select() {
    const kernel = hover && data.labels[hover.lane.label[hover.index]][2];
    if (kernel) document.dispatchEvent(new CustomEvent("perfpipe:pick", { detail: kernel }));
  }
  document.addEventListener("perfpipe:picked", (event) => { picked = event.detail; redraw(); });
  picked = new URLSearchParams(location.hash.slice(1)).get("kernel") || "";

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, time(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { at: event.clientX, from, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || !event.buttons) return under(event);
    const shift = (event.clientX - drag.at) * (until - from) / (width - left());
    if (Math.abs(event.clientX - drag.at) > 3) drag.moved = true;
    if (drag.moved) show(drag.from - shift, drag.from - shift + until - from);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) { under(event); select(); }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => { if (!drag) point(null); });

  // ---- by keyboard: from slice to slice, and from lane to lane
  const lanes = () => rows.filter((row) => row.lane && row.lane.start && row.lane.start.length).map((row) => row.lane);
  function go(across, down) {
    const all = lanes();
    if (!all.length) return;
    if (!hover) return point(all[0], after(all[0].end, from));
    if (down) {
      const lane = all[Math.max(0, Math.min(all.indexOf(hover.lane) + down, all.length - 1))];
      return point(lane, Math.min(after(lane.end, hover.lane.start[hover.index]), lane.start.length - 1));
    }
    const index = Math.max(0, Math.min(hover.index + across, hover.lane.start.length - 1));
    point(hover.lane, index);
    if (hover.lane.start[index] < from || hover.lane.end[index] > until) {
      const half = (until - from) / 2;
      show(hover.lane.start[index] - half, hover.lane.start[index] + half);
    }
  }
  const keys = {
    w: () => zoom(0.6, middle()), "+": () => zoom(0.6, middle()), s: () => zoom(1 / 0.6, middle()), "-": () => zoom(1 / 0.6, middle()),
    a: () => pan(-0.25), d: () => pan(0.25), 0: () => show(0, view.dur), Home: () => show(0, view.dur),
    ArrowLeft: () => go(-1, 0), ArrowRight: () => go(1, 0), ArrowUp: () => go(0, -1), ArrowDown: () => go(0, 1), Enter: select,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  canvas.addEventListener("blur", () => point(null));

  // ---- buttons
  const button = (text, action, hint) => {
    const made = make("button", { type: "button", title: hint || text }, text);
    made.addEventListener("click", action);
    tools.append(made);
    return made;
  };
  button("Zoom in", keys.w, "W, or Ctrl + wheel");
  button("Zoom out", keys.s, "S, or Ctrl + wheel");
  button("Reset zoom", keys[0], "0");
  button("Longest idle", () => {
    let best = null;
    for (const lane of lanes().filter((one) => one.kind === "idle")) {
      lane.dur.forEach((dur, index) => { if (!best || dur > best.lane.dur[best.index]) best = { lane, index }; });
    }
    if (!best) return;
    const { lane, index } = best;
    show(lane.start[index] - lane.dur[index], lane.end[index] + lane.dur[index]);
    point(lane, index);
  });
  // Marks of the drawn steps in the strip of the whole capture.
  const marks = Array.from(figure.querySelectorAll(".strip [data-role]"), (mark) => ({ mark, of: data.views[mark.dataset.role === "median" ? 0 : 1] }));
  let other = null;
  function choose(chosen) {
    view = chosen;
    for (const { mark, of } of marks) mark.querySelector("path").setAttribute("fill", of === view ? "currentColor" : "none");
    if (other) other.textContent = view === data.views[0] ? "Slowest step" : "Median step";
    title.textContent = view.title;
    hover = null;
    from = 0;
    until = view.dur;
    lay();
  }
  if (data.views.length > 1) other = button("Slowest step", () => choose(data.views[(data.views.indexOf(view) + 1) % data.views.length]));
  for (const { mark, of } of marks) mark.addEventListener("click", () => choose(of));

  // ---- what is seen, for Perfetto
  const said = make("p", { class: "soft said", role: "status" });
  const note = (text, ...more) => { said.replaceChildren(text, ...more); };
  button("Open in Perfetto", async () => {
    const address = figure.dataset.perfetto || "https://ui.perfetto.dev", site = new URL(address).host;
    const trace = perfettoTrace(data, view, from, until);
    const file = perfettoCommands(view)[0].replace(" export perfetto", "").replace(/[^\w.]+/g, "-").slice(0, 80) + ".json";
    const save = () => saveFile(trace, file, "application/json");
    note(`Waiting for ${site} \u2026`);
    const result = await handOver(address, trace, view.title, file, Number(figure.dataset.wait || 10_000));
    if (result === "done") {
      const saving = make("button", { type: "button" }, "Save the trace");
      saving.addEventListener("click", save);
      return note(`${site} has the trace. If its tab shows nothing: `, saving);
    }
    save();
    note(`Saved as ${file}, because ${result === "blocked" ? "the browser blocked the new tab" : site + " did not answer"}. Open the file in ${site}.`);
  }, "Opens ui.perfetto.dev in a new tab and hands it the slices shown here; nothing is uploaded");
  button("Copy the export command", () => {
    const shown = perfettoCommands(view).join("\n");
    const copied = navigator.clipboard ? navigator.clipboard.writeText(shown) : Promise.reject();
    copied.then(() => note("Copied: " + shown), () => note(shown));
  }, "Copies the command that exports the whole step, with sampled stacks and calls of all threads");

  const title = figure.querySelector(".view");
  const box = figure.querySelector(".drawing");
  figure.querySelector(".head").append(tools);
  box.append(canvas);
  figure.append(tip, said);
  figure.classList.add("live");
  figure.redraw = draw;
  new ResizeObserver(lay).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", lay);
  new MutationObserver(lay).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  lay();
})();
