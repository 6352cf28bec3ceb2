// The page of --report: what zcc knows of a step before it runs. Times are whole nanoseconds.
"use strict";
document.title = data.model + ": plan";
document.body.append(el("h1", null, data.model), el("p", null, data.subtitle));
facts(data.facts);

const text = i => data.strings[i];
const time = new Axis(0, data.ns);
const ns = v => seconds(v / 1e9);
const phaseColors = [color(0), color(3), color(4), color(7)], phaseNames = ["forward", "backward", "update", "waits"];

/// Names of the parts of a step, and lines between them.
function drawSections(c) {
  for (const [label, begin, end] of data.sections) {
    const x = c.sx(begin), w = c.sx(end) - x;
    c.plot.append(svg("path", {class: "axis", "stroke-dasharray": "2 4", d: `M${x} ${c.m.top}v${c.h}`}));
    if (w > label.length * 7 && x >= c.m.left - 1 && x < c.m.left + c.w) c.root.append(svg("text", {x: x + 2, y: c.m.top - 6}, label));
  }
}

// ---- memory

function memoryChart(host, space) {
  const v = space.values, n = v.begin.length, top = Math.max(space.arena, space.budget || 0) * 1.04;
  const isIn = (i, x) => v.begin[i] <= x && x <= v.end[i];
  const used = data.kinds.map((_, k) => v.kind.includes(k));
  new Chart(host, {
    title: `${space.name}: ${bytes(space.arena)} of each rank`, note: space.note, x: time, y: [0, top], yBase: 2, height: space.name === "device" ? 380 : 220,
    xText: ns, yText: bytes, xLabel: "time in the step, as predicted", zooms: true,
    legend: data.kinds.map((k, i) => [color(i), k]).filter((_, i) => used[i]).concat(space.live.bytes.length ? [["var(--ink)", "live in total", true]] : []),
    draw(c) {
      const paths = data.kinds.map(() => "");
      for (let i = 0; i < n; ++i) {
        const x = c.sx(v.begin[i]), w = c.sx(v.end[i]) - x, y = c.sy(v.offset[i] + v.bytes[i]), h = c.sy(v.offset[i]) - y;
        if (x + w < c.m.left || x > c.m.left + c.w) continue;
        paths[v.kind[i]] += rectangle(Math.max(x, c.m.left - 2), y, Math.max(0.6, Math.min(w, c.w + 4)), Math.max(0.4, h));
      }
      paths.forEach((d, k) => d && c.plot.append(svg("path", {d, fill: color(k), "fill-opacity": 0.88})));
      let d = "";
      space.live.at.forEach((t, i) => { d += `${i ? "H" + c.sx(t).toFixed(1) + "V" : "M" + c.sx(t).toFixed(1) + " "}${c.sy(space.live.bytes[i]).toFixed(1)}`; });
      if (d) c.plot.append(svg("path", {d: d + "H" + c.sx(data.ns).toFixed(1), fill: "none", stroke: "var(--ink)", "stroke-width": 1.2}));
      const mark = (value, label) => c.plot.append(svg("path", {class: "axis", "stroke-dasharray": "6 4", d: `M${c.m.left} ${c.sy(value)}h${c.w}`}),
        svg("text", {class: "strong", x: c.m.left + c.w - 4, y: c.sy(value) - 4, "text-anchor": "end"}, label));
      if (space.budget) mark(space.budget, `--${space.budgetFlag} ${bytes(space.budget)}`);
      drawSections(c);
    },
    point(c, x, y) {
      const here = [];
      let hit = -1;
      for (let i = 0; i < n; ++i)
        if (isIn(i, x)) {
          here.push(i);
          if (v.offset[i] <= y && y < v.offset[i] + v.bytes[i] && (hit < 0 || v.begin[i] >= v.begin[hit])) hit = i;
        }
      const lines = [];
      if (hit >= 0) {
        lines.push(text(v.name[hit]), ["what", data.kinds[v.kind[hit]]], ["type", text(v.type[hit])], ["takes", bytes(v.bytes[hit])]);
        if (v.node[hit]) lines.push(["node", text(v.node[hit])]);
        if (v.begin[hit] > 0 || v.end[hit] < data.ns) lines.push(["lives", `${ns(v.begin[hit])} to ${ns(v.end[hit])}`]);
      }
      const live = lastAt(space.live.at, x);
      lines.push(`at ${ns(x)}`);
      if (live >= 0) lines.push(["live", bytes(space.live.bytes[live])]);
      here.filter(i => v.begin[i] > 0 || v.end[i] < data.ns).sort((a, b) => v.bytes[b] - v.bytes[a]).slice(0, 5).forEach(i => lines.push([text(v.name[i]), bytes(v.bytes[i])]));
      return lines;
    },
  });
}
/// The last of increasing numbers that is not above x; -1: none.
function lastAt(list, x) {
  let a = 0, b = list.length;
  while (a < b) { const m = (a + b) >> 1; if (list[m] <= x) a = m + 1; else b = m; }
  return a - 1;
}
const memory = section("Memory over the step", "Every value at its offset in its space's arena, for as long as it lives. Point at one to see what it is and what else is live; drag to zoom in, double-click for the whole step.");
data.spaces.forEach(s => memoryChart(memory, s));

