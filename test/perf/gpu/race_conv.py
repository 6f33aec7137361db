# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated convolutions against cuDNN (torch, channels_last, benchmark mode), those of 8-bit codes against our own of f16.

    race_conv.py prepare FOLDER [GROUP...]   without a GPU: the models' kernels as cubins, with their launches
    race_conv.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                             candidates in turn, as CUDA-graph replays over rotating buffers

f16, pixels with channels last on both sides; the first layer takes planes and is raced against cuDNN with 3, 4 and
8 channels. Groups: b64 and b1, the layers of ResNet-50 with their epilogues; odd: other sizes, windows, strides,
dilations, groups, one and three dimensions; forms: each kind of kernel and tile (both: correctness and 600 repeats); int8:
the windows of 3 x 3 of ResNet-50 at batch 64 with codes on both sides (QDQ) and the scales of filters behind the sums, codes:
other sizes of that. Codes are compared with those of float64: at most one apart, and 1e-5 of them.
`prepare --config=CONFIG` asks for
another configuration. `run --repeats=N`: instead of 600, for compute-sanitizer. The tables and bars are those printed at the end: rival's time over lathe's.
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys

from generated import LATHE, TARGET, command, compile_cubin, judge, launch_of, load, prepare_all, race, relative_error
from plans import unescape

REPEATS = int("".join(w[10:] for w in sys.argv if w.startswith("--repeats=")) or 600)
BARS = {"b64": {"cuDNN": (1.12, 0.97)}, "b1": {"cuDNN": (1.40, 1.00)}, "int8": {"f16": (1.50, 1.00)}}
RESIDUAL, APART = 0.375, 1e-5  # what a code of a residual counts in those of results; which part of them may differ
# (channels, filters, window, stride, pixels a side, epilogue), each once
LAYERS = [
    (3, 64, 7, 2, 224, "relu"), (64, 64, 1, 1, 56, "relu"), (64, 64, 3, 1, 56, "relu"), (64, 256, 1, 1, 56, ""),
    (64, 256, 1, 1, 56, "residual+relu"), (256, 64, 1, 1, 56, "relu"), (256, 128, 1, 1, 56, "relu"),
    (128, 128, 3, 2, 56, "relu"), (256, 512, 1, 2, 56, ""), (128, 512, 1, 1, 28, "residual+relu"),
    (512, 128, 1, 1, 28, "relu"), (128, 128, 3, 1, 28, "relu"), (512, 256, 1, 1, 28, "relu"),
    (256, 256, 3, 2, 28, "relu"), (512, 1024, 1, 2, 28, ""), (256, 1024, 1, 1, 14, "residual+relu"),
    (1024, 256, 1, 1, 14, "relu"), (256, 256, 3, 1, 14, "relu"), (1024, 512, 1, 1, 14, "relu"),
    (512, 512, 3, 2, 14, "relu"), (1024, 2048, 1, 2, 14, ""), (512, 2048, 1, 1, 7, "residual+relu"),
    (2048, 512, 1, 1, 7, "relu"), (512, 512, 3, 1, 7, "relu")]


CODES = {"u8": "UINT8", "i8": "INT8"}  # of images; filters have signed ones


