# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated matrix products against torch and the best of eight cublasLt heuristics.

    race_gemm.py prepare FOLDER [GROUP...]   without a GPU: the models' kernels as cubins, with their launches
    race_gemm.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                             candidates in rounds, as CUDA-graph replays over rotating buffers

bf16, weights as [N, K] like torch's Linear. Groups: large, few, skinny, one, across (weights as [K, N]), fused, amax,
odd and forms (correctness only). Ratios are taken within a round, each of which has another order; of the algorithms the
two fastest of five rounds take part, and the better one counts. `prepare --config=CONFIG` takes another configuration where it is possible. The tables and
the bars are those printed at the end: rival's time over lathe's, geometric mean and least.
"""
import ctypes as C
import json
import math
import os
import re
import subprocess
import sys

from generated import LATHE, TARGET, command, judge, median, race_rounds, ratio, relative_error
from plans import keep_kernels, load_kernels, make_between

LLAMA = {"qkv": (6144, 4096), "o": (4096, 4096), "gateup": (28672, 4096), "down": (4096, 14336)}
#         group: rival -> (least geometric mean, least ratio)
BARS = {"large": {"torch": (1.05, 1.00), "lt": (1.01, 0.97)}, "one": {"torch": (1.20, 1.05)},
        "skinny": {"torch": (1.06, 1.00)}, "few": {"torch": (1.02, 0.97)},
        "fused": {"bare": (0.97, 0.93), "compile": (1.10, 1.05)}}
ROUNDS = 41


def projections(*rows):
    return [(f"{name}_{m}", m, *sizes, "", True) for m in rows for name, sizes in LLAMA.items()]


def cases():
    """group -> [(name, m, n, k, epilogue, weights along k[, configuration])]"""
    out = {"large": [("square_4096", 4096, 4096, 4096, "", True), ("square_8192", 8192, 8192, 8192, "", True)] +
                    projections(256, 2048, 8192),
           "one": projections(1), "skinny": projections(4, 8, 16), "few": projections(32, 64), "odd": []}
    out["across"] = [(f"across_{name}", m, n, k, e, False) for name, m, n, k, e, _ in
                     out["large"][:1] + projections(1, 16, 256, 2048)]
    out["fused"] = [(f"{e.replace('+', '_')}_{m}", m, 4096, 4096, e, True)
                    for m in (4096, 8192) for e in ("bias+gelu", "swiglu", "residual", "quantize")]
    # What epilogues are measured against, and a gate whose other half was computed before.
    out["fused"] += [("plain_8192", 8192, 4096, 4096, "", True), ("gate_4096", 4096, 4096, 4096, "silu", True)]
    # The kernel that has the rest of the greatest element to find counts, too.
    out["amax"] = [(f"{e.replace('+', '_') or 'bare'}_{m}", m, 4096, 4096, e, True) for m in (4096, 8192) for e in ("", "quantize+amax", "swiglu+amax")]
    for m, n, k in [(1, 8, 8), (1, 1000, 4104), (7, 13, 8), (16, 4096, 72), (13, 1000, 776), (31, 97, 40), (257, 509, 1032),
                    (1000, 776, 200), (1021, 1024, 1016), (2, 4096, 4096), (100, 4098, 264), (129, 129, 64)]:
        out["odd"] += [(f"odd_{m}x{n}x{k}{e}{t}", m, n, k, e, t) for e in ("", "bias+gelu", "residual", "swiglu")
                       for t in (True, False) if (t or n % 8 == 0) and (e != "swiglu" or n % 16 == 0 and n * k > 4096)]
    # The greatest element of the result beside it.
    out["odd"] += [(f"odd_{m}x{n}x{k}{e}", m, n, k, e, True) for e in ("quantize+amax", "bias+gelu+amax", "residual+amax", "swiglu+amax")
                   for m, n, k in ((256, 128, 72), (272, 896, 1032), (1040, 1664, 264), (4096, 4096, 520))]
    # Tiles that are shared by blocks, however many there are.
    out["forms"] = [(f"form_{m}x{n}x{k}{e}{t}_{'_'.join(form[5:].split('.'))}", m, n, k, e, t, form)
                    for form in ("gemm.pingpong.streamk.m128.n128", "gemm.cooperative.streamk.m128.n256",
                                 "gemm.pingpong.streamk.m64.n128")
                    for m, n, k, e, t in ((257, 509, 1032, "", True), (1021, 1024, 1016, "residual", True), (1, 776, 200, "bias+gelu", True),
                                          (3136, 2048, 512, "residual", False), (2500, 1552, 4104, "swiglu", True), (129, 4096, 128, "", False))]
    # Blocks that load columns for each other.
    out["forms"] += [(f"form_{m}x{n}x{k}{e}_{'_'.join(form[5:].split('.'))}", m, n, k, e, True, form)
                     for form in ("gemm.pingpong.m128.n128.c2", "gemm.cooperative.m128.n256.c2", "gemm.pingpong.m64.n192.c2")
                     for m, n, k, e in ((257, 509, 1032, ""), (1021, 1024, 1016, "residual"), (1, 776, 200, "bias+gelu"),
                                        (3136, 2048, 520, "residual"), (129, 4096, 128, ""))]
    # Columns of the weights as rows of the instruction.
    out["forms"] += [(f"form_{m}x{n}x{k}{e}{t}_{'_'.join(form[5:].split('.'))}", m, n, k, e, t, form)
                     for form in ("gemm.cooperative.swapped.m96.n128", "gemm.pingpong.swapped.m192.n64",
                                  "gemm.cooperative.swapped.m112.n256", "gemm.pingpong.swapped.m16.n128")
                     for m, n, k, e, t in ((257, 520, 1032, "", True), (1021, 1024, 1016, "residual", True), (1, 776, 200, "bias+gelu", True),
                                           (3136, 2048, 512, "residual", False), (129, 4096, 128, "", False))]
    # Weights through rings of warps.
    out["forms"] += [(f"form_{m}x{n}x{k}{e}{t}_{'_'.join(form[5:].split('.'))}", m, n, k, e, t, form)
                     for form in ("gemm.stream.t512", "gemm.stream.t256.s3")
                     for m, n, k, e, t in ((1, 97, 72, "", True), (7, 4093, 1032, "bias+gelu", True), (13, 1000, 776, "residual", True),
                                           (16, 5008, 2048, "swiglu", True), (5, 8192, 1544, "swiglu", True))]
    return out


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, m, n, k, epilogue, along, constant=True):
    """The weight is a constant whose file has holes instead of bytes. Small ones are inputs: the compiler would
    look at them, and see that they are zero."""
    import onnx
    from onnx import TensorProto, helper
    node, value = helper.make_node, lambda name, dims: helper.make_tensor_value_info(name, TensorProto.BFLOAT16, dims)
    weight = onnx.TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[n, k] if along else [k, n],
                              data_location=onnx.TensorProto.EXTERNAL)
    for key, text in (("location", os.path.basename(path) + ".bin"), ("length", str(2 * n * k))):
        weight.external_data.add(key=key, value=text)
    inputs, last = [value("a", [m, k])], "y0"
    constants = [weight] if constant and n * k > 4096 else []
    if constants:
        with open(path + ".bin", "wb") as f:
            f.truncate(2 * n * k)
    else:
        inputs.append(value("w", weight.dims))
    nodes = [node("Gemm", ["a", "w"], ["y0"], transB=1) if along else node("MatMul", ["a", "w"], ["y0"])]
    if "bias" in epilogue:
        inputs.append(value("bias", [n]))
        nodes.append(node("Add", [last, "bias"], [last := "y1"]))
    if "gelu" in epilogue:
        nodes.append(node("Gelu", [last], [last := "y2"]))
    if "residual" in epilogue:
        inputs.append(value("r", [m, n]))
        nodes.append(node("Add", [last, "r"], [last := "y3"]))
    dtype, width = TensorProto.BFLOAT16, n
    if "swiglu" in epilogue:  # gate and what it lets through are the halves of one weight's columns
        width = n // 2
        nodes += [node("Split", [last], ["g", "u"], axis=-1, num_outputs=2), node("Sigmoid", ["g"], ["s"]),
                  node("Mul", ["g", "s"], ["t"]), node("Mul", ["t", "u"], [last := "y5"])]
    value_of_amax = last
    if "quantize" in epilogue:  # to 8-bit floats by a scale that is an input
        inputs.append(value("scale", []))
        dtype = TensorProto.FLOAT8E4M3FN
        nodes += [node("Div", [last, "scale"], ["q"]), node("Cast", ["q"], [last := "y6"], to=dtype, saturate=1)]
    if "silu" in epilogue:  # the second half of SwiGLU: the other product is an input
        inputs.append(value("r", [m, n]))
        nodes += [node("Sigmoid", [last], ["s"]), node("Mul", [last, "s"], ["t"]), node("Mul", ["t", "r"], ["y4"])]
        last = "y4"
    results = [helper.make_tensor_value_info(last, dtype, [m, width])]
    if "amax" in epilogue:
        results.append(value("amax", []))
        nodes += [node("Abs", [value_of_amax], ["magnitude"]), node("ReduceMax", ["magnitude"], ["amax"], keepdims=0)]
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def prepare(folder, groups, config):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for name, m, n, k, epilogue, along, *form in cases()[group]:
            stem = os.path.join(folder, name)
            save_model(stem + ".onnx", m, n, k, epilogue, along)
            command = [LATHE, "compile", stem + ".onnx", f"--target={TARGET}", "--stop-after=codegen", "-o", stem + ".mlir"]
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode == 0 and (config or form):
                kernel = re.search(r"exec\.launch @(\w+)", open(stem + ".mlir").read())[1]
                made = subprocess.run(command + ["--config", f"{kernel}={config or form[0]}"], capture_output=True, text=True)
            if made.returncode:
                sys.exit(f"{name}: {made.stderr}")
            row = keep_kernels(folder, name, open(stem + ".mlir").read())
            for end in (".onnx", ".onnx.bin", ".mlir"):
                if os.path.exists(stem + end):
                    os.remove(stem + end)
            row.update(name=name, group=group, m=m, n=n, k=k, epilogue=epilogue, along=along)
            table.append(row)
            print(f"{name:24} {row['config']}{' pdl' if row['pdl'] else ''}", flush=True)
    json.dump(table, open(os.path.join(folder, "race_gemm.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

class CublasLt:
    """The first eight algorithms that the heuristic names, each by itself: y[M, N] = a[M, K] w[N, K]^T in bf16."""

    def __init__(self):
        import glob
        import torch
        for name in [p for d in sys.path for p in glob.glob(d + "/nvidia/cu13/lib/libcublasLt.so.13")] + ["libcublasLt.so.13"]:
            try:
                self.lib = C.CDLL(name)
                break
            except OSError:
                continue
        self.handle, self.bytes = C.c_void_p(), 64 << 20
        self.call("Create", C.byref(self.handle))
        self.space = torch.empty(self.bytes, device="cuda", dtype=torch.uint8)
        self.one, self.zero = C.c_float(1), C.c_float(0)

    def call(self, name, *args):
        rc = getattr(self.lib, "cublasLt" + name)(*args)
        if rc:
            raise RuntimeError(f"cublasLt{name}: {rc}")

    def layout(self, rows, columns, leading):
        p = C.c_void_p()
        self.call("MatrixLayoutCreate", C.byref(p), 14, C.c_uint64(rows), C.c_uint64(columns), C.c_int64(leading))
        return p

    def launches(self, m, n, k, sets):
        """[[launch for each set (a, w, y)] for each algorithm]"""
        import torch
        product, transposed, wanted = C.c_void_p(), C.c_int(1), 8
        self.call("MatmulDescCreate", C.byref(product), 68, 0)
        self.call("MatmulDescSetAttribute", product, 3, C.byref(transposed), 4)
        w, a, y = self.layout(k, n, k), self.layout(k, m, k), self.layout(n, m, n)
        preference, space, found = C.c_void_p(), C.c_uint64(self.bytes), C.c_int()
        self.call("MatmulPreferenceCreate", C.byref(preference))
        self.call("MatmulPreferenceSetAttribute", preference, 1, C.byref(space), 8)
        results = C.create_string_buffer(96 * wanted)
        self.call("MatmulAlgoGetHeuristic", self.handle, product, w, a, y, y, preference, wanted, results, C.byref(found))

        def launch(algorithm, ta, tw, ty):
            pointer = lambda t: C.c_void_p(t.data_ptr())
            return lambda: self.call(
                "Matmul", self.handle, product, C.byref(self.one), pointer(tw), w, pointer(ta), a, C.byref(self.zero),
                pointer(ty), y, pointer(ty), y, algorithm, pointer(self.space), C.c_size_t(self.bytes),
                C.c_void_p(torch.cuda.current_stream().cuda_stream))
        algorithms = [C.create_string_buffer(results.raw[96 * i:96 * i + 64], 64) for i in range(found.value)]
        return [[launch(x, *s) for s in sets] for x in algorithms]


def width_of(row):
    return row["n"] // 2 if "swiglu" in row["epilogue"] else row["n"]


def reference(row, t):
    import torch
    import torch.nn.functional as F
    # Rows in pieces: a whole product in float64 would need too much memory.
    w = t["w"].double()
    w = w.t() if row["along"] else w
    out = torch.empty(row["m"], width_of(row), device="cuda", dtype=torch.float64)
    for i in range(0, row["m"], 1024):
        y = t["a"][i:i + 1024].double() @ w
        if "bias" in row["epilogue"]:
            y += t["bias"].double()
        if "gelu" in row["epilogue"]:
            y = F.gelu(y)
        if "swiglu" in row["epilogue"]:
            y = F.silu(y[:, :row["n"] // 2]) * y[:, row["n"] // 2:]
        if "quantize" in row["epilogue"]:  # rounded once, as the kernel rounds
            y = (y / t["scale"].double()).float().to(torch.float8_e4m3fn)
        if "silu" in row["epilogue"]:
            y = F.silu(y) * t["r"][i:i + 1024].double()
        if "residual" in row["epilogue"]:
            y += t["r"][i:i + 1024].double()
        out[i:i + 1024] = y
    return out


def make_set(row):
    import torch
    make = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
    m, n, k = row["m"], row["n"], row["k"]
    t = {"a": make(m, k), "w": make(n, k) if row["along"] else make(k, n)}
    if "bias" in row["epilogue"]:
        t["bias"] = make(n)
    if "silu" in row["epilogue"] or "residual" in row["epilogue"]:
        t["r"] = make(m, n)
    if "quantize" in row["epilogue"]:
        t["scale"] = torch.full((), 2.0, device="cuda", dtype=torch.bfloat16)
    # The rows before and behind the result must stay as they are.
    kind = torch.float8_e4m3fn if "quantize" in row["epilogue"] else torch.bfloat16
    t["padded"] = torch.full((m + 16, width_of(row)), float("nan"), device="cuda").to(kind)
    t["y"] = t["padded"][8:-8]
    if "amax" in row["epilogue"]:
        t["amax"] = make(1)
    t.update(make_between(row))
    return t


def ordered(row, t):
    """In the order of the kernel's buffers; the one that is no input is the result."""
    return [t.get(b, t["y"]) for b in row["buffers"]]


