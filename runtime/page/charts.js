// What the pages draw with: elements, numbers in words, charts with axes, a legend and a tooltip. Texts become text nodes, never
// markup: names come from models.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svgSpace = document.getElementById("seed").namespaceURI;

function fill(e, attributes, children) {
  for (const [k, v] of Object.entries(attributes || {}))
    if (v !== null && v !== undefined) e.setAttribute(k, v);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(svgSpace, name), attributes, children);
const color = i => `var(--c${i})`;

// ---- numbers in words

const digits = (v, n = 3) => {
  if (v === 0) return "0";
  if (!isFinite(v)) return "not finite";
  const a = Math.abs(v);
  return a >= 1e6 || a < 1e-4 ? v.toExponential(n - 1) : String(Number(v.toPrecision(Math.max(n, a >= 1 ? Math.floor(Math.log10(a)) + 1 : n))));
};
function scaled(v, base, units) {
  let u = 0;
  for (; Math.abs(v) >= base && u < units.length - 1; ++u) v /= base;
  return digits(v) + " " + units[u];
}
const bytes = v => scaled(v, 1024, ["bytes", "KiB", "MiB", "GiB", "TiB"]);
const count = v => scaled(v, 1000, ["", "k", "M", "G", "T", "P"]).trimEnd();
function seconds(v) {
  if (v === 0) return "0 s";
  const a = Math.abs(v);
  return a >= 120 ? digits(v / 60) + " min" : a >= 1 ? digits(v) + " s" : a >= 1e-3 ? digits(v * 1e3) + " ms" : a >= 1e-6 ? digits(v * 1e6) + " µs" : digits(v * 1e9) + " ns";
}
const percent = v => digits(100 * v) + " %";

// ---- ticks

function linearTicks(lo, hi, most, base = 10) {
  const raw = (hi - lo) / Math.max(1, most) || 1;
  const power = Math.pow(base, Math.floor(Math.log(raw) / Math.log(base) + 1e-9));
  const factors = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * (factors.find(f => f * power >= raw * 0.999) || base);
  const ticks = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}
function logTicks(lo, hi, most) {
  const from = Math.ceil(Math.log10(lo) - 1e-9), to = Math.floor(Math.log10(hi) + 1e-9), every = Math.max(1, Math.ceil((to - from + 1) / most));
  const ticks = [];
  for (let e = from; e <= to; e += every) ticks.push(Math.pow(10, e));
  return ticks;
}

// ---- the tooltip

const tip = el("div", {id: "tip", hidden: ""});
document.body.append(tip);
/// lines: a heading, or [what, value].
function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map(l => Array.isArray(l) ? el("div", null, el("span", null, l[0]), el("em", {style: "font-style:normal"}, l[1])) : el("b", null, l)));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - w - 4)) + "px";
  tip.style.top = Math.max(4, y + 16 + h > innerHeight ? y - h - 12 : y + 16) + "px";
}
const hideTip = () => { tip.hidden = true; };

// ---- charts

/// Draws a figure, and again where its width changes, also on paper.
const drawings = [];
function drawn(figure, draw) {
  let width;
  const update = () => { if (figure.clientWidth !== width) { width = figure.clientWidth; draw(); } };
  drawings.push(update);
  new ResizeObserver(update).observe(figure);
  update();
}
/// As wide as a sheet, so that texts on it have their size.
function forPaper(isPaper) {
  document.body.style.width = isPaper ? "720px" : "";
  drawings.forEach(update => update());
}
addEventListener("afterprint", () => forPaper(false));

/// An axis that several charts share, and zoom together.
class Axis {
  constructor(lo, hi) { this.full = [lo, hi]; [this.lo, this.hi] = [lo, hi]; this.charts = []; }
  show(lo, hi) {
    if (hi - lo < (this.full[1] - this.full[0]) * 1e-5) return;
    [this.lo, this.hi] = [Math.max(lo, this.full[0]), Math.min(hi, this.full[1])];
    this.charts.forEach(c => c.redraw());
  }
  get isWhole() { return this.lo === this.full[0] && this.hi === this.full[1]; }
}

/// o: title, note; x: an Axis; y: [lo, hi]; xLog, yLog; xText, yText: of a number; xLabel; xBase, yBase: 2 for bytes; yNames: rows instead of a
/// scale; height; left; legend: [[color, text, line?]]; draw(c): adds to c.plot, by c.sx and c.sy; point(c, x, y): lines for the
/// tooltip, or nothing; zooms.
class Chart {
  constructor(host, o) {
    this.o = o;
    this.figure = el("figure", null, el("figcaption", null, o.title, o.note ? el("small", null, " " + o.note) : null));
    if (o.legend)
      this.figure.append(el("ul", {class: "legend"}, ...o.legend.map(([c, text, line]) =>
        el("li", null, el("i", {class: line ? "line" : null, style: `background:${c};border-color:${c}`}), text))));
    if (o.zooms) {
      this.reset = el("button", {class: "reset", hidden: ""}, "whole step");
      this.reset.onclick = () => o.x.show(...o.x.full);
      this.figure.append(this.reset);
    }
    this.box = el("div");
    this.figure.append(this.box);
    host.append(this.figure);
    o.x.charts.push(this);
    drawn(this.figure, () => this.redraw());
  }

