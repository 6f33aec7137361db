# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races products with 2:4 sparse weights against the same products dense (ours, torch's) and against cuSPARSELt.

    race_sparse.py prepare FOLDER [GROUP...]   without a GPU: kernels of both as cubins, with their launches
    race_sparse.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                               candidates in rounds, as CUDA-graph replays over rotating buffers

bf16, weights as [N, K] like torch's Linear, pruned by magnitude. Groups: odd (correctness only), square, many, wide,
one, few; of 8 bits fp8 (e4m3, --allow=reduced-sums), fp8exact (sums in f32), int8 and odd8 (correctness only, also e5m2 and unsigned rows).
`prepare --config=CONFIG` takes another sparse configuration where it is possible. Ratios are taken within a round,
each of which has another order: rival's time over ours. Of cuSPARSELt all algorithms are tried that torch lets one
name, with the result either way round; the three fastest of three rounds take part, and the best counts. The bars are
those printed at the end: geometric mean and least.
"""
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import race_gemm
import race_gemm8
from generated import LATHE, TARGET, command, judge, median, race_rounds, ratio
from plans import keep_kernels, load_kernels

LLAMA = race_gemm.LLAMA
#         group: rival -> (least geometric mean, least ratio)
BARS = {"square": {"dense": (1.40, 1.40), "cslt": (1.10, 1.10)}, "wide": {"dense": (1.60, 1.60)},
        "one": {"dense": (1.25, 1.25)}, "fp8": {"dense": (1.35, 1.35)}, "fp8exact": {"dense": (1.35, 1.35)}}
ROUNDS = 31
EIGHT_BITS = {"fp8": "e4m3fast", "fp8exact": "e4m3", "int8": "int8+scale"}  # group -> form of race_gemm8.py


def cases():
    """group -> [(name, m, n, k, epilogue, weights along k[, configuration])]"""
    rows = lambda m, names: [(f"{name}_{m}", m, *LLAMA[name], "", True) for name in names]
    out = {"square": [("square_8192", 8192, 8192, 8192, "", True)],
           "many": [("square_4096", 4096, 4096, 4096, "", True)] + rows(2048, LLAMA) + rows(256, LLAMA),
           "wide": rows(1, ("gateup", "down")), "one": rows(1, ("qkv", "o")),
           "few": rows(4, LLAMA) + rows(8, LLAMA) + rows(16, LLAMA), "odd": []}
    for m, n, k in [(1, 4096, 72), (7, 1000, 776), (16, 4104, 4096), (13, 520, 1032), (33, 264, 200), (257, 512, 1032), (1021, 1024, 1016),
                    (64, 776, 200), (129, 4096, 128), (3000, 1992, 520)]:
        out["odd"] += [(f"odd_{m}x{n}x{k}{e}{t}", m, n, k, e, t) for e in ("", "bias+gelu", "residual") for t in (True, False)]
    forms = ["gemm.sparse.cooperative.m128.n256", "gemm.sparse.cooperative.m128.n256.c2", "gemm.sparse.cooperative.m256.n128",
             "gemm.sparse.pingpong.m128.n128.c2", "gemm.sparse.pingpong.m128.n192", "gemm.sparse.pingpong.m16.n64", "gemm.sparse.cooperative.streamk.m128.n256"]
    out["odd"] += [(f"form_{m}x{n}x{k}{e}_{'_'.join(form[12:].split('.'))}", m, n, k, e, True, form) for form in forms
                   for m, n, k, e in ((257, 520, 1032, ""), (1021, 1024, 1016, "residual"), (1, 776, 200, "bias+gelu"))]
    for group, form in EIGHT_BITS.items():
        out[group] = [(f"square_8192_{group}", 8192, 8192, 8192, form, True)]
        out[group] += [(f"{name}_2048_{group}", 2048, *LLAMA[name], form, True) for name in ("gateup", "down")]
    forms = {"e4m3": ("gemm.sparse.promoted.m192.n128", "gemm.sparse.promoted.m128.n128.c2", "gemm.sparse.promoted.m48.n256"),
             "e4m3fast": ("gemm.sparse.cooperative.m192.n256", "gemm.sparse.pingpong.m128.n128.c2", "gemm.sparse.cooperative.streamk.m128.n256"),
             "int8+scale": ("gemm.sparse.cooperative.m128.n256", "gemm.sparse.pingpong.m16.n64"), "uint8+scale": ("gemm.sparse.cooperative.m128.n256",), "e5m2": ("gemm.sparse.promoted.m64.n128",)}
    out["odd8"] = [(f"odd8_{m}x{n}x{k}_{form.replace('+', '_')}{i}", m, n, k, form, True, *config)
                   for m, n, k in ((1, 4096, 144), (13, 520, 1040), (257, 504, 784), (1021, 1024, 1136), (3000, 1992, 272))
                   for form in forms for i, config in enumerate([(), *[(f,) for f in forms[form]]])]
    return out


def of_eight_bits(row):
    return row["group"] in EIGHT_BITS or row["group"] == "odd8"


# ---- Without a GPU ------------------------------------------------------------------------------

def compile_kernel(folder, stem, name, how, config, allow=()):
    path = os.path.join(folder, name)
    command = [LATHE, "compile", stem + ".onnx", f"--target={TARGET}", f"--sparse-weights={how}", "--stop-after=codegen", "-o",
               path + ".mlir", *allow]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode == 0 and config:
        kernel = re.search(r"exec\.launch @(\w+)", open(path + ".mlir").read())[1]
        made = subprocess.run(command + ["--config", f"{kernel}={config}"], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{name}: {made.stderr}")
    row = keep_kernels(folder, name, open(path + ".mlir").read())
    os.remove(path + ".mlir")
    return row


def prepare(folder, groups, config):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for name, m, n, k, epilogue, along, *form in cases()[group]:
            stem = os.path.join(folder, name)
            eight = of_eight_bits({"group": group})
            if eight:
                result = race_gemm8.save_model(stem + ".onnx", m, n, k, epilogue)
            else:
                race_gemm.save_model(stem + ".onnx", m, n, k, epilogue, along)
                if os.path.exists(stem + ".onnx.bin"):  # of zeros alone whole blocks are left out
                    ones = np.uint16(0x3f80) * (np.arange(k, dtype=np.uint16) % 2)
                    np.broadcast_to(ones if along else ones[:, None], (n, k) if along else (k, n)).tofile(stem + ".onnx.bin")
            allow = ["--allow=reduced-sums"] if eight and "fast" in epilogue else []
            row = compile_kernel(folder, stem, name, "always", config or (form[0] if form else ""), allow)
            if "sparse" not in row["config"]:
                sys.exit(f"{name}: {row['config']} is dense")
            row.update(name=name, group=group, m=m, n=n, k=k, epilogue=epilogue, along=along)
            if eight:
                row.update(form=epilogue, result=result)
            if not group.startswith("odd"):
                row["dense"] = {**row, **compile_kernel(folder, stem, name + "_dense", "never", "", allow)}
            for end in (".onnx", ".onnx.bin"):
                if os.path.exists(stem + end):
                    os.remove(stem + end)
            table.append(row)
            print(f"{name:32} {row['config']:52} {row['dense']['config'] if 'dense' in row else ''}", flush=True)
    if os.path.exists(weights := os.path.join(folder, "weights.bin")):  # of the last
        os.remove(weights)
    json.dump(table, open(os.path.join(folder, "race_sparse.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def pruned(w):
    """The two of each four neighbours along the last dimension with the greatest magnitudes; some groups have fewer."""
    import torch
    values = w.view(w.shape[0], -1, 4)
    groups = values.float().abs()
    kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(2, groups.topk(2, dim=2).indices, True)
    kept.view(-1)[::11] = False
    return torch.where(kept, values, torch.zeros_like(values)).view(w.shape).contiguous()


def packed(w):
    """`sparse24` and `sparse24x8` (include/lathe/support/Packing.h) of [N, K], written a second time here."""
    import torch
    (n, k), size = w.shape, w.element_size()
    if size == 1:  # as integers, in which torch can index
        w = torch.where(w.float() == 0, torch.zeros_like(w), w).view(torch.uint8)
    step, core = 128 // size, 16 // size
    panels, steps = (n + 15) // 16, (k + step - 1) // step
    whole = torch.zeros(panels * 16, steps * step, device=w.device, dtype=w.dtype)
    whole[:n, :k] = w
    groups = whole.view(panels * 16, steps * step // 4, 4)
    # What is not zero first, then the zeros that come first.
    rank = (groups != 0).int() * 8 + torch.tensor([3, 2, 1, 0], device=w.device)
    places = rank.topk(2, dim=2).indices.sort(dim=2).values
    values = torch.gather(groups, 2, places).view(panels, 2, 8, steps, 4, core).permute(0, 3, 1, 4, 2, 5).contiguous()
    nibbles = places[..., 0] | places[..., 1] << 2
    if size == 1:
        nibbles = nibbles.view(panels, 2, 8, steps, 2, 2, 8)  # panel half row step product of-32 group
        words = (nibbles << 4 * torch.arange(8, device=w.device)).sum(dim=6).permute(0, 3, 2, 5, 1, 4).contiguous()
    else:
        nibbles = nibbles.view(panels, 2, 8, steps, 4, 4)  # panel half row step lane group
        shift = 16 * torch.arange(2, device=w.device).view(2, 1) + 4 * torch.arange(4, device=w.device).view(1, 4)
        words = (nibbles << shift.view(1, 2, 1, 1, 1, 4)).sum(dim=(1, 5)).permute(0, 2, 1, 3).contiguous()
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return torch.cat([values.view(torch.uint8).view(-1), words.view(torch.uint8).view(-1)])


dense_set, dense_set8 = race_gemm.make_set, race_gemm8.make_set


def make_set(row):
    t = dense_set8(row) if of_eight_bits(row) else dense_set(row)
    w = pruned(t["w"] if row["along"] else t["w"].t().contiguous())
    t["w"] = w if row["along"] else w.t().contiguous()
    t["sparse"] = packed(w)
    return t


def ordered(row, t):
    """In the order of the kernel's buffers; the weights of a sparse kernel are packed."""
    return [t["sparse"] if b.split(".")[0] == "w" and "sparse" in row["config"] else t.get(b, t["y"]) for b in row["buffers"]]