def amax_of(row, t, want):
    """The greatest magnitude of the result, before it is quantized."""
    if "quantize" not in row["epilogue"]:
        return float(want.abs().max())
    w = t["w"].t() if row["along"] else t["w"]
    return max(float((t["a"][i:i + 1024].double() @ w.double()).abs().max()) for i in range(0, row["m"], 1024))


def check(row, bind):
    """Relative error in the norm; infinite when something else was written."""
    import torch
    t = make_set(row)
    launch = bind(t)
    launch()
    torch.cuda.synchronize()
    want = reference(row, t)
    error = relative_error(t["y"], want)
    outside = t["padded"][:8].float().isnan().all() and t["padded"][-8:].float().isnan().all()
    # A sum that lies between two numbers of 8 bits may go to either.
    if not (error < (1e-2 if "quantize" in row["epilogue"] else 4e-3) and outside):
        print(f"{row['name']}: error {error:.1e}, memory around the result {'kept' if outside else 'WRITTEN'}")
        return math.inf
    if "amax" in row["epilogue"]:
        greatest = amax_of(row, t, want)
        if not abs(float(t["amax"]) - greatest) <= 2**-8 * greatest:
            print(f"{row['name']}: the greatest element is {float(t['amax'])} instead of {greatest}")
            return math.inf
    bits = lambda: t["y"].view(torch.uint8 if "quantize" in row["epilogue"] else torch.int16)
    first = bits().clone()
    for _ in range(600 if row["group"] in ("odd", "forms") else 20):
        launch()
    torch.cuda.synchronize()
    return error if torch.equal(first, bits()) else math.inf


