# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The constants of the model by which select chooses the tiles of matrix products.

    fit_select.py show LOG...   how good the choice is with the constants that are compiled, log by log: first those that
                                nothing was fitted to
    fit_select.py mirror [SEED [COUNT]]   whether this model chooses as the compiler does, for sizes of a fresh seed
    fit_select.py fit LOG...    fits them to logs, and writes codegen/select/HopperGemmFit.h; build after it (needs torch)
    fit_select.py try LOG... -- LOG...   fits them to the first logs, shows all, and writes nothing

A log is what sample_gemm.py printed, or a sweep as in results/gemm-h200.log. The model is that of
codegen/select/HopperGemmTime.cpp, here over all tiles of all sizes at once; `show` exits with 1 where the two choose
differently for sizes of sample_gemm.py whose choice the log names. What is fitted are the times of tiles, the more the
nearer to the best of their size, and what the choice loses, softened so that it has a slope. A fit begins at the numbers
below, so that the same logs give the same header.
"""
import functools
import math
import os
import random
import re
import sys
import tempfile

import numpy as np

from generated import SOURCE, tile_facts
from race_gemm import LLAMA

# What the constants that are compiled were fitted to; results/README.md says how.
FITTED = {"sample-fit-h200.log", "sample-fit-more-h200.log", "sample-pairs-h200.log", "gemm-h200.log", "gemm-forms-h200.log",
          "conv-forms-h200.log", "gemm-tiles-h200.log"}
HEADER = os.path.join(SOURCE, "codegen", "select", "HopperGemmFit.h")
SMS = 132
# name: where a fit begins, and what it is. Those with a star are fitted; the others decide sizes and forms of which the logs have too few.
CONSTANTS = {
    "kMultiply": (3413, "* products of a tile a ns, over 64 of k"),
    "kHeat": (0.15, "  how much slower, in products so large that power sets the clock"),
    "kReuse": (0.6, "  how much faster all load there, from the cache instead of memory"),
    "kFeed": (83.16, "* bytes that a multiprocessor loads a ns"),
    "kFeedLines": (105.5, "* the same, rows that begin at multiples of 64 bytes"),
    "kFeedSectors": (109.8, "* the same, of 32 bytes"),
    "kFeedBetween": (77.62, "* the same, of 16 bytes"),
    "kAll": (0.8884, "* share of that which all multiprocessors load at a time"),
    "kAllLines": (0.6839, "* the same, rows that begin at multiples of 64 bytes"),
    "kAllSectors": (0.5984, "* the same, of 32 bytes"),
    "kAllBetween": (0.6019, "* the same, of 16 bytes"),
    "kOutside": (0.1609, "* rows that one beyond a tensor counts for, where one block waits for it"),
    "kOutsideAll": (2.304, "* the same, where all blocks load"),
    "kLatency": (1721, "* a load, until it is there"),
    "kBlendStep": (9.158, "* how sharp the longest part of a step hides the others"),
    "kBlend": (4.511, "* the same, of what multiprocessors and memory do"),
    "kStart": (1223, "* a launch"),
    "kRound": (651.9, "* between a tile and the next"),
    "kEpilogue": (0.04262, "* ns a result, the last ones of ping-pong"),
    "kShown": (0.07953, "* ns a result that nothing hides"),
    "kNarrow": (4.689, "* factor of that, results staged by 16 columns"),
    "kMiddle": (1.299, "* the same, by 32"),
    "kMemory": (4400, "  bytes of memory a ns"),
    "kAhead": (75350, "* bytes under way that halve that"),
    "kIdle": (0.5858, "* how memory suffers from blocks that are over (exponent)"),
    "kTogether": (753.1, "* adding up over a cluster"),
    "kTogetherEach": (13.98, "* the same, a block"),
    "kTogetherSums": (0.04564, "* the same, a sum and the root of the blocks"),
    "kTogetherMoved": (202.4, "* the same, where memory is slower"),
    "kSplitRows": (1.253, "* factor of a step: clusters with several rows of tiles"),
    "kCooperative": (1.007, "* factor of a step: later rounds that do not take turns"),
    "kCooperativeLarge": (0.09, "  how much more than that, of large products"),
    "kUneven": (0.02, "  how much slower, in large products, columns that are no multiple of 64"),
    "kLarge": (1.099, "* factor of a step: one round of the largest tiles that do not take turns"),
    "kTurnAlone": (1.005, "* factor of a step: one round of tiles of 128 rows that take turns"),
    "kHalfRows": (0.9476, "* factor of a step: tiles of 64 rows, all of them loaded"),
    "kAlone": (699.3, "* a lone group of warps starts later"),
    "kFinish": (3, "* factor of storing results that are more than the sums, but in a lone round"),
    "kFinishSwapped": (1.5, "* the same, operands swapped: what follows from a column is one value a thread"),
    "kFinishBeside": (1, "* the same besides, with a tensor that is read beside the results"),
    "kBesideWide": (1.06, "* factor of memory, the same, more than 64 sums a thread"),
    "kBesideFew": (1.25, "  factor of a step, the same, groups that take turns and have few steps to wait in"),
    "kSwapped": (0.8, "* factor of the time between tiles: operands swapped"),
    "kShare": (847.1, "* handing over sums of tiles that blocks share"),
    "kPaired": (0.5, "* share of the columns that a block of a pair loads"),
    "kAcross": (1.48, "  factor of a step: B across k in chunks of 32 columns"),
    "kBytesShown": (1.04, "  factor of a step: operands of one byte whose results nothing hides"),
    "kPromotedWide": (1.03, "  factor of a step: sums of 8-bit floats taken out, more than 128 columns"),
    "kPromotedStep": (100, "  least step with such sums"),
    "kPromotedColumn": (1.13, "  the same, a column"),
    "kShort": (8000, "  ns, below which weights are fetched while the kernel before still runs"),
    "kShortSwapped": (14500, "  the same, operands swapped"),
}
# What holds constants to where they begin: strongly those of bare sums, which earlier logs were fitted to, too.
NEW, PULL, PULL_NEW = ("kFinish", "kFinishSwapped", "kFinishBeside", "kBesideWide", "kSwapped", "kPaired"), 5e-2, 5e-4
AT_LEAST_ONE = ("kSplitRows", "kCooperative", "kLarge", "kTurnAlone", "kFinish", "kFinishSwapped", "kBesideWide")


def read_header():
    text = open(HEADER).read()
    return {name: float((re.search(rf"\b{name} = ([\d.]+)", text) or [0, start])[1]) for name, (start, _) in CONSTANTS.items()}


def write_header(values, logs, loss):
    rows = "\n".join(f"/// {CONSTANTS[name][1][2:]}\nconstexpr double {name} = {values[name]:.6g};" for name in CONSTANTS)
    with open(HEADER, "w") as f:
        f.write(f"""//===- HopperGemmFit.h - constants of the model of tiles --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Written by test/perf/gpu/fit_select.py; what they were fitted to is listed there
