// The page of a program's --report: the run that it was written at the end of.
"use strict";
const plan = data.plan, steps = data.step, n = steps.length, done = data.count.reduce((a, b) => a + b, 0);
const sum = list => list.reduce((a, b) => a + b, 0);
/// Of steps, each counted as often as its point has them; the first finds cold caches.
function median(list) {
  const all = list.map((v, i) => [v, data.count[i] - (i ? 0 : 1)]).filter(p => p[1] > 0).sort((a, b) => a[0] - b[0]);
  let half = sum(all.map(p => p[1])) / 2;
  for (const [v, c] of all) if ((half -= c) <= 0) return v;
  return list[0];
}
const total = sum(data.seconds.map((s, i) => s * data.count[i])), usual = n ? median(data.seconds) : 0;
const perStep = n ? data.samples[0] / data.count[0] : 0, unit = data.tokens ? "tokens/s" : "samples/s", perSample = data.tokens || 1;
const finite = data.loss.filter(v => v !== null), predicted = plan.predicted_step_s;
const memoryPlanned = data.arenas[0] + data.arenas[1] + data.library + data.staging + data.save, memoryPeak = Math.max(...data.peaks);

document.title = data.model + ": run";
document.body.append(el("h1", null, data.model), el("p", null,
  `${data.program}, ${data.ranks} rank${data.ranks > 1 ? "s" : ""}: ` + (done ? `steps ${data.first} to ${data.first + done - 1} of ${data.steps}` : "no steps") + (data.stoppedBy ? `, stopped by ${data.stoppedBy}` : "")));
if (data.error) document.body.append(el("p", {class: "error"}, el("b", null, "Error" + (data.errorStep === null ? "" : ` in step ${data.errorStep}`) + ": "), data.error));
const known = [["steps", String(done)], ["in the steps", seconds(total)]];
if (finite.length) known.push(["loss, first and last", `${digits(finite[0], 5)} → ${digits(finite[finite.length - 1], 5)}`]);
if (data.evalLoss.length) known.push(["evaluation, last", digits(data.evalLoss[data.evalLoss.length - 1], 5)]);
for (const m of data.metrics) {
  const [name, value] = m.evaluations.length ? [m.name + ", last evaluation", m.evaluations[m.evaluations.length - 1]] : [m.name + ", last", m.values[n - 1]];
  if (value !== null && value !== undefined) known.push([name, digits(value, 5)]);
}
if (n) known.push(["a step, median", seconds(usual)], [unit, count(perStep * perSample / usual)]);
if (n && predicted) known.push(["a step, predicted", seconds(predicted)], ["measured by predicted", digits(usual / predicted) + "×"]);
known.push(["resident peak" + (data.ranks > 1 ? ", largest" : ""), bytes(memoryPeak)], ["planned, with libraries", bytes(memoryPlanned)]);
if (data.checkpoints.length) known.push(["checkpoints", String(data.checkpoints.length)]);
facts(known);

const axis = new Axis(n ? steps[0] : 0, Math.max(n ? steps[n - 1] + data.count[n - 1] - 1 : 1, (n ? steps[0] : 0) + 1));
const range = (lists, zero) => {
  const all = lists.flat().filter(v => v !== null && isFinite(v));
  if (!all.length) return [0, 1];
  let lo = zero ? 0 : Math.min(...all), hi = Math.max(...all);
  const room = (hi - lo || Math.abs(hi) || 1) * 0.06;
  return [zero ? 0 : lo - room, hi + room];
};
const index = x => { let best = 0; while (best + 1 < n && steps[best + 1] <= x + 0.5) ++best; return best; };
const stepsText = i => data.count[i] > 1 ? `steps ${steps[i]} to ${steps[i] + data.count[i] - 1}` : `step ${steps[i]}`;
const each = data.each > 1 ? `a point is ${data.each} steps` : "";

