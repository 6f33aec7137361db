# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One generated kernel by itself: from an ONNX model to a cubin and its launch, and that launch on a GPU.

`prepare` needs lathe and NVRTC; `load`, `race` and `worst` need a GPU and torch.
"""
import ctypes as C
import functools
import glob
import json
import math
import os
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LATHE = os.environ.get("LATHE", os.path.join(SOURCE, "build", "bin", "lathe"))
TARGET = "sm_90a"


# ---- Without a GPU ------------------------------------------------------------------------------

def nvrtc():
    names = [os.environ.get("LATHE_NVRTC", "")]
    names += [p for d in sys.path for p in glob.glob(d + "/nvidia/cu1*/lib/libnvrtc.so.1*")]
    for name in [n for n in names + ["libnvrtc.so.13"] if n and "builtins" not in n and ".alt." not in n]:
        try:
            return C.CDLL(name)
        except OSError:
            pass
    sys.exit("NVRTC was not found; set LATHE_NVRTC")


def compile_cubin(source, name="k.cu"):
    """(cubin, log) of a CUDA text by NVRTC, the way lathe calls it."""
    lib, program, size = nvrtc(), C.c_void_p(), C.c_size_t()
    lib.nvrtcCreateProgram(C.byref(program), source.encode(), name.encode(), 0, None, None)
    options = [f"-arch={TARGET}", "-std=c++17", "-default-device", "--minimal", "-diag-suppress=177",
               "--ptxas-options=-v"]
    rc = lib.nvrtcCompileProgram(program, len(options), (C.c_char_p * len(options))(*[o.encode() for o in options]))
    lib.nvrtcGetProgramLogSize(program, C.byref(size))
    log = C.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    if rc:
        sys.exit(f"{name}: {log.value.decode()}")
    lib.nvrtcGetCUBINSize(program, C.byref(size))
    cubin = C.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    lib.nvrtcDestroyProgram(C.byref(program))
    return cubin.raw, log.value.decode()


def numbers(text):
    return [int(n) for n in text.split(",")]


def launch_of(spec):
    """The launches and tensor maps in the text of a KernelSpec with constant sizes; the last launch is the kernel."""
    launches = list(re.finditer(r'launch "(\w+)" grid \[([^\]]*)\] block \[([^\]]*)\](?: cluster \[([^\]]*)\])?'
                                r"(?: shared \[(\d+)\])?( pdl)?", spec))
    maps = [{"buffer": int(m[1]), "dims": numbers(m[2]), "strides": numbers(m[3]), "box": numbers(m[4]),
             "swizzle": int(m[5]), "corners": [numbers(m[6]), numbers(m[7])] if m[6] else [], "steps": numbers(m[8] or "1,1,1,1,1"), "words": int(m[9] or 0)}
            for m in re.finditer(r"tensormap (\d+) \[([^\]]*)\] strides \[([^\]]*)\] box \[([^\]]*)\] swizzle (\d+)"
                                 r"(?: im2col \[([^\]]*)\] \[([^\]]*)\])?(?: steps \[([^\]]*)\])?(?: bytes (\d+))?", spec)]
    rows = [{"function": l[1], "grid": numbers(l[2]), "block": numbers(l[3]),
             "cluster": numbers(l[4]) if l[4] else [1, 1, 1], "shared": int(l[5] or 0), "pdl": bool(l[6])} for l in launches]
    work = re.search(r"^workspace \[(\d+)\]", spec, re.M)
    return {**rows[-1], "before": rows[:-1], "workspace": int(work[1]) if work else 0, "maps": maps,
            "config": re.search(r'config "([^"]*)"', spec)[1]}


def tile_facts(names):
    """{name: its row} of tiles as lathe completes them: config (the whole name), threads, stages, shared_bytes; for
    operands and results of 16 bits."""
    done = subprocess.run([LATHE, "inspect", "--json", f"--target={TARGET}", *(f"--tile={name}" for name in names)],
                          check=True, stdout=subprocess.PIPE, text=True)
    return {row["name"]: row for row in json.loads(done.stdout)}


def prepare_all(cases, one):
    """one(case) of all cases, as many at a time as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, cases))


