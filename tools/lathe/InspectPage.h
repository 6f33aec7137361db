//===- InspectPage.h - the page that inspect --html writes ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// HTML with its style and script inside, nothing from the net; the data go between the two halves
// as JSON. The text of each phase is taken apart here, in the browser: a line an op, names of nodes
// from its location.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_TOOLS_LATHE_INSPECTPAGE_H
#define LATHE_TOOLS_LATHE_INSPECTPAGE_H

namespace lathe::cli {

inline constexpr const char *kPageHead = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>lathe inspect</title>
<style>
body{font:14px system-ui,sans-serif;margin:0;color:#222;background:#fff;display:flex;flex-direction:column;height:100vh}
header{display:flex;gap:12px;align-items:center;padding:8px 12px;border-bottom:1px solid #ccc;flex-wrap:wrap}
header b{margin-right:8px}main{flex:1;display:flex;min-height:0}
#view{flex:1;overflow:auto;padding:8px}#side{width:38%;overflow:auto;border-left:1px solid #ccc;padding:8px}
pre{font:12px ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
table{border-collapse:collapse}td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}
td.n{text-align:right}tr.hit td{background:#ffe9a8}tr:hover td{background:#eef;cursor:pointer}
button{border:1px solid #bbb;background:#f6f6f6;padding:3px 10px}button.on{background:#246;color:#fff}
rect.op{fill:#eef3fb;stroke:#678;cursor:pointer}rect.op.hit{fill:#ffe9a8;stroke:#d50}path.e{fill:none;stroke:#9ab}
svg text{font:11px system-ui,sans-serif;pointer-events:none}.dim{color:#777}
</style></head><body>
<header><b id="title"></b><select id="plan"></select><span id="tabs"></span>
<input id="find" type="search" placeholder="search op, node, kernel" size="28"><span id="count" class="dim"></span></header>
<main><div id="view"></div><div id="side"></div></main>
<script id="data" type="application/json">)page";

inline constexpr const char *kPageTail = R"page(</script>
<script>
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id), plans = data.plans;
const make = (tag, attrs = {}, text = '', ns = false) => {
  const e = ns ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== '') e.textContent = text;
  return e;
};
let plan = plans[0], tab = '', chosen = new Set();

// --- the text of a phase: ops of the first function, their operands, the nodes that their locations name.
function parse(text) {
  const locs = {};
  for (const m of text.matchAll(/^(#loc\d*) = loc\((.*)\)$/gm)) locs[m[1]] = m[2];
  const names = (ref, seen = new Set()) => {
    const out = [];
    for (const m of ref.matchAll(/"((?:[^"\\]|\\.)*)"(:\d+)?|(#loc\d*)/g)) {
      if (m[3]) { if (!seen.has(m[3])) { seen.add(m[3]); out.push(...names(locs[m[3]] || '', seen)); } }
      else if (!m[2]) out.push(m[1]);
    }
    return [...new Set(out)];
  };
  const ops = [], made = {};
  let depth = -1;
  for (const line of text.split('\n')) {
    const indent = line.search(/\S/);
    if (/^\s*func\.func /.test(line) || /^\s*exec\.program /.test(line)) {
      if (depth >= 0) break;
      depth = indent + 2;
      continue;
    }
    if (depth < 0 || indent < 0) continue;
    if (indent < depth) { if (ops.length) break; continue; }
    const loc = line.match(/loc\((.*)\)\s*$/), m = line.match(/^\s*(?:(%[\w:, %#]+) = )?"?([\w.]+)"?(?: "([^"]+)")?/);
    if (indent > depth || line.trim()[0] === '}') { // the body of the op above
      if (ops.length) { const op = ops[ops.length - 1]; op.text += '\n' + line;
        if (loc) op.nodes = [...new Set([...op.nodes, ...names(loc[1])])]; }
      continue;
    }
    if (!m) continue;
    const results = (m[1] || '').split(',').map(s => s.trim().split(':')[0]).filter(Boolean);
    const rest = line.slice((m[1] || '').length).split(' loc(')[0];
    const ins = [...new Set([...rest.matchAll(/%[\w]+/g)].map(x => x[0]))].filter(x => x in made).map(x => made[x]);
    const quoted = (line.match(/nodes = \[([^\]]*)\]/) || [])[1];
    const listed = quoted ? [...quoted.matchAll(/"([^"]*)"/g)].map(x => x[1]) : [];
    const callee = m[3] || (line.match(/ @([\w.$]+)/) || [])[1];
    const op = {op: m[2], name: callee || '', ins, nodes: [...new Set([...listed, ...(loc ? names(loc[1]) : [])])], text: line};
    for (const r of results) made[r] = ops.length;
    ops.push(op);
  }
  return ops;
}
const phases = (data.phases || []).map(p => ({name: p.name, text: p.text}));
const opsOf = p => p.ops || (p.ops = parse(p.text));

// --- a layered drawing: a row behind the lowest operand.
function draw(ops, label) {
  const row = [], rows = [], w = 190, h = 26, gapX = 14, gapY = 26, at = [];
  ops.forEach((op, i) => {
    row[i] = op.ins.length ? Math.max(...op.ins.map(j => row[j])) + 1 : 0;
    (rows[row[i]] = rows[row[i]] || []).push(i);
  });
  let width = 0;
  rows.forEach((list, r) => {
    const pull = i => ops[i].ins.length ? ops[i].ins.reduce((s, j) => s + (at[j] ? at[j][0] : 0), 0) / ops[i].ins.length : 0;
    list.sort((a, b) => pull(a) - pull(b));
    list.forEach((i, c) => { at[i] = [c * (w + gapX), r * (h + gapY)]; });
    width = Math.max(width, list.length * (w + gapX));
  });
  const svg = make('svg', {width: width + 10, height: rows.length * (h + gapY) + 10}, '', true);
  ops.forEach((op, i) => op.ins.forEach(j => {
    const [x0, y0] = at[j], [x1, y1] = at[i];
    svg.append(make('path', {class: 'e', d: `M${x0 + w / 2} ${y0 + h} C${x0 + w / 2} ${y0 + h + 20} ${x1 + w / 2} ${y1 - 20} ${x1 + w / 2} ${y1}`}, '', true));
  }));
  ops.forEach((op, i) => {
    const hit = matches(op) || op.nodes.some(n => chosen.has(n));
    const box = make('rect', {class: 'op' + (hit ? ' hit' : ''), x: at[i][0], y: at[i][1], width: w, height: h, rx: 4}, '', true);
    box.append(make('title', {}, op.nodes.join('\n') + '\n' + op.text.slice(0, 600), true));
    box.addEventListener('click', () => { choose(op.nodes); show(op); });
    svg.append(box, make('text', {x: at[i][0] + 6, y: at[i][1] + 17}, label(op).slice(0, 32), true));
  });
  return svg;
}

const query = () => $('find').value.trim().toLowerCase();
const matches = op => query() && (op.op + ' ' + op.name + ' ' + op.nodes.join(' ')).toLowerCase().includes(query());
function choose(nodes) { chosen = new Set(nodes); render(); }

// --- beside: an op, the kernels of its nodes, their text.
function show(op) {
  const side = $('side');
  side.replaceChildren(make('h3', {}, op.name || op.op), make('div', {class: 'dim'}, op.nodes.join(', ')));
  const kernels = plan.kernels.filter(k => k.name === op.name || k.nodes.some(n => op.nodes.includes(n)));
  for (const p of phases) {
    const same = opsOf(p).filter(o => o.nodes.some(n => op.nodes.includes(n)));
    if (same.length) {
      const b = make('button', {}, `${p.name}: ${same.length}`);
      b.addEventListener('click', () => { chosen = new Set(op.nodes); tab = p.name; render(); });
      side.append(b, ' ');
    }
  }
  if (op.text) side.append(make('pre', {}, op.text.slice(0, 20000)));
  for (const k of kernels) kernel(side, k);
}
// A CUDA text begins with the modules that the kernel uses; its own part begins with its holes, or itself.
function parts(text) {
  const last = text.lastIndexOf('//===- '), own = last < 0 ? -1 : text.slice(last).search(/^(struct Holes|extern "C" __global__)/m);
  return own < 0 ? ['', text] : [text.slice(0, last + own), text.slice(last + own)];
}
function kernel(side, k) {
  side.append(make('h4', {}, `kernel ${k.name}`));
  for (const v of k.variants) side.append(make('div', {}, `${v.config}  where ${v.guard}`));
  for (const name in plan.sources)
    if (name === k.name || name.startsWith(k.name + '.')) {
      const d = make('details', {class: 'source'});
      const [library, own] = parts(plan.sources[name]);
      d.append(make('summary', {}, `text of ${name}`));
      if (library) {
        const folded = make('details');
        folded.append(make('summary', {class: 'dim'}, 'modules of the device library'), make('pre', {class: 'library'}, library));
        d.append(folded);
      }
      d.append(make('pre', {class: 'own'}, own));
      side.append(d);
    }
  const first = side.querySelector('details.source');
  if (first) first.open = true;
}

function table(heads, rows, clicked) {
  const t = make('table'), head = make('tr');
  heads.forEach(h => head.append(make('th', {}, h)));
  t.append(head);
  rows.forEach(r => {
    const tr = make('tr', r.hit ? {class: 'hit'} : {});
    r.cells.forEach(c => tr.append(make('td', typeof c === 'number' ? {class: 'n'} : {}, typeof c === 'number' ? +c.toPrecision(4) + '' : c)));
    tr.addEventListener('click', () => clicked(r.of));
    t.append(tr);
  });
  return t;
}
const asOp = k => ({op: 'kernel', name: k.name, nodes: k.nodes, text: '', ins: []});
const views = {
  kernels: () => table(['kernel', 'times', 'configuration', 'nodes'], plan.kernels.map(k => ({of: k, hit: matches(asOp(k)) || k.nodes.some(n => chosen.has(n)),
    cells: [k.name, k.launches, k.variants.map(v => v.config).join('\n'), k.nodes.slice(0, 6).join(', ') + (k.nodes.length > 6 ? ' …' : '')]})),
    k => { choose(k.nodes); show(asOp(k)); }),
  memory: () => { const d = make('div'); d.innerHTML = plan.drawing; return d; },
  roofline: () => {
    const d = make('div'), roof = plan.roof, rows = plan.kernels.filter(k => k.usual_bytes > 0).map(k => {
      const mem = k.usual_bytes / roof.gbs / 1e3, work = k.usual_flops / roof.gflops / 1e3;
      return {of: k, hit: matches(asOp(k)), sum: k.launches * Math.max(mem, work), mem, work,
              cells: [k.name, k.launches, k.usual_flops / k.usual_bytes, Math.max(mem, work), mem >= work ? 'memory' : 'arithmetic']};
    }).sort((a, b) => b.sum - a.sum);
    d.append(make('p', {}, `${roof.gbs.toFixed(1)} GB/s, ${roof.gflops.toFixed(0)} GFLOP/s (${roof.origin}); at ${plan.memory.sizes || 'the only sizes'} the kernels take ${rows.reduce((s, r) => s + r.sum, 0).toPrecision(4)} µs at least`));
    const W = 640, H = 300, svg = make('svg', {width: W, height: H}, '', true);
    const lx = v => 40 + (Math.log10(Math.min(1e4, Math.max(1e-2, v))) + 2) / 6 * (W - 60), top = Math.log10(roof.gflops);
    const ly = v => H - 30 - (Math.log10(Math.max(1e-3, v)) + 3 ) / (top + 3.3) * (H - 50);
    let path = '';
    for (let e = -2; e <= 4; e += 0.05) { const i = 10 ** e; path += (path ? 'L' : 'M') + lx(i) + ' ' + ly(Math.min(roof.gflops, i * roof.gbs)); }
    svg.append(make('path', {d: path, fill: 'none', stroke: '#246', 'stroke-width': 2}, '', true));
    rows.forEach(r => { const i = r.cells[2], c = make('circle', {cx: lx(i), cy: ly(Math.min(roof.gflops, i * roof.gbs)), r: 4, fill: r.hit ? '#d50' : '#48a'}, '', true);
      c.append(make('title', {}, r.of.name, true)); c.addEventListener('click', () => { choose(r.of.nodes); show(asOp(r.of)); }); svg.append(c); });
    svg.append(make('text', {x: W - 190, y: H - 8}, 'floating-point operations a byte', true));
    d.append(svg, table(['kernel', 'times', 'FLOP a byte', 'µs at the roof', 'bound by'], rows, k => { choose(k.nodes); show(asOp(k)); }));
    return d;
  },
  steps: () => table(['block', 'step', 'nodes'], plan.steps.flatMap((b, i) => b.map(s => ({of: s, hit: (query() && (s.step + s.nodes.join(' ')).toLowerCase().includes(query())) || s.nodes.some(n => chosen.has(n)),
    cells: [i, s.step, s.nodes.join(', ')]}))), s => { choose(s.nodes); show({op: 'step', name: (s.step.match(/^launch ([^(]+)/) || [])[1] || '', nodes: s.nodes, text: s.step, ins: []}); }),
};
function render() {
  const names = [...phases.map(p => p.name), ...Object.keys(views)];
  if (!names.includes(tab)) tab = names[0];
  $('tabs').replaceChildren(...names.map(n => { const b = make('button', n === tab ? {class: 'on'} : {}, n); b.dataset.tab = n; b.addEventListener('click', () => { tab = n; render(); }); return b; }));
  const phase = phases.find(p => p.name === tab);
  if (phase) {
    const ops = opsOf(phase), many = ops.length > 4000;
    $('count').textContent = `${ops.length} ops` + (query() ? `, ${ops.filter(matches).length} found` : '');
    $('view').replaceChildren(many ? make('pre', {}, phase.text) : draw(ops, op => op.name || op.op.replace(/^(onnx|aten|lathe|exec)\./, '')));
  } else {
    $('count').textContent = '';
    $('view').replaceChildren(views[tab]());
  }
  const hit = document.querySelector('rect.hit,tr.hit');
  if (hit && hit.scrollIntoView) hit.scrollIntoView({block: 'center', inline: 'center'});
}
$('title').textContent = data.file;
plans.forEach((p, i) => $('plan').append(make('option', {value: i}, `${p.entry} for ${p.target}`)));
$('plan').addEventListener('change', e => { plan = plans[e.target.value]; $('side').replaceChildren(); render(); });
$('find').addEventListener('input', render);
render();
</script></body></html>
)page";

} // namespace lathe::cli

#endif // LATHE_TOOLS_LATHE_INSPECTPAGE_H