/// A line over the steps; o: title, text, values, low and high (a band), level [value, label], marks [steps, values, label], zero.
function line(host, o) {
  if (!o.values || !n) return;
  const legend = [[color(o.color), o.name, true]];
  if (o.low && data.each > 1) legend.push([color(o.color), "least to most"]);
  if (o.level) legend.push(["var(--ink)", o.level[1], true]);
  if (o.marks && o.marks[0].length) legend.push([color(1), o.marks[2]]);
  if (data.checkpoints.length && o.saves) legend.push([color(4), "checkpoint", true]);
  new Chart(host, {
    title: o.title, note: each, x: axis, y: range([o.values, o.low || [], o.high || [], o.marks ? o.marks[1] : [], o.level ? [o.level[0]] : []], o.zero), height: o.height || 220, left: 76,
    xText: v => Number.isInteger(v) ? String(v) : "", yText: o.text, xLabel: "step", legend, zooms: true,
    draw(c) {
      const at = i => c.sx(steps[i] + (data.count[i] - 1) / 2);
      let d = "", pen = "M";
      if (o.low && data.each > 1) {
        const up = [], down = [];
        for (let i = 0; i < n; ++i) if (o.low[i] !== null) { up.push(`${at(i)} ${c.sy(o.high[i])}`); down.unshift(`${at(i)} ${c.sy(o.low[i])}`); }
        if (up.length) c.plot.append(svg("path", {d: "M" + up.concat(down).join("L") + "z", fill: color(o.color), "fill-opacity": .22}));
      }
      if (data.checkpoints.length && o.saves)
        c.plot.append(svg("path", {d: data.checkpoints.map(s => `M${c.sx(s)} ${c.m.top}v${c.h}`).join(""), stroke: color(4), "stroke-dasharray": "2 3", fill: "none"}));
      for (let i = 0; i < n; ++i) {
        if (o.values[i] === null) { pen = "M"; continue; }
        d += `${pen}${at(i).toFixed(1)} ${c.sy(o.values[i]).toFixed(1)}`;
        pen = "L";
      }
      c.plot.append(svg("path", {d, fill: "none", stroke: color(o.color), "stroke-width": 1.6, "stroke-linejoin": "round"}));
      if (n < 40) o.values.forEach((v, i) => v !== null && c.plot.append(svg("circle", {cx: at(i), cy: c.sy(v), r: 2.5, fill: color(o.color)})));
      if (o.level) c.plot.append(svg("path", {d: `M${c.m.left} ${c.sy(o.level[0])}h${c.w}`, stroke: "var(--ink)", "stroke-dasharray": "6 4", fill: "none"}));
      if (o.marks) o.marks[0].forEach((s, i) => o.marks[1][i] !== null && c.plot.append(svg("circle", {cx: c.sx(s), cy: c.sy(o.marks[1][i]), r: 4, fill: color(1), stroke: "var(--paper)"})));
    },
    point(c, x) {
      const i = index(x), lines = [stepsText(i), [o.name, o.values[i] === null ? "not finite" : o.text(o.values[i], 6)]];
      if (o.low && data.count[i] > 1 && o.low[i] !== null) lines.push(["least, most", `${o.text(o.low[i])}, ${o.text(o.high[i])}`]);
      if (o.level) lines.push([o.level[1], o.text(o.level[0])]);
      if (o.marks) o.marks[0].forEach((s, k) => { if (s >= steps[i] && s < steps[i] + data.count[i]) lines.push([o.marks[2], digits(o.marks[1][k], 6)]); });
      if (data.skipped[i]) lines.push(["skipped", String(data.skipped[i])]);
      return lines;
    },
  });
}

const plain = (v, d) => digits(v, d || 4);
const learning = section("Learning", n ? "Drag to zoom in, double-click for the whole run." : "");
line(learning, {title: "Loss", name: "loss", values: data.loss, low: data.least, high: data.most, color: 0, text: plain, height: 320, marks: [data.evalStep, data.evalLoss, "evaluation"], saves: true});
for (const m of data.metrics)
  line(learning, {title: m.name, name: m.name, values: m.values, color: 6, text: plain, marks: [data.evalStep, m.evaluations, "evaluation"]});
