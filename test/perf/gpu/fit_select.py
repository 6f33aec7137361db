# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The constants of the model by which select chooses the tiles of matrix products.

    fit_select.py show LOG...   how good the choice is with the constants that are compiled, log by log
    fit_select.py fit LOG...    fits them to logs, and writes codegen/select/HopperGemmFit.h; build after it

A log is what sample_gemm.py printed, or a sweep as in results/gemm-h200.log. The model is modelTime of
codegen/select/HopperGemm.cpp, here over all tiles of all sizes at once; `show` exits with 1 where the two choose
differently for sizes of sample_gemm.py whose choice the log names. What is fitted is the geometric mean of what the choice
loses against the best tile, by going along one constant after the other; constants of forms that no log has stay.
"""
import math
import os
import re
import sys

import numpy as np

from generated import SOURCE
from race_gemm import LLAMA

HEADER = os.path.join(SOURCE, "codegen", "select", "HopperGemmFit.h")
SMS, SHARED = 132, 232448
# name: what it is. Those with a star are fitted; the others decide sizes and forms of which the logs have too few.
CONSTANTS = {
    "kMultiply": "* products of a tile a unit of time, over 64 of k",
    "kFeed": "* bytes that a multiprocessor loads a unit of time",
    "kFeedSectors": "  the same, rows that begin at multiples of 32 bytes",
    "kFeedBetween": "* the same, of 16 bytes",
    "kLatency": "* a load, until it is there",
    "kStart": "* a launch",
    "kRound": "* between a tile and the next",
    "kEpilogue": "  results a unit of time, the last ones of ping-pong",
    "kShown": "* results a unit of time that nothing hides",
    "kMemory": "  bytes of memory a unit of time",
    "kAhead": "* bytes under way a multiprocessor that memory wants",
    "kTogether": "* adding up over a cluster",
    "kTogetherEach": "* the same, a block",
    "kSplitRows": "* factor of a step: clusters with several rows of tiles",
    "kNarrow": "* factor of a step: columns staged by sixteens",
    "kCooperative": "  factor of a step: later rounds that do not take turns",
    "kLarge": "  factor of a step: one round of the largest tiles that do not take turns",
    "kTurnAlone": "* factor of a step: one round of tiles of 128 rows that take turns",
    "kActivation": "  factor of that time where results are more than the sums",
    "kBeside": "  results a unit of time, with others read beside them",
    "kBesideWide": "  factor of memory, the same, more than 64 sums a thread",
    "kShare": "  handing over sums of tiles that blocks share",
    "kOverhang": "* share of a step more, a round: columns beyond the tensor",
    "kHalfRows": "* factor of a step: tiles of 64 rows, all of them loaded",
    "kAlone": "* a lone group of warps starts later",
    "kBusy": "* share of the busy time that breaks ties",
    "kAcross": "  factor of a step: B across k in chunks of 32 columns",
    "kBytesShown": "  factor of a step: operands of one byte whose results nothing hides",
    "kPromotedWide": "  factor of a step: sums of 8-bit floats taken out, more than 128 columns",
    "kPromotedStep": "  least step with such sums",
    "kPromotedColumn": "  the same, a column",
}


def read_header():
    text = open(HEADER).read()
    return {name: float(re.search(rf"\b{name} = ([\d.]+)", text)[1]) for name in CONSTANTS}


def write_header(values, logs, loss):
    rows = "\n".join(f"/// {CONSTANTS[name][2:]}\nconstexpr double {name} = {values[name]:.6g};" for name in CONSTANTS)
    with open(HEADER, "w") as f:
        f.write(f"""//===- HopperGemmFit.h - constants of the model of tiles --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Written by test/perf/gpu/fit_select.py; what they were fitted to is listed there
// in results/README.md. Units of their own, no rates of the machine. Over the
// {logs} sizes of the fit the choice takes {loss:.4f} times the best tile's time.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
#define LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H

namespace lathe::select::fit {{

{rows}

}} // namespace lathe::select::fit