// in results/README.md. Times in ns, which rank tiles and are no promise. Over the
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
    """[(path, (m, n, k), {tile: us}, chosen tile or None, what becomes of sums)]; a tile is (family, m, n, cluster)."""
    out = []
    for path in paths:
        for line in open(path):
            if m := re.match(r"(\d+)x(\d+)x(\d+) chose (\S+) .*?: (.*)", line):
                words = m[5].split()
                times = {tile_of(t): float(us) for t, us in zip(words[::2], words[1::2]) if tile_of(t)}
                out.append((path, tuple(map(int, m.groups()[:3])), times, tile_of(m[4]), "bare"))
            elif m := re.match(r"(\d+)x(\d+)x(\d+)(?:(\+\S+)|(\+r)? cudnn [\d.]+) torch [\d.]+: (.*)", line):
                times = {}
                for entry in re.findall(r"\[([^\]]*)\]", m[6]):
                    words = entry.split()
                    tile = (words[0].replace("ping", "p").replace("coop", "c"), *map(int, words[1].split("x")), 1)
                    if len(words) == 5 and words[2] == f"s{stages_of(tile)}":
                        times[tile] = float(words[3])
                out.append((path, tuple(map(int, m.groups()[:3])), times, None, "beside" if m[5] or "res" in (m[4] or "") else "more"))
            elif m := re.match(r"(\S+) torch [\d.]+ lt [\d.]+: (.*)", line):
                if size := old_size(m[1]):
                    times = {}
                    for entry in re.findall(r"\[([^\]]*)\]", m[2]):
                        if (tile := old_tile(entry)) and tile[1]:
                            times[tile[0]] = min(times.get(tile[0], 1e9), tile[1])
                    if sum(t in TILES + PAIRED for t in times) > 2:
                        out.append((path, size, times, None, "bare"))
    # Tiles that select never takes were tried, too.
    out = [(path, size, {t: us for t, us in times.items() if t in TILES or t in PAIRED or how != "bare" and t in SWAPPED}, chosen, how)
           for path, size, times, chosen, how in out]
    return [case for case in out if len(case[2]) > 1]