line(learning, {title: "Learning rate", name: "learning rate", values: data.lr, color: 2, text: plain, zero: true, height: 160});
line(learning, {title: "Gradient norm", name: "gradient norm", values: data.gradNorm, color: 3, text: plain, zero: true, height: 180});
line(learning, {title: "Loss scale", name: "loss scale", values: data.lossScale, color: 5, text: plain, zero: true, height: 160});
const speed = section("Speed");
line(speed, {title: "Time of a step", name: "measured", values: data.seconds, low: data.fastest, high: data.slowest, color: 0, text: v => seconds(v), zero: true, level: predicted ? [predicted, "predicted"] : null, saves: true});
line(speed, {title: "Rate", name: unit, values: data.samples.map((s, i) => data.seconds[i] > 0 ? s * perSample / (data.seconds[i] * data.count[i]) : null), color: 2, text: v => count(v), zero: true, height: 180});

// ---- memory

const parts = [["device arena", data.arenas[0], 0], ["host arena", data.arenas[1], 6], ["libraries", data.library, 7], ["staged collectives", data.staging, 5], ["checkpoints' buffer", data.save, 4]].filter(p => p[1]);
// An error leaves only what rank 0 knows.
const rows = ["planned", ...data.peaks.map((_, r) => data.ranks > 1 ? `rank ${r}` : "measured")];
const memory = section("Memory", `What each rank has had resident at most, beside what was planned: the arenas, which are reserved at the start, and what libraries take.` + (data.arenas[2] ? ` On disks lie ${bytes(data.arenas[2])} of each rank.` : ""));
new Chart(memory, {
  title: "Memory of a rank", x: new Axis(0, Math.max(memoryPlanned, memoryPeak) * 1.05), y: [rows.length, 0], yNames: true, height: 60 + 30 * rows.length, left: 84, xBase: 2,
  xText: v => bytes(v), xLabel: "", legend: [...parts.map(p => [color(p[2]), p[0]]), [color(1), "resident at most"]],
  draw(c) {
    rows.forEach((name, r) => {
      const y = c.sy(r) + 5, h = c.sy(r + 1) - c.sy(r) - 10;
      let from = 0;
      const bar = (size, fillColor) => { c.plot.append(svg("path", {d: rectangle(c.sx(from), y, c.sx(from + size) - c.sx(from), h), fill: fillColor})); from += size; };
      if (r) bar(data.peaks[r - 1], color(1)); else parts.forEach(p => bar(p[1], color(p[2])));
      c.root.append(svg("text", {class: "strong", x: c.m.left - 6, y: y + h / 2 + 4, "text-anchor": "end"}, name));
    });
  },
  point(c, x, y) {
    const r = Math.floor(y);
    if (r < 0 || r >= rows.length) return null;
    return r ? [rows[r], ["resident at most", bytes(data.peaks[r - 1])]] : ["planned", ...parts.map(p => [p[0], bytes(p[1])]), ["together", bytes(memoryPlanned)]];
  },
});

// ---- predicted and measured

const compared = [];
if (n && predicted) compared.push(["time of a step", seconds(predicted), seconds(usual), digits(usual / predicted) + "×"]);
compared.push(["memory of a rank, with libraries", bytes(memoryPlanned), bytes(memoryPeak), digits(memoryPeak / memoryPlanned) + "×"]);
const traffic = plan.traffic_bytes_per_rank || {};
for (const [name, size] of Object.entries(data.sent))
  if (size || traffic[name]) compared.push([`${name} sent by a rank in a step`, bytes(traffic[name] || 0), bytes(size), traffic[name] ? digits(size / traffic[name]) + "×" : ""]);
const beside = section("Predicted and measured");
beside.append(table([["what"], ["predicted", 1], ["measured", 1], ["", 1]], compared));
if (plan.bound_by) beside.append(el("p", null, `The step was predicted to be bound by ${plan.bound_by}, by the rates of ${plan.profile}.`));
const busy = Object.entries(plan.engine_busy_s || {});
if (busy.length) beside.append(table([["engine"], ["predicted to be busy", 1], ["of the predicted step", 1]], busy.map(([e, s]) => [e, seconds(s), percent(s / predicted)])));