def prepare(folder, stem, graph, opset=23):
    """Compiles a graph and keeps its attention, else the kernel that moves the most bytes: a description for `load`."""
    import onnx
    from onnx import helper
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, stem)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path + ".onnx")
    subprocess.run([LATHE, "compile", path + ".onnx", f"--target={TARGET}", "-o", path + ".lathe",
                    f"--dump-dir={path}.dump"], check=True, stdout=subprocess.DEVNULL)
    kernels = json.loads(subprocess.run([LATHE, "inspect", path + ".lathe", "--kernels", "--json"], check=True,
                                        capture_output=True).stdout)["plans"][0]["kernels"]
    # Conversions of a weight are done beforehand; what is raced is the kernel of the data.
    heavy = max(kernels, key=lambda k: (k["name"].startswith("attention"), float(k["bytes"])))["name"]
    selected = open(os.path.join(path + ".dump", "09-select.mlir")).read()
    line = next(l for l in selected.splitlines() if f'lathe.kernel "{heavy}"' in l)
    # Sizes are constants here: the first variant whose guard has no sizes left is the one.
    specs = re.findall(r'guard = "([^"]*)", (?:otherwise = \[(?:"[^"]*"(?:, )?)*\], )?spec = "([^"]*)"', line)
    spec = specs[0][1].replace("\\22", '"').replace("\\0A", "\n")
    row = launch_of(spec)
    source = open(os.path.join(path + ".dump", "kernels", TARGET, row["function"] + ".cu")).read()
    cubin, log = compile_cubin(source, row["function"] + ".cu")
    open(path + ".cubin", "wb").write(cubin)
    signature = re.search(r"\n" + row["function"] + r"\(([^{]*)\) \{", source)[1]
    spilled = re.findall(r"(\d+) bytes spill stores", log)
    row.update(stem=stem, kernels=len(kernels), parameters=[p.strip() for p in signature.split(",")],
               registers=int((re.search(r"Used (\d+) registers", log) or [0, 0])[1]),
               spills=max(map(int, spilled), default=0))
    print(f"{stem}: {row['config']}, {len(kernels)} kernel(s), {row['registers']} registers, {row['spills']} spilled")
    return row


# ---- On a GPU -----------------------------------------------------------------------------------

class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class Config(C.Structure):
    _fields_ = [("grid", C.c_uint * 3), ("block", C.c_uint * 3), ("shared", C.c_uint), ("stream", C.c_void_p),
                ("attributes", C.POINTER(Attribute)), ("count", C.c_uint)]


@functools.lru_cache(None)
def driver():
    return C.CDLL("libcuda.so.1")


def tensor_map(m, tensor):
    import torch
    raw = C.create_string_buffer(256)
    address = (C.addressof(raw) + 63) // 64 * 64
    kind = {torch.bfloat16: 9, torch.float16: 6, torch.float32: 7, torch.int32: 3}.get(tensor.dtype, 0)  # 0: bytes
    if m.get("words") == 8:
        kind = 4
    rank = len(m["dims"])
    if m["corners"]:
        rc = driver().cuTensorMapEncodeIm2col(
            C.c_void_p(address), kind, rank, C.c_void_p(tensor.data_ptr()), (C.c_uint64 * rank)(*m["dims"]),
            (C.c_uint64 * (rank - 1))(*m["strides"]), (C.c_int * (rank - 2))(*m["corners"][0]),
            (C.c_int * (rank - 2))(*m["corners"][1]), *m["box"], (C.c_uint32 * rank)(*m["steps"]), 0,
            {0: 0, 32: 1, 64: 2, 128: 3}[m["swizzle"]], 3 if m["strides"][0] % 64 == 0 else 2, 0)
        assert rc == 0, f"cuTensorMapEncodeIm2col: {rc}"
        return raw, address
    rc = driver().cuTensorMapEncodeTiled(
        C.c_void_p(address), kind, rank, C.c_void_p(tensor.data_ptr()), (C.c_uint64 * rank)(*m["dims"]),
        (C.c_uint64 * max(1, rank - 1))(*m["strides"]), (C.c_uint32 * rank)(*m["box"]),
        (C.c_uint32 * rank)(*[1] * rank), 0, {0: 0, 32: 1, 64: 2, 128: 3}[m["swizzle"]],
        3 if m["strides"][0] % 64 == 0 else 2, 0)
    assert rc == 0, f"cuTensorMapEncodeTiled: {rc}"
    return raw, address


