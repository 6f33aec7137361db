#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says whether two builds of lathe make the same code of the same graphs.

    test/tools/same_code.py OLD NEW [GRAPH...] [--targets=sm_90a,x86-64-v3] [--made] [--engines]
                            [--keep=FOLDER] [--jobs=N]

OLD and NEW are `lathe` programs. A GRAPH is a model with the options that it needs, in one argument
("model.onnx --dim N=1:8:64"); `@FILE` names a file of such lines. `--made` adds graphs that this
script makes: one or more for each family of kernels on GPUs.

Kernels are compared as text first, without comments and without their names. Those that differ are
compiled, by NVRTC or llc, and their machine code is compared: what has the same needs no race. A line a
graph; of differing ones a line a kernel: `text` (same machine code), `code`, `launch` (of the same code,
another grid, memory, guard or order of buffers), `old` and `new` (without a partner). `--engines` makes whole
engines too and compares their bytes. Exit code 1 when machine code, launches or an engine differ.
"""
import argparse
import ctypes as C
import functools
import glob
import hashlib
import math
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.S)


# ---- Kernels of a dump -----------------------------------------------------------------------------

def plain_cuda(text, name):
    """Without comments, blank space at the ends of lines and the kernel's name; no static_assert."""
    text = COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "", text)
    text = re.sub(r"\bstatic_assert\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\);", "", text)
    text = re.sub(rf"\b{re.escape(name)}(_lists)?\b", r"KERNEL\1", text)
    return "\n".join(line.strip() for line in text.split("\n") if line.strip())


def plain_llvm(text, name):
    text = re.sub(r"^;.*$|^source_filename.*$", "", text, flags=re.M)
    return "\n".join(line.strip() for line in text.replace(name, "KERNEL").split("\n") if line.strip())


@functools.lru_cache(None)
def nvrtc():
    names = [os.environ.get("LATHE_NVRTC", "")]
    names += [p for d in sys.path for p in glob.glob(d + "/nvidia/cu1*/lib/libnvrtc.so.1*")]
    for name in [n for n in names + ["libnvrtc.so.13"] if n and "builtins" not in n and ".alt." not in n]:
        try:
            return C.CDLL(name)
        except OSError:
            pass
    sys.exit("NVRTC was not found: run with the Python that has it, or set LATHE_NVRTC")


def cubin_of(source, target):
    lib, program, size = nvrtc(), C.c_void_p(), C.c_size_t()
    lib.nvrtcCreateProgram(C.byref(program), source.encode(), b"k.cu", 0, None, None)
    options = [f"-arch={target}", "-std=c++17", "-default-device", "--minimal", "-diag-suppress=177"]
    rc = lib.nvrtcCompileProgram(program, len(options), (C.c_char_p * len(options))(*[o.encode() for o in options]))
    if rc:
        lib.nvrtcGetProgramLogSize(program, C.byref(size))
        log = C.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        return b"error " + log.value
    lib.nvrtcGetCUBINSize(program, C.byref(size))
    cubin = C.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    lib.nvrtcDestroyProgram(C.byref(program))
    return cubin.raw


def code_of(elf):
    """What runs: instructions, constants that they read, and memory, by section. Left out is what the names and
    numbers of symbols make of it: tables of unused constants of the device library, facts of a launch."""
    if elf[:4] != b"\x7fELF":
        return elf
    table, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]

    def name(h):
        return elf[strings + h[0]:elf.index(b"\0", strings + h[0])].decode()
    kept = (".text", ".nv.constant0", ".nv.constant2", ".nv.constant3", ".nv.shared", ".rodata", ".data")
    return sorted((name(h), h[5] if h[1] == 8 else elf[h[4]:h[4] + h[5]]) for h in headers if name(h).startswith(kept))


@functools.lru_cache(None)
def machine_code(text, target):
    if target.startswith("sm_"):
        return repr(code_of(cubin_of(text, target)))
    cpu = {"armv8-a": ["-mtriple=aarch64-unknown-linux-gnu"]}.get(target, ["-mcpu=" + target])
    def tool(name):
        return shutil.which(name + "-22") or "/usr/lib/llvm-22/bin/" + name
    better = subprocess.run([tool("opt"), "-O2", *cpu, "-S"], input=text.encode(), capture_output=True)
    made = subprocess.run([tool("llc"), *cpu, "-filetype=obj", "-o", "-"], input=better.stdout, capture_output=True)
    return repr(code_of(made.stdout)) if made.returncode == 0 else made.stderr.decode()