  redraw() {
    const o = this.o, width = this.width = this.figure.clientWidth || 800, height = o.height || 260;
    const m = {left: o.left || 66, right: 14, top: 20, bottom: 38}, w = width - m.left - m.right, h = height - m.top - m.bottom;
    this.m = m; this.w = w; this.h = h;
    const scale = (lo, hi, log, from, to) => log
      ? v => from + (to - from) * (Math.log(v) - Math.log(lo)) / (Math.log(hi) - Math.log(lo))
      : v => from + (to - from) * (v - lo) / (hi - lo || 1);
    this.sx = scale(o.x.lo, o.x.hi, o.xLog, m.left, m.left + w);
    this.sy = scale(o.y[0], o.y[1], o.yLog, m.top + h, m.top);
    this.root = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": o.title});
    const id = "clip" + (Chart.number = (Chart.number || 0) + 1);
    this.root.append(svg("defs", null, svg("clipPath", {id}, svg("rect", {x: m.left, y: m.top, width: w, height: h}))));
    this.axes();
    this.plot = svg("g", {"clip-path": `url(#${id})`});
    this.over = svg("g");
    this.root.append(this.plot, this.over);
    o.draw(this);
    this.root.append(svg("path", {class: "axis", d: `M${m.left} ${m.top}v${h}h${w}`}));
    this.root.onpointermove = e => this.moved(e);
    this.root.onpointerdown = e => { this.from = e.pointerType === "mouse" && o.zooms ? this.at(e)[0] : null; this.moved(e); };
    this.root.onpointerup = e => this.released(e);
    this.root.onpointerleave = () => this.left();
    this.root.ondblclick = () => o.zooms && o.x.show(...o.x.full);
    this.box.replaceChildren(this.root);
    if (this.reset) this.reset.hidden = o.x.isWhole;
  }

  axes() {
    const {o, m, w, h} = this, small = w < 420;
    const xs = o.xLog ? logTicks(o.x.lo, o.x.hi, small ? 5 : 10) : linearTicks(o.x.lo, o.x.hi, small ? 4 : 9, o.xBase || 10);
    for (const v of xs) {
      const x = this.sx(v);
      this.root.append(svg("path", {class: "grid", d: `M${x} ${m.top}v${h}`}),
        svg("text", {x, y: m.top + h + 15, "text-anchor": x > m.left + w - 20 ? "end" : "middle"}, o.xText(v)));
    }
    this.root.append(svg("text", {x: m.left + w / 2, y: m.top + h + 32, "text-anchor": "middle"}, o.xLabel));
    if (o.yNames) return;
    const ys = o.yLog ? logTicks(o.y[0], o.y[1], 6) : linearTicks(o.y[0], o.y[1], Math.max(2, h / 48), o.yBase || 10);
    for (const v of ys)
      this.root.append(svg("path", {class: "grid", d: `M${m.left} ${this.sy(v)}h${w}`}),
        svg("text", {x: m.left - 6, y: this.sy(v) + 4, "text-anchor": "end"}, o.yText(v)));
  }

  /// Where an event is, in the chart's own numbers.
  at(e) {
    const {o, m} = this, r = this.root.getBoundingClientRect(), px = (e.clientX - r.left) * this.width / r.width, py = (e.clientY - r.top) * this.width / r.width;
    const back = (p, from, to, lo, hi, log) => { const t = (p - from) / (to - from); return log ? lo * Math.pow(hi / lo, t) : lo + (hi - lo) * t; };
    return [back(px, m.left, m.left + this.w, o.x.lo, o.x.hi, o.xLog), back(py, m.top + this.h, m.top, o.y[0], o.y[1], o.yLog), px, py];
  }

  moved(e) {
    const [x, y, px, py] = this.at(e), {m} = this;
    if (px < m.left || px > m.left + this.w) return this.left();
    this.over.replaceChildren(svg("path", {class: "cross", d: `M${px} ${m.top}v${this.h}`}));
    if (this.from !== null && this.from !== undefined && e.buttons & 1) {
      const a = this.sx(this.from);
      this.over.append(svg("rect", {class: "brush", x: Math.min(a, px), y: m.top, width: Math.abs(px - a), height: this.h}));
    }
    const lines = this.o.point(this, x, y, px, py);
    if (lines && lines.length) showTip(lines, e.clientX, e.clientY); else hideTip();
  }

  released(e) {
    const from = this.from, to = this.at(e)[0];
    this.from = null;
    if (from !== null && from !== undefined && Math.abs(this.sx(from) - this.sx(to)) > 6)
      this.o.x.show(Math.min(from, to), Math.max(from, to));
  }

  left() { this.over.replaceChildren(); hideTip(); }
}

/// A rectangle as a part of a path, a little smaller where it is large: what lies side by side stays apart without a stroke, which
/// is a whole dot wide on paper.
const apart = size => (size > 1.5 ? size - 0.3 : size).toFixed(1);
const rectangle = (x, y, w, h) => `M${x.toFixed(1)} ${y.toFixed(1)}h${apart(w)}v${apart(h)}h-${apart(w)}z`;

/// head: [text, isNumber]; rows of texts.
function table(head, rows) {
  return el("div", {class: "scroll"}, el("table", null,
    el("thead", null, el("tr", null, ...head.map(([t, n]) => el("th", {class: n ? "number" : null}, t)))),
    el("tbody", null, ...rows.map(r => el("tr", null, ...r.map((c, i) => el("td", {class: head[i][1] ? "number" : "name"}, c)))))));
}
function section(title, text) {
  const s = el("section", null, el("h2", null, title), text ? el("p", null, text) : null);
  document.body.append(s);
  return s;
}
function facts(list) {
  document.body.append(el("div", {class: "facts"}, ...list.map(([what, value]) => el("div", {class: "fact"}, el("b", null, value), el("span", null, what)))));
}
// On paper nothing is folded.
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach(d => { d.open = true; });
  forPaper(true);
});