def tile_of(text):
    """Nothing for forms that this model does not know."""
    m = re.match(r"([ps]|c(?!.*c))(\d+)x(\d+)(?:[cm](\d+))?$", text)
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
    skipped = {"g4", "g32", "across", "shift", "late", "early", "hint", "k2", "P0", "P1"}
    if words[0] not in ("ping", "sping", "coop", "split") or skipped & set(words) or "per" in entry:
        return None
    rows, columns = map(int, words[1].split("x"))
    cluster = next((int(w[1:]) for w in words[3:-2] if re.match(r"c\d$", w)), 1)
    if "m2" in words:
        return (words[0][0], rows, columns, 2), float(words[-2])
    if (cluster > 1 and words[0] != "split") or (words[0] == "split" and rows == 128):
        return None
    return ("S" if words[0] == "sping" else words[0][0], rows, columns, cluster), float(words[-2])


# ---- The model ----------------------------------------------------------------------------------

TILES = [("p", 128, n, 1) for n in (128, 192, 160, 112, 96, 64)] + [("c", 128, n, 1) for n in (256, 224, 192, 128, 112, 96, 64)] + \
        [("p", 64, n, 1) for n in (224, 192, 128, 96, 64, 48, 32)] + \
        [("s", 64, n, c) for c in (1, 2, 4, 8) for n in (256, 224, 192, 128, 96, 64, 48, 32)] + [("S", 128, 128, 1)]
PAIRED = [("p", 128, n, 2) for n in (128, 192)] + [("c", 128, n, 2) for n in (256, 224, 192, 128)]
SWAPPED = [("xc", m, 128, 1) for m in (96, 128, 160, 192)] + [("xp", m, 128, 1) for m in (96, 128)] + \
          [("xp", m, 64, 1) for m in (64, 128, 192)]
FAMILY_NAMES = {"p": "pingpong", "c": "cooperative", "s": "split", "S": "pingpong.streamk", "xp": "pingpong.swapped",
                "xc": "cooperative.swapped"}
FAMILIES = tuple(FAMILY_NAMES)
MANY_ROUNDS, FEW_STEPS = 8, 8  # from which on tiles are shared; too few to wait for what lies beside results