def variants_of(folder):
    """Of each kernel function: guard, and the text of the spec around its launch, names left out."""
    found = {}
    path = os.path.join(folder, "09-select.mlir")
    text = open(path).read() if os.path.exists(path) else ""
    for guard, spec in re.findall(r'guard = "([^"]*)".*?\bspec = "([^"]*)"', text):
        spec = spec.replace("\\22", '"').replace("\\0A", "\n")
        for function in re.findall(r'launch "(\w+)"', spec):
            plain = re.sub(r'launch "\w+"', "launch", re.sub(r'config "[^"]*"\n', "", spec))
            # What a tensor map is for is said to passes; the launch is the same.
            plain = re.sub(r"(?m)^(tensormap .*) (?:operand|result|residual|mask)$", r"\1", plain)
            found[function] = guard + "\n" + plain
    return found


def kernels_of(folder):
    """{target: {name: (plain text, launch)}}"""
    launches, found = variants_of(folder), {}
    for path in sorted(glob.glob(os.path.join(folder, "kernels", "*", "*"))):
        target, (name, kind) = os.path.basename(os.path.dirname(path)), os.path.splitext(os.path.basename(path))
        text = open(path).read()
        text = plain_cuda(text, name) if kind == ".cu" else plain_llvm(text, name)
        found.setdefault(target, {})[name] = (text, launches.get(name, ""))
    return found


# ---- One graph ---------------------------------------------------------------------------------------

