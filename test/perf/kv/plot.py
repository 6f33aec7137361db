#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws hit rate against capacity, a panel a workload and a line a policy, as SVG.

    plot.py hit-rate.tsv hit-rate.svg

The table is what `lathe-kv-replay sweep` writes. No dependencies; the same table gives the same
bytes.
"""
import csv
import math
import sys
from collections import OrderedDict

PANEL_W, PANEL_H, LEFT, TOP, GAP_X, GAP_Y = 360, 220, 54, 58, 62, 66
# Colours that stay apart for colour-blind readers (Okabe and Ito); dashes tell them apart in grey.
STYLES = OrderedDict([
    ("clairvoyant", ("#000000", "")),
    ("lru", ("#0072b2", "")),
    ("lfu", ("#d55e00", "")),
    ("priority", ("#009e73", "")),
    ("nano", ("#cc79a7", "4 3")),
    ("random", ("#999999", "2 3")),
])
OTHERS = ("#56b4e9", "#e69f00", "#f0e442")


def read(path):
    """workload -> policy -> [(capacity, rate)], in the order of the table."""
    table = OrderedDict()
    with open(path, encoding="utf-8", newline="") as f:
        rows = csv.DictReader((line for line in f if not line.startswith("#")), delimiter="\t")
        for row in rows:
            policies = table.setdefault(row["workload"], OrderedDict())
            policies.setdefault(row["policy"], []).append(
                (int(row["capacity_blocks"]), float(row["hit_rate"])))
    if not table:
        raise SystemExit(f"{path}: no rows")
    return table


def styles(table):
    names = OrderedDict((name, None) for name in STYLES
                        if any(name in policies for policies in table.values()))
    for policies in table.values():
        names.update((name, None) for name in policies if name not in names)
    extra = [name for name in names if name not in STYLES]
    return {name: STYLES[name] if name in STYLES
            else (OTHERS[extra.index(name) % len(OTHERS)], "") for name in names}


def text(x, y, words, anchor="middle", size=11, fill="#333", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{fill}"{more}>{words}</text>')


def line(x1, y1, x2, y2, colour="#ddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def panel(x0, y0, workload, policies, look):
    capacities = [c for points in policies.values() for c, _ in points]
    low, high = math.log2(min(capacities)), math.log2(max(capacities))
    high = max(high, low + 1e-6)

    def at(capacity, rate):
        return (x0 + (math.log2(capacity) - low) / (high - low) * PANEL_W,
                y0 + (1 - rate) * PANEL_H)

    out = [text(x0 + PANEL_W / 2, y0 - 8, workload, size=13, fill="#000")]
    for percent in range(0, 101, 20):
        y = y0 + (1 - percent / 100) * PANEL_H
        out += [line(x0, y, x0 + PANEL_W, y),
                text(x0 - 6, y + 4, f"{percent} %", anchor="end")]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x, _ = at(2 ** power, 0)
        label = f"{2 ** power // 1024}k" if power >= 10 else str(2 ** power)
        out += [line(x, y0, x, y0 + PANEL_H), text(x, y0 + PANEL_H + 15, label)]
    out.append(f'<rect x="{x0}" y="{y0}" width="{PANEL_W}" height="{PANEL_H}" fill="none" '
               'stroke="#888"/>')
    for name in reversed(look):
        if name not in policies:
            continue
        colour, dash = look[name]
        points = " ".join("%.1f,%.1f" % at(*p) for p in sorted(policies[name]))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                   f'stroke-width="1.8"{dashed}/>')
    return out


def draw(table):
    look = styles(table)
    rows = (len(table) + 1) // 2
    width = LEFT + 2 * PANEL_W + GAP_X + 16
    height = TOP + rows * (PANEL_H + GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for i, (name, (colour, dash)) in enumerate(look.items()):
        x = LEFT + i * 128
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        out += [f'<line x1="{x}" y1="18" x2="{x + 24}" y2="18" stroke="{colour}" '
                f'stroke-width="2.4"{dashed}/>', text(x + 30, 22, name, anchor="start", size=12)]
    for i, (workload, policies) in enumerate(table.items()):
        x0 = LEFT + (i % 2) * (PANEL_W + GAP_X)
        y0 = TOP + (i // 2) * (PANEL_H + GAP_Y)
        out += panel(x0, y0, workload, policies, look)
        out.append(text(x0 + PANEL_W / 2, y0 + PANEL_H + 31, "capacity, blocks"))
    middle = TOP + rows * (PANEL_H + GAP_Y) / 2 - GAP_Y / 2
    out.append(text(12, middle, "hit rate, tokens of prompts",
                    more=f' transform="rotate(-90 12 {middle:.1f})"'))
    return "\n".join(out + ["</svg>", ""])


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    drawing = draw(read(argv[1]))
    with open(argv[2], "w", encoding="utf-8", newline="\n") as f:
        f.write(drawing)


if __name__ == "__main__":
    main(sys.argv)