def rivals(row, sets, lt):
    import torch
    import torch.nn.functional as F
    weight = lambda t: t["w"].t() if row["along"] else t["w"]
    plain = torch.empty(row["m"], row["n"], device="cuda", dtype=torch.bfloat16)
    out = {"torch": [lambda t=t: torch.mm(t["a"], weight(t), out=t["y"] if t["y"].shape == plain.shape and
                                          t["y"].dtype == plain.dtype else plain) for t in sets]}
    if not row["epilogue"] and row["along"]:
        for i, launches in enumerate(lt.launches(row["m"], row["n"], row["k"], [(t["a"], t["w"], t["y"]) for t in sets])):
            out[f"lt{i}"] = launches
    if row["epilogue"] == "quantize+amax":
        def quantize(a, w, scale):
            y = F.linear(a, w)
            return (y / scale).clamp(-448, 448).to(torch.float8_e4m3fn), y.abs().max()
        q = torch.compile(quantize, dynamic=False)
        out["compile"] = [lambda t=t: q(t["a"], t["w"], t["scale"]) for t in sets]
    if row["epilogue"] == "bias+gelu":
        f = torch.compile(lambda a, w, b: F.gelu(F.linear(a, w, b)), dynamic=False)
        out["compile"] = [lambda t=t: f(t["a"], t["w"], t["bias"]) for t in sets]
    return out


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    lt, bad, ratios, results = CublasLt(), 0, {}, []
    table = [r for r in json.load(open(os.path.join(folder, "race_gemm.json"))) if not groups or r["group"] in groups]
    kernels = {r["name"]: load_kernels(folder, r, ordered) for r in table}
    for row in table:
        name, m, n, k = row["name"], row["m"], row["n"], row["k"]
        error = check(row, kernels[name])
        if error == math.inf:
            print(f"{name:24} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] in ("odd", "forms"):
            print(f"{name:32} {row['config']:44} error {error:.1e}, the same bits 600 times", flush=True)
            continue
        moved = 2 * (m * k + n * k + m * n)
        sets = [make_set(row) for _ in range(max(2, min(16, math.ceil(300e6 / moved))))]
        candidates = {"lathe": [kernels[name](t) for t in sets], **rivals(row, sets, lt)}
        plain = next((r for r in table if row["epilogue"] and not r["epilogue"] and r["along"] and
                      (r["m"], r["n"], r["k"]) == (m, n, k)), None)
        if plain:
            candidates["bare"] = [kernels[plain["name"]](make_set(plain)) for _ in sets]
        algorithms = {c: v for c, v in candidates.items() if c.startswith("lt")}
        first = {c: median(v) for c, v in race_rounds(algorithms, 5).items()} if algorithms else {}
        for slower in sorted(first, key=first.get)[2:]:
            del candidates[slower]
        rounds = race_rounds(candidates, ROUNDS)
        times = {c: median(v) for c, v in rounds.items()}
        mine, best = times["lathe"], {}
        for c in times:
            if c != "lathe":
                rival = "lt" if c.startswith("lt") else c
                best[rival] = min(best.get(rival, math.inf), ratio(rounds, c))
        for rival, r in best.items():
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = r
        results.append({**{c: row[c] for c in ("name", "group", "m", "n", "k", "config", "pdl")}, "us": times, "error": error})
        print(f"{name:24} {row['config']:44} {mine:8.2f} us {2 * m * n * k / mine / 1e6:5.0f} TF {moved / mine / 1e3:5.0f} GB/s  " +
              "  ".join(f"{r:.3f} x {rival}" for rival, r in best.items()) + f"  error {error:.1e}", flush=True)
        del sets, candidates
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_gemm.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run, with_config=True)
