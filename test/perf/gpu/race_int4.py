# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races products of bf16 (f16 where a name says so) with weights of 4 and 8 bits (DequantizeLinear of a constant, int4 in groups of 128 of K unless
said) against the same products with weights of 16 bits, ours and torch's, and against torch's `_weight_int4pack_mm` and, where
it is installed (`pip install humming-kernels`), humming's kernels, with codes of its own of the same widths and groups.

    race_int4.py prepare FOLDER [GROUP...]   without a GPU: the models' kernels as cubins, with their launches
    race_int4.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all candidates
                                             in turn, as CUDA-graph replays over rotating buffers that no cache holds
    race_int4.py sweep FOLDER SHAPE,M,BITS CONFIG...    prepares one product in each configuration, as group `sweep`

Groups: odd (correctness only, 300 times the same bits), layer (one row, the products of a layer of Llama-3-8B together),
few (2 to 16 rows), some (32 to 128), many (256 to 2048), bytes (weights of 8 bits). The sizes are Llama-3-8B's. The end
prints the bars.
"""
import json
import math
import os
import re
import subprocess
import sys

from generated import LATHE, TARGET, command, load, median, race_rounds, ratio, relative_error
from plans import keep_kernels
from race_gemm import LLAMA

ROUNDS = 25
CODES = {"i4": "INT4", "u4": "UINT4", "i8": "INT8", "u8": "UINT8"}


def cases():
    """group -> [(m, n, k, type of the weights, elements of k with one scale or 0 for a scale a column, zero points,
    type of the numbers)]"""
    out = {"layer": [(1, *s, "i4", 128, False) for s in LLAMA.values()]}
    out["layer"] += [(1, *LLAMA["gateup"], "u4", 128, True), (1, *LLAMA["gateup"], "i4", 32, False), (1, *LLAMA["o"], "u4", 32, True)]
    out["few"] = [(m, *s, "i4", 128, False) for m in (2, 4, 8, 16) for s in LLAMA.values()]
    out["some"] = [(m, *s, "i4", 128, False) for m in (32, 64, 128) for s in LLAMA.values()]
    out["many"] = [(m, *s, "i4", 128, False) for m in (256, 512, 2048) for s in LLAMA.values()]
    out["bytes"] = [(m, *s, "i8", 0, False) for m in (1, 8, 16, 32, 64, 128, 256, 512) for s in LLAMA.values()]
    out = {group: [(*case, "bf16") for case in of] for group, of in out.items()}
    out["odd"] = [(m, n, k, t, b, z, e) for m, n, k in ((1, 1021, 256), (7, 777, 4096), (13, 4098, 1152), (16, 64, 14336),
                                                     (31, 1000, 512), (129, 509, 1024), (300, 1552, 512))
                  for t, b, z in (("i4", 128, False), ("u4", 32, True), ("u4", 64, True), ("i4", 0, False), ("i8", 0, False), ("u8", 0, False))
                  for e in (("bf16", "f16") if m > 16 else ("bf16",))]
    out["odd"] += [(m, 1000, 1024, t, b, z, "bf16") for m in (64, 200) for t, b, z in (("u4", 16, True), ("i4", 256, True), ("u8", 128, False))]
    return out


def name_of(case):
    m, n, k, kind, block, zero, element = case
    return f"{m}x{n}x{k}_{kind}" + (f"_b{block}" if block else "") + ("_z" if zero else "") + ("_f16" if element == "f16" else "")


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, m, n, k, kind, block, zero, element):
    """Weights [n, k] in a file of holes; without `kind` they have 16 bits. Scales differ, so that none becomes a number
    in the text."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    wide = TensorProto.FLOAT16 if element == "f16" else TensorProto.BFLOAT16
    code = getattr(TensorProto, CODES[kind]) if kind else wide
    length = n * k * (int(kind[1]) if kind else 16) // 8
    weight = onnx.TensorProto(name="w", data_type=code, dims=[n, k], data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", os.path.basename(path) + ".bin"), ("length", str(length))):
        weight.external_data.add(key=key, value=text)
    with open(path + ".bin", "wb") as f:
        f.truncate(length)
    constants, nodes, shape = [weight], [], [n, -(-k // block)] if block else [n]
    if kind:
        count = math.prod(shape)
        scales = np.linspace(1, 2, count, dtype=np.float32)
        raw = scales.astype(np.float16) if element == "f16" else (scales.view(np.uint32) >> 16).astype(np.uint16)
        constants.append(helper.make_tensor("s", wide, shape, raw.tobytes(), raw=True))
        if zero:
            constants.append(helper.make_tensor("z", code, shape, np.arange(count) % 11))
        attributes = {"axis": 1, "block_size": block} if block else {"axis": 0}
        nodes.append(helper.make_node("DequantizeLinear", ["w", "s", "z"][:2 + zero], ["d"], **attributes))
    value = lambda name, dims: helper.make_tensor_value_info(name, wide, dims)
    nodes.append(helper.make_node("Gemm", ["x", "d" if kind else "w"], ["y"], transB=1))
    graph = helper.make_graph(nodes, "g", [value("x", [m, k])], [value("y", [m, n])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)


def prepare_one(folder, stem, case, config=None):
    path = os.path.join(folder, stem)
    save_model(path + ".onnx", *case)
    made = subprocess.run([LATHE, "compile", path + ".onnx", f"--target={TARGET}", "--stop-after=codegen",
                           "--sparse-weights=never", "-o", path + ".mlir",
                           *([f"--config=*={config}"] if config else [])], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{stem}: {made.stderr}")
    text = open(path + ".mlir").read()
    row = keep_kernels(folder, stem, text)
    buffers = {b: [l for l in text.splitlines() if f'exec.buffer "{b}"' in l][-1] for b in row["buffers"]}
    row["packed"] = 'packing = "fragments' in buffers["w"]
    row["types"] = [re.search(r"tensor<(?:\d+x)*(\w+)>", buffers[b])[1] for b in row["buffers"]]
    for end in (".onnx", ".onnx.bin", ".mlir"):
        os.remove(path + end)
    print(f"{stem:28} {row['config']}{' packed' if row['packed'] else ''}{' behind another' if row['behind'] else ''}", flush=True)
    return {**row, "name": stem, "case": case}


def prepare(folder, groups):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for case in cases()[group]:
            table.append({**prepare_one(folder, name_of(case), case), "group": group})
            wide = f"{case[0]}x{case[1]}x{case[2]}_bf16"
            if group != "odd" and not any(r["name"] == wide for r in table):
                table.append({**prepare_one(folder, wide, (*case[:3], None, 0, False, "bf16")), "group": ""})
    json.dump(table, open(os.path.join(folder, "race_int4.json"), "w"), indent=1)
    return 0


def sweep(folder, shape, configs):
    name, m, kind = shape.split(",")
    path = os.path.join(folder, "race_int4.json")
    table = json.load(open(path)) if os.path.exists(path) else []
    case = (int(m), *LLAMA[name], kind, 0 if kind[1] == "8" else 128, False, "bf16")
    for config in configs:
        stem = f"{name_of(case)}_{config}"
        table = [r for r in table if r["name"] != stem] + [{**prepare_one(folder, stem, case, config), "group": "sweep"}]
    json.dump(table, open(path, "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def fragments(codes, bits):
    """Codes [n, k], one a byte, in the order of lathe/support/Packing.h."""
    import torch
    n, k = codes.shape
    unit = 256 // bits
    codes = torch.nn.functional.pad(codes, (0, -k % unit, 0, -n % 16))
    steps = unit // 16
    parts = codes.view(-1, 2, 8, codes.shape[1] // unit, steps, 2, 4, 2)  # tile, i, g, unit, step, h, t, high
    order = (0, 3, 2, 6, 4, 7, 5, 1) if bits == 4 else (0, 3, 2, 6, 4, 5, 7, 1)
    flat = parts.permute(*order).reshape(-1)
    return flat.contiguous() if bits == 8 else (flat[0::2] & 15) | (flat[1::2] << 4)


def make_set(row):
    import torch
    m, n, k, kind, block, zero, element = row["case"]
    wide = torch.float16 if element == "f16" else torch.bfloat16
    t = {"x": torch.randn(m, k, device="cuda", dtype=wide)}
    if not kind:
        t["w"] = torch.randn(n, k, device="cuda", dtype=wide)
    else:
        bits = int(kind[1])
        t["q"] = torch.randint(0, 1 << bits, (n, k), device="cuda", dtype=torch.uint8)
        t["w"] = fragments(t["q"], bits) if row["packed"] else t["q"] if bits == 8 else (t["q"][:, 0::2] | t["q"][:, 1::2] << 4).contiguous()
        groups = (n, -(-k // block)) if block else (n, 1)
        t["s"] = (torch.rand(*groups, device="cuda") * 0.01 + 0.005).to(wide)
        t["zq"] = torch.randint(0, 16, groups, device="cuda", dtype=torch.uint8)
        flat = torch.nn.functional.pad(t["zq"].reshape(-1), (0, t["zq"].numel() % 2))
        t["z"] = flat[0::2] | flat[1::2] << 4
    t["padded"] = torch.full((m + 16, n), float("nan"), device="cuda", dtype=wide)
    t["y"] = t["padded"][8:-8]
    return t


def ordered(row, t):
    """In the order of the kernel's buffers. Scales and zero points have names of the compiler."""
    out = []
    for b, kind in zip(row["buffers"], row["types"]):
        out.append(t[b] if b in ("x", "w", "y") else t["z"] if "4" in kind or kind.endswith("i8") else t["s"].float() if kind == "f32" else t["s"])
    return out


def weights(row, t):
    import torch
    _, _, k, kind, block, zero, _ = row["case"]
    signed = lambda q: (q.to(torch.int16) ^ 8) - 8 if kind == "i4" else q.view(torch.int8).to(torch.int16) if kind == "i8" else q.to(torch.int16)
    along = lambda p: p.float().repeat_interleave(block or k, 1)[:, :k]
    q = signed(t["q"]).float()
    if zero:
        q = q - along(signed(t["zq"]))
    return q * along(t["s"])


def keeps_bits(name, t, launch, error, repeats):
    """Whether a launch whose result t["y"] has this error was right, wrote nothing around it and repeats its bits."""
    import torch
    outside = t["padded"][:8].isnan().all() and t["padded"][-8:].isnan().all()
    if not (error < 4e-3 and outside):
        print(f"{name}: error {error:.1e}, memory around the result {'kept' if outside else 'WRITTEN'}")
        return False
    first = t["y"].view(torch.int16).clone()
    for _ in range(repeats):
        launch()
    torch.cuda.synchronize()
    return torch.equal(first, t["y"].view(torch.int16))


def check(row, bind):
    """Relative error in the norm; infinite when something else was written, or other bits in another run."""
    import torch
    m = row["case"][0]
    t = make_set(row)
    launch = bind(ordered(row, t))
    launch()
    torch.cuda.synchronize()
    error = relative_error(t["y"], t["x"].double() @ weights(row, t).double().t())
    return error if keeps_bits(row["name"], t, launch, error, 300 if row["group"] == "odd" else 10) else math.inf


def int4pack(row, t):
    """torch's own product of the same codes."""
    import torch
    _, n, k, _, block, _, _ = row["case"]
    packed = torch._convert_weight_to_int4pack(((t["q"][:, 0::2] << 4) | t["q"][:, 1::2]).contiguous(), 8)
    scales = torch.stack([t["s"], torch.zeros_like(t["s"])], -1).transpose(0, 1).contiguous()
    return lambda: torch._weight_int4pack_mm(t["x"], packed, block, scales)


def humming(row, sets):
    """The same product by humming-kernels, a layer for each set; {} where it is not installed or cannot."""
    try:
        from humming.layer import HummingLayer
    except ImportError:
        return {}
    _, n, k, kind, block, _, _ = row["case"]
    launches = []
    try:
        for t in sets:
            layer = HummingLayer(shape_n=n, shape_k=k, weight_config={"dtype": "int" + kind[1], "group_size": block}, torch_dtype=t["x"].dtype).cuda()
            wide = weights(row, t)
            layer.load_from_unquantized(wide.to(t["x"].dtype))
            layer.transform()
            launches.append(lambda t=t, layer=layer: layer(t["x"]))
        # Weights are rounded once more to its codes.
        error = relative_error(launches[-1]().float(), sets[-1]["x"].double() @ wide.double().t())
    except Exception as e:  # a library that cannot is no rival
        print(f"{row['name']}: humming: {type(e).__name__}: {str(e)[:120]}")
        return {}
    if not error < 0.3:
        print(f"{row['name']}: humming has another result: error {error:.1e}")
    return {"humming": launches}


def copy_rate():
    """GB/s, read and written, by the faster of torch's copy and a kernel of it."""
    import torch
    a, b = (torch.randint(0, 255, (1 << 27,), device="cuda", dtype=torch.int64) for _ in range(2))
    rounds = race_rounds({"copy": [lambda: b.copy_(a)] * 4, "kernel": [lambda: torch.bitwise_not(a, out=b)] * 4}, 15)
    return (2 << 30) / min(map(median, rounds.values())) / 1e3


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    copied = copy_rate()
    print(f"copy {copied:.0f} GB/s")
    table = json.load(open(os.path.join(folder, "race_int4.json")))
    kernels = {r["name"]: load(r, open(os.path.join(folder, r["name"] + ".cubin"), "rb").read()) for r in table if not r["behind"]}
    bad, results = 0, []
    for row in table:
        if not row["group"] or (groups and row["group"] not in groups):
            continue
        name, (m, n, k, kind, block, _, _) = row["name"], row["case"]
        if row["behind"]:
            print(f"{name:28} is not raced: weights are widened by a kernel ahead")
            continue
        error = check(row, kernels[name])
        if error == math.inf:
            print(f"{name:28} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] == "odd":
            print(f"{name:28} {row['config']:40} error {error:.1e}, the same bits 300 times", flush=True)
            continue
        size = n * k * int(kind[1]) // 8 + 2 * n * (k // block if block else 1)
        sets = [make_set(row) for _ in range(max(2, min(32, math.ceil(400e6 / size))))]
        candidates = {"lathe": [kernels[name](ordered(row, t)) for t in sets]}
        if row["group"] != "sweep":
            plain = next(r for r in table if r["name"] == f"{m}x{n}x{k}_bf16")
            wide = [make_set(plain) for _ in range(max(2, min(8, math.ceil(400e6 / (2 * n * k)))))]
            candidates["bf16"] = [kernels[plain["name"]](ordered(plain, t)) for t in wide]
            candidates["torch"] = [lambda t=t: torch.mm(t["x"], t["w"].t(), out=t["y"]) for t in wide]
            if kind == "i4" and block:
                candidates["int4pack"] = [int4pack(row, t) for t in sets]
            candidates.update(humming(row, sets))
        rounds = race_rounds(candidates, ROUNDS if row["group"] != "sweep" else 9)
        times = {c: median(v) for c, v in rounds.items()}
        against = {c: ratio(rounds, c) for c in rounds if c != "lathe"}
        results.append({"name": name, "group": row["group"], "case": row["case"], "config": row["config"], "us": times,
                        "ratios": against, "error": error, "of_copy": size / times["lathe"] / 1e3 / copied})
        print(f"{name:28} {row['config']:38} {times['lathe']:8.2f} us {results[-1]['of_copy']:.3f} of copy  " +
              "  ".join(f"{r:.3f} x {c}" for c, r in against.items()) + f"  error {error:.1e}", flush=True)
        del sets, candidates
    json.dump(results, open(os.path.join(folder, "results_int4.json"), "w"), indent=1)
    return bad + summary(results)


def summary(results):
    """The bars; how many of its bars are missed."""
    shapes, missed = [list(s) for s in LLAMA.values()], 0
    take = lambda m, kind: [r for r in results if r["case"][0] == m and r["case"][3] == kind and r["case"][4] in (0, 128)
                            and not r["case"][5] and r["case"][1:3] in shapes and r["group"] != "sweep"]

    def bar(text, value, ok):
        nonlocal missed
        missed += not ok
        print(f"{text}: {value}{'' if ok else '  MISSED'}")

    total = lambda rows, who="lathe": sum(r["us"][who] for r in rows)
    one = {}
    for kind, most in (("i4", 42), ("i8", 64)):
        rows = take(1, kind)
        if len(rows) == len(shapes):
            one[kind] = total(rows)
            bar(f"{kind}, one row, a layer (bar {most} us; bf16 {total(rows, 'bf16'):.1f})", f"{one[kind]:.1f} us", one[kind] <= most)
        for r in rows:
            if kind == "i4" and r["case"][1:3] == list(LLAMA["gateup"]):
                bar("i4, gate and up of one row (bar 0.80 of copy)", f"{r['of_copy']:.3f}", r["of_copy"] >= 0.80)
    for m in (2, 4, 8, 16):
        rows = take(m, "i4")
        if rows and "i4" in one and len(rows) == len(shapes):
            bar(f"i4, {m} rows against one (bar 1.20)", f"{total(rows) / one['i4']:.3f}", total(rows) <= 1.2 * one["i4"])
    for kind, bars in (("i4", {32: 1.5, 64: 1.5, 128: 1.05, 256: 0.92, 512: 0.92, 2048: 0.92}), ("i8", {32: 1.2, 64: 1.2, 128: 0.92, 256: 0.92, 512: 0.92})):
        for m, least in bars.items():
            rows = take(m, kind)
            if rows:
                mean = math.exp(sum(math.log(r["ratios"]["bf16"]) for r in rows) / len(rows))
                bar(f"{kind}, {m} rows against bf16 (bar {least}; least {min(r['ratios']['bf16'] for r in rows):.3f})", f"{mean:.3f}", mean >= least)
    for rival, name in (("int4pack", "_weight_int4pack_mm"), ("humming", "humming-kernels")):
        ratios = [r["ratios"][rival] for r in results if rival in r["ratios"]]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            bar(f"against {name} (bar 1.05; least {min(ratios):.3f})", f"{mean:.3f}", mean >= 1.05)
    return missed


if __name__ == "__main__":
    if len(sys.argv) > 4 and sys.argv[1] == "sweep":
        sys.exit(sweep(sys.argv[2], sys.argv[3], sys.argv[4:]))
    command(__doc__, cases(), prepare, run, only_run=["sweep"])
