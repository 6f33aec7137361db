# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races products whose weights are kept in 8 bits (DequantizeLinear of a constant) against the same products with
weights of 16 bits: ours, and torch's. `apart` is what else would run: a kernel that writes the 16 bits, then our
product of those.

    race_weights.py prepare FOLDER [GROUP...]   without a GPU: the models' kernels as cubins, with their launches
    race_weights.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                                candidates in turn, as CUDA-graph replays over rotating buffers

Activations and results are bf16. Groups: one (one row), few (16 to 64), many (128 to 512), odd (correctness only,
600 times the same bits). The bars printed at the end: a rival's time over lathe's, geometric mean and least.
"""
import json
import math
import os
import re
import subprocess
import sys

from generated import LATHE, TARGET, command, judge, load, median, race_rounds, ratio, relative_error
from plans import keep_kernels
from race_gemm import LLAMA
from race_int4 import fragments, keeps_bits

BARS = {"one": {"bf16": (1.40, 1.20), "torch": (1.70, 1.30)}, "few": {"apart": (1.50, 1.20)}, "many": {"apart": (1.10, 0.95)}}
ROUNDS = 25


def cases():
    """group -> [(m, n, k, type of the weights, elements of k with one scale or 0 for a scale a column, zero points)]"""
    out = {"one": [(1, *s, "i8", 0, False) for s in LLAMA.values()], "few": [], "many": []}
    out["one"] += [(1, *LLAMA[s], t, b, z) for s in ("o", "down")
                   for t, b, z in (("e4m3", 0, False), ("i8", 32, False), ("u8", 128, True))]
    out["few"] += [(m, *s, "i8", 0, False) for m in (16, 32, 64) for s in LLAMA.values()]
    out["many"] += [(m, *LLAMA[s], "i8", 0, False) for m in (128, 256, 512) for s in ("o", "gateup", "down")]
    out["few"].append((32, *LLAMA["o"], "i8", 32, False))
    out["odd"] = [(m, n, k, t, b, z) for m, n, k in ((1, 1021, 272), (5, 777, 4112), (13, 4098, 528), (17, 264, 1040), (31, 1000, 400),
                                                     (129, 509, 1040), (300, 1552, 272), (509, 640, 2064))
                  for t, b, z in (("i8", 0, False), ("u8", 16, True), ("e4m3", 0, False), ("i8", 48, False))
                  if m <= 128 or not b]  # else the weights are made 16 bits wide by a kernel ahead
    return out


def name_of(case):
    m, n, k, kind, block, zero = case
    return f"{m}x{n}x{k}_{kind}" + (f"_b{block}" if block else "") + ("_z" if zero else "")


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, m, n, k, kind, block, zero):
    """Weights [n, k] in a file of holes; without `kind` they have 16 bits, and with no rows the result is the weights. Scales and zero points differ, so that
    none becomes a number in the text."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    types = {"i8": TensorProto.INT8, "u8": TensorProto.UINT8, "e4m3": TensorProto.FLOAT8E4M3FN}
    code = types[kind] if kind else TensorProto.BFLOAT16
    length = n * k * (1 if kind else 2)
    weight = onnx.TensorProto(name="w", data_type=code, dims=[n, k], data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", os.path.basename(path) + ".bin"), ("length", str(length))):
        weight.external_data.add(key=key, value=text)
    with open(path + ".bin", "wb") as f:
        f.truncate(length)
    constants, nodes, shape = [weight], [], [n, -(-k // block)] if block else [n]
    if kind:
        count = math.prod(shape)
        constants.append(helper.make_tensor("s", TensorProto.FLOAT, shape, np.linspace(1, 2, count, dtype=np.float32)))
        if zero:
            constants.append(helper.make_tensor("z", code, shape, np.arange(count) % 100))
        attributes = {"axis": 1, "block_size": block} if block else {"axis": 0}
        nodes.append(helper.make_node("DequantizeLinear", ["w", "s", "z"][:2 + zero], ["d"], output_dtype=TensorProto.BFLOAT16,
                                      **attributes))
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.BFLOAT16, dims)
    nodes.append(helper.make_node("Gemm", ["x", "d" if kind else "w"], ["y"], transB=1) if m else
                 helper.make_node("Identity", ["d"], ["y"]))
    graph = helper.make_graph(nodes, "g", [value("x", [m, k])] if m else [], [value("y", [m, n] if m else [n, k])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)


def prepare_one(folder, stem, case):
    path = os.path.join(folder, stem)
    save_model(path + ".onnx", *case)
    made = subprocess.run([LATHE, "compile", path + ".onnx", f"--target={TARGET}", "--stop-after=codegen", "-o", path + ".mlir"],
                          capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{stem}: {made.stderr}")
    text = open(path + ".mlir").read()
    row = keep_kernels(folder, stem, text)
    row["packed"] = 'packing = "fragments' in text
    # A zero point and a scale of the same sizes differ in their types.
    row["types"] = [re.search(rf'exec\.buffer "{re.escape(b)}" .*: tensor<(?:\d+x)*(\w+)>', text)[1] for b in row["buffers"]]
    for end in (".onnx", ".onnx.bin", ".mlir"):
        os.remove(path + end)
    print(f"{stem:28} {row['config']}{' pdl' if row['pdl'] else ''}", flush=True)
    return row


def prepare(folder, groups):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for case in cases()[group]:
            row = prepare_one(folder, name_of(case), case)
            row.update(name=name_of(case), group=group, case=case)
            wide = f"{case[0]}x{case[1]}x{case[2]}_bf16"
            if group != "odd" and not any(r["name"] == wide for r in table):
                table.append({**prepare_one(folder, wide, (*case[:3], None, 0, False)), "name": wide, "group": "", "case": case})
            alone = name_of((0, *case[1:]))
            if group != "odd" and not any(r["name"] == alone for r in table):
                table.append({**prepare_one(folder, alone, (0, *case[1:])), "name": alone, "group": "", "case": case})
            table.append(row)
    json.dump(table, open(os.path.join(folder, "race_weights.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def make_set(row, wide=False):
    import torch
    m, n, k, kind, block, zero = row["case"]
    t = {"x": torch.randn(m, k, device="cuda", dtype=torch.bfloat16)}
    if wide:
        t["w"] = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    elif kind == "e4m3":
        t["w"] = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    else:
        t["w"] = torch.randint(0, 256, (n, k), device="cuda", dtype=torch.uint8)
        if kind == "i8":
            t["w"] = t["w"].view(torch.int8)
    if row["packed"]:
        t["packed"] = fragments(t["w"].view(torch.uint8), 8)
    blocks = (n, -(-k // block)) if block else (n, 1)
    t["s"] = torch.rand(*blocks, device="cuda") * 0.01 + 0.005
    t["z"] = torch.randint(0, 100, blocks, device="cuda", dtype=torch.uint8) if zero else torch.zeros(blocks, device="cuda")
    t["padded"] = torch.full((m + 16, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    t["y"] = t["padded"][8:-8]
    return t


def ordered(row, t):
    """In the order of the kernel's buffers. Scales and zero points have names of the compiler: zero points, of 8 bits
    or f32, come first."""
    types = [kind for b, kind in zip(row["buffers"], row["types"]) if b not in ("x", "w", "y")]
    numbers = ([t["z"].float() if types[0] == "f32" else t["z"]] if row["case"][5] else []) + [t["s"]]
    place = lambda b: "packed" if b == "w" and row["packed"] else b
    return [t[place(b)] if b in ("x", "w", "y") else numbers.pop(0) for b in row["buffers"]]


def check(row, bind):
    """Relative error in the norm; infinite when something else was written."""
    import torch
    m, n, k, kind, block, zero = row["case"]
    t = make_set(row)
    launch = bind(ordered(row, t))
    launch()
    torch.cuda.synchronize()
    along = lambda p: p.float().repeat_interleave(block or k, 1)[:, :k]
    w = ((t["w"].float() - along(t["z"])) * along(t["s"])).to(torch.bfloat16)
    want = torch.cat([t["x"][i:i + 1024].double() @ w.double().t() for i in range(0, m, 1024)])
    error = relative_error(t["y"], want)
    return error if keeps_bits(row["name"], t, launch, error, 600 if row["group"] == "odd" else 20) else math.inf


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    table = json.load(open(os.path.join(folder, "race_weights.json")))
    kernels = {r["name"]: load(r, open(os.path.join(folder, r["name"] + ".cubin"), "rb").read()) for r in table}
    bad, ratios, results = 0, {}, []
    for row in table:
        if not row["group"] or (groups and row["group"] not in groups):
            continue
        name, (m, n, k, *_) = row["name"], row["case"]
        error = check(row, kernels[name])
        if error == math.inf:
            print(f"{name:28} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] == "odd":
            print(f"{name:28} {row['config']:40} error {error:.1e}, the same bits 600 times", flush=True)
            continue
        count = max(2, min(16, math.ceil(300e6 / (n * k))))
        sets, wide = [make_set(row) for _ in range(count)], [make_set(row, True) for _ in range(max(2, count // 2))]
        plain = next(r for r in table if r["name"] == f"{m}x{n}x{k}_bf16")
        alone = next(r for r in table if r["name"] == name_of((0, *row["case"][1:])))
        apart = []  # none where more than one kernel comes first
        for t, w in zip(sets, wide * 2) if "w" in alone["buffers"] else []:
            first = kernels[alone["name"]](ordered(alone, {**t, "y": w["w"]}))
            then = kernels[plain["name"]](ordered(plain, w))
            apart.append(lambda first=first, then=then: (first(), then()))
        candidates = {"lathe": [kernels[name](ordered(row, t)) for t in sets],
                      "bf16": [kernels[plain["name"]](ordered(plain, t)) for t in wide],
                      "torch": [lambda t=t: torch.mm(t["x"], t["w"].t(), out=t["y"]) for t in wide]}
        if apart:
            candidates["apart"] = apart
        rounds = race_rounds(candidates, ROUNDS)
        times = {c: median(v) for c, v in rounds.items()}
        against = [c for c in rounds if c != "lathe"]
        for rival in against:
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = ratio(rounds, rival)
        results.append({"name": name, "group": row["group"], "config": row["config"], "us": times, "error": error})
        print(f"{name:28} {row['config']:40} {times['lathe']:8.2f} us {n * k / times['lathe'] / 1e3:5.0f} GB/s of weights  " +
              "  ".join(f"{ratio(rounds, r):.3f} x {r}" for r in against) + f"  error {error:.1e}", flush=True)
        del sets, wide
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_weights.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run)
