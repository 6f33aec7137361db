# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated memory-bound kernels against a copy of the same bytes and torch.compile.

    race.py prepare FOLDER              without a GPU: makes the models, compiles them, keeps cubins and launches
    race.py run FOLDER [--eager] [NAME...]   on a GPU with torch: checks the results against float64, then times
                                        everything as CUDA-graph replays over rotating buffers, all candidates in
                                        turn; medians. --eager: the rival is plain torch

bf16: bias + GELU, residual + RMS norm (both results stored), layer norm, softmax, transpose and sums over
rows at 8192 x 8192 and 4096 x 5120; the three with rows also at rows of 512 to 262,144; some at 1000 x 769.
The bar at the first two sizes is 0.90 of copy: bytes per second of the kernel over those of torch's copy.
"""
import itertools
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import load, prepare, prepare_all, race  # noqa: E402

LARGE = [(8192, 8192), (4096, 5120)]
LONG = [(131072, 512), (32768, 2048), (8192, 8192), (2048, 32768), (512, 131072), (256, 262144)]
SMALL = [(1000, 769), (16, 4096)]
ROWS = ("rmsnorm", "layernorm", "softmax")
BAR = 0.90


def models(rows, columns):
    """name -> (nodes, inputs, outputs, bytes moved)"""
    from onnx import TensorProto, helper
    whole, row = [rows, columns], [columns]
    tensor = rows * columns * 2
    node = helper.make_node
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    return {
        "gelu": ([node("Add", ["x", "b"], ["t"]), node("Gelu", ["t"], ["y"])],
                 {"x": whole, "b": row}, {"y": whole}, 2 * tensor),
        "rmsnorm": ([node("Add", ["x", "r"], ["h"]),
                     node("RMSNormalization", ["h", "w"], ["y"], axis=-1, epsilon=1e-5)],
                    {"x": whole, "r": whole, "w": row}, {"h": whole, "y": whole}, 4 * tensor),
        "layernorm": ([node("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1, epsilon=1e-5)],
                      {"x": whole, "w": row, "b": row}, {"y": whole}, 2 * tensor),
        "softmax": ([node("Softmax", ["x"], ["y"], axis=-1)], {"x": whole}, {"y": whole}, 2 * tensor),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": whole},
                      {"y": [columns, rows]}, 2 * tensor),
        "colsum": ([node("Constant", [], ["axis"], value=axis), node("ReduceSum", ["x", "axis"], ["y"], keepdims=0)],
                   {"x": whole}, {"y": row}, tensor),
    }


def cases():
    """(name, rows, columns, whether the bar holds)"""
    out = [(name, *shape, True) for shape in LARGE for name in models(*shape)]
    out += [(name, *shape, False) for shape in LONG if shape not in LARGE for name in ROWS]
    return out + [(name, *shape, False) for shape in SMALL for name in models(*shape)]


def prepare_folder(folder):
    from onnx import TensorProto, helper
    value = lambda n, s: helper.make_tensor_value_info(n, TensorProto.BFLOAT16, s)

    def one(case):
        name, rows, columns, bar = case
        nodes, inputs, outputs, moved = models(rows, columns)[name]
        graph = helper.make_graph(nodes, name, [value(n, s) for n, s in inputs.items()],
                                  [value(n, s) for n, s in outputs.items()])
        return {**prepare(folder, f"{name}_{rows}x{columns}", graph), "name": name, "rows": rows, "columns": columns,
                "bytes": moved, "bar": bar}
    json.dump(prepare_all(cases(), one), open(os.path.join(folder, "race.json"), "w"), indent=1)


def functions():
    import torch
    import torch.nn.functional as F
    return {"gelu": lambda x, r, v, w: (F.gelu(x + v),),
            "rmsnorm": lambda x, r, v, w: (x + r, F.rms_norm(x + r, (x.shape[-1],), v, 1e-5)),
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


def run(folder, eager, names):
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "eager" if eager else "torch.compile")
    bad = 0
    for row in json.load(open(os.path.join(folder, "race.json"))):
        name, rows, columns = row["name"], row["rows"], row["columns"]
        if names and not any(n in row["stem"] for n in names):
            continue
        bind = load(row, open(os.path.join(folder, row["stem"] + ".cubin"), "rb").read())
        make = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
        # Enough sets of buffers that none is still in the second-level cache.
        sets = min(64, max(2, int(400e6 // row["bytes"]) + 1))
        function = functions()[name]
        torch._dynamo.reset()  # one function for each size, not a general one
        rival = function if eager else torch.compile(function, dynamic=False)
        launches, copies, torches, keep, error = [], [], [], [], None
        v, w = make(columns), make(columns)
        for _ in range(sets):
            x, r = make(rows, columns), make(rows, columns) if name == "rmsnorm" else None
            outs = [torch.full_like(o, float("nan")) for o in function(x, r, v, w)]
            given = {"rmsnorm": [x, r, v], "gelu": [x, v], "layernorm": [x, v, w]}.get(name, [x])
            # Weights come as the graph has them or widened beforehand.
            inputs = [t if "f32" not in p else t.float() for t, p in zip(given, row["parameters"])]
            launches.append(bind(inputs + outs))
            source = torch.empty(row["bytes"] // 2, device="cuda", dtype=torch.uint8)
            copies.append(lambda s=source, t=torch.empty_like(source): t.copy_(s))
            torches.append(lambda x=x, r=r: keep.append(rival(x, r, v, w)))
            if error is None:
                launches[0]()
                torch.cuda.synchronize()
                r64 = r.double() if r is not None else None
                if name == "rmsnorm":  # the sum is rounded before it is normalised, as in the graph
                    h = (x.double() + r64).bfloat16().double()
                    want = [h, h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5) * v.double()]
                else:
                    want = function(x.double(), r64, v.double(), w.double())
                # The kernel's outputs are in an order of its own.
                error = min(worst(outs, list(p)) for p in itertools.permutations(want))
                del want, r64
        times = race({"lathe": launches, "copy": copies, "torch": torches})
        share = times["copy"] / times["lathe"]
        ok = (share >= BAR or not row["bar"]) and error < 2.0 ** -6
        bad += not ok
        print(f"{name:10} {rows}x{columns:<6} {row['config']:24} {times['lathe']:8.1f} us  "
              f"{row['bytes'] / times['lathe'] / 1e6:5.2f} TB/s  {share:.3f} of copy  "
              f"{times['torch'] / times['lathe']:.2f} x torch  error {error:.1e}{'' if ok else '  BELOW THE BAR'}",
              flush=True)
        del launches, copies, torches, keep, outs, inputs, given, x, r
        torch.cuda.empty_cache()
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    if sys.argv[1] == "prepare":
        sys.exit(prepare_folder(sys.argv[2]))
    rest = sys.argv[3:]
    sys.exit(int(run(sys.argv[2], "--eager" in rest, [n for n in rest if n != "--eager"]) > 0))