@functools.lru_cache(None)
def module_of(cubin):
    module = C.c_void_p()
    assert driver().cuModuleLoadData(C.byref(module), cubin) == 0, "cuModuleLoadData"
    return module


def load(row, cubin):
    """bind(tensors in the order of the buffers) -> a function that launches on torch's stream."""
    import torch
    cu, module = driver(), module_of(cubin)
    steps = row.get("before", []) + [row]
    handles = [C.c_void_p() for _ in steps]
    for step, handle in zip(steps, handles):
        assert cu.cuModuleGetFunction(C.byref(handle), module, step["function"].encode()) == 0, "cuModuleGetFunction"
        if step["shared"] > 48 << 10:
            assert cu.cuFuncSetAttribute(handle, 8, step["shared"]) == 0, "shared memory"
        if step["cluster"][0] > 8:
            assert cu.cuFuncSetAttribute(handle, 14, 1) == 0, "cluster size"

    def bind(tensors):
        maps = [tensor_map(m, tensors[m["buffer"]]) for m in row["maps"]]
        if row.get("workspace"):
            tensors = [*tensors, torch.full((row["workspace"],), 0xee, device="cuda", dtype=torch.uint8)]
        words = [C.c_uint64(t.data_ptr()) for t in tensors]
        status = C.c_uint64(0)
        sizes = [C.c_int64(v) for v in row.get("sizes", [])]  # parameters of kernels that a program has changed
        addresses = [C.addressof(w) for w in words] + [a for _, a in maps] + [C.addressof(status)]
        addresses += [C.addressof(v) for v in sizes]
        pointers = (C.c_void_p * len(addresses))(*addresses)
        launches = []
        for step, handle in zip(steps, handles):
            attributes, count = (Attribute * 2)(), 0
            if step["cluster"] != [1, 1, 1]:
                attributes[0].id = 4
                attributes[0].value[0], attributes[0].value[1], attributes[0].value[2] = step["cluster"]
                count = 1
            if step["pdl"]:
                attributes[count].id, attributes[count].value[0] = 6, 1
                count += 1
            config = Config((C.c_uint * 3)(*step["grid"]), (C.c_uint * 3)(*step["block"]), step["shared"], None,
                            C.cast(attributes, C.POINTER(Attribute)), count)
            launches.append((config, handle, attributes))

        def launch():
            for config, handle, _ in launches:
                config.stream = torch.cuda.current_stream().cuda_stream
                rc = cu.cuLaunchKernelEx(C.byref(config), handle, pointers, None)
                assert rc == 0, f"cuLaunchKernelEx: {rc}"
        launch.keep = (words, sizes, status, maps, pointers, tensors, launches)
        return launch
    return bind


def capture(candidates):
    """{name: [launches]} -> {name: CUDA graph of them}; everything has run once."""
    import torch
    graphs = {}
    for k, launches in candidates.items():
        for go in launches:
            go()
        torch.cuda.synchronize()
        graphs[k] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[k]):
            for go in launches:
                go()
    return graphs