def over(a, b):
    return -(-a // b)


@functools.lru_cache(None)
def all_stages():
    """{(tile, rows of A that are loaded): stages} as lathe completes the tiles."""
    names = {}
    for tile in TILES + PAIRED + SWAPPED:
        family, m, n, c = tile
        for rows in range(8, m + 1, 8):
            names[tile, rows] = f"gemm.{FAMILY_NAMES[family]}.r{rows}.m{m}.n{n}" + (f".c{c}" if c > 1 else "")
    facts = tile_facts(names.values())
    return {key: facts[name]["stages"] for key, name in names.items()}


def stages_of(tile, rows=0):
    """Nothing for tiles that this model does not know."""
    return all_stages().get((tile, rows or tile[1]))


class Table:
    """All tiles of all sizes, a column each; `times` is what was measured, else what is worse than that."""

    def __init__(self, cases):
        columns, self.firsts, times, self.known, self.tiles = [], [], [], [], []
        for _, (m, n, k), measured, _, how in cases:
            self.firsts.append(len(columns))
            for tile in TILES + PAIRED + (SWAPPED if how != "bare" and m * n >= 128 * 128 * SMS // 2 else []):
                family, tm, tn, c = tile
                if family != "s" and c == 2 and (m <= tm or 2 * k % 128 == 0 or tile not in measured):
                    continue
                blocks = over(m, 64) * over(n, tn) * c
                if tm > 64 and m <= 64 or family == "s" and (blocks > SMS * {8: 96, 4: 112}.get(c, 132) // 132 or k // 64 < c):
                    continue
                if family == "S" and (over(m, tm) * over(n, tn) <= MANY_ROUNDS * SMS or tile not in measured):
                    continue
                if family == "xp" and (over(m, tm) * over(n, tn) <= SMS or how == "beside" and k <= FEW_STEPS * 64):
                    continue
                # Where results take more than sums, threads have registers for fewer of these.
                if how != "bare" and tile not in measured and (family in ("s", "S") or family == "p" and tn in (160, 192)):
                    continue
                rows = min(tm, over(m, 8) * 8)
                align = min(128, 2 * k & -(2 * k))
                swapped = family[0] == "x"
                # The roles of the instruction, whose rows are columns of the results where operands are swapped.
                high, wide, sides = (tn, tm, (n, m)) if swapped else (tm, tn, (m, n))
                columns.append((*sides, k, FAMILIES.index(family), high, wide, c, tn if swapped else rows, m < tm and not swapped,
                                stages_of(tile, rows), align, ("bare", "more", "beside").index(how)))
                self.tiles.append(tile)
                times.append(measured.get(tile, 1.1 * max(measured.values())))
                self.known.append(tile in measured)
        self.v = np.array(columns, float).T
        self.times, self.firsts, self.known = np.array(times), np.array(self.firsts), np.array(self.known)
        self.best = np.array([min(c[2].values()) for c in cases])
        # Sweeps are of whole models' sizes; products of many rounds are rare among the others.
        self.weight = np.array([1.0 if c[3] else 20.0 if math.prod(c[1]) > 3e10 else 10.0 if c[4] != "bare" else 3.0 for c in cases])

    def model(self, p, lib=np):
        """In ns; `p` are numbers, or with lib=torch tensors, then so is the result."""
        columns = [lib.tensor(x) if lib is not np else x for x in self.v]
        m, n, k, family, tm, tn, c, rows, few, stages, align, how = columns
        one = m * 0 + 1
        turns, alone, shared = (family == 0) | (family == 3) | (family == 4), (family == 2) & (c == 1), family == 3
        swapped, beside = family >= 4, how == 2
        up, least = lambda a, b: lib.ceil(a / b), lib.minimum
        where = lambda condition, a, b=1.0: lib.where(condition, one * a, one * b)

        def blend(sharp, *parts):
            longest = functools.reduce(lib.maximum, parts)
            return longest * sum((x / longest) ** sharp for x in parts) ** (1 / sharp)
        aligned = lambda a, b, c, d: where(align >= 128, p[a], where(align == 64, p[b], where(align == 32, p[c], p[d])))
        paired = (family != 2) & (c == 2)
        parts = where(paired, 1, c)
        down, across = where(paired, 2 * up(m, 2 * tm), up(m, tm)), up(n, tn)
        blocks = down * across * parts
        rounds, whole = up(blocks, SMS), lib.floor(blocks / SMS)
        steps, results = up(up(k, 64), parts), tm * tn
        feed = aligned("kFeed", "kFeedLines", "kFeedSectors", "kFeedBetween")
        all_ = aligned("kAll", "kAllLines", "kAllSectors", "kAllBetween") * feed
        below, right = where(few > 0, 0, down * tm - m), across * tn - n
        mean = below / down + right / across
        asked = rows + tn * where(paired, p["kPaired"])
        load = (asked + p["kOutside"] * where(rounds == 1, below + right, mean)) * 128 / feed
        load_all = (asked + p["kOutsideAll"] * mean) * 128 / all_
        large = m * n * k / (m * n * k + 3e10)
        factor = where(~turns & (rounds > 1), p["kCooperative"] + p["kCooperativeLarge"] * large) * \
            where(~turns & (rounds == 1) & (results > 128 * 224), p["kLarge"]) * \
            where(turns & (rounds == 1) & (tm == 128) & (tn > 64), p["kTurnAlone"]) * \
            where(tn % 64 != 0, 1 + p["kUneven"] * large) * where((tm == 64) & (few == 0), p["kHalfRows"]) * \
            where((parts > 1) & (m > tm), p["kSplitRows"])
        heat, reuse = 1 + p["kHeat"] * large, 1 + p["kReuse"] * large
        step = lambda active: factor * blend(p["kBlendStep"], results * 64 / p["kMultiply"] * heat, load / reuse,
                                             load_all / reuse * active / SMS,
                                             p["kLatency"] / stages / reuse)
        rest = blocks - whole * SMS
        plain = results * where(tn % 32 != 0, p["kNarrow"], where(tn % 64 != 0, p["kMiddle"]))
        staged = plain * where(how == 0, 1, where(swapped, p["kFinishSwapped"], p["kFinish"]) + where(beside, p["kFinishBeside"], 0))
        turn = p["kRound"] * where(swapped & (rounds > 1), p["kSwapped"])
        waits = where(turns & beside & (steps <= FEW_STEPS), p["kBesideFew"])
        # Groups that take turns: while one multiplies the other stores, and multiplies no sooner than it has.
        def tile(active):
            products = waits * steps * step(active) + turn
            return where(turns & (rounds > 1), lib.maximum(products, (products + staged * p["kEpilogue"]) / 2), products)
        last = where(shared, rest * steps / SMS * step(one * SMS) + p["kShare"], tile(rest))
        busy, idle = whole * tile(one * SMS) + where(rest > 0, last, 0), where(shared, 1, rounds * SMS / blocks)
        busy = busy + where(turns, plain * p["kEpilogue"], p["kShown"] * where(rounds > 1, rounds * staged, 0.5 * plain))
        sums = p["kTogether"] + p["kTogetherEach"] * parts + p["kTogetherSums"] * rows * tn * parts ** 0.5
        busy = busy + where(c > 1, sums, 0)
        ahead = least(blocks, one * SMS) * least(steps * rounds, stages) * (n / across + where(rounds > 1, rows, 0)) * 128
        moved = 2 * (m * k + n * (k + m * where(beside, 2, 1))) / p["kMemory"] * (1 + p["kAhead"] / ahead) * idle ** p["kIdle"]
        moved = moved + where(c > 1, p["kTogetherMoved"], 0)
        moved = moved * where(beside & (tm * tn / where(turns, 128, 256) > 64), p["kBesideWide"])
        busy = busy + where(alone, p["kAlone"], 0)
        return blend(p["kBlend"], busy, moved) + p["kStart"]

    def choices(self, p):
        times = self.model(p)
        ends = [*self.firsts[1:], len(times)]
        return np.array([a + int(np.argmin(times[a:b])) for a, b in zip(self.firsts, ends)])

    def losses(self, p):
        return self.times[self.choices(p)] / self.best


def mean(losses, weight=1):
    return math.exp(np.average(np.log(losses), weights=np.ones(len(losses)) * weight))


def fit(table, turns=400):
    import torch
    torch.set_num_threads(1)  # sums in one order
    p = {name: float(at) for name, (at, _) in CONSTANTS.items()}
    names = [n for n, (_, what) in CONSTANTS.items() if what.startswith("*")]
    of = lambda name, x: 1 + torch.exp(x) if name in AT_LEAST_ONE else torch.exp(x)
    start = lambda name: math.log(max(p[name] - 1, 0.01) if name in AT_LEAST_ONE else p[name])
    raw = {name: torch.tensor(start(name), dtype=torch.float64, requires_grad=True) for name in names}
    begin = [x.detach().clone() for x in raw.values()]
    fixed = {name: torch.tensor(v, dtype=torch.float64) for name, v in p.items() if name not in raw}
    size = torch.tensor(np.repeat(np.arange(len(table.best)), np.diff([*table.firsts, len(table.times)])))
    weight, known = torch.tensor(table.weight), torch.tensor(table.known)
    times = torch.tensor(table.times)
    worse = times / torch.tensor(table.best)[size] - 1
    near = torch.where(known, torch.exp(-3 * worse), 0.0) * weight[size]
    sum_of = lambda x: torch.zeros(len(weight), dtype=torch.float64).index_add(0, size, x)
    steps = torch.optim.Adam(raw.values(), lr=0.02)
    for turn in range(turns):
        if turn in (turns // 2, turns * 3 // 4):
            steps.param_groups[0]["lr"] *= 0.4
        t = torch.log(table.model({**fixed, **{name: of(name, x) for name, x in raw.items()}}, torch) / 1000)
        error = torch.nn.functional.huber_loss(t, torch.log(times), reduction="none", delta=0.1)
        # What the choice loses, were it made with odds that fall with the time.
        z = -t / (0.06 if turn < turns // 2 else 0.03)
        odds = torch.exp(z - torch.full((len(weight),), -1e30, dtype=torch.float64).scatter_reduce(0, size, z, "amax").detach()[size])
        lost = sum_of(odds / sum_of(odds)[size] * torch.clamp(worse, max=1.0))
        cost = 4 * (error * near).sum() / near.sum() + ((lost + 4 * torch.relu(lost - 0.06)) * weight).sum() / weight.sum()
        cost = cost + sum((PULL_NEW if name in NEW else PULL) * (raw[name] - x0) ** 2 for name, x0 in zip(names, begin))
        steps.zero_grad()
        cost.backward()
        steps.step()
    return {**p, **{name: float(f"{float(of(name, x.detach())):.4g}") for name, x in raw.items()}}


def main(verb, paths):
    trained = paths[:paths.index("--")] if "--" in paths else paths
    paths = [p for p in paths if p != "--"]
    cases, p, bad = read_logs(paths), read_header(), 0
    if verb in ("fit", "try"):
        known = [c for c in cases if c[0] in trained]
        table = Table(known)
        print(f"before: {mean(table.losses(p), table.weight):.4f} over {len(known)} sizes")
        p = fit(table)
        loss = mean(table.losses(p), table.weight)
        print(f"after: {loss:.4f}\n" + ", ".join(f"{name} {v:.6g}" for name, v in p.items()))
        if verb == "fit":
            write_header(p, len(known), loss)
    fitted = trained if verb != "show" else [p for p in paths if os.path.basename(p) in FITTED]
    for path in sorted(paths, key=lambda p: p in fitted):
        mine = [c for c in cases if c[0] == path]
        if not mine:
            sys.exit(f"{path}: no sizes")
        table = Table(mine)
        losses, picks = table.losses(p), table.choices(p)
        chosen = [(c, table.tiles[i]) for c, i in zip(mine, picks) if c[3]]
        differ = [(c[1], c[3], t) for c, t in chosen if c[3] != t]
        print(f"{'fitted to' if path in fitted else 'held out'}: {path}: {len(mine)} sizes, the choice takes {mean(losses):.4f} x the best tile's time, "
              f"{sorted(losses)[int(len(losses) * 0.95)]:.3f} at 95 %, {max(losses):.3f} at most"
              + (f"; {len(differ)} of {len(chosen)} differ from the log's choices: {differ[:4]}" if chosen else ""))
        bad += bool(differ)
    return bad if verb == "show" else 0


def tile_of_config(config):
    """(family, m, n, cluster) of a configuration's name; nothing for families that this model does not know."""
    m = re.match(r"gemm\.(pingpong|cooperative|split)(?:\.[tr]\d+)*\.m(\d+)\.n(\d+)\.k64\.s\d+(?:\.c(\d+))?$", config)
    return m and (m[1][0], int(m[2]), int(m[3]), int(m[4] or 1))


def mirror(seed, count):
    """Asks the compiler for its choice and this model for the same; the number of sizes whose choices differ. Forms that
    this model does not know (few rows) are left out; equal times are no difference."""
    import sample_gemm
    sizes, tiles = sample_gemm.sizes(seed)[:count], TILES + PAIRED
    table = Table([("", size, dict.fromkeys(tiles, 1.0), None, "bare") for size in sizes])
    p, bad, outside = read_header(), 0, 0
    times, picks, ends = table.model(p), table.choices(p), [*table.firsts[1:], len(table.tiles)]
    with tempfile.TemporaryDirectory() as folder:
        for size, pick, begin, end in zip(sizes, picks, table.firsts, ends):
            config = sample_gemm.plan(os.path.join(folder, "k"), *size)[1]["config"]
            tile = tile_of_config(config)
            outside += not tile
            own = {t: time for t, time in zip(table.tiles[begin:end], times[begin:end])}
            if tile and own.get(tile, math.inf) > times[pick] * (1 + 1e-9):
                bad += 1
                print(f"{'x'.join(map(str, size))}: the compiler chooses {config}, this model {table.tiles[pick]}")
    print(f"{count - outside - bad} of {count - outside} choices are the compiler's, {outside} sizes take forms that this model "
          f"does not know (seed {seed})")
    return bad or outside > count // 10


if __name__ == "__main__":
    if sys.argv[1:2] == ["mirror"] and len(sys.argv) <= 4:
        seed, count = [*map(int, sys.argv[2:]), None, None][:2]
        sys.exit(int(mirror(seed or random.SystemRandom().randrange(20270000, 1 << 31), count or 40) > 0))
    if len(sys.argv) < 3 or sys.argv[1] not in ("show", "fit", "try"):
        sys.exit(__doc__)
    sys.exit(int(main(sys.argv[1], sys.argv[2:]) > 0))