// ---- the schedule

const lanes = data.engines, perLane = lanes.map(() => []);
data.spans.lane.forEach((l, i) => perLane[l].push(i));
const schedule = section("Schedule by engine", data.scheduleNote);
new Chart(schedule, {
  title: "What each engine does", x: time, y: [lanes.length, 0], yNames: true, height: 60 + 40 * lanes.length, left: 108, xText: ns, zooms: true,
  xLabel: "time in the step, as predicted", legend: phaseNames.map((p, i) => [phaseColors[i], p]),
  draw(c) {
    lanes.forEach((name, l) => {
      const y = c.sy(l) + 6, h = c.sy(l + 1) - c.sy(l) - 12, paths = ["", "", "", ""];
      let begin = null, end = 0, phase = 0;
      const flush = () => { if (begin !== null) paths[phase] += rectangle(begin, y, Math.max(0.7, end - begin), h); };
      for (const i of perLane[l]) {
        const x0 = Math.max(c.sx(data.spans.begin[i]), c.m.left - 2), x1 = Math.min(c.sx(data.spans.begin[i] + data.spans.ns[i]), c.m.left + c.w + 2);
        if (x1 < c.m.left || x0 > c.m.left + c.w) continue;
        if (begin !== null && data.spans.phase[i] === phase && x1 - begin < 1.2) { end = Math.max(end, x1); continue; }
        flush();
        [begin, end, phase] = [x0, x1, data.spans.phase[i]];
      }
      flush();
      paths.forEach((d, p) => d && c.plot.append(svg("path", {d, fill: phaseColors[p], "fill-opacity": p === 3 ? 0.35 : 0.9})));
      c.root.append(svg("text", {x: c.m.left - 6, y: y + h / 2 - 2, "text-anchor": "end", class: "strong"}, name),
        svg("text", {x: c.m.left - 6, y: y + h / 2 + 12, "text-anchor": "end"}, percent(data.busy[l] / data.ns)));
    });
    drawSections(c);
  },
  point(c, x, y) {
    const l = Math.floor(y), s = data.spans;
    if (l < 0 || l >= lanes.length) return [ns(x)];
    const near = (c.o.x.hi - c.o.x.lo) / c.w, i = perLane[l].find(i => s.begin[i] - near <= x && x <= s.begin[i] + s.ns[i] + near && s.begin[i] + s.ns[i] >= x - near);
    if (i === undefined) return [ns(x), ["", "idle"]];
    const lines = [s.count[i] > 1 ? `${s.count[i]} short ones` : text(s.op[i]) + " " + text(s.name[i])];
    if (s.node[i]) lines.push(["node", text(s.node[i])]);
    lines.push(["begins", ns(s.begin[i])], ["takes", `${ns(s.ns[i])}, ${percent(s.ns[i] / data.ns)}`]);
    if (s.flops[i]) lines.push(["operations", count(s.flops[i]) + "FLOP"]);
    if (s.bytes[i]) lines.push(["moves", bytes(s.bytes[i])]);
    return lines;
  },
});

// ---- the roofline