def timed(graph):
    """Replays a graph between two events."""
    import torch
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    graph.replay()
    after.record()
    return before, after


def race(candidates, repeats=15):
    """{name: [launches over rotating buffers]} -> {name: median microseconds a launch}; graph
    replays, all candidates in turn."""
    import torch
    graphs, times = capture(candidates), {k: [] for k in candidates}
    for graph in graphs.values():
        graph.replay()
    torch.cuda.synchronize()
    order = list(graphs.items())
    for _ in range(repeats):
        # The first after a pause is slower, whichever it is: one is run before, and the order turns.
        order.append(order.pop(0))
        order[-1][1].replay()
        marks = [(k, *timed(graph)) for k, graph in order]
        torch.cuda.synchronize()
        for k, a, b in marks:
            times[k].append(a.elapsed_time(b) * 1e3 / len(candidates[k]))
    return {k: sorted(v)[len(v) // 2] for k, v in times.items()}


def race_rounds(candidates, rounds):
    """{name: [launches over rotating buffers]} -> {name: [microseconds a launch in each round]}; graph replays. Every
    round has another order, and no round waits for the one before: where power limits the clock, each candidate
    finds the clock that all of them leave behind, and none stands behind the same neighbour each time."""
    import torch
    graphs, marks, shuffle = capture(candidates), {k: [] for k in candidates}, random.Random(1).shuffle
    order = list(graphs)
    for i in range(rounds + 2):  # the first two warm up
        shuffle(order)
        for k in order:
            mark = timed(graphs[k])
            if i >= 2:
                marks[k].append(mark)
    torch.cuda.synchronize()
    return {k: [a.elapsed_time(b) * 1e3 / len(candidates[k]) for a, b in v] for k, v in marks.items()}


def median(values):
    values = sorted(values)
    return (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2


def ratio(rounds, rival, mine="lathe"):
    """The median over the rounds of what the rival took in a round over what we took in the same."""
    return median([a / b for a, b in zip(rounds[rival], rounds[mine])])


def judge(ratios, bars):
    """Prints the geometric mean and the least of {group: {rival: {case: rival's time / ours}}};
    `bars` are {group: {rival: (mean, least)}}. Returns how many are below theirs."""
    bad = 0
    for group, by in ratios.items():
        for rival, values in by.items():
            mean = math.exp(sum(map(math.log, values.values())) / len(values))
            least = min(values, key=values.get)
            bar = bars.get(group, {}).get(rival)
            below = bar and (mean < bar[0] or values[least] < bar[1])
            bad += bool(below)
            print(f"{group:8} against {rival:8} mean {mean:.3f}, least {values[least]:.3f} ({least})" +
                  (f"; bars {bar[0]:.2f}, {bar[1]:.2f}" if bar else "") + ("  BELOW" if below else ""))
    return bad


def relative_error(got, want):
    """Of the whole tensor: |got - want| / |want| in float64; NaN counts as 1e9."""
    e = float((got.double() - want).norm() / want.norm())
    return e if e == e else 1e9


def command(doc, groups, prepare, run, only_run=(), with_config=False):
    """A race's command line, `prepare FOLDER [GROUP...] [--config=NAME]` or `run FOLDER [GROUP...]`; exits with 1 where
    a bar was missed. prepare(folder, groups[, config]) gets all groups where none is named; `only_run` are groups that
    only `run` knows."""
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    config = [w.removeprefix("--config=") for w in sys.argv[1:] if w.startswith("--config=")]
    known = {"prepare": [*groups], "run": [*groups, *only_run]}.get(words[0] if words else "", [])
    if len(words) < 2 or any(group not in known for group in words[2:]) or not known or (config and not with_config):
        sys.exit(doc)
    if words[0] == "run":
        sys.exit(int(run(words[1], words[2:]) > 0))
    sys.exit(prepare(words[1], words[2:] or [*groups], *([config[-1] if config else ""] if with_config else [])))
