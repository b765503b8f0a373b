"use strict";
// Hands what is seen of the step to Perfetto's page in another tab, as Chrome trace events; else saves it as a file.

// Returns the slices that overlap a part of a view, and the calls that launched them: a process for each panel, a row
// for each lane, counters for sampled metrics, and arrows from calls to operations and from rank to rank.  Times are
// microseconds from the start of the step, exact to the nanosecond.
function perfettoEvents(data, view, from, until) {
  const events = [];
  const us = (ns) => ns / 1000;
  const seen = (lane, index) => lane.start[index] < until && lane.end[index] > from;
  const begin = (panel, row, index) => ({ pid: panel + 1, tid: row + 1, ts: us(view.panels[panel].lanes[row].start[index]) });
  const name = (pid, tid, what, args) => events.push({ ph: "M", pid, tid, name: what, args });
  function put(panel, row, index) {
    const lane = view.panels[panel].lanes[row], [text, category, , detail] = data.labels[lane.label[index]];
    const event = { ph: "X", name: text, cat: data.categories[category][0], ...begin(panel, row, index), dur: us(lane.dur[index]) };
    events.push(detail ? { ...event, args: { detail } } : event);
  }
  let arrows = 0;
  function arrow(what, ends) {
    const id = ++arrows;
    ends.forEach((end, at) => events.push({ ph: at ? at < ends.length - 1 ? "t" : "f" : "s", name: what, cat: what, id, bp: "e", ...end }));
  }
  view.panels.forEach((panel, at) => {
    name(at + 1, 0, "process_name", { name: panel.name });
    name(at + 1, 0, "process_sort_index", { sort_index: at });
    const calls = panel.lanes.flatMap((lane, row) => lane.kind === "call" ? Array.from(lane.start, (_, index) => [row, index]) : []);
    const launches = [], earlier = new Set();
    let title = "", number = 0;
    panel.lanes.forEach((lane, row) => {
      // Lanes without a name go on where the lane before had no room.
      number = lane.name ? 1 : number + 1;
      title = lane.name || title;
      if (lane.ends) {
        lane.ends.forEach((end, index) => {
          const start = index ? lane.ends[index - 1] : 0;
          if (start < until && end > from) events.push({ ph: "C", name: lane.name, pid: at + 1, ts: us(start), args: { "%": lane.pct[index] } });
        });
        return;
      }
      name(at + 1, row + 1, "thread_name", { name: number > 1 ? `${title} (${number})` : title });
      name(at + 1, row + 1, "thread_sort_index", { sort_index: row });
      lane.start.forEach((_, index) => {
        if (!seen(lane, index)) return;
        put(at, row, index);
        if (lane.calls[index] >= 0) launches.push([lane.calls[index], begin(at, row, index)]);
      });
    });
    for (const [call, operation] of launches) {
      const [row, index] = calls[call];
      if (!seen(panel.lanes[row], index) && !earlier.has(call)) put(at, row, index);
      earlier.add(call);
      arrow("launch", [begin(at, row, index), operation]);
    }
  });
  for (const link of view.links) {
    const ends = link.map(([panel, row, start]) => ({ pid: panel + 1, tid: row + 1, ts: us(start), lane: view.panels[panel].lanes[row] }));
    if (!ends.every(({ lane, ts }) => seen(lane, lane.start.findIndex((start) => us(start) === ts)))) continue;
    arrow("collective", ends.sort((a, b) => a.ts - b.ts).map(({ pid, tid, ts }) => ({ pid, tid, ts })));
  }
  return events;
}

// Returns the commands that export the whole step: of each job one.
function perfettoCommands(view) {
  return [...new Set(view.panels.map((panel) => panel.command))];
}

function perfettoTrace(data, view, from, until) {
  const about = { title: view.title, whole: perfettoCommands(view), cut: "Slices are cut at the borders of the step." };
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: perfettoEvents(data, view, from, until), otherData: about });
}

// Opens a page that reads traces as ui.perfetto.dev does, and sends it the trace as soon as it answers: it knows no
// other way to receive one.  Resolves to whether it did; "blocked" if the browser opened no tab.
function handOver(address, trace, title, file, wait) {
  const origin = new URL(address).origin, other = window.open(address);
  if (!other) return Promise.resolve("blocked");
  return new Promise((resolve) => {
    const end = (result) => {
      clearInterval(asking);
      clearTimeout(waiting);
      window.removeEventListener("message", answered);
      resolve(result);
    };
    const answered = (event) => {
      if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
      const buffer = new TextEncoder().encode(trace).buffer;
      other.postMessage({ perfetto: { buffer, title, fileName: file } }, origin);
      end("done");
    };
    window.addEventListener("message", answered);
    // Until the page has loaded, messages to it are lost.
    const asking = setInterval(() => other.postMessage("PING", origin), 100);
    const waiting = setTimeout(() => end("silent"), wait);
  });
}