function roofline() {
  const points = data.kernels.filter(k => k.flops > 0 && k.ns > 0 && k.bytes > 0).map(k => ({k, x: k.flops / k.bytes, y: k.flops / k.ns * 1e9}));
  if (!points.length) return;
  const s = section("Roofline", `Each kernel by its operations a byte and its predicted rate; the larger, the more of the step it takes. The roofs are the profile's: ${data.profile}.`);
  const most = Math.max(...data.peaks.map(p => p[1]), ...points.map(p => p.y)), least = Math.min(...points.filter(p => p.k.ns > data.ns * 1e-5).map(p => p.y), most / 1e3);
  const wide = Math.max(...points.map(p => p.x), most / data.bandwidth * 4), thin = Math.min(...points.map(p => p.x), 0.1);
  const radius = p => 3 + 22 * Math.sqrt(p.k.ns / data.ns);
  points.sort((a, b) => b.k.ns - a.k.ns);
  new Chart(s, {
    title: "Kernels", x: new Axis(thin / 2, wide * 2), y: [least / 2, most * 2.5], xLog: true, yLog: true, height: 380, left: 84,
    xText: v => digits(v), yText: v => count(v) + "FLOP/s", xLabel: "operations a byte (FLOP/byte)",
    draw(c) {
      const roofs = [...data.peaks].sort((a, b) => b[1] - a[1]);
      roofs.forEach(([name, rate], i) => {
        const corner = Math.max(rate / data.bandwidth, c.o.x.lo);
        c.plot.append(svg("path", {d: `M${c.sx(corner)} ${c.sy(rate)}H${c.m.left + c.w}`, stroke: "var(--ink)", "stroke-width": 1.2, fill: "none", "stroke-dasharray": i ? "5 4" : null}),
          svg("text", {class: "strong", x: c.m.left + c.w - 4, y: c.sy(rate) + (i % 2 ? 26 : -16), "text-anchor": "end"}, `${name} ${count(rate)}FLOP/s`));
      });
      const x0 = c.o.x.lo, x1 = roofs.length ? roofs[0][1] / data.bandwidth : c.o.x.hi;
      c.plot.append(svg("path", {d: `M${c.sx(x0)} ${c.sy(x0 * data.bandwidth)}L${c.sx(x1)} ${c.sy(x1 * data.bandwidth)}`, stroke: "var(--ink)", "stroke-width": 1.2}));
      const xm = Math.max(x0 * 1.5, c.o.y[0] * 1.6 / data.bandwidth);
      c.plot.append(svg("text", {class: "strong", x: c.sx(xm) + 6, y: Math.min(c.sy(xm * data.bandwidth) + 16, c.m.top + c.h - 6)}, `memory ${scaled(data.bandwidth, 1000, ["B", "kB", "MB", "GB", "TB"])}/s`));
      points.forEach(p => c.plot.append(svg("circle", {cx: c.sx(p.x), cy: c.sy(p.y), r: radius(p), fill: color(p.k.kind), "fill-opacity": 0.55, stroke: color(p.k.kind)})));
    },
    legend: data.kernelKinds.map((k, i) => [color(i), k]).filter((_, i) => points.some(p => p.k.kind === i)),
    point(c, x, y, px, py) {
      let best = null, distance = 1e9;
      for (const p of points) {
        const d = Math.max(0, Math.hypot(c.sx(p.x) - px, c.sy(p.y) - py) - radius(p));
        if (d < distance) [best, distance] = [p, d];
      }
      if (!best || distance > 24) return null;
      const k = best.k;
      return [k.name, ["called", `${digits(k.calls, 6)} times a step`], ["takes", `${ns(k.ns)}, ${percent(k.ns / data.ns)}`], ["rate", count(best.y) + "FLOP/s"],
        ["operations a byte", digits(best.x)], ["for", k.node]];
    },
  });
  const rows = [...data.kernels].sort((a, b) => b.ns - a.ns).slice(0, 25);
  const rest = data.kernels.length - rows.length;
  s.append(el("details", {open: innerWidth > 600 ? "" : null}, el("summary", null, rest > 0 ? `The ${rows.length} kernels that take most of the step, of ${data.kernels.length}` : "The kernels"),
    table([["kernel"], ["calls", 1], ["time", 1], ["of the step", 1], ["FLOP/byte", 1], ["FLOP/s", 1], ["for instance"]],
      rows.map(k => [k.name, digits(k.calls, 6), ns(k.ns), percent(k.ns / data.ns), k.bytes && k.flops ? digits(k.flops / k.bytes) : "", k.flops ? count(k.flops / k.ns * 1e9) : "", k.node]))));
}
roofline();

// ---- blocks