def cusparselt(t):
    """{name: launch} of its algorithms; none where torch was built without it."""
    import torch
    if not (hasattr(torch, "_cslt_compress") and torch.backends.cusparselt.is_available()):
        return {}
    weights, rows, out = torch._cslt_compress(t["w"]), t["a"].t(), {}
    more = {} if t["w"].element_size() == 2 else {"out_dtype": torch.bfloat16}
    for turned in (True, False):
        for algorithm in range(32):
            go = lambda a=algorithm, r=turned: torch._cslt_sparse_mm(weights, rows, transpose_result=r, alg_id=a, **more)
            try:
                go()
                torch.cuda.synchronize()
            except RuntimeError:
                break
            out[f"cslt{algorithm}{'t' if turned else ''}"] = go
    return out


def check(row, bind):
    if of_eight_bits(row):
        race_gemm8.make_set = make_set
        return race_gemm8.check(row, bind, 20)
    race_gemm.make_set = make_set
    return race_gemm.check(row, bind)


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    bad, ratios, results = 0, {}, []
    for row in json.load(open(os.path.join(folder, "race_sparse.json"))):
        if groups and row["group"] not in groups:
            continue
        name, m, n, k = row["name"], row["m"], row["n"], row["k"]
        bind = load_kernels(folder, row, ordered)
        error = check(row, bind)
        if error == math.inf:
            print(f"{name:32} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"].startswith("odd"):
            print(f"{name:40} {row['config']:52} error {error:.1e}", flush=True)
            continue
        size = 1 if of_eight_bits(row) else 2
        moved = size * m * k + 2 * m * n + n * k * (size * 4 + 1) // 8
        sets = [make_set(row) for _ in range(max(1, min(16, math.ceil(300e6 / moved))))]
        dense = load_kernels(folder, row["dense"], ordered)
        candidates = {"lathe": [bind(t) for t in sets], "dense": [dense(t) for t in sets],
                      **(race_gemm8.rivals(row, sets) if of_eight_bits(row) else
                         {"torch": [lambda t=t: torch.mm(t["a"], t["w"].t(), out=t["y"]) for t in sets]})}
        if m > 16:
            of = [cusparselt(t) for t in sets]
            algorithms = {a: [go[a] for go in of] for a in of[0]}
            first = {a: median(v) for a, v in race_rounds(algorithms, 3).items()} if algorithms else {}
            candidates.update({a: algorithms[a] for a in sorted(first, key=first.get)[:3]})
        rounds = race_rounds(candidates, ROUNDS)
        times, best = {c: median(v) for c, v in rounds.items()}, {}
        for c in times:
            if c != "lathe":
                rival = "cslt" if c.startswith("cslt") else c
                best[rival] = min(best.get(rival, math.inf), ratio(rounds, c))
        for rival, r in best.items():
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = r
        results.append({**{c: row[c] for c in ("name", "group", "m", "n", "k", "config")}, "us": times, "error": error})
        mine = times["lathe"]
        print(f"{name:24} {row['config']:52} {mine:8.2f} us {2 * m * n * k / mine / 1e6:5.0f} TF {moved / mine / 1e3:5.0f} GB/s  " +
              "  ".join(f"{r:.3f} x {rival}" for rival, r in best.items()) + f"  error {error:.1e}", flush=True)
        del sets, candidates
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_sparse.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run, with_config=True)
