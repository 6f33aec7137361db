# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated memory-bound kernels against a copy of the same bytes.

    race.py prepare FOLDER   without a GPU: makes the models, compiles them, keeps cubins and launches
    race.py run FOLDER       on a GPU with torch: checks the results, then times everything as CUDA-graph
                             replays over rotating buffers, all candidates in turn; medians

bf16, 8192 x 8192 (and 4096 x 5120): bias + GELU, residual + RMS norm (both results stored), softmax,
transpose. The bar is 0.90 of copy: bytes per second of the kernel over those of torch's copy.
"""
import ctypes as C
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LATHE = os.environ.get("LATHE", os.path.join(SOURCE, "build", "bin", "lathe"))
SHAPES = [(8192, 8192), (4096, 5120)]
TARGET = "sm_90a"
BAR = 0.90


# ---- Without a GPU ------------------------------------------------------------------------------

def models(rows, columns):
    """name -> (nodes, inputs, outputs, bytes moved)"""
    from onnx import helper
    whole, row = [rows, columns], [columns]
    tensor = rows * columns * 2
    node = helper.make_node
    return {
        "gelu": ([node("Add", ["x", "b"], ["t"]), node("Gelu", ["t"], ["y"])],
                 {"x": whole, "b": row}, {"y": whole}, 2 * tensor),
        "rmsnorm": ([node("Add", ["x", "r"], ["h"]),
                     node("RMSNormalization", ["h", "w"], ["y"], axis=-1, epsilon=1e-5)],
                    {"x": whole, "r": whole, "w": row}, {"h": whole, "y": whole}, 4 * tensor),
        "softmax": ([node("Softmax", ["x"], ["y"], axis=-1)], {"x": whole}, {"y": whole}, 2 * tensor),
        "transpose": ([node("Transpose", ["x"], ["y"], perm=[1, 0])], {"x": whole},
                      {"y": [columns, rows]}, 2 * tensor),
    }


def compile_cubin(path):
    """The cubin of a CUDA text by NVRTC, the way lathe calls it."""
    import glob
    names = [os.environ.get("LATHE_NVRTC", "")]
    names += [p for d in sys.path for p in glob.glob(d + "/nvidia/cu1*/lib/libnvrtc.so.1*")]
    names = [n for n in names + ["libnvrtc.so.13"] if n and "builtins" not in n]
    lib = None
    for n in names:
        try:
            lib = C.CDLL(n)
            break
        except OSError:
            pass
    if lib is None:
        sys.exit("NVRTC was not found; set LATHE_NVRTC")
    source = open(path, "rb").read()
    program, size = C.c_void_p(), C.c_size_t()
    lib.nvrtcCreateProgram(C.byref(program), source, b"k.cu", 0, None, None)
    options = [f"-arch={TARGET}", "-std=c++17", "-default-device", "--minimal", "-diag-suppress=177"]
    rc = lib.nvrtcCompileProgram(program, len(options), (C.c_char_p * len(options))(*[o.encode() for o in options]))
    if rc:
        lib.nvrtcGetProgramLogSize(program, C.byref(size))
        log = C.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        sys.exit(f"{path}: {log.value.decode()}")
    lib.nvrtcGetCUBINSize(program, C.byref(size))
    cubin = C.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    return cubin.raw


def prepare(folder):
    import onnx
    from onnx import TensorProto, helper
    os.makedirs(folder, exist_ok=True)
    table = []
    for rows, columns in SHAPES:
        for name, (nodes, inputs, outputs, moved) in models(rows, columns).items():
            stem = os.path.join(folder, f"{name}_{rows}x{columns}")
            value = lambda n, s: helper.make_tensor_value_info(n, TensorProto.BFLOAT16, s)
            graph = helper.make_graph(nodes, name, [value(n, s) for n, s in inputs.items()],
                                      [value(n, s) for n, s in outputs.items()])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10),
                      stem + ".onnx")
            subprocess.run([LATHE, "compile", stem + ".onnx", f"--target={TARGET}", "-o", stem + ".lathe",
                            f"--dump-dir={stem}.dump"], check=True, stdout=subprocess.DEVNULL)
            kernels = json.loads(subprocess.run([LATHE, "inspect", stem + ".lathe", "--kernels", "--json"],
                                                check=True, capture_output=True).stdout)["plans"][0]["kernels"]
            # Conversions of a weight are done beforehand; what is raced is the kernel of the data.
            heavy = max(kernels, key=lambda k: float(k["bytes"]))
            variant = heavy["variants"][-1]
            blocks, threads = (int(v) for v in variant["grid"].split(" of "))
            text = os.path.join(stem + ".dump", "kernels", TARGET, heavy["name"] + ".cu")
            source = open(text).read()
            signature = re.search(r"\n" + heavy["name"] + r"\(([^)]*)\)", source).group(1)
            cubin = f"{name}_{rows}x{columns}.cubin"
            open(os.path.join(folder, cubin), "wb").write(compile_cubin(text))
            table.append({"name": name, "rows": rows, "columns": columns, "function": heavy["name"],
                          "config": variant["config"], "blocks": blocks, "threads": threads, "cubin": cubin,
                          "parameters": [p.strip() for p in signature.split(",")], "bytes": moved,
                          "kernels": len(kernels), "sha256": hashlib.sha256(source.encode()).hexdigest()[:16]})
            print(f"{name:10} {rows}x{columns}: {variant['config']}, {len(kernels)} kernel(s)")
    json.dump(table, open(os.path.join(folder, "race.json"), "w"), indent=1)


# ---- On a GPU -----------------------------------------------------------------------------------

def load(cubin, function):
    cu = C.CDLL("libcuda.so.1")
    module, handle = C.c_void_p(), C.c_void_p()
    assert cu.cuModuleLoadData(C.byref(module), cubin) == 0, "cuModuleLoadData"
    assert cu.cuModuleGetFunction(C.byref(handle), module, function.encode()) == 0, "cuModuleGetFunction"

    def bind(blocks, threads, tensors):
        import torch
        words = [C.c_uint64(t.data_ptr()) for t in tensors] + [C.c_uint64(0)]  # and the status word
        pointers = (C.c_void_p * len(words))(*[C.addressof(w) for w in words])

        def launch():
            rc = cu.cuLaunchKernel(handle, blocks, 1, 1, threads, 1, 1, 0,
                                   C.c_void_p(torch.cuda.current_stream().cuda_stream), pointers, None)
            assert rc == 0, f"cuLaunchKernel: {rc}"
        launch.keep = (words, pointers, tensors, module)
        return launch
    return bind


def reference(name, x, r, v):
    import torch
    import torch.nn.functional as F
    x64 = x.double()
    if name == "gelu":
        return [F.gelu((x64 + v.double()))]
    if name == "rmsnorm":
        h = (x64 + r.double())
        hb = h.bfloat16().double()
        return [hb, hb * torch.rsqrt((hb * hb).mean(-1, keepdim=True) + 1e-5) * v.double()]
    if name == "softmax":
        return [torch.softmax(x64, -1)]
    return [x64.t()]


def worst(got, want):
    error = 0.0
    for g, w in zip(got, want):
        e = (g.double() - w).abs() / w.abs().clamp_min(w.abs().mean() * 1e-2)
        error = max(error, float(e.nan_to_num(nan=1e9).max()))
    return error


def rivals(name):
    import torch
    import torch.nn.functional as F
    return {"gelu": lambda x, r, v: F.gelu(x + v),
            "rmsnorm": lambda x, r, v: (x + r, F.rms_norm(x + r, (x.shape[-1],), v, 1e-5)),
            "softmax": lambda x, r, v: torch.softmax(x, -1),
            "transpose": lambda x, r, v: x.t().contiguous()}[name]


def race(candidates, repeats=25):
    """{name: [launches over rotating buffers]} -> {name: median microseconds a launch}"""
    import torch
    graphs, times = {}, {k: [] for k in candidates}
    for k, launches in candidates.items():
        for go in launches:
            go()
        torch.cuda.synchronize()
        graphs[k] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[k]):
            for go in launches:
                go()
        graphs[k].replay()
    torch.cuda.synchronize()
    for _ in range(repeats):
        marks = []
        for k, g in graphs.items():
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            a.record()
            g.replay()
            b.record()
            marks.append((k, a, b))
        torch.cuda.synchronize()
        for k, a, b in marks:
            times[k].append(a.elapsed_time(b) * 1e3 / len(candidates[k]))
    return {k: sorted(v)[len(v) // 2] for k, v in times.items()}


def run(folder):
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    bad, results = 0, []
    for row in json.load(open(os.path.join(folder, "race.json"))):
        name, rows, columns = row["name"], row["rows"], row["columns"]
        bind = load(open(os.path.join(folder, row["cubin"]), "rb").read(), row["function"])
        make = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)
        # Enough sets of buffers that none is still in the second-level cache.
        sets = max(2, int(400e6 // row["bytes"]) + 1)
        launches, copies, torches, first = [], [], [], None
        v = make(columns)
        for _ in range(sets):
            x, r = make(rows, columns), make(rows, columns) if name == "rmsnorm" else None
            outs = [torch.full((columns, rows) if name == "transpose" else (rows, columns), float("nan"),
                               device="cuda", dtype=torch.bfloat16) for _ in range(2 if name == "rmsnorm" else 1)]
            pool = {"bf16": [t for t in (x, r, v) if t is not None], "f32": [v.float()]}
            if name in ("softmax", "transpose"):
                pool["bf16"] = [x]
            tensors, rest = [], list(outs)
            for p in row["parameters"][:-1]:
                kind = "f32" if "f32" in p else "bf16"
                tensors.append(pool[kind].pop(0) if p.startswith("const") else rest.pop(0))
            launches.append(bind(row["blocks"], row["threads"], tensors))
            source = torch.empty(row["bytes"] // 2, device="cuda", dtype=torch.uint8)
            target = torch.empty_like(source)
            copies.append(lambda s=source, t=target: t.copy_(s))
            torches.append(lambda x=x, r=r, f=rivals(name): f(x, r, v))
            if first is None:
                launches[0]()
                torch.cuda.synchronize()
                # The kernel's outputs are in an order of its own.
                first = min(worst(outs, list(want))
                            for want in itertools.permutations(reference(name, x, r, v)))
        times = race({"lathe": launches, "copy": copies, "torch": torches})
        share = times["copy"] / times["lathe"]
        ok = share >= BAR and first < 2.0 ** -6
        bad += not ok
        results.append({**{k: row[k] for k in ("name", "rows", "columns", "config")}, "us": times,
                        "of_copy": share, "error": first})
        print(f"{name:10} {rows}x{columns} {row['config']:24} {times['lathe']:8.1f} us  "
              f"{row['bytes'] / times['lathe'] / 1e6:5.2f} TB/s  {share:.3f} of copy  "
              f"{times['torch'] / times['lathe']:.2f} x torch  error {first:.1e}{'' if ok else '  BELOW THE BAR'}",
              flush=True)
    json.dump(results, open(os.path.join(folder, "results.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    sys.exit(prepare(sys.argv[2]) if sys.argv[1] == "prepare" else int(run(sys.argv[2]) > 0))
