# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated memory-bound kernels against torch.compile and a copy of the same bytes.

    race.py prepare FOLDER              without a GPU: makes the models, compiles them, keeps cubins and launches
    race.py run FOLDER [--eager] [NAME...]   on a GPU with torch: checks the results against float64, then times
                                        everything as CUDA-graph replays over rotating buffers, all candidates in
                                        turn; medians. --eager: the rival is plain torch
    race.py warm FOLDER I/N             fills torch.compile's cache with every N-th rival, from the I-th on

forms   bf16, 8192 x 8192 and 4096 x 5120: bias + GELU, eight pointwise operations, residual + RMS norm (both
        results stored), layer norm, softmax, transpose, sums over rows
rows    bf16 and f32, rows of 512 to 262,144 elements: softmax, layer norm, RMS norm
small   bf16, 1000 x 769, 16 x 4096 and 197 x 768: the forms; shown, without bars

Exit code 1 when a result is wrong or a group stays below its bars: the geometric mean and
the least of the rival's time / ours.
"""
import itertools
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import judge, load, prepare, prepare_all, race  # noqa: E402

LARGE = [(8192, 8192), (4096, 5120)]
LENGTHS = [512, 1024, 2048, 4096, 5120, 8192, 32768, 65536, 131072, 262144]
SMALL = [(1000, 769), (16, 4096), (197, 768)]
FORMS = ("gelu", "chain", "residual", "layernorm", "softmax", "transpose", "colsum")
ROWS = ("rmsnorm", "layernorm", "softmax")
BARS = {"forms": {"torch": (1.15, 1.02), "copy": (0.96, 0.85)}, "rows": {"torch": (1.05, 0.97)}}
TOLERANCE = {"bf16": 2.0 ** -6, "f32": 2.0 ** -12}


def models(rows, columns, width=2):
    """name -> (nodes, inputs, outputs, bytes moved) for elements of `width` bytes."""
    from onnx import TensorProto, helper
    whole, row = [rows, columns], [columns]
    tensor = rows * columns * width
    node = helper.make_node
    kind = TensorProto.BFLOAT16 if width == 2 else TensorProto.FLOAT
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    number = lambda name, v: node("Constant", [], [name], value=helper.make_tensor(name, kind, [], [v]))
    norm = lambda x, y: node("RMSNormalization", [x, "w"], [y], axis=-1, epsilon=1e-5)
    return {
        "gelu": ([node("Add", ["x", "b"], ["t"]), node("Gelu", ["t"], ["y"])],
                 {"x": whole, "b": row}, {"y": whole}, 2 * tensor),
        "chain": ([number("c", 1.703125), number("low", -0.5),
                   node("Add", ["x", "b"], ["t0"]), node("Mul", ["t0", "c"], ["t1"]), node("Relu", ["t1"], ["t2"]),
                   node("Mul", ["t2", "t2"], ["t3"]), node("Add", ["t3", "x"], ["t4"]), node("Sigmoid", ["t4"], ["t5"]),
                   node("Mul", ["t5", "x"], ["t6"]), node("Max", ["t6", "low"], ["y"])],
                  {"x": whole, "b": row}, {"y": whole}, 2 * tensor),
        "residual": ([node("Add", ["x", "r"], ["h"]), norm("h", "y")],
                     {"x": whole, "r": whole, "w": row}, {"h": whole, "y": whole}, 4 * tensor),
        "rmsnorm": ([norm("x", "y")], {"x": whole, "w": row}, {"y": whole}, 2 * tensor),
        "layernorm": ([node("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1, epsilon=1e-5)],
                      {"x": whole, "w": row, "b": row}, {"y": whole}, 2 * tensor),
        "softmax": ([node("Softmax", ["x"], ["y"], axis=-1)], {"x": whole}, {"y": whole}, 2 * tensor),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": whole},
                      {"y": [columns, rows]}, 2 * tensor),
        "colsum": ([node("Constant", [], ["axis"], value=axis), node("ReduceSum", ["x", "axis"], ["y"], keepdims=0)],
                   {"x": whole}, {"y": row}, tensor),
    }


def cases():
    """(group, name, rows, columns, type)"""
    out = [("forms", name, *shape, "bf16") for shape in LARGE for name in FORMS]
    # 134 MB a tensor: several times the second-level cache.
    out += [("rows", name, (1 << 27) // width // length, length, kind)
            for kind, width in (("bf16", 2), ("f32", 4)) for length in LENGTHS for name in ROWS]
    return out + [("small", name, *shape, "bf16") for shape in SMALL for name in FORMS]


def stem_of(case):
    group, name, rows, columns, kind = case
    return f"{name}_{rows}x{columns}_{kind}"


def prepare_folder(folder):
    from onnx import TensorProto, helper

    def one(case):
        group, name, rows, columns, kind = case
        nodes, inputs, outputs, moved = models(rows, columns, 2 if kind == "bf16" else 4)[name]
        type_ = TensorProto.BFLOAT16 if kind == "bf16" else TensorProto.FLOAT
        value = lambda n, s: helper.make_tensor_value_info(n, type_, s)
        graph = helper.make_graph(nodes, name, [value(n, s) for n, s in inputs.items()],
                                  [value(n, s) for n, s in outputs.items()])
        return {**prepare(folder, stem_of(case), graph), "case": case, "bytes": moved}
    json.dump(prepare_all(cases(), one), open(os.path.join(folder, "race.json"), "w"), indent=1)


def functions():
    import torch
    import torch.nn.functional as F

    def chain(x, b):
        t = F.relu((x + b) * 1.703125)
        return (torch.sigmoid(t * t + x) * x).clamp_min(-0.5)
    return {"gelu": lambda x, r, v, w: (F.gelu(x + v),),
            "chain": lambda x, r, v, w: (chain(x, v),),
            "residual": lambda x, r, v, w: (x + r, F.rms_norm(x + r, (x.shape[-1],), v, 1e-5)),
            "rmsnorm": lambda x, r, v, w: (F.rms_norm(x, (x.shape[-1],), v, 1e-5),),
            "layernorm": lambda x, r, v, w: (F.layer_norm(x, (x.shape[-1],), v, w, 1e-5),),
            "softmax": lambda x, r, v, w: (torch.softmax(x, -1),),
            "transpose": lambda x, r, v, w: (x.t().contiguous(),),
            "colsum": lambda x, r, v, w: (x.sum(0),)}


def worst(got, want):
    error = 0.0
    for g, w in zip(got, want):
        if g.shape != w.shape:
            return 1e9
        e = (g.double() - w).abs() / w.abs().clamp_min(w.abs().mean() * 1e-2)
        error = max(error, float(e.nan_to_num(nan=1e9).max()))
    return error


def operands(case, generator):
    """x, r, v, w: the data, what is added to it, two vectors of a row's length."""
    group, name, rows, columns, kind = case
    import torch
    type_ = torch.bfloat16 if kind == "bf16" else torch.float32
    make = lambda *s: torch.randn(*s, device="cuda", dtype=type_, generator=generator)
    return make(rows, columns), make(rows, columns) if name == "residual" else None, make(columns), make(columns)