#endif // LATHE_CODEGEN_SELECT_HOPPERGEMMFIT_H
""")


# ---- Logs ---------------------------------------------------------------------------------------

def read_logs(paths):
    """[(path, (m, n, k), {tile: us}, chosen tile or None)]; a tile is (family's letter, m, n, cluster)."""
    out = []
    for path in paths:
        for line in open(path):
            if m := re.match(r"(\d+)x(\d+)x(\d+) chose (\S+) .*?: (.*)", line):
                words = m[5].split()
                times = {tile_of(t): float(us) for t, us in zip(words[::2], words[1::2]) if tile_of(t)}
                out.append((path, tuple(map(int, m.groups()[:3])), times, tile_of(m[4])))
            elif m := re.match(r"(\S+) torch [\d.]+ lt [\d.]+: (.*)", line):
                if size := old_size(m[1]):
                    times = {}
                    for entry in re.findall(r"\[([^\]]*)\]", m[2]):
                        if (tile := old_tile(entry)) and tile[1]:
                            times[tile[0]] = min(times.get(tile[0], 1e9), tile[1])
                    if len(times) > 3:
                        out.append((path, size, times, None))
    return out


def tile_of(text):
    """Nothing for forms that this model does not know."""
    m = re.match(r"([ps]|c(?!.*c))(\d+)x(\d+)(?:c(\d+))?$", text)
    return m and (m[1], int(m[2]), int(m[3]), int(m[4] or 1))


def old_size(name):
    name = name.replace("skinny_", "")
    if m := re.match(r"(\d+)x(\d+)x(\d+)$", name):
        return tuple(map(int, m.groups()))
    if m := re.match(r"square_(\d+)$", name):
        return (int(m[1]),) * 3
    m = re.match(r"(\w+?)_(\d+)$", name)
    return (int(m[2]), *LLAMA[m[1]]) if m and m[1] in LLAMA else None


def old_tile(entry):
    words = entry.split()
    if words[0] not in ("ping", "coop", "split") or {"g4", "g32"} & set(words) or "per" in entry:
        return None
    rows, columns = map(int, words[1].split("x"))
    cluster = next((int(w[1:]) for w in words[3:-2] if re.match(r"c\d$", w)), 1)
    if (cluster > 1 and words[0] != "split") or (words[0] == "split" and rows == 128):
        return None
    return (words[0][0], rows, columns, cluster), float(words[-2])


# ---- The model ----------------------------------------------------------------------------------

TILES = [("p", 128, n, 1) for n in (128, 192, 160, 112, 96, 64)] + [("c", 128, n, 1) for n in (256, 224, 192, 128, 112, 96, 64)] + \
        [("p", 64, n, 1) for n in (224, 192, 128, 96, 64, 48, 32)] + \
        [("s", 64, n, c) for c in (1, 2, 4, 8) for n in (256, 224, 192, 128, 96, 64, 48, 32)]


def over(a, b):
    return -(-a // b)


def stages_of(tile, rows):
    family, m, n, _ = tile
    wide, stages = 64 if n % 64 == 0 else 32 if n % 32 == 0 else 16, 12
    size = lambda s: max(s * (rows + n) * 128, rows * (n + 8) * 4) + 16 * s + 1024 if family == "s" else \
        s * (m + n) * 128 + 4 * 64 * wide * 2 + 16 * s + 32 + 1024
    while stages > 2 and size(stages) > SHARED:
        stages -= 1
    return stages


class Table:
    """All tiles of all sizes, a column each; `times` is what was measured, else what is worse than that."""

    def __init__(self, cases):
        columns, self.firsts, times = [], [], []
        for _, (m, n, k), measured, _ in cases:
            self.firsts.append(len(columns))
            for tile in TILES:
                family, tm, tn, c = tile
                blocks = over(m, 64) * over(n, tn) * c
                if tm > 64 and m <= 64 or family == "s" and (blocks > SMS * {8: 96, 4: 112}.get(c, 132) // 132 or k // 64 < c):
                    continue
                rows = min(tm, over(m, 8) * 8)
                align = min(128, 2 * k & -(2 * k))
                columns.append((m, n, k, "pcs".index(family), tm, tn, c, rows, m < tm, stages_of(tile, rows), align,
                                TILES.index(tile)))
                times.append(measured.get(tile, 1.1 * max(measured.values())))
        self.v = np.array(columns, float).T
        self.times, self.firsts = np.array(times), np.array(self.firsts)
        self.best = np.array([min(c[2].values()) for c in cases])

    def model(self, p):
        m, n, k, family, tm, tn, c, rows, few, stages, align, _ = self.v
        turns, alone = family == 0, (family == 2) & (c == 1)
        up = lambda a, b: np.ceil(a / b)
        blocks = up(m, tm) * up(n, tn) * c
        rounds, steps, results = up(blocks, SMS), up(up(k, 64), c), tm * tn
        feed = np.where(align >= 64, p["kFeed"], np.where(align == 32, p["kFeedSectors"], p["kFeedBetween"]))
        step = np.maximum(np.maximum(results * 64 / p["kMultiply"], (rows + tn) * 128 / feed), p["kLatency"] / stages)
        step = step * np.where(tn % 32 != 0, p["kNarrow"], 1) * np.where(~turns & (rounds > 1), p["kCooperative"], 1)
        step = step * np.where(~turns & (rounds == 1) & (results > 128 * 224), p["kLarge"], 1)
        step = step * np.where(n % tn != 0, 1 + p["kOverhang"] / rounds, 1) * np.where((c > 1) & (m > tm), p["kSplitRows"], 1)
        step = step * np.where((tm == 64) & (few == 0), p["kHalfRows"], 1)
        step = step * np.where(turns & (rounds == 1) & (tm == 128) & (tn > 64), p["kTurnAlone"], 1)
        shown = np.where(turns, results / p["kEpilogue"], results / p["kShown"] * np.where(rounds > 1, rounds, 0.5))
        busy = rounds * (steps * step + p["kRound"]) + shown + (c > 1) * (p["kTogether"] + p["kTogetherEach"] * c)
        ahead = np.minimum(blocks, SMS) * np.minimum(steps * rounds, stages) * (n / np.ceil(n / tn) + (rounds > 1) * rows) * 128
        moved = 2 * (m * k + n * (k + m)) / p["kMemory"] * (1 + p["kAhead"] * SMS / ahead) * np.sqrt(rounds * SMS / blocks)
        moved = moved + (c > 1) * p["kTogether"]
        return np.maximum(busy, moved) + p["kBusy"] * busy + p["kStart"] + alone * p["kAlone"]

    def choices(self, p):
        times = self.model(p)
        ends = [*self.firsts[1:], len(times)]
        return np.array([a + int(np.argmin(times[a:b])) for a, b in zip(self.firsts, ends)])

    def losses(self, p):
        return self.times[self.choices(p)] / self.best


def mean(losses):
    return math.exp(np.log(losses).mean())


def fit(table, p):
    """Goes along one constant after the other; what is far from where it was must gain more."""
    start = dict(p)
    names = [n for n, what in CONSTANTS.items() if what.startswith("*")]

    def cost(p):
        away = sum(abs(math.log(p[n] / start[n])) for n in names)
        return np.log(table.losses(p)).mean() + 0.0002 * away
    best, factor = cost(p), 1.25
    while factor > 1.01:
        before = best
        for name in names:
            for f in (factor, 1 / factor):
                q = {**p, name: p[name] * f}
                # A factor of a step slows it down or does nothing.
                if (value := cost(q)) < best - 1e-6:
                    best, p = value, q
        if before - best < 1e-5:
            factor = math.sqrt(factor)
    return {n: float(f"{v:.4g}") for n, v in p.items()}


def main(verb, paths):
    cases, p, bad = read_logs(paths), read_header(), 0
    if verb == "fit":
        # Sweeps are of whole models' sizes: they count three times.
        table = Table([c for c in cases for _ in range(1 if c[3] else 3)])
        print(f"before: {mean(table.losses(p)):.4f} over {len(cases)} sizes")
        p = fit(table, p)
        write_header(p, len(cases), mean(table.losses(p)))
        print(open(HEADER).read())
    for path in paths:
        mine = [c for c in cases if c[0] == path]
        if not mine:
            sys.exit(f"{path}: no sizes")
        table = Table(mine)
        losses, picks = table.losses(p), table.choices(p)
        chosen = [(c, TILES[int(table.v[11][i])]) for c, i in zip(mine, picks) if c[3]]
        differ = [(c[1], c[3], t) for c, t in chosen if c[3] != t]
        print(f"{path}: {len(mine)} sizes, the choice takes {mean(losses):.4f} x the best tile's time, "
              f"{sorted(losses)[int(len(losses) * 0.95)]:.3f} at 95 %, {max(losses):.3f} at most"
              + (f"; {len(differ)} of {len(chosen)} differ from the log's choices: {differ[:4]}" if chosen else ""))
        bad += bool(differ)
    return bad if verb == "show" else 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("show", "fit"):
        sys.exit(__doc__)
    sys.exit(int(main(sys.argv[1], sys.argv[2:]) > 0))