function blocks() {
  if (data.blocks.length < 2) return;
  const s = section("Blocks", "The modules of the model in the order of the forward, equal ones in a row as one; what one hands to a later one that is not its neighbour goes round on the right.");
  const rowHeight = 58, most = Math.max(...data.blocks.map(b => b.forward + b.backward), 1), far = data.edges.filter(([a, b]) => b > a + 1);
  const height = data.blocks.length * rowHeight + 20, figure = el("figure");
  s.append(figure);
  const draw = () => {
    const width = figure.clientWidth || 800, right = Math.min(120, 26 + 12 * Math.min(far.length, 6)), w = Math.min(width - right - 2, 760);
    const root = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "blocks"});
    data.edges.filter(([a, b]) => b === a + 1).forEach(([a, , size]) => {
      const y = (a + 1) * rowHeight - 12;
      root.append(svg("path", {class: "axis", d: `M24 ${y}v12m-4 -5l4 5l4 -5`}), svg("text", {x: 34, y: y + 10}, bytes(size)));
    });
    far.forEach(([a, b, size], i) => {
      const y0 = a * rowHeight + 24, y1 = b * rowHeight + 24, x = w + 14 + (i % 6) * 12;
      root.append(svg("path", {class: "axis", opacity: .7, d: `M${w} ${y0}C${x} ${y0} ${x} ${y0 + 10} ${x} ${y0 + 14}V${y1 - 14}C${x} ${y1 - 10} ${x} ${y1} ${w + 2} ${y1}m6 -4l-6 4l6 4`},
        svg("title", null, `${bytes(size)} from ${data.blocks[a].name} to ${data.blocks[b].name}`)));
    });
    data.blocks.forEach((b, i) => {
      const y = i * rowHeight + 2, bar = w - 24, f = bar * b.forward / most, r = bar * b.backward / most;
      const g = svg("g", null, svg("rect", {x: 1, y, width: w - 2, height: rowHeight - 16, rx: 6, fill: "var(--panel)", stroke: "var(--line)"}),
        svg("text", {class: "strong", x: 12, y: y + 16, "font-weight": 600}, b.name + (b.times > 1 ? `  (${b.times} times)` : "")),
        svg("rect", {x: 12, y: y + 33, width: f, height: 5, fill: phaseColors[0]}), svg("rect", {x: 12 + f, y: y + 33, width: r, height: 5, fill: phaseColors[1]}));
      const say = `${ns(b.forward + b.backward)}, ${count(b.parameters)} parameters` + (width > 600 ? `, ${bytes(b.kept)} kept for the backward` : `, keeps ${bytes(b.kept)}`);
      g.append(svg("text", {x: 12, y: y + 29}, say));
      g.onpointermove = e => showTip([b.name, ["forward", ns(b.forward)], ["backward", ns(b.backward)], ["parameters", count(b.parameters)], ["kept for the backward", bytes(b.kept)], ["operators in the forward", String(b.nodes)]], e.clientX, e.clientY);
      g.onpointerleave = hideTip;
      root.append(g);
    });
    figure.replaceChildren(el("ul", {class: "legend"}, ...[0, 1].map(p => el("li", null, el("i", {style: `background:${phaseColors[p]}`}), phaseNames[p]))), root);
  };
  drawn(figure, draw);
}
blocks();

// ---- decisions

const why = section("Decisions and reasons", data.searchNote);
if (data.search) {
  const q = data.search;
  why.append(table([["plan"], ["step", 1], ["memory", 1], ["host", 1], ["disk", 1], ["what it decides"]],
    q.plans.map(p => [p.label, ns(p.ns), bytes(p.memory), p.host ? bytes(p.host) : "", p.disk ? bytes(p.disk) : "", p.decisions.join("; ") || "all is kept, and stays on the device"])
      .concat([["no plan takes less than", ns(q.boundNs), "", "", "", q.bound.map(([e, v]) => `${e} ${ns(v)}`).join(", ") + `; the choice takes ${percent(q.above)} more`]])));
}
const list = (title, rows, head) => rows.length && why.append(el("details", {open: rows.length <= 30 ? "" : null}, el("summary", null, `${title} (${rows.length})`), table(head, rows)));
list("Settings", data.settings, [["setting"], ["value"], ["why"]]);
list("What is trained, and on what evidence", data.decisions.map(d => [d]), [["decision"]]);
list("Remarks of the passes", data.remarks.map(d => [d]), [["remark"]]);
