//===- QuantizePage.h - the page that quantize --report writes --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// HTML with its style and script inside, nothing from the net; the data go between the two halves as JSON, the same
// that stands in the .json beside the page.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_QUANTIZEPAGE_H
#define LATHE_TOOLS_LATHE_QUANTIZEPAGE_H

namespace lathe::cli {

inline constexpr const char *kQuantizePageHead = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>lathe quantize</title>
<style>
body{font:14px system-ui,sans-serif;margin:16px;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:left}
th{cursor:pointer}td.n{text-align:right}button{border:1px solid #bbb;background:#f6f6f6;padding:3px 10px;margin-right:4px}
button.on{background:#246;color:#fff}svg text{font:11px system-ui,sans-serif}.dim{color:#777}
.weight_rounding{fill:#48a;background:#48a}.clipping{fill:#d50;background:#d50}.activation_rounding{fill:#9b6;background:#9b6}
.sqnr{fill:#246}.front{fill:none;stroke:#48a}.point{fill:#888}.point.chosen{fill:#d50}.axis{stroke:#bbb}.before{fill:#bbb;background:#bbb}.after{fill:#246;background:#246}
i{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}
</style></head><body>
<h1 id="title"></h1><p id="whole"></p><p id="outputs"></p>
<p>Order: <span id="orders"></span>
<i class="weight_rounding"></i>rounding of weights<i class="clipping"></i>clipping<i class="activation_rounding"></i>rounding of activations
<i class="before"></i>before<i class="after"></i>after</p>
<div id="chart"></div>
<h2>Layers</h2><div id="layers"></div>
<h2>What stays as it is</h2><div id="kept"></div>
<div id="search"></div>
<script id="data" type="application/json">)page";

inline constexpr const char *kQuantizePageTail = R"page(</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const make = (tag, attrs = {}, text = '', ns = false) => {
  const e = ns ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== '') e.textContent = text;
  return e;
};
const parts = ['weight_rounding', 'clipping', 'activation_rounding'];
const number = (x, digits = 4) => x === null ? '–' : '' + +x.toPrecision(digits);
const decibels = (x, loss) => x !== null ? x.toFixed(1) + ' dB' : loss === 0 ? 'exact' : 'all lost', percent = x => x === null ? '–' : number(100 * x, 3) + ' %';
const interval = r => r ? number(r[0]) + ' … ' + number(r[1]) : '–';
// null: no error where the loss is 0, else nothing but error.
const badness = l => l.sqnr_db !== null ? -l.sqnr_db : l.loss.all === 0 ? -Infinity : Infinity;
const orders = {
  'of the graph': () => 0, 'worst first': (a, b) => badness(b) - badness(a) || 0,
  'slowest first': (a, b) => b.us_after - a.us_after, 'least gained first': (a, b) => (b.us_after - b.us_before) - (a.us_after - a.us_before),
};
let order = 'of the graph';
const layers = () => [...data.layers].sort(orders[order]);

// A row a layer: signal to noise, what the noise is made of, microseconds.
function chart() {
  const rows = layers(), h = 18, name = 230, w = 230, gap = 30, top = 22;
  const best = Math.max(1, ...rows.map(l => l.sqnr_db || 0)), slowest = Math.max(1e-9, ...rows.map(l => Math.max(l.us_before, l.us_after)));
  const svg = make('svg', {width: name + 3 * (w + gap), height: top + rows.length * h + 4}, '', true);
  const at = i => name + i * (w + gap);
  ['signal to quantization noise', 'what the noise is made of', 'µs'].forEach((t, i) => svg.append(make('text', {x: at(i), y: 14, class: 'head'}, t, true)));
  rows.forEach((l, r) => {
    const y = top + r * h, row = make('g', {class: 'layer'}, '', true);
    const bar = (cls, x, y, width, height) => row.append(make('rect', {class: cls, x, y, width: Math.max(0, width), height}, '', true));
    row.append(make('title', {}, `${l.node}\nreads ${l.activation}: ${interval(l.seen)}, codes of ${interval(l.range)}\n${l.weight}`, true));
    row.append(make('text', {x: 0, y: y + 12}, l.node.length > 36 ? '…' + l.node.slice(-35) : l.node, true));
    const signal = Math.max(0, l.sqnr_db || 0) / best * (w - 60);
    bar('sqnr', at(0), y + 3, signal, h - 6);
    row.append(make('text', {x: at(0) + signal + 4, y: y + 12}, decibels(l.sqnr_db, l.loss.all), true));
    const sum = parts.reduce((s, p) => s + (l.loss[p] || 0), 0);
    let x = at(1);
    for (const p of parts) { const width = sum > 0 ? l.loss[p] / sum * w : 0; bar(p, x, y + 3, width, h - 6); x += width; }
    bar('before', at(2), y + 2, l.us_before / slowest * (w - 60), h / 2 - 3);
    bar('after', at(2), y + h / 2, l.us_after / slowest * (w - 60), h / 2 - 3);
    row.append(make('text', {x: at(2) + Math.max(l.us_before, l.us_after) / slowest * (w - 60) + 4, y: y + 12}, number(l.us_after, 3), true));
    svg.append(row);
  });
  return svg;
}

function table(heads, rows) {
  const t = make('table'), head = make('tr');
  heads.forEach(h => head.append(make('th', {}, h)));
  t.append(head);
  rows.forEach(cells => { const tr = make('tr'); cells.forEach((c, i) => tr.append(make('td', i > 2 ? {class: 'n'} : {}, c))); t.append(tr); });
  return t;
}

function render() {
  $('orders').replaceChildren(...Object.keys(orders).map(n => { const b = make('button', n === order ? {class: 'on'} : {}, n); b.addEventListener('click', () => { order = n; render(); }); return b; }));
  $('chart').replaceChildren(chart());
  $('layers').replaceChildren(table(['node', 'reads', 'weight', 'seen', 'range of codes', 'clipped', 'signal to noise', 'rounding of weights', 'clipping', 'rounding of activations', 'all', 'µs before', 'µs after'],
    layers().map(l => [l.node, l.activation, l.weight, interval(l.seen), interval(l.range), percent(l.clipped), decibels(l.sqnr_db, l.loss.all),
                       ...parts.map(p => percent(l.loss[p])), percent(l.loss.all), number(l.us_before), number(l.us_after)])));
}
$('title').textContent = data.model + ' as ' + data.scheme;
$('whole').textContent = `${data.quantized}: range ${data.dynamic ? 'found in each run' : data.range}, method ${data.method}, ${data.layers.length} layers; ` +
  `a run on ${data.device} (${data.target}) takes ${number(data.ms_after)} ms, before ${number(data.ms_before)} ms; ` +
  `kernels of no layer ${number(data.other_us_after)} µs, before ${number(data.other_us_before)} µs; ` +
  `the file ${number(data.bytes_after / 1e6)} MB, before ${number(data.bytes_before / 1e6)} MB.`;
$('outputs').textContent = data.outputs.map(o => `Output ${o.output}: signal to quantization noise ${decibels(o.sqnr_db, o.loss)}.`).join(' ');
$('kept').append(data.kept && data.kept.length ? table(['node', 'why'], data.kept.map(k => [k.node, k.why])) :
  make('p', {class: 'dim'}, data.kept ? 'nothing' : 'a recipe does not say'));
// What a search for the formats of layers found: the Pareto front of its predictions, what was built and measured, and the
// choices of each layer.
function search(s) {
  const key = s.float_ms === null ? 'bytes' : 'ms', cost = key === 'ms' ? 'ms' : 'MB', scale = key === 'ms' ? 1 : 1e-6;
  const built = s.measured.map(m => ({...m, at: key === 'ms' ? m.ms / m.float_ms * s.float_ms : m.bytes * scale}));
  const front = s.front.map(p => ({loss: p.loss, at: p[key] * scale}));
  const whole = (key === 'ms' ? s.float_ms : s.float_bytes * scale);
  const shown = [...front, ...built, {loss: 0, at: whole}].filter(p => p.loss !== null), some = shown.map(p => p.loss).filter(l => l > 0);
  const low = Math.log10(Math.min(1, ...some)) - 0.3, high = Math.log10(Math.max(1e-12, ...some)) + 0.3;
  const from = Math.min(...shown.map(p => p.at)), to = Math.max(...shown.map(p => p.at));
  const w = 640, h = 320, left = 60, bottom = 36;
  const x = p => left + (p.at - from) / (to - from || 1) * (w - left - 20);
  const y = p => 10 + (h - bottom - 20) * (1 - (Math.max(low, p.loss > 0 ? Math.log10(p.loss) : low) - low) / (high - low || 1));
  const svg = make('svg', {width: w, height: h}, '', true);
  svg.append(make('line', {class: 'axis', x1: left, y1: h - bottom, x2: w, y2: h - bottom}, '', true), make('line', {class: 'axis', x1: left, y1: 0, x2: left, y2: h - bottom}, '', true));
  for (let e = Math.ceil(low); e <= high; ++e) svg.append(make('text', {x: 4, y: y({loss: 10 ** e}) + 4}, '1e' + e, true));
  for (const at of [from, (from + to) / 2, to]) svg.append(make('text', {x: x({at}) - 12, y: h - 20}, number(at, 3), true));
  svg.append(make('text', {x: w / 2, y: h - 4}, cost, true), make('text', {x: 4, y: 10}, 'loss', true));
  svg.append(make('polyline', {class: 'front', points: front.map(p => x(p) + ',' + y(p)).join(' ')}, '', true));
  for (const p of [...built, {name: 'float', loss: 0, at: whole}].filter(p => p.loss !== null)) {
    const dot = make('circle', {class: p.chosen ? 'point chosen' : 'point', cx: x(p), cy: y(p), r: 4}, '', true);
    dot.append(make('title', {}, `${p.name}: loss ${number(p.loss)}, ${number(p.at)} ${cost}`, true));
    svg.append(dot);
  }
  const schemes = [...new Set(s.layers.flatMap(l => l.choices.map(c => c.scheme)))];
  $('search').append(make('h2', {}, 'Search'),
    make('p', {}, `Budget ${s.budget}, loss by ${s.metric}, ${s.builds} builds. The line is the Pareto front of predictions, dots are built and measured, the chosen one in orange.`), svg,
    table(['built', 'loss', 'predicted', 'of float’s time', 'predicted', 'MB', ''], s.measured.map(m =>
      [m.name, number(m.loss), number(m.predicted_loss), number(m.ms / m.float_ms, 3), number(m.predicted_ratio, 3), number(m.bytes / 1e6, 3), m.chosen ? 'chosen' : m.broken])),
    make('h3', {}, 'Each layer alone'),
    table(['nodes', 'weight', 'chosen', ...schemes.flatMap(n => [n + ': loss', 'µs', 'MB'])], s.layers.map(l =>
      [l.nodes.join(', '), l.weight, l.chosen || '–', ...schemes.flatMap(n => {
        const c = l.choices.find(c => c.scheme === n);
        return c ? [number(c.loss, 3), number(c.us, 3), number(c.bytes / 1e6, 3)] : ['', '', ''];
      })])));
}
render();
if (data.search) search(data.search);
</script></body></html>
)page";

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_QUANTIZEPAGE_H