def expected(case, x, r, v, w):
    """In float64."""
    import torch
    if case[1] == "residual":  # the sum is rounded before it is normalised, as in the graph
        h = (x.double() + r.double()).to(x.dtype).double()
        return [h, h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5) * v.double()]
    return list(functions()[case[1]](x.double(), None, v.double(), w.double()))


def rival_of(case, eager):
    import torch
    torch._dynamo.reset()  # one function for each size, not a general one
    function = functions()[case[1]]
    return function if eager else torch.compile(function, dynamic=False)


def bound(case, row, bind, x, r, v, w, outs):
    """One launch. Weights come as the graph has them or widened beforehand."""
    given = {"residual": [x, r, v], "rmsnorm": [x, v], "gelu": [x, v], "chain": [x, v],
             "layernorm": [x, v, w]}.get(case[1], [x])
    return bind([t.float() if "f32" in p else t for t, p in zip(given, row["parameters"])] + outs)


def run(folder, eager, names):
    import torch
    torch.zeros(1, device="cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "eager" if eager else "torch.compile")
    bad, ratios = 0, {}
    for row in json.load(open(os.path.join(folder, "race.json"))):
        case = tuple(row["case"])
        group, name, rows, columns, kind = case
        if names and not any(n in row["stem"] or n == group for n in names):
            continue
        bind = load(row, open(os.path.join(folder, row["stem"] + ".cubin"), "rb").read())
        rival = rival_of(case, eager)
        # Enough sets of buffers that none is still in the second-level cache.
        sets = min(64, max(2, int(400e6 // row["bytes"]) + 1))
        launches, copies, torches, keep = [], [], [], []
        for _ in range(sets):
            x, r, v, w = operands(case, generator)
            outs = [torch.full_like(o, float("nan")) for o in functions()[name](x, r, v, w)]
            launches.append(bound(case, row, bind, x, r, v, w, outs))
            source = torch.empty(row["bytes"] // 2, device="cuda", dtype=torch.uint8)
            copies.append(lambda s=source, t=torch.empty_like(source): t.copy_(s))
            torches.append(lambda x=x, r=r, v=v, w=w: keep.append(rival(x, r, v, w)))
            if _ == 0:
                launches[0]()
                want = expected(case, x, r, v, w)
                # The kernel's outputs are in an order of its own.
                error = min(worst(outs, list(p)) for p in itertools.permutations(want))
                del want
        times = race({"lathe": launches, "copy": copies, "torch": torches})
        ok = error < TOLERANCE[kind]
        bad += not ok
        for rival_name in ("torch", "copy"):
            by = ratios.setdefault(group, {}).setdefault(rival_name, {})
            by[row["stem"]] = times[rival_name] / times["lathe"]
        config = row["config"] + (f" x {row['cluster'][0]}" if row["cluster"][0] > 1 else "")
        print(f"{name:9} {kind:4} {f'{rows}x{columns}':11} {config:24} {times['lathe']:7.1f} us "
              f"{row['bytes'] / times['lathe'] / 1e6:5.2f} TB/s {times['copy'] / times['lathe']:.3f} of copy "
              f"{times['torch'] / times['lathe']:.2f} x torch, error {error:.1e}, {row['registers']} registers"
              f"{', %d bytes spilled' % row['spills'] if row['spills'] else ''}{'' if ok else '  WRONG'}", flush=True)
        del launches, copies, torches, keep, outs, x, r, v, w, source
        torch.cuda.empty_cache()
    return bad + judge(ratios, BARS)


def warm(folder, share):
    import torch
    index, count = map(int, share.split("/"))
    generator = torch.Generator("cuda").manual_seed(1)
    for case in cases()[index::count]:
        rival_of(case, False)(*operands(case, generator))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run", "warm"):
        sys.exit(__doc__)
    if sys.argv[1] == "prepare":
        sys.exit(prepare_folder(sys.argv[2]))
    if sys.argv[1] == "warm":
        sys.exit(warm(*sys.argv[2:4]))
    rest = sys.argv[3:]
    sys.exit(int(run(sys.argv[2], "--eager" in rest, [n for n in rest if n != "--eager"]) > 0))