def run_lathe(lathe, graph, targets, folder, engine):
    words = shlex.split(graph)
    out = os.path.join(folder, "out.lathe" if engine else "out.mlir")
    command = [lathe, "compile", *words, f"--target={targets}", "-o", out, "--no-cache", "--threads=1"]
    if not engine:
        command += ["--stop-after=codegen", f"--dump-dir={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    return (0, "") if done.returncode == 0 else (done.returncode, done.stderr.strip().split("\n")[0])


def compare(old, new, target, rows):
    """Adds a row (what, name, other name) for each difference of one target's kernels."""
    left = dict(new)
    same = 0
    pending = []
    for name, kernel in old.items():
        if left.get(name) == kernel:
            other = name
        else:
            other = next((n for n, k in left.items() if k == kernel), None)
        if other is None:
            pending.append(name)
        else:
            del left[other]
            same += 1
    for name in pending:
        text, launch = old[name]
        # A partner: its own name, then the same text, then the same code.
        by_name = [name] if name in left else []
        by_text = [n for n, k in left.items() if k[0] == text]
        tried = by_text + [n for n in by_name if n not in by_text] + [n for n in left if n not in by_text + by_name]
        found = None
        for other in tried:
            if left[other][0] == text or machine_code(left[other][0], target) == machine_code(text, target):
                found = ("text" if left[other][1] == launch else "launch", name, other)
                break
        if not found and by_name:
            found = ("code", name, name)
        if found:
            del left[found[2]]
            rows.append(found)
        else:
            rows.append(("old", name, ""))
    rows += [("new", "", name) for name in left]
    return same


def check(graph, args, folder):
    sides = []
    for side, lathe in (("old", args.old), ("new", args.new)):
        place = os.path.join(folder, side)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        sides.append((run_lathe(lathe, graph, args.targets, place, False), place))
    (old_rc, old_error), (new_rc, new_error) = sides[0][0], sides[1][0]
    if old_rc or new_rc:
        if old_rc and new_rc:
            return True, f"{graph}: compiles with neither ({old_error})"
        return False, f"{graph}: compiles with {'new' if old_rc else 'old'} alone ({old_error or new_error})"
    old, new = kernels_of(sides[0][1]), kernels_of(sides[1][1])
    rows, same = [], 0
    for target in sorted(set(old) | set(new)):
        here = []
        same += compare(old.get(target, {}), new.get(target, {}), target, here)
        rows += [(target, *row) for row in here]
    lines = [f"  {target} {what:6} {name}{' -> ' + other if other and other != name else ''}"
             for target, what, name, other in rows]
    fine = all(row[1] == "text" for row in rows)
    verdict = f"{same} kernel(s) of the same text" + (f", {len(rows)} other(s)" if rows else "")
    if args.engines:
        for side, lathe in (("old", args.old), ("new", args.new)):
            run_lathe(lathe, graph, args.targets, os.path.join(folder, side), True)
        both = [open(os.path.join(folder, side, "out.lathe"), "rb").read() for side in ("old", "new")]
        fine &= both[0] == both[1] or any(row[1] == "text" for row in rows)
        verdict += ", engines " + ("identical" if both[0] == both[1] else "differ")
    return fine, "\n".join([f"{graph}: {verdict}"] + lines)


# ---- Graphs that show each family ------------------------------------------------------------------

def make_graphs(folder):
    import onnx
    from onnx import TensorProto as T, helper as h
    os.makedirs(folder, exist_ok=True)
    lines = []

    def save(stem, nodes, inputs, outputs, weights=(), more="", opset=23):
        initializers = []
        for name, kind, dims in weights:
            if kind in (T.INT8, T.UINT8, T.FLOAT8E4M3FN): # random weights have 16 bits and more
                codes = random.Random(stem).choices(range(0x70), k=math.prod(dims))
                initializers.append(h.make_tensor(name, kind, dims, bytes(codes), raw=True))
                continue
            tensor = onnx.TensorProto(name=name, data_type=kind, dims=dims, data_location=T.EXTERNAL)
            tensor.external_data.add(key="location", value="absent.bin")
            initializers.append(tensor)
        value = h.make_tensor_value_info
        graph = h.make_graph(nodes, stem, [value(*i) for i in inputs], [value(*o) for o in outputs], initializers)
        path = os.path.join(folder, stem + ".onnx")
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10), path)
        lines.append(f"{path} --random-weights=1 {more}".strip())

    kinds = {"bf16": T.BFLOAT16, "f16": T.FLOAT16, "f32": T.FLOAT}
    # Products: rows by columns by depth; weights along k (transposed) or not; bias, activation, residual.
    for kind, t in kinds.items():
        for m, n, k in [(1, 4096, 4096), (1, 1000, 768), (8, 4096, 4096), (16, 14336, 4096), (64, 4096, 4096),
                        (128, 512, 8192), (512, 768, 768), (4096, 4096, 4096), (4096, 11008, 4096), (100, 30, 77)]:
            for way in ("plain", "bias_gelu", "residual"):
                nodes, inputs = [h.make_node("MatMul", ["x", "w"], ["p"])], [("x", t, [m, k])]
                weights = [("w", t, [k, n])]
                if way == "bias_gelu":
                    weights.append(("b", t, [n]))
                    nodes += [h.make_node("Add", ["p", "b"], ["q"]), h.make_node("Gelu", ["q"], ["y"])]
                elif way == "residual":
                    inputs.append(("r", t, [m, n]))
                    nodes += [h.make_node("Add", ["p", "r"], ["y"])]
                else:
                    nodes[0].output[0] = "y"
                save(f"gemm_{kind}_{m}_{n}_{k}_{way}", nodes, inputs, [("y", t, [m, n])], weights)
        nodes = [h.make_node("MatMul", ["x", "w"], ["y"])]
        save(f"gemm_{kind}_rows", nodes, [("x", t, ["M", 1024])], [("y", t, ["M", 2048])],
             [("w", t, [1024, 2048])], "--dim M=1:8:8192")
        save(f"gemm_{kind}_batched", nodes, [("x", t, [12, 256, 64]), ("w", t, [12, 64, 256])], [("y", t, [12, 256, 256])])
        # Weights with contiguous k.
        for n, k in [(4096, 4096), (14336, 4096), (1024, 8192), (32000, 2048), (768, 768)]:
            for m in (1, 4, 8, 16, 48, 512, 4096):
                for way in ("plain", "gelu", "residual"):
                    nodes, inputs = [h.make_node("Gemm", ["x", "w"], ["p"], transB=1)], [("x", t, [m, k])]
                    if way == "residual":
                        inputs.append(("r", t, [m, n]))
                        nodes += [h.make_node("Add", ["p", "r"], ["y"])]
                    elif way == "gelu":
                        nodes += [h.make_node("Gelu", ["p"], ["y"])]
                    else:
                        nodes[0].output[0] = "y"
                    save(f"linear_{kind}_{m}_{n}_{k}_{way}", nodes, inputs, [("y", t, [m, n])], [("w", t, [n, k])])
        save(f"gemm_{kind}_turned", [h.make_node("Gemm", ["x", "w"], ["y"], transB=1)], [("x", t, [256, 512])],
             [("y", t, [256, 512])], [("w", t, [512, 512])])
        # Gate and up side by side, and weights of 8 bits.
        nodes = [h.make_node("MatMul", ["x", "g"], ["a"]), h.make_node("MatMul", ["x", "u"], ["b"]),
                 h.make_node("Sigmoid", ["a"], ["s"]), h.make_node("Mul", ["a", "s"], ["c"]), h.make_node("Mul", ["c", "b"], ["y"])]
        for m in (1, 8, 256):
            save(f"gates_{kind}_{m}", nodes, [("x", t, [m, 2048])], [("y", t, [m, 5632])],
                 [("g", t, [2048, 5632]), ("u", t, [2048, 5632])])
            nodes8 = [h.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0), h.make_node("Transpose", ["d"], ["e"], perm=[1, 0]),
                      h.make_node("MatMul", ["x", "e"], ["y"])]
            save(f"int8_{kind}_{m}", nodes8, [("x", t, [m, 2048])], [("y", t, [m, 1024])],
                 [("w", T.INT8, [1024, 2048]), ("s", t, [1024])])
        # Convolutions.
        for stem, x, w, stride, pads, group in [
                ("three", [8, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1), ("one", [8, 256, 56, 56], [64, 256, 1, 1], 1, 0, 1),
                ("deep", [1, 512, 7, 7], [512, 512, 3, 3], 1, 1, 1), ("stem", [8, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1),
                ("depthwise", [8, 96, 56, 56], [96, 1, 3, 3], 1, 1, 96), ("groups", [8, 128, 28, 28], [128, 4, 3, 3], 1, 1, 32),
                ("line", [8, 64, 400], [64, 64, 3], 1, 1, 1), ("volume", [2, 16, 8, 32, 32], [32, 16, 3, 3, 3], 1, 1, 1)]:
            rank = len(x) - 2
            y = [x[0], w[0]] + [(x[2 + d] + 2 * pads - w[2 + d]) // stride + 1 for d in range(rank)]
            nodes = [h.make_node("Conv", ["x", "w", "b"], ["p"], strides=[stride] * rank, pads=[pads] * 2 * rank, group=group),
                     h.make_node("Relu", ["p"], ["y"])]
            save(f"conv_{kind}_{stem}", nodes, [("x", t, x)], [("y", t, y)], [("w", t, w), ("b", t, [w[0]])])
        # The beginning of a network, whose results stay channels last.
        for batch in (1, 8, 64):
            weights = [("w0", t, [64, 3, 7, 7]), ("w1", t, [64, 64, 1, 1]), ("w2", t, [128, 64, 3, 3]), ("w3", t, [256, 128, 1, 1]),
                       ("w4", t, [256, 64, 1, 1])]
            nodes = [h.make_node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[3] * 4), h.make_node("Relu", ["a"], ["b"]),
                     h.make_node("MaxPool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
                     h.make_node("Conv", ["c", "w1"], ["d"]), h.make_node("Relu", ["d"], ["e"]),
                     h.make_node("Conv", ["e", "w2"], ["f"], pads=[1] * 4), h.make_node("Relu", ["f"], ["g"]),
                     h.make_node("Conv", ["g", "w3"], ["i"]), h.make_node("Conv", ["c", "w4"], ["j"]), h.make_node("Add", ["i", "j"], ["k"]),
                     h.make_node("Relu", ["k"], ["l"]), h.make_node("GlobalAveragePool", ["l"], ["y"])]
            save(f"net_{kind}_{batch}", nodes, [("x", t, [batch, 3, 224, 224])], [("y", t, [batch, 256, 1, 1])], weights)
        # Attention: queries, keys, heads, size; causal, masked.
        for s, keys, heads, kv, size in [(1, 2048, 32, 8, 128), (128, 128, 12, 12, 64), (2048, 2048, 32, 8, 128), (256, 256, 8, 8, 256),
                                         (1024, 1024, 16, 16, 64), (77, 77, 4, 4, 36)]:
            for way in ("plain", "causal", "mask", "keymask", "inside"):
                inputs = [("q", t, [2, heads, s, size]), ("k", t, [2, kv, keys, size]), ("v", t, [2, kv, keys, size])]
                names = ["q", "k", "v"]
                if way == "mask":
                    inputs.append(("m", T.BOOL, [2, 1, s, keys]))
                    names.append("m")
                nodes = []
                if way == "keymask":
                    inputs.append(("m", t, [2, 1, 1, keys]))
                    names.append("m")
                if way == "inside": # keys come from a kernel ahead
                    nodes = [h.make_node("Exp", ["k"], ["e"])]
                    names[1] = "e"
                save(f"attention_{kind}_{s}_{keys}_{size}_{way}",
                     nodes + [h.make_node("Attention", names, ["y"], is_causal=int(way == "causal"))], inputs,
                     [("y", t, [2, heads, s, size])])
        # Memory-bound forms.
        for rows, width in [(4096, 768), (64, 5120), (8192, 32), (4, 131072), (100, 333)]:
            one = [("x", t, [rows, width])]
            result = [("y", t, [rows, width])]
            save(f"softmax_{kind}_{rows}_{width}", [h.make_node("Softmax", ["x"], ["y"])], one, result)
            save(f"norm_{kind}_{rows}_{width}", [h.make_node("LayerNormalization", ["x", "s", "b"], ["y"])], one, result,
                 [("s", t, [width]), ("b", t, [width])])
            save(f"columns_{kind}_{rows}_{width}", [h.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0), ], one, [("y", t, [width])])
            graph = onnx.load(os.path.join(folder, f"columns_{kind}_{rows}_{width}.onnx"))
            graph.graph.initializer.append(h.make_tensor("a", T.INT64, [1], [0]))
            onnx.save(graph, os.path.join(folder, f"columns_{kind}_{rows}_{width}.onnx"))
            save(f"transpose_{kind}_{rows}_{width}", [h.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], one, [("y", t, [width, rows])])
            save(f"pointwise_{kind}_{rows}_{width}", [h.make_node("Gelu", ["x"], ["g"]), h.make_node("Add", ["g", "b"], ["y"])], one, result,
                 [("b", t, [width])])
    for stem, op, t in [("scan", "CumSum", T.FLOAT)]:
        save(stem, [h.make_node(op, ["x", "a"], ["y"])], [("x", t, [64, 1000]), ("a", T.INT64, [])], [("y", t, [64, 1000])])
    save("scatter", [h.make_node("ScatterND", ["x", "i", "u"], ["y"])],
         [("x", T.FLOAT, [1000, 64]), ("i", T.INT64, [16, 1]), ("u", T.FLOAT, [16, 64])], [("y", T.FLOAT, [1000, 64])])
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        save(op.lower(), [h.make_node(op, ["x", "w", "r"], ["y"], hidden_size=64)], [("x", T.FLOAT, [20, 4, 32])],
             [("y", T.FLOAT, [20, 1, 4, 64])], [("w", T.FLOAT, [1, gates * 64, 32]), ("r", T.FLOAT, [1, gates * 64, 64])])
    for kind, t in (("e4m3", T.FLOAT8E4M3FN),):
        for m in (64, 4096):
            nodes = [h.make_node("Cast", ["x"], ["a"], to=T.FLOAT), h.make_node("Cast", ["w"], ["b"], to=T.FLOAT),
                     h.make_node("Transpose", ["b"], ["c"], perm=[1, 0]), h.make_node("MatMul", ["a", "c"], ["p"]),
                     h.make_node("Cast", ["p"], ["y"], to=T.BFLOAT16)]
            save(f"gemm_{kind}_{m}", nodes, [("x", t, [m, 2048])], [("y", T.BFLOAT16, [m, 1024])], [("w", t, [1024, 2048])])
    return lines


def main(argv):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--targets", default="sm_90a,x86-64-v3")
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--keep")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_intermixed_args(argv)
    folder = args.keep or tempfile.mkdtemp(prefix="same_code.")
    graphs = []
    for graph in args.graphs:
        graphs += [line.strip() for line in open(graph[1:]) if line.strip() and line[0] != "#"] if graph[0] == "@" else [graph]
    if args.made:
        graphs += make_graphs(os.path.join(folder, "graphs"))
    if not graphs:
        parser.error("no graphs")

    def one(item):
        number, graph = item
        place = os.path.join(folder, hashlib.sha256(graph.encode()).hexdigest()[:12])
        fine, text = check(graph, args, place)
        if not args.keep:
            shutil.rmtree(place, ignore_errors=True)
        print(f"[{number + 1}/{len(graphs)}] {text}", flush=True)
        return fine
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(one, enumerate(graphs)))
    print(f"{sum(results)} of {len(results)} graphs have the same machine code and launches")
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
