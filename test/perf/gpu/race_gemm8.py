# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated products of 8-bit operands, and of f32 in tf32, against torch.

    race_gemm8.py prepare FOLDER [GROUP...]   without a GPU: the models' kernels as cubins, with their launches
    race_gemm8.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64 (integers: exactly), then
                                              times all candidates in rounds, as race_gemm.py does
    race_gemm8.py sweep FOLDER NAME CONFIG... prepares one product in each configuration besides, as group `sweep`

Groups: accurate (e4m3, sums in f32, against torch._scaled_mm without fast accumulation), fast (--allow=reduced-sums,
against it with fast accumulation), rows (scales of rows and columns, accurate), int8 (MatMulInteger, against
torch._int_mm and lathe's own e4m3), few (up to 16 rows, no bars), tf32 (--allow=tf32), odd (correctness, 600 times the
same bits), blocks (scales of 1 x 128 of A and of 128 x 128 of the weights, against torch's scaled_mm of that form and
lathe's own e4m3 with a scale for all), blocksfew (the same, up to 16 rows). Weights lie as [N, K]. The bars are printed at the end: rival's time over lathe's, geometric mean and least.
"""
import json
import math
import os
import re
import subprocess
import sys

from generated import LATHE, TARGET, command, judge, median, race_rounds, ratio, relative_error
from plans import keep_kernels, load_kernels, make_between
from race_gemm import LLAMA, ROUNDS

#         group: rival -> (least geometric mean, least ratio)
BARS = {"accurate": {"torch": (1.00, 0.93)}, "fast": {"torch": (1.05, 1.00)}, "int8": {"torch": (1.80, 1.60),
                                                                                      "e4m3": (1.00, 0.92)},
        "blocks": {"torch": (1.03, 1.00), "e4m3": (0.95, 0.90)}, "blocksfew": {"torch": (1.00, 1.00)}}
BLOCK = 128
SQUARES = [("square_4096", 4096, 4096, 4096), ("square_8192", 8192, 8192, 8192)]
ODD = [(1, 16, 16), (7, 24, 48), (13, 1000, 784), (31, 97, 112), (129, 4096, 1024), (257, 509, 1040), (1000, 776, 208),
       (1021, 1024, 1136), (2, 4096, 4096), (100, 4098, 272)]


def projections(*rows):
    return [(f"{name}_{m}", m, *sizes) for m in rows for name, sizes in LLAMA.items()]


def cases():
    """group -> [(name, m, n, k, form)]; a form is a data type and what becomes of the sums"""
    many = SQUARES + projections(256, 2048, 8192)
    with_form = lambda form, sizes: [(f"{name}_{form.replace('+', '_')}", m, n, k, form) for name, m, n, k in sizes]
    out = {"accurate": with_form("e4m3", many), "fast": with_form("e4m3fast", many),
           "rows": with_form("e4m3+rows", projections(256, 2048)), "int8": with_form("int8", SQUARES + projections(2048)),
           "few": with_form("e4m3", projections(1, 8, 16)) + with_form("int8", projections(1, 8, 16)),
           "tf32": with_form("tf32", SQUARES), "odd": [],
           "blocks": with_form("e4m3+blocks", many), "blocksfew": with_form("e4m3+blocks", projections(1, 8, 16))}
    for m, n, k in ODD:
        for form in ("e4m3", "e4m3fast", "e4m3+rows", "e4m3+quantize", "e5m2", "int8", "int8+scale", "int8+quantize", "tf32", "e4m3+blocks", "e5m2+blocks"):
            out["odd"].append((f"odd_{m}x{n}x{k}_{form.replace('+', '_')}", m, n, k, form))
    out["odd"] += [(f"odd_{m}x{n}x{k}_{form.replace('+', '_')}", m, n, k, form) for m, n, k in ((256, 1024, 80), (1040, 832, 1040))
                   for form in ("e4m3+quantize+amax", "e4m3fast+quantize+amax", "int8+quantize+amax")]
    return out


def element(form):
    return re.match(r"u?int8|tf32|e4m3|e5m2", form)[0]


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, m, n, k, form):
    """The weight is a constant whose file has holes instead of bytes; small ones are inputs."""
    import onnx
    from onnx import TensorProto as T, helper
    node, value = helper.make_node, helper.make_tensor_value_info
    kind = element(form)
    dtype = {"int8": T.INT8, "uint8": T.UINT8, "tf32": T.FLOAT, "e4m3": T.FLOAT8E4M3FN, "e5m2": T.FLOAT8E5M2}[kind]
    size = 4 if kind == "tf32" else 1
    of_weights = T.INT8 if kind == "uint8" else dtype
    weight = onnx.TensorProto(name="w", data_type=of_weights, dims=[n, k], data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", os.path.basename(path) + ".bin"), ("length", str(size * n * k))):
        weight.external_data.add(key=key, value=text)
    with open(path + ".bin", "wb") as f:
        f.truncate(size * n * k)
    inputs, constants = [value("a", dtype, [m, k])], [weight] if n * k > 65536 else []
    if not constants:
        inputs.append(value("w", of_weights, [n, k]))
    result = "bf16"
    if kind == "tf32":
        nodes, last, result = [node("Gemm", ["a", "w"], ["y"], transB=1)], "y", "f32"
    elif kind.endswith("int8"):
        nodes, last, result = [node("Transpose", ["w"], ["wt"], perm=[1, 0]), node("MatMulInteger", ["a", "wt"], ["i"])], "i", "i32"
        if "+" in form:
            inputs.append(value("s", T.FLOAT, []))
            nodes += [node("Cast", ["i"], ["f"], to=T.FLOAT), node("Mul", ["f", "s"], ["t"])]
            last = "t"
    elif "blocks" in form:
        groups = -(-k // BLOCK)
        inputs += [value("sa", T.FLOAT, [m, groups]), value("sw", T.FLOAT, [-(-n // BLOCK), groups])]
        numbers = {"one": [1], "wide": [-(-n // BLOCK), BLOCK, groups], "rows": [-1, groups], "zero": [0], "n": [n]}
        constants += [helper.make_tensor(name, T.INT64, [len(v)], v) for name, v in numbers.items()]
        blocks = {"axis": 1, "block_size": BLOCK}
        nodes = [node("DequantizeLinear", ["a", "sa"], ["ad"], **blocks), node("Unsqueeze", ["sw", "one"], ["s1"]),
                 node("Expand", ["s1", "wide"], ["s2"]), node("Reshape", ["s2", "rows"], ["s3"]),
                 node("Slice", ["s3", "zero", "n", "zero"], ["s4"]), node("DequantizeLinear", ["w", "s4"], ["wd"], **blocks),
                 node("Gemm", ["ad", "wd"], ["t"], transB=1)]
        last = "t"
    else:
        scale = [[m, 1], [1, n]] if "rows" in form else [[], []]
        inputs += [value("sa", T.FLOAT, scale[0]), value("sw", T.FLOAT, scale[1])]
        nodes = [node("Cast", ["a"], ["af"], to=T.FLOAT), node("Mul", ["af", "sa"], ["ad"]),
                 node("Cast", ["w"], ["wf"], to=T.FLOAT), node("Transpose", ["wf"], ["wt"], perm=[1, 0]),
                 node("Mul", ["wt", "sw"], ["wd"]), node("MatMul", ["ad", "wd"], ["t"])]
        last = "t"
    if "quantize" in form:
        result = "i8" if kind == "int8" else kind
        constants.append(helper.make_tensor("zero", T.INT8 if kind == "int8" else dtype, [], b"\0", raw=True))
        constants.append(helper.make_tensor("one", T.FLOAT, [], [1.0]))
        nodes.append(node("QuantizeLinear", [last, "one", "zero"], ["q"]))
        last = "q"
    elif last == "t":
        nodes.append(node("Cast", ["t"], ["y"], to=T.BFLOAT16))
        last, result = "y", "bf16"
    out = {"bf16": T.BFLOAT16, "f32": T.FLOAT, "i32": T.INT32, "i8": T.INT8, "e4m3": T.FLOAT8E4M3FN, "e5m2": T.FLOAT8E5M2}
    results = [value(last, out[result], [m, n])]
    if "amax" in form:
        results.append(value("amax", T.FLOAT, []))
        nodes += [node("Abs", ["t"], ["magnitude"]), node("ReduceMax", ["magnitude"], ["amax"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return result


def prepare_one(folder, group, name, m, n, k, form, config=None):
    name += f"_{config}" if config else ""
    stem = os.path.join(folder, name)
    result = save_model(stem + ".onnx", m, n, k, form)
    allow = ["--allow=tf32"] if form == "tf32" else ["--allow=reduced-sums"] if "fast" in form else []
    made = subprocess.run([LATHE, "compile", stem + ".onnx", f"--target={TARGET}", "--stop-after=codegen", "-o",
                           stem + ".mlir", *allow, *([f"--config=*={config}"] if config else [])], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{name}: {made.stderr}")
    text = open(stem + ".mlir").read()
    if text.count("exec.kernel @") != 1 + ("amax" in form):
        sys.exit(f"{name}: not one kernel, and one behind it for the greatest element")
    row = keep_kernels(folder, name, text)
    for end in (".onnx", ".onnx.bin", ".mlir"):
        if os.path.exists(stem + end):
            os.remove(stem + end)
    row.update(name=name, group=group, m=m, n=n, k=k, form=form, result=result)
    print(f"{name:32} {row['config']}{' pdl' if row['pdl'] else ''}", flush=True)
    return row


def prepare(folder, groups):
    from concurrent.futures import ThreadPoolExecutor
    os.makedirs(folder, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        table = list(pool.map(lambda c: prepare_one(folder, *c), [(g, *c) for g in groups for c in cases()[g]]))
    json.dump(table, open(os.path.join(folder, "race_gemm8.json"), "w"), indent=1)
    if os.path.exists(weights := os.path.join(folder, "weights.bin")):
        os.remove(weights)
    return 0


def sweep(folder, name, configs):
    path = os.path.join(folder, "race_gemm8.json")
    table = json.load(open(path)) if os.path.exists(path) else []
    case = next(c for group in cases().values() for c in group if c[0] == name)
    for config in configs:
        table = [r for r in table if r["name"] != f"{name}_{config}"] + [prepare_one(folder, "sweep", *case, config=config)]
    json.dump(table, open(path, "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def torch_type(name):
    import torch
    return {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i8": torch.int8, "int8": torch.int8, "uint8": torch.uint8,
            "tf32": torch.float32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]


def make(kind, *sizes):
    import torch
    if kind.endswith("int8"):
        least = 0 if kind == "uint8" else -128
        return torch.randint(least, least + 256, sizes, device="cuda", dtype=torch_type(kind))
    return torch.randn(*sizes, device="cuda").to(torch_type(kind))


def make_set(row):
    import torch
    m, n, k, form, kind = row["m"], row["n"], row["k"], row["form"], element(row["form"])
    t = {"a": make(kind, m, k), "w": make(kind.removeprefix("u"), n, k)}
    number = lambda x: torch.tensor(x, device="cuda", dtype=torch.float32)
    if "blocks" in form:
        t.update(sa=torch.rand(m, -(-k // BLOCK), device="cuda") + 0.5, sw=torch.rand(-(-n // BLOCK), -(-k // BLOCK), device="cuda") + 0.5)
    elif "rows" in form:
        t.update(sa=torch.rand(m, 1, device="cuda") + 0.5, sw=torch.rand(1, n, device="cuda") + 0.5)
    else:
        # A quantized result shall use its range.
        t.update(sa=number(0.5), sw=number(0.25), s=number(20 / (5476 * k ** 0.5)))
    t["padded"] = torch.full((m + 2, n), 77, device="cuda").to(torch_type(row["result"]))
    t["y"] = t["padded"][1:-1]
    t["amax"] = torch.full((), math.nan, device="cuda")
    t.update(make_between(row))
    return t


def ordered(row, t):
    """In the order of the kernel's buffers; the one that is no input is the result."""
    return [t.get(b, t["y"]) for b in row["buffers"]]


def reference(row, t, rounded=True):
    """In float64; `rounded` to integers where the result is quantized to them."""
    import torch
    form, kind = row["form"], element(row["form"])
    out = torch.empty(row["m"], row["n"], device="cuda", dtype=torch.float64)
    w, each = t["w"].double(), lambda s, dim, size: s.double().repeat_interleave(BLOCK, dim).narrow(dim, 0, size)
    if "blocks" in form:
        w *= each(each(t["sw"], 0, row["n"]), 1, row["k"])
    w = w.t()
    for i in range(0, row["m"], 1024):
        a = t["a"][i:i + 1024].double()
        out[i:i + 1024] = (a if "blocks" not in form else a * each(t["sa"][i:i + 1024], 1, row["k"])) @ w  # integers below 2^53: exact
    if "blocks" in form:
        return out
    if kind.endswith("int8"):
        if "+" in form:
            out = (out.float() * t["s"]).double()
        if "quantize" in form and rounded:
            out = out.round().clamp(-128, 127)
    elif kind != "tf32":
        out = out * t["sa"].double() * t["sw"].double()
    return out


# Relative errors in the norm: half a step of bf16 or of 8 bits at random is most of it.
LIMITS = {"e4m3": 1.8e-3, "e4m3fast": 4e-3, "e4m3+rows": 1.8e-3, "e4m3+quantize": 3e-2, "e4m3fast+quantize": 3e-2, "e5m2": 1.8e-3, "int8": 0, "int8+scale": 1.8e-3, "uint8+scale": 1.8e-3,
          "int8+quantize": 0, "tf32": 1e-3, "e4m3+blocks": 1.8e-3, "e5m2+blocks": 1.8e-3}


def check(row, bind, times):
    """Relative error in the norm; infinite when it is too large, or something else was written."""
    import torch
    t = make_set(row)
    launch = bind(t)
    launch()
    torch.cuda.synchronize()
    want = reference(row, t)
    got = t["y"].double() if row["result"] in ("i32", "i8") else t["y"].float()
    error = relative_error(got, want) if not torch.equal(got.double(), want) else 0.0
    byte = lambda x: x.contiguous().view(torch.uint8)
    mark = byte(torch.full((1, row["n"]), 77, device="cuda").to(torch_type(row["result"])))
    outside = torch.equal(byte(t["padded"][:1]), mark) and torch.equal(byte(t["padded"][-1:]), mark)
    few = row["m"] * row["n"] < 1024  # whose rounding is no average
    if not (error <= LIMITS[row["form"].replace("+amax", "")] * (2 if few else 1) and outside):
        print(f"{row['name']}: error {error:.1e}, memory around the result {'kept' if outside else 'WRITTEN'}")
        return math.inf
    if "amax" in row["form"]:
        greatest = float(reference(row, t, rounded=False).abs().max())
        if not abs(float(t["amax"]) - greatest) <= LIMITS[element(row["form"])] * greatest + 1e-6 * greatest:
            print(f"{row['name']}: the greatest element is {float(t['amax'])} instead of {greatest}")
            return math.inf
    first = t["y"].clone()
    for _ in range(times):
        launch()
    torch.cuda.synchronize()
    return error if torch.equal(byte(first), byte(t["y"])) else math.inf


def scaled_by_blocks(t):
    """torch's product of the same codes and scales, in the order that cuBLAS wants: of A with contiguous columns, of the
    weights with contiguous k in multiples of four."""
    import torch
    from torch.nn.functional import ScalingType, pad, scaled_mm
    sa = torch.empty_strided(t["sa"].shape, (1, t["sa"].shape[0]), device="cuda").copy_(t["sa"])
    sw = pad(t["sw"], (0, -t["sw"].shape[1] % 4)).t()
    return lambda: scaled_mm(t["a"], t["w"].t(), sa, ScalingType.BlockWise1x128, sw, ScalingType.BlockWise128x128,
                             output_dtype=torch.bfloat16)


def rivals(row, sets):
    import torch
    form, kind = row["form"], element(row["form"])
    if row["group"] == "sweep":
        return {}
    if "blocks" in form:
        launches = [scaled_by_blocks(t) for t in sets]
        try:
            error = relative_error(launches[0]().float(), reference(row, sets[0]))
        except (RuntimeError, ValueError) as e:
            print(f"{row['name']}: torch: {str(e).splitlines()[0][:120]}")
            return {}
        if not error < 1e-2:
            print(f"{row['name']}: torch has another result: error {error:.1e}")
        return {"torch": launches}
    if kind == "int8":
        if row["m"] <= 16 or row["result"] != "i32":
            return {}
        return {"torch": [lambda t=t: torch._int_mm(t["a"], t["w"].t(), out=t["y"]) for t in sets]}
    if kind == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        return {"torch": [lambda t=t: torch.mm(t["a"], t["w"].t(), out=t["y"]) for t in sets]}
    return {"torch": [lambda t=t: torch._scaled_mm(t["a"], t["w"].t(), scale_a=t["sa"], scale_b=t["sw"], out=t["y"],
                                                   out_dtype=torch.bfloat16, use_fast_accum="fast" in form) for t in sets]}


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    bad, ratios, results = 0, {}, []
    prepared = json.load(open(os.path.join(folder, "race_gemm8.json")))
    table = [r for r in prepared if not groups or r["group"] in groups]
    kernels = {r["name"]: load_kernels(folder, r, ordered) for r in prepared}
    rows = {r["name"]: r for r in prepared}
    for row in table:
        name, m, n, k = row["name"], row["m"], row["n"], row["k"]
        error = check(row, kernels[name], 600 if row["group"] == "odd" else 20)
        if error == math.inf:
            print(f"{name:32} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] == "odd":
            print(f"{name:36} {row['config']:44} error {error:.1e}, the same bits 600 times", flush=True)
            continue
        width = 4 if row["form"] == "tf32" else 1
        moved = width * (m * k + n * k) + m * n * {"bf16": 2, "i8": 1, "e4m3": 1}.get(row["result"], 4)
        sets = [make_set(row) for _ in range(max(2, min(16, math.ceil(300e6 / moved))))]
        candidates = {"lathe": [kernels[name](t) for t in sets], **rivals(row, sets)}
        other = rows.get(name.replace("int8", "e4m3fast")) if row["group"] == "int8" else rows.get(name.removesuffix("_blocks"))
        other = other if row["group"] in ("int8", "blocks", "blocksfew") else None
        if other:
            floats = [make_set(other) for _ in sets]
            candidates["e4m3"] = [kernels[other["name"]](t) for t in floats]
        rounds = race_rounds(candidates, ROUNDS)
        times, others = {c: median(v) for c, v in rounds.items()}, {c: ratio(rounds, c) for c in rounds if c != "lathe"}
        mine = times["lathe"]
        for rival, r in others.items():
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = r
        results.append({**{c: row[c] for c in ("name", "group", "m", "n", "k", "form", "config", "pdl")}, "us": times, "error": error})
        print(f"{name:24} {row['config']:44} {mine:8.2f} us {2 * m * n * k / mine / 1e6:5.0f} TF {moved / mine / 1e3:5.0f} GB/s  " +
              "  ".join(f"{r:.3f} x {rival}" for rival, r in others.items()) + f"  error {error:.1e}", flush=True)
        del sets, candidates
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_gemm8.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    if len(sys.argv) > 4 and sys.argv[1] == "sweep":
        sys.exit(sweep(sys.argv[2], sys.argv[3], sys.argv[4:]))
    command(__doc__, cases(), prepare, run, only_run=["sweep"])
