# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races products of one row, of which a threshold makes many elements zero, with the weights of zeros unread against the same
products dense (ours, torch's).

    race_active.py prepare FOLDER [GROUP...]   without a GPU: kernels of both as cubins, with their launches
    race_active.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                               candidates in rounds, as CUDA-graph replays over rotating buffers

bf16, weights as [N, K] like torch's Linear, elements of the row at random. Groups: odd (correctness only), wide (gate and up,
down), narrow (qkv, o), shares (0 to 90 % zeros). Of a case "gateup_50" half of the elements are below the threshold. What is
timed are the products, for rows that have their zeros; "graph" is the threshold's kernel with the product, for both.
`prepare --config=CONFIG` takes another configuration of gemv.active. Ratios are taken within a round: rival's time over ours.
The bars are those printed at the end: geometric mean and least.
"""
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
from generated import LATHE, TARGET, command, judge, median, race_rounds, ratio, relative_error
from plans import keep_kernels, load_kernels, make_between
from race_gemm import LLAMA

#         group: rival -> (least geometric mean, least ratio)
BARS = {"wide": {"dense": (1.50, 1.50)}}
ROUNDS = 31
THRESHOLD = 0.67578125  # of a normal distribution half is nearer to 0; a bf16


def cases():
    """group -> [(name, n, k, zeros in percent, weights along k[, configuration])]"""
    rows = lambda names, zeros=50: [(f"{name}_{zeros}", *LLAMA[name], zeros, True) for name in names]
    out = {"wide": rows(("gateup", "down")), "narrow": rows(("qkv", "o")),
           "shares": [r for zeros in (0, 25, 75, 90) for r in rows(("gateup", "down"), zeros)]}
    out["odd"] = [(f"odd_{n}x{k}{'' if along else 't'}_{zeros}", n, k, zeros, along) for n, k in
                  ((130, 5000), (72, 4096), (776, 200), (4100, 1033), (3, 70), (8192, 33)) for along in (True, False) for zeros in (50, 100)]
    return out


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, n, k, along):
    """Elements of a below the threshold become zero; a weight of ones."""
    import onnx
    from onnx import TensorProto, helper
    kind = TensorProto.BFLOAT16
    constant = lambda name, value: helper.make_tensor(name, kind, [], (np.float32([value]).view(np.uint32) >> 16).astype(np.uint16).tobytes(), raw=True)
    weight = helper.make_tensor("w", kind, [n, k] if along else [k, n], np.full(n * k, 0x3f80, np.uint16).tobytes(), raw=True)
    nodes = [helper.make_node("Abs", ["a"], ["size"]), helper.make_node("Less", ["size", "threshold"], ["small"]),
             helper.make_node("Where", ["small", "zero", "a"], ["x"])]
    nodes += [helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0])] if along else []
    nodes.append(helper.make_node("MatMul", ["x", "wt" if along else "w"], ["y"]))
    graph = helper.make_graph(nodes, "active", [helper.make_tensor_value_info("a", kind, [1, k])],
                              [helper.make_tensor_value_info("y", kind, [1, n])], [weight, constant("threshold", THRESHOLD), constant("zero", 0)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def compile_kernels(folder, stem, name, how, config=""):
    """The row of the threshold's kernel and, behind it, the product."""
    path = os.path.join(folder, name)
    line = [LATHE, "compile", stem + ".onnx", f"--target={TARGET}", f"--sparse-weights={how}", "--stop-after=codegen", "-o", path + ".mlir"]
    made = subprocess.run(line, capture_output=True, text=True)
    if made.returncode == 0 and config:
        kernel = re.findall(r"exec\.launch @(\w+)", open(path + ".mlir").read())[-1]
        made = subprocess.run(line + ["--config", f"{kernel}={config}"], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{name}: {made.stderr}")
    text = open(path + ".mlir").read()
    row = keep_kernels(folder, name, text)
    row["packings"] = re.findall(r'exec\.buffer "w" {.*?packing = "(\w+)"', text)
    os.remove(path + ".mlir")
    return row


def prepare(folder, groups, config):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for name, n, k, zeros, along, *form in cases()[group]:
            stem = os.path.join(folder, name)
            save_model(stem + ".onnx", n, k, along)
            row = compile_kernels(folder, stem, name, "always", config or (form[0] if form else ""))
            if "gemv.active" not in row["behind"][-1]["config"]:
                sys.exit(f"{name}: {row['behind'][-1]['config']} reads all weights")
            row.update(name=name, group=group, n=n, k=k, zeros=zeros, along=along)
            if group != "odd":
                row["dense"] = compile_kernels(folder, stem, name + "_dense", "never")
            os.remove(stem + ".onnx")
            table.append(row)
            print(f"{name:32} {row['behind'][-1]['config']:40} {row['dense']['behind'][-1]['config'] if 'dense' in row else ''}", flush=True)
    if os.path.exists(weights := os.path.join(folder, "weights.bin")):  # of the last
        os.remove(weights)
    json.dump(table, open(os.path.join(folder, "race_active.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def panels(w, width):
    """[N, K] packed as `panels` of so many columns (include/lathe/support/Packing.h): [panel][K][width], the last may be half
    as wide."""
    import torch
    n, k = w.shape
    half = width // 2
    whole = torch.nn.functional.pad(w, (0, 0, 0, -n % half))
    parts = [part.t().contiguous().view(-1) for part in whole.split(width)]
    return torch.cat(parts)


def make_set(row):
    """`a` is what the threshold's kernel reads, `x` what the product does."""
    import torch
    make = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
    n, k = row["n"], row["k"]
    small = torch.rand(1, k, device="cuda") * 100 < row["zeros"]
    a = make(1, k).abs() + 0.7
    a = torch.where(small, 0.5, a) * torch.where(torch.rand(1, k, device="cuda") < 0.5, -1, 1).to(a.dtype)
    w = make(n, k)
    t = {"a": a.contiguous(), "x": torch.where(small, 0, a).contiguous(), "w": w if row["along"] else w.t().contiguous(),
         "rows": w, "padded": torch.full((n + 256,), float("nan"), device="cuda", dtype=torch.bfloat16)}
    t["y"] = t["padded"][128:128 + n]
    width = [int(p[6:].rstrip("t")) for p in row["packings"] if p.startswith("panels")]
    if width:
        t["packed"] = panels(w, width[0])
    t.update(make_between(row))
    return t


def ordered(step, t):
    """In the order of a kernel's buffers."""
    weights = t["packed"] if "gemv.active" in step["config"] else t["w"]
    return [weights if b.split(".")[0] == "w" else t.get(b, t["y"]) for b in step["buffers"]]


def product_of(folder, row):
    """bind(set) -> a function that launches the product alone, of the set's x."""
    last = {**row["behind"][-1], "behind": []}
    between = set(row["between"])
    return load_kernels(folder, last, lambda step, t: [t["x"] if b in between else o for b, o in zip(step["buffers"], ordered(step, t))])


def check(row, bind):
    """Relative error in the norm; infinite when something else was written, or other bits in another run."""
    import torch
    t = make_set(row)
    launch = bind(t)
    launch()
    torch.cuda.synchronize()
    want = t["x"].double() @ t["rows"].double().t()
    error = relative_error(t["y"], want[0]) if row["zeros"] < 100 else float(t["y"].double().abs().sum())
    outside = t["padded"][:128].isnan().all() and t["padded"][128 + row["n"]:].isnan().all()
    first = t["y"].view(torch.int16).clone()
    for _ in range(200):
        launch()
    torch.cuda.synchronize()
    if not (error < 4e-3 and outside and torch.equal(first, t["y"].view(torch.int16))):
        print(f"{row['name']}: error {error:.1e}, memory around the result {'kept' if outside else 'WRITTEN'}")
        return math.inf
    return error


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    bad, ratios = 0, {}
    for row in json.load(open(os.path.join(folder, "race_active.json"))):
        if groups and row["group"] not in groups:
            continue
        name, config = row["name"], row["behind"][-1]["config"]
        error = check(row, load_kernels(folder, row, ordered))
        if error == math.inf:
            print(f"{name:24} {config} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] == "odd":
            print(f"{name:24} {config:40} error {error:.1e}", flush=True)
            continue
        dense = row["dense"]
        sets = [make_set(row) for _ in range(max(2, math.ceil(300e6 / (2 * row["n"] * row["k"]))))]
        for t in sets:
            t.update({b: v for b, v in make_between(dense).items() if b not in t})
        bind = {"lathe": product_of(folder, row), "dense": product_of(folder, dense),
                "graph": load_kernels(folder, row, ordered), "dense graph": load_kernels(folder, dense, ordered)}
        candidates = {which: [b(t) for t in sets] for which, b in bind.items()}
        candidates["torch"] = [lambda t=t: torch.mm(t["x"], t["rows"].t(), out=t["y"].view(1, -1)) for t in sets]
        rounds = race_rounds(candidates, ROUNDS)
        times = {c: median(v) for c, v in rounds.items()}
        best = {"dense": ratio(rounds, "dense"), "torch": ratio(rounds, "torch"), "graph": ratio(rounds, "dense graph", "graph")}
        for rival, r in best.items():
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = r
        read = 2 * row["n"] * row["k"] * (100 - row["zeros"]) / 100
        print(f"{name:12} {config:34} {times['lathe']:7.2f} us {read / times['lathe'] / 1e3:5.0f} GB/s  dense {dense['behind'][-1]['config']} "
              f"{times['dense']:7.2f} us  " + "  ".join(f"{r:.3f} x {rival}" for rival, r in best.items()) + f"  error {error:.1e}", flush=True)
        del sets, candidates
    bad += judge(ratios, BARS)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run, with_config=True)
