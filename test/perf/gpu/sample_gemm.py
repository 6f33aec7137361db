# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the choice of tiles without tuning loses, over sampled sizes.

    sample_gemm.py prepare FOLDER [SEED]   without a GPU: a kernel for each tile, and what select takes for each size
    sample_gemm.py run FOLDER [S]          on a GPU with torch: all tiles of each size, in turn; the best ones and the
                                           choice once more; begins no size after S seconds

bf16 products with weights as [N, K], 9 to 8192 rows, N and K any multiples of 8: 220 sizes from a seed. Without one it
is fresh, so that no constant of the model can have been fitted to its sizes; the first line of a log says it. Seeds
whose logs fit_select.py fits to are refused (FITTED): they say nothing of the choice. A line says the times in us of all tiles that take no more than twice the least: p 128x96 ping-pong, c cooperative, s64x32c4 split over a cluster of four, p128x128m2 with columns that two blocks load for each other. Exit
code 1 when the choice loses more than 8 % in the mean.
"""
import json
import math
import os
import random
import re
import subprocess
import sys
import time

from generated import LATHE, TARGET, compile_cubin, load, median, prepare_all, race_rounds, tile_facts
from plans import read_plan
from race_gemm import save_model

SMS, COUNT, BAR = 132, 220, 1.08
# Of the logs that results/README.md names as fitted to.
FITTED = {20261122, 20261123, 20261124, 20261126, 20261127}
TILES = [("pingpong", 128, n, 1) for n in (64, 96, 112, 128, 160, 192)] + \
        [("cooperative", 128, n, 1) for n in (64, 96, 112, 128, 192, 224, 256)] + \
        [("pingpong", 64, n, 1) for n in (32, 48, 64, 96, 128, 192, 224)] + \
        [("split", 64, n, c) for n in (32, 48, 64, 96, 128, 192, 224, 256) for c in (1, 2, 4, 8)] + \
        [("pingpong", 128, n, 2) for n in (128, 192)] + [("cooperative", 128, n, 2) for n in (128, 192, 224, 256)]


def over(a, b):
    return -(-a // b)


def sizes(seed):
    """[(m, n, k)], the logarithms even."""
    rng, out = random.Random(seed), []
    while len(out) < COUNT:
        m = int(math.exp(rng.uniform(math.log(9), math.log(8192))))
        n, k = (8 * int(math.exp(rng.uniform(math.log(8), math.log(2048)))) for _ in range(2))
        if 2 * m * n * k < 4e11 and 2 * (m * k + n * k + m * n) < 300e6:
            out.append((m, n, k))
    return out


def rows_of(tile, m):
    """How many rows of A are loaded; 0: all."""
    return over(m, 8) * 8 if m < tile[1] else 0


def name_of(tile, rows):
    """What lathe completes to the whole name."""
    family, m, n, c = tile
    return f"gemm.{family}" + (f".r{rows}" if rows else "") + f".m{m}.n{n}" + (f".c{c}" if c > 1 else "")


def short(tile):
    family, m, n, c = tile
    return f"{family[0]}{m}x{n}" + (f"{'c' if family == 'split' else 'm'}{c}" if c > 1 else "")


def blocks_of(tile, m, n):
    family, tm, tn, c = tile
    return over(m, tm) * over(n, tn) * c if family == "split" else over(m, tm * c) * c * over(n, tn)


def candidates(m, n, k):
    """[(tile, rows)] that are no waste on sight."""
    out = []
    for tile in TILES:
        family, tm, tn, c = tile
        blocks = blocks_of(tile, m, n)
        if tm > 64 and m <= 64 or tn > 32 and tn >= 2 * n or family == "split" and c > k // 64 and c > 1:
            continue
        if family != "split" and c > 1 and (m <= tm or 2 * k % 128 == 0):
            continue  # rows that begin with lines of the cache gain nothing
        if family == "split" and blocks > SMS or blocks * tm * tn > 64 * SMS * 128 * 128:
            continue
        out.append((tile, rows_of(tile, m)))
    return out


# ---- Without a GPU ------------------------------------------------------------------------------

def plan(stem, m, n, k, *options):
    save_model(stem + ".onnx", m, n, k, "", True, constant=False)
    subprocess.run([LATHE, "compile", stem + ".onnx", f"--target={TARGET}", "--stop-after=codegen", "-o", stem + ".mlir",
                    *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    answer = read_plan(open(stem + ".mlir").read())
    for end in (".onnx", ".mlir"):
        os.remove(stem + end)
    return answer


def prepare(folder, seed):
    if seed in FITTED:
        sys.exit(f"constants were fitted to sizes of seed {seed}: a figure over them judges nothing; leave the seed "
                 "away for a fresh one")
    os.makedirs(folder, exist_ok=True)

    def text_of(tile):
        family, m, n, c = tile
        config = f"gemm.{family}.m{m}.n{n}" + (f".c{c}" if c > 1 else "")
        return tile, plan(os.path.join(folder, config), 1024, 1024, 1024, "--config", "matmul_0=" + config)
    base = dict(prepare_all(TILES, text_of))
    table = sizes(seed)
    chosen = prepare_all(list(enumerate(table)), lambda s: plan(os.path.join(folder, f"s{s[0]}"), *s[1])[1])
    wanted = {c for size in table for c in candidates(*size)}
    facts = tile_facts(sorted(name_of(*c) for c in wanted))

    def cubin(item):
        # The sizes become parameters; the rows that are loaded of A stand in the tile.
        tile, rows = item
        name, stages = (facts[name_of(tile, rows)][key] for key in ("config", "stages"))
        text = base[tile][0].replace("StatusWord *status) {", "StatusWord *status, i64 sizeM, i64 sizeN, i64 sizeK) {")
        if tile[0] == "split":
            shape = f"SplitTile<{tile[2]}, {stages}, {rows or 64}, {tile[3]}, Holes>"
            text = re.sub(r"SplitTile<[^>]*Holes>", shape, text)
        else:
            text = re.sub(r"WgmmaTile<\d+, \d+, \d+, \d+,", f"WgmmaTile<{tile[1]}, {tile[2]}, {stages}, {rows or tile[1]},", text)
        text = re.sub(r"1024ll, 1024ll, 1024ll\);", "sizeM, sizeN, sizeK);", text)
        # Where results are stored at once, the distance of their rows stands in the method.
        text = text.replace("StatusWord *status;\n", "StatusWord *status;\n  i64 sizeN;\n", 1)
        text = text.replace(", status};", ", status, sizeN};").replace("m * 1024ll", "m * sizeN")
        if "1024ll" in text[text.index("struct Holes {"):]:
            sys.exit(f"{name}: a size of 1024 is left in the text")
        image, log = compile_cubin(text, name + ".cu")
        open(os.path.join(folder, name + ".cubin"), "wb").write(image)
        return name, re.search(r"(\w+)\(const bf16", text)[1]
    names = dict(prepare_all(sorted(wanted), cubin))
    rows = [{"size": s, "choice": c["config"], "pdl": c["pdl"]} for s, c in zip(table, chosen)]
    # How many columns of results are stored together.
    tiles = {name_of(tile, rows): {**facts[name_of(tile, rows)], "stored": [m["box"][0] for m in base[tile][1]["maps"][2:]]}
             for tile, rows in wanted}
    json.dump({"seed": seed, "functions": names, "tiles": tiles, "sizes": rows},
              open(os.path.join(folder, "sample_gemm.json"), "w"), indent=1)
    print(f"{len(names)} kernels, {len(rows)} sizes of seed {seed}")
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def launch_row(tile, rows, fact, function, m, n, k):
    family, tm, tn, c = tile
    blocks = blocks_of(tile, m, n)
    one = {"steps": [1] * 5, "corners": []}
    maps = [{"buffer": 0, "dims": [k, m], "strides": [2 * k], "box": [64, rows or tm], "swizzle": 128, **one},
            {"buffer": 1, "dims": [k, n], "strides": [2 * k], "box": [64, tn if family == "split" else tn // c], "swizzle": 128, **one}]
    for wide in fact["stored"]:
        maps.append({"buffer": 2, "dims": [n, m], "strides": [2 * n], "box": [wide, 64], "swizzle": 2 * wide, **one})
    return {"function": function, "grid": [blocks if family == "split" else min(blocks, SMS), 1, 1],
            "block": [fact["threads"], 1, 1], "cluster": [c, 1, 1], "pdl": False, "before": [],
            "workspace": 0, "shared": fact["shared_bytes"], "maps": maps, "sizes": [m, n, k]}


def run(folder, seconds):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    table = json.load(open(os.path.join(folder, "sample_gemm.json")))
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "seed", table["seed"],
          "(fitted to)" if table["seed"] in FITTED else "(held out)", flush=True)
    images = {name: open(os.path.join(folder, name + ".cubin"), "rb").read() for name in table["functions"]}
    losses, against, skipped, begin = [], [], 0, time.time()
    for row in table["sizes"]:
        if time.time() - begin > seconds:
            break
        m, n, k = row["size"]
        moved = 2 * (m * k + n * k + m * n)
        make = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
        sets = [(make(m, k), make(n, k), make(m, n)) for _ in range(max(2, min(12, over(int(150e6), moved))))]
        want = sets[0][0].float() @ sets[0][1].float().t()
        racers, names, errors = {"torch": [lambda s=s: torch.mm(s[0], s[1].t(), out=s[2]) for s in sets]}, {}, {}
        for tile, rows in candidates(m, n, k):
            fact = table["tiles"][name_of(tile, rows)]
            name = fact["config"]
            bind = load(launch_row(tile, rows, fact, table["functions"][name], m, n, k), images[name])
            racers[short(tile)] = [bind(list(s)) for s in sets]
            names[name] = short(tile)
            sets[0][2].fill_(float("nan"))
            racers[short(tile)][0]()
            errors[name] = (sets[0][2].float() - want).norm() / want.norm()
        for name, error in zip(errors, torch.stack(list(errors.values())).tolist()):
            if not error < 4e-3:
                print(f"{m}x{n}x{k} {name} WRONG {error}")
                return 1
        times = {c: median(v) for c, v in race_rounds(racers, 3).items()}
        chosen = names.get(row["choice"])
        if not chosen:
            skipped += 1
            print(f"{m}x{n}x{k} {row['choice']} is not among the tiles", flush=True)
            continue
        # The least of many is partly luck: the first ones run again.
        first = sorted(names.values(), key=times.get)[:4]
        again = race_rounds({c: racers[c] for c in dict.fromkeys(["torch", chosen, *first])}, 15)
        times.update({c: median(v) for c, v in again.items()})
        library, best = times.pop("torch"), min(first, key=times.get)
        best = min(best, chosen, key=times.get)
        losses.append(times[chosen] / times[best])
        against.append(library / times[chosen])
        print(f"{m}x{n}x{k} chose {chosen} {times[chosen]:.2f} best {best} {times[best]:.2f} lost {losses[-1]:.3f} "
              f"torch {library:.2f}: " + " ".join(f"{c} {times[c]:.2f}" for c in sorted(times, key=times.get) if times[c] < 2 * times[best]), flush=True)
    if not losses:
        return 1
    mean = lambda v: math.exp(sum(map(math.log, v)) / len(v))
    losses.sort()
    print(f"{len(losses)} sizes ({skipped} left out) in {time.time() - begin:.0f} s: the choice takes {mean(losses):.4f} x the "
          f"best tile's time in the geometric mean, {losses[int(len(losses) * 0.95)]:.3f} at 95 %, {losses[-1]:.3f} at most; "
          f"{mean(against):.3f} x torch; bar {BAR}")
    return int(mean(losses) > BAR or skipped > len(table["sizes"]) // 10)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    more = sys.argv[3] if len(sys.argv) == 4 else None
    if sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], float(more or "1e9")))
    fresh = random.SystemRandom().randrange(20270000, 1 << 31)  # above all seeds that are dates of the past
    sys.exit(prepare(sys.argv[2], int(more) if more else fresh))