class Case:
    """pads and dilations are those of each dimension, low and high alike unless `pads` has both."""

    def __init__(self, group, images, channels, filters, window, stride, size, epilogue, pads=None, dilation=1, groups=1,
                 dtype="f16", config=""):
        self.group, self.images, self.channels, self.filters = group, images, channels, filters
        self.size = list(size) if isinstance(size, (list, tuple)) else [size, size]
        n = len(self.size)
        self.window = list(window) if isinstance(window, (list, tuple)) else [window] * n
        self.stride = list(stride) if isinstance(stride, (list, tuple)) else [stride] * n
        self.dilation, self.groups, self.epilogue, self.dtype = [dilation] * n, groups, epilogue, dtype
        self.pads = pads or [w // 2 for w in self.window] * 2
        self.out = [(h + self.pads[i] + self.pads[n + i] - self.dilation[i] * (self.window[i] - 1) - 1) // self.stride[i] + 1
                    for i, h in enumerate(self.size)]
        self.planes, self.config = channels <= 4 and n == 2, config
        text = lambda v: "x".join(map(str, v))
        self.name = f"{images}_{channels}to{filters}_w{text(self.window)}_s{text(self.stride)}_at{text(self.size)}" + \
            (f"_d{dilation}" if dilation > 1 else "") + (f"_g{groups}" if groups > 1 else "") + \
            (f"_p{text(self.pads)}" if pads else "") + ("_" + epilogue.replace("+", "_") if epilogue else "") + \
            ("_" + dtype if dtype != "f16" else "") + ("_" + config.replace(".", "_") if config else "")

    def bytes(self):
        area = lambda sides: math.prod(sides)
        inside = min(1, math.prod(self.window) / math.prod(self.stride))
        return (1 if self.dtype in CODES else 2) * (self.images * (self.channels * area(self.size) * inside + self.filters * area(self.out) *
                                   (2 if "residual" in self.epilogue else 1)) +
                    self.filters * self.channels // self.groups * area(self.window))

    def flops(self):
        return 2 * self.images * math.prod(self.out) * self.filters * self.channels // self.groups * math.prod(self.window)


def cases():
    out = {group: [Case(group, n, *layer) for layer in LAYERS] for group, n in (("b64", 64), ("b1", 1))}
    make = lambda group, rows: [Case(group, n, c, k, w, s, h, e, **more) for n, c, k, w, s, h, e, more in rows]
    out["odd"] = make("odd", [
        (3, 64, 64, 3, 1, (13, 17), "relu", {}), (2, 72, 40, 3, 1, (11, 11), "residual+relu", {}), (5, 64, 24, 5, 1, 9, "", {}),
        (2, 128, 128, 3, 1, (31, 7), "relu", {"dilation": 2, "pads": [2, 2, 2, 2]}), (1, 64, 128, 3, 3, (29, 23), "", {"pads": [0, 1, 2, 0]}),
        (2, 128, 256, 3, 1, 14, "relu", {"groups": 2}), (3, 256, 128, 3, 2, 15, "residual+relu", {"groups": 4}), (1, 64, 7, 3, 1, 10, "", {}),
        (4, 96, 96, 3, 1, 1, "relu", {}), (7, 64, 64, [1, 7], 1, (12, 19), "", {}), (2, 64, 64, [7, 1], [1, 2], (12, 19), "", {}),
        (2, 192, 80, 2, 2, (10, 8), "relu", {"pads": [0, 0, 0, 0]}), (2, 64, 64, [3], 1, [101], "relu", {}), (3, 128, 200, [5], [2], [64], "residual+relu", {}),
        (2, 64, 64, 3, 1, (5, 9, 7), "relu", {}), (1, 64, 96, [3, 1, 3], [1, 2, 2], (4, 9, 8), "", {}), (2, 64, 64, 3, 1, 13, "relu", {"dtype": "bf16"}),
        (2, 64, 64, 1, 2, (9, 9), "relu", {}), (2, 1, 96, 5, 2, (20, 72), "residual+relu", {})])
    out["forms"] = make("forms", [
        (2, 3, 64, 7, 2, (64, 48), "relu", {}), (3, 3, 32, 3, 2, (33, 40), "", {}), (1, 4, 24, 4, 2, (18, 264), "relu", {}),
        (2, 3, 136, 7, 2, (40, 48), "relu", {"dtype": "bf16"}), (2, 32, 32, 3, 1, 14, "relu", {"groups": 32}), (3, 40, 40, 5, 2, (15, 13), "relu", {"groups": 40})])
    out["int8"] = [Case("int8", 64, *layer, dtype="u8") for layer in LAYERS if layer[2] == 3]
    out["codes"] = [Case("codes", *size, dtype=dtype, **more) for *size, dtype, more in (
        (3, 64, 64, 3, 1, (13, 17), "relu", "u8", {}), (2, 80, 48, 3, 1, (11, 11), "residual+relu", "u8", {}), (5, 64, 24, 5, 1, 9, "", "i8", {}),
        (2, 128, 128, 3, 1, (31, 7), "relu", "i8", {"dilation": 2, "pads": [2, 2, 2, 2]}), (1, 16, 128, 3, 3, (29, 23), "", "u8", {"pads": [0, 1, 2, 0]}),
        (4, 96, 96, 3, 1, 2, "relu", "u8", {}), (3, 144, 208, [5], [2], [64], "residual+relu", "i8", {}), (2, 64, 64, 3, 1, (5, 9, 7), "relu", "u8", {}),
        (2, 64, 32, 1, 2, (9, 9), "relu", "u8", {}))]
    for tile in ("pingpong.m64.n128", "pingpong.m128.n64", "pingpong.m192.n32", "pingpong.m64.n256", "cooperative.m128.n256", "cooperative.m256.n64",
                 "split.m64.n32.c2", "split.m64.n64.c8"):
        out["codes"].append(Case("codes", 9, 272, 304, 3, 1, (29, 23), "residual+relu", dtype="u8", config="conv." + tile))
    tiles = ["pingpong.m64.n128", "pingpong.m128.n128", "pingpong.m192.n64", "pingpong.m64.n256", "pingpong.m128.n96", "cooperative.m128.n128",
             "cooperative.m256.n64", "cooperative.m128.n256", "cooperative.m256.n128", "cooperative.swapped.m96.n128",
             "cooperative.swapped.m192.n128", "pingpong.swapped.m112.n64", "cooperative.swapped.m48.n256",
             "pingpong.swapped.m64.n128", "pingpong.swapped.m176.n64"] + [f"split.m64.n{n}.c{c}" for n in (16, 32, 64) for c in (1, 2, 4, 8)]
    for i, tile in enumerate(tiles):
        *size, more = [(9, 136, 152, 3, 1, (29, 23), "residual+relu", {}), (11, 192, 72 if "swapped" in tile else 60, 3, 2, (37, 21), "relu", {}),
                       (5, 128, 320, [3], [1], [301], "", {}), (3, 256, 272, 3, 1, (13, 31), "residual", {"groups": 2})][i % 4]
        out["forms"].append(Case("forms", *size, config="conv." + tile, **more))
    return out


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, case):
    """Weights are constants whose values do not matter here; the results of the pixels' order are transposed back."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    if case.dtype in CODES:
        return save_codes(path, case)
    kind = TensorProto.FLOAT16 if case.dtype == "f16" else TensorProto.BFLOAT16
    value = lambda name, dims: helper.make_tensor_value_info(name, kind, dims)
    node, n = helper.make_node, len(case.size)
    shape = [case.filters, case.channels // case.groups, *case.window]
    # Different from each other: the compiler would see that they are all alike.
    raw = (np.arange(math.prod(shape)) % 997 + 0x2000).astype(np.uint16)
    weight = onnx.TensorProto(name="w", data_type=kind, dims=shape, raw_data=raw.tobytes())
    first, last = [0, n + 1, *range(1, n + 1)], [0, *range(2, n + 2), 1]
    x = [case.images, case.channels, *case.size] if case.planes else [case.images, *case.size, case.channels]
    y = [case.images, *case.out, case.filters]
    inputs, nodes = [value("x", x), value("bias", [case.filters])], []
    if not case.planes:
        nodes.append(node("Transpose", ["x"], ["x0"], perm=first))
    nodes.append(node("Conv", ["x" if case.planes else "x0", "w"], ["y0"], strides=case.stride, pads=case.pads,
                      dilations=case.dilation, group=case.groups))
    nodes += [node("Transpose", ["y0"], ["y1"], perm=last), node("Add", ["y1", "bias"], [end := "y2"])]
    if "residual" in case.epilogue:
        inputs.append(value("r", y))
        nodes.append(node("Add", [end, "r"], [end := "y3"]))
    if "relu" in case.epilogue:
        nodes.append(node("Relu", [end], [end := "y4"]))
    graph = helper.make_graph(nodes, "g", inputs, [value(end, y)], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def save_codes(path, case):
    """Codes in, codes out. Scales and biases differ, so that they are buffers; the numbers in them do not matter here, but the
    scales of what is one number for all: of residuals RESIDUAL of that of results."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    node, n, f = helper.make_node, len(case.size), case.filters
    kind, code = getattr(TensorProto, CODES[case.dtype]), np.uint8 if case.dtype == "u8" else np.int8
    filters = (np.arange(f * case.channels * math.prod(case.window)) % 255 - 127).astype(np.int8).reshape(f, case.channels, *case.window)
    constants = {"w": filters, "sw": np.linspace(1, 2, f, dtype=np.float32), "zw": np.zeros(f, np.int8), "z": code(0),
                 "bias": np.linspace(-1, 3, f, dtype=np.float32), "sx": np.float32(0.25), "sy": np.float32(0.5), "sr": np.float32(0.5 * RESIDUAL)}
    first, last = [0, n + 1, *range(1, n + 1)], [0, *range(2, n + 2), 1]
    y = [case.images, *case.out, f]
    inputs = [helper.make_tensor_value_info("x", kind, [case.images, *case.size, case.channels])]
    nodes = [node("Transpose", ["x"], ["x0"], perm=first), node("DequantizeLinear", ["x0", "sx", "z"], ["x1"]),
             node("DequantizeLinear", ["w", "sw", "zw"], ["w1"], axis=0),
             node("Conv", ["x1", "w1", "bias"], ["y0"], strides=case.stride, pads=case.pads, dilations=case.dilation),
             node("Transpose", ["y0"], [end := "y1"], perm=last)]
    if "residual" in case.epilogue:
        inputs.append(helper.make_tensor_value_info("r", kind, y))
        nodes += [node("DequantizeLinear", ["r", "sr", "z"], ["r1"]), node("Add", [end, "r1"], [end := "y2"])]
    if "relu" in case.epilogue:
        nodes.append(node("Relu", [end], [end := "y3"]))
    nodes.append(node("QuantizeLinear", [end, "sy", "z"], ["y4"]))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y4", kind, y)],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def read_plan(text):
    """The one kernel of a text of phase codegen: its source; its launch, and what each of its buffers is."""
    string = r'"((?:[^"\\]|\\.)*)"'
    source, spec = (unescape(re.search(key + " = " + string, text)[1]) for key in ("source", "spec"))
    buffers = {}
    for name, label, of, kind in re.findall(r'(%\w+) = exec\.buffer "(\w*)"(?: of (%\w+))?.*kind = #exec\.kind<(\w+)>', text):
        buffers[name] = {"weight": "w", "output": "y", "view": buffers.get(of)}.get(kind, label)
    arguments = re.search(r"exec\.launch @\w+\(([^)]*)\)", text)[1]
    packing = re.search(r'packing "(\w+)"', spec)
    arguments = [b.strip() for b in arguments.split(",")]  # memory to work in is `load`'s matter
    names = [buffers[b] for b in arguments if b in buffers]
    if names.count("w") == 3:  # of codes: filters, then what sums are multiplied by, and what is added
        at = names.index("w")
        names[at + 1:at + 3] = ["scale", "bias"]
    return source, {**launch_of(spec), "buffers": names,
                    "packing": packing[1] if packing else ""}


def taken(model):
    """The configuration of the convolution in an engine, where one that spills registers gives way to the next best."""
    engine = model + ".lathe"
    subprocess.run([LATHE, "compile", model, f"--target={TARGET}", "-o", engine], check=True, capture_output=True)
    kernels = json.loads(subprocess.run([LATHE, "inspect", engine, "--kernels", "--json"], check=True, capture_output=True).stdout)["plans"][0]["kernels"]
    return next(v["config"] for k in kernels for v in k["variants"] if v["config"].startswith("conv."))


def prepare(folder, groups, config):
    os.makedirs(folder, exist_ok=True)

    def one(case):
        stem = os.path.join(folder, case.name)
        os.makedirs(stem, exist_ok=True)
        model, plan = os.path.join(stem, "model.onnx"), os.path.join(stem, "plan.mlir")
        save_model(model, case)
        wanted = config or case.config or (taken(model) if case.dtype in CODES else "")
        command = [LATHE, "compile", model, f"--target={TARGET}", "--stop-after=codegen", "-o", plan]
        if wanted:
            kernel = "conv_add" + "_add" * ("residual" in case.epilogue) + "_max" * ("relu" in case.epilogue) + "_0"
            kernel = kernel if case.dtype not in CODES else "conv_cast_mul_add_0"
            command += ["--config", f"{kernel}={wanted}"]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            sys.exit(f"{case.name}: {made.stderr}")
        text = open(plan).read()
        shutil.rmtree(stem)
        kernels = len(re.findall(r"exec\.launch @", text))
        if kernels != 1:
            sys.exit(f"{case.name}: {kernels} kernels instead of one")
        source, row = read_plan(text)
        cubin, log = compile_cubin(source, case.name + ".cu")
        with open(stem + ".cubin", "wb") as f:
            f.write(cubin)
        if found := re.findall(r"C75\d\d|[1-9]\d* bytes spill stores", log):
            print(f"{case.name}: {found}")
        row.update(name=case.name, group=case.group)
        print(f"{case.name:44} {row['config']}{' pdl' if row['pdl'] else ''}", flush=True)
        return row
    wanted = [c for g in groups for c in cases()[g]]
    if "int8" in groups and "b64" not in groups:  # the rivals
        wanted += [c for c in cases()["b64"] if any(w.name.startswith(c.name + "_u8") for w in wanted)]
    table = prepare_all(wanted, one)
    json.dump(table, open(os.path.join(folder, "race_conv.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def packed(weight, recipe):
    """The weight as the engine would hold it (Packing.h)."""
    import torch
    if not recipe:
        return weight.contiguous()
    kind, step = re.match(r"([a-z]+)(\d*)", recipe).groups()
    if kind == "taps":
        return weight.flatten(1).t().contiguous()
    assert kind == "rows"
    rows = weight.flatten(2).transpose(1, 2)
    return torch.nn.functional.pad(rows, (0, -rows.shape[2] % int(step))).contiguous()


def make_set(case, row):
    import torch
    if case.dtype in CODES:
        return make_codes(case, row)
    dtype = torch.float16 if case.dtype == "f16" else torch.bfloat16
    make = lambda *dims: torch.randn(*dims, device="cuda", dtype=dtype)
    depth = case.channels // case.groups * math.prod(case.window)
    t = {"x": make(case.images, case.channels, *case.size) if case.planes else make(case.images, *case.size, case.channels),
         "weight": (make(case.filters, case.channels // case.groups, *case.window) / math.sqrt(depth)),
         "bias": make(case.filters)}
    t["w"] = packed(t["weight"], row["packing"])
    rows = case.images * math.prod(case.out)
    if "residual" in case.epilogue:
        t["r"] = make(case.images, *case.out, case.filters)
    # The rows before and behind the result must stay as they are.
    t["padded"] = torch.full((rows + 16, case.filters), float("nan"), device="cuda", dtype=dtype)
    t["y"] = t["padded"][8:-8]
    return t


def make_codes(case, row):
    """Results fill the range of codes."""
    import torch
    dtype = torch.uint8 if case.dtype == "u8" else torch.int8
    least, most = (0, 256) if case.dtype == "u8" else (-128, 128)
    make = lambda *dims, low=least, high=most, of=dtype: torch.randint(low, high, dims, device="cuda", dtype=of)
    weight = make(case.filters, case.channels, *case.window, low=-127, of=torch.int8, high=128)
    spread = 73 * (147 if case.dtype == "u8" else 74) * math.sqrt(case.channels * math.prod(case.window))
    t = {"x": make(case.images, *case.size, case.channels), "weight": weight, "w": packed(weight, row["packing"]),
         "scale": (torch.rand(case.filters, device="cuda") + 0.5) * 40 / spread, "bias": torch.randn(case.filters, device="cuda") * 20}
    rows = case.images * math.prod(case.out)
    if "residual" in case.epilogue:
        t["r"] = make(case.images, *case.out, case.filters)
    t["padded"] = torch.full((rows + 16, case.filters), 77, device="cuda", dtype=dtype)
    t["y"] = t["padded"][8:-8]
    return t


def first(t, case):
    """With channels in the second place, as torch has them; no copy."""
    return t if case.planes else t.movedim(-1, 1)


def reference(case, t):
    import torch
    import torch.nn.functional as F
    n = len(case.size)
    conv = [F.conv1d, F.conv2d, F.conv3d][n - 1]
    out = []
    for i in range(0, case.images, 8):  # in pieces: float64 needs much memory
        x = first(t["x"][i:i + 8], case).double()
        pads = [p for d in reversed(range(n)) for p in (case.pads[d], case.pads[n + d])]
        bias, weight = t["bias"].double(), t["weight"].double()
        if "scale" in t:  # of codes
            y = conv(F.pad(x, pads), weight, None, case.stride, 0, case.dilation)
            y = (y.movedim(1, -1) * t["scale"].double() + bias).movedim(-1, 1)
        else:
            y = conv(F.pad(x, pads), weight, bias, case.stride, 0, case.dilation, case.groups)
        if "residual" in case.epilogue:
            y = y + t["r"][i:i + 8].movedim(-1, 1).double() * (RESIDUAL if "scale" in t else 1)
        out.append(y.relu() if "relu" in case.epilogue else y)
    return torch.cat(out).movedim(1, -1).reshape(-1, case.filters)


def ordered(row, t):
    """In the order of the kernel's buffers."""
    return [t[b] for b in row["buffers"]]


def codes_apart(y, truth):
    """Which part of the codes are not those of the numbers; infinite when one is further than the next."""
    import torch
    limits = torch.iinfo(y.dtype)
    apart = (y.double() - truth.round().clamp(limits.min, limits.max)).abs()
    return float((apart > 0).double().mean()) if float(apart.max()) <= 1 else math.inf


def check(case, row, bind):
    """Relative error in the norm, of codes the part that differs; infinite when something else was written or a repeat differs."""
    import torch
    t = make_set(case, row)
    launch = bind(ordered(row, t))
    launch()
    torch.cuda.synchronize()
    error = (codes_apart if case.dtype in CODES else relative_error)(t["y"], reference(case, t))
    edges = torch.cat([t["padded"][:8], t["padded"][-8:]])
    outside = (edges == 77).all() if case.dtype in CODES else edges.isnan().all()
    if not (error < {"f16": 1e-3, "bf16": 6e-3}.get(case.dtype, APART) and outside):
        print(f"{case.name}: error {error:.1e}, memory around the result {'kept' if outside else 'WRITTEN'}")
        return math.inf
    once = t["y"].clone()
    same = torch.ones((), device="cuda", dtype=torch.bool)
    for _ in range(20 if case.group in BARS else REPEATS):
        t["y"].fill_(float("nan") if case.dtype not in CODES else 78)
        launch()
        same &= (t["y"] == once).all()
    return error if same else math.inf


def rivals(case, sets):
    import torch
    import torch.nn.functional as F
    out, last, keep = {}, torch.channels_last, []

    def launches(name, make, padded=0):
        try:
            many = []
            for t in sets:
                x, w = first(t["x"], case), t["weight"]
                if padded:
                    x, w = (F.pad(v, (0, 0, 0, 0, 0, padded - case.channels)) for v in (x, w))
                x, w = x.contiguous(memory_format=last), w.contiguous(memory_format=last)
                r = t["r"].movedim(-1, 1) if "r" in t else None
                many.append(lambda x=x, w=w, r=r, b=t["bias"]: keep.append(make(x, w, b, r)) or keep.__delitem__(slice(0, -len(sets))))
            many[0]()
            out[name] = many
        except RuntimeError as e:
            print(f"{case.name}: {name}: {str(e).splitlines()[0][:90]}")
    s, p, d = case.stride, case.pads[:2], case.dilation

    def separate(x, w, b, r):
        y = F.conv2d(x, w, b, s, p, d, case.groups)
        y = y if r is None else y.add_(r)
        return y.relu_() if "relu" in case.epilogue else y
    widths = (0, 4, 8) if case.planes else (0,)
    for width in widths:
        tail = f"_{width}" if width else ""
        launches("conv" + tail, separate, width)
        if not case.epilogue:
            launches("bare" + tail, lambda x, w, b, r: F.conv2d(x, w, None, s, p, d, case.groups), width)
        if case.epilogue in ("", "relu"):  # the nearest that cuDNN has for a bias alone
            launches("fused" + tail, lambda x, w, b, r: torch.cudnn_convolution_relu(x, w, b, s, p, d, case.groups), width)
        if case.epilogue == "residual+relu":
            launches("fused" + tail, lambda x, w, b, r: torch.cudnn_convolution_add_relu(x, w, r, 1.0, b, s, p, d, case.groups), width)
    return out


def halves(folder, case):
    """The same convolution in f16, as group b64 has it."""
    other = next(c for c in cases()["b64"] if case.name.startswith(c.name + "_" + case.dtype))
    row = next(r for r in json.load(open(os.path.join(folder, "race_conv.json"))) if r["name"] == other.name)
    bind = load(row, open(os.path.join(folder, other.name + ".cubin"), "rb").read())
    return {"f16": [bind(ordered(row, make_set(other, row))) for _ in range(max(3, min(60, math.ceil(200e6 / other.bytes()))))]}


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN",
          torch.backends.cudnn.version(), flush=True)
    bad, ratios, results = 0, {}, []
    for row in json.load(open(os.path.join(folder, "race_conv.json"))):
        if groups and row["group"] not in groups:
            continue
        case = next(c for c in cases()[row["group"]] if c.name == row["name"])
        bind = load(row, open(os.path.join(folder, case.name + ".cubin"), "rb").read())
        error = check(case, row, bind)
        if error == math.inf:
            print(f"{case.name:44} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if case.group not in BARS:
            print(f"{case.name:44} {row['config']:44} error {error:.1e}, the same bits {REPEATS} times", flush=True)
            continue
        sets = [make_set(case, row) for _ in range(max(3, min(60, math.ceil(200e6 / case.bytes()))))]
        against, others = "cuDNN", None
        if case.dtype in CODES:
            against, others = "f16", halves(folder, case)
        times = race({"lathe": [bind(ordered(row, t)) for t in sets], **(others or rivals(case, sets))}, 15 if case.images == 1 else 11)
        mine = times.pop("lathe")
        rival = min(times, key=times.get)
        ratios.setdefault(case.group, {}).setdefault(against, {})[case.name] = times[rival] / mine
        results.append(dict(name=case.name, config=row["config"], us=mine, rivals=times, error=error))
        print(f"{case.name:44} {row['config']:40} {mine:7.2f} us {case.flops() / mine / 1e6:4.0f} TF {case.bytes() / mine / 1e3:5.0f} GB/s  "
              f"{times[rival] / mine:.3f} x {rival}  error {error:.1e}", flush=True)
        del sets
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_conv.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run, with_config=True)
