#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels through which GPUs exchange (codegen/device/collective.cuh): results bit for bit, errors in time, and
their times against NCCL and the symmetric memory of torch.

`race_collectives.py prepare FOLDER ENGINE...` needs a build, NVRTC and engines of bf16 models for meshes, whose
kernels for sm_90a it takes.
`torchrun --nproc-per-node=N race_collectives.py run FOLDER [check] [race] [sweep]` needs N GPUs that reach each other's
memory, torch and the prepared folder; a process a GPU. NVLink multicast stays off.
`race_collectives.py streams FOLDER N` needs one or more GPUs: N ranks are streams of one process, which share them.

check  all kernels and types, odd sizes, NaN, graphs that are replayed, ranks that come late: the bits that a sum in the order
       of ranks has, on every rank; a rank that does not come is an error on the others
race   graphs of calls one behind the other, rivals in turn in the same run, with the bars
streams  the results for more ranks than there are GPUs
sweep  forms, blocks and threads at each size: what allReduceForm and allReduceShape of include/lathe/engine/CollectiveAbi.h
       are chosen by
Exit code 1 when a result is wrong or a bar is not met.
"""
import array
import ctypes as C
import glob
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from generated import LATHE, TARGET, Attribute, Config, compile_cubin, driver, load, median  # noqa: E402
from generated import prepare as prepare_kernel  # noqa: E402

# Of include/lathe/engine/CollectiveAbi.h.
BLOCKS, THREADS, SLOT, HEADER, EPOCHS = 128, 512, 16384, 16384, 256
PEER_LOST = 3
KB, MB = 1 << 10, 1 << 20
NORM_ROWS, WIDTH = (1, 4, 16, 32, 64, 128, 256), 4096

def prepare(folder, engines):
    os.makedirs(folder, exist_ok=True)
    prepare_norms(folder)
    for engine in engines:
        # Of a name that no kernel has it says which there are.
        listed = subprocess.run([LATHE, "inspect", engine, "--source=?", f"--target={TARGET}"], stderr=subprocess.PIPE, text=True).stderr
        for name in sorted(set(re.findall(r"lathe\.collective\.\w+\.\w+", listed))):
            keep(folder, name, subprocess.run([LATHE, "inspect", engine, f"--source={name}", f"--target={TARGET}"], check=True,
                                              stdout=subprocess.PIPE, text=True).stdout)


def prepare_norms(folder):
    """What follows an all-reduce where the two are apart, as lathe makes it: the addition and the norm in one kernel."""
    from onnx import TensorProto, helper
    rows_of, kept = {}, ("function", "grid", "block", "cluster", "shared", "pdl", "maps", "workspace", "parameters")
    with tempfile.TemporaryDirectory() as work:
        for rows in NORM_ROWS:
            value = lambda name, *dims: helper.make_tensor_value_info(name, TensorProto.BFLOAT16, dims)  # noqa: E731
            nodes = [helper.make_node("Add", ["x", "r"], ["s"]),
                     helper.make_node("RMSNormalization", ["s", "w"], ["y"], axis=-1, epsilon=1e-5)]
            graph = helper.make_graph(nodes, "g", [value("x", rows, WIDTH), value("r", rows, WIDTH), value("w", WIDTH)],
                                      [value("s", rows, WIDTH), value("y", rows, WIDTH)])
            row = prepare_kernel(work, f"norm{rows}", graph)
            assert row["kernels"] == 1 and not row["before"]
            rows_of[rows] = {key: row[key] for key in kept}
            shutil.copy(os.path.join(work, f"norm{rows}.cubin"), folder)
    with open(os.path.join(folder, "norms.json"), "w") as f:
        json.dump(rows_of, f)


def with_norm(text, ranks, dtype):
    """The text of an image and allReduceNorm, which no plan launches and no engine has."""
    wait = "dependentsMayStart();\n  dependenciesWait();" if "dependenciesWait();\n  const Peers" in text else ""
    return text + f"""
extern "C" __global__ void __launch_bounds__(512, 1) allReduceNorm(const {dtype} *in, const {dtype} *residual, const {dtype} *weight,
    {dtype} *sums, {dtype} *normed, u8 *arenas, i64 arenaBytes, i64 rank, i64 rows, i64 columns, i64 epsilon, i64 timeout, i64 step,
    StatusWord *status) {{
  {wait}
  const Peers<{ranks}> peers{{arenas, arenaBytes, (int)rank, (u64)timeout, (u32)step, status}};
  collective::allReduceNorm<{ranks}, {dtype}>(in, residual, weight, sums, normed, rows, columns, bitsToF32((u32)epsilon), peers);
}}
"""


def keep(folder, name, text):
    """Compiles the text of an image into the folder."""
    ranks, kind = re.search(r"// Collectives of (\d+) ranks", text)[1], name.split(".")[-2:]
    if kind[0] == "sum" and kind[1] in ("f32", "f16", "bf16"):
        text = with_norm(text, ranks, kind[1])
    cubin, log = compile_cubin(text, name + ".cu")
    spills = max(map(int, re.findall(r"(\d+) bytes spill stores", log)), default=0)
    registers = ", ".join(re.findall(r"Used (\d+) registers", log))
    print(f"{ranks} ranks, {'.'.join(kind)}: {registers} registers, {spills} bytes spilled")
    with open(os.path.join(folder, f"{ranks}.{'.'.join(kind)}.cubin"), "wb") as f:
        f.write(cubin)


# ---- Arenas -------------------------------------------------------------------------------------

class Location(C.Structure):
    _fields_ = [("type", C.c_int), ("id", C.c_int)]


class Properties(C.Structure):
    _fields_ = [("type", C.c_int), ("handles", C.c_int), ("location", Location), ("meta", C.c_void_p), ("flags", C.c_ubyte * 8)]


class Access(C.Structure):
    _fields_ = [("location", Location), ("flags", C.c_int)]


def must(name, *args):
    rc = getattr(driver(), name)(*args)
    if rc:
        raise RuntimeError(f"{name}: error {rc}")


class Memory:
    """A tensor's view of memory that torch did not make."""

    def __init__(self, address, count, dtype):
        import torch
        self.__cuda_array_interface__ = {"shape": (count * dtype.itemsize,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.tensor = torch.as_tensor(self, device="cuda").view(dtype)


class Arena:
    """Those of all ranks, one behind the other; the memory of other processes comes as file descriptors."""

    def __init__(self, rank, ranks, operand_bytes):
        import torch
        import torch.distributed as d
        self.rank, self.ranks = rank, ranks
        where = Properties(1, 1, Location(1, rank), None)
        grain = C.c_size_t()
        must("cuMemGetAllocationGranularity", C.byref(grain), C.byref(where), 1)
        self.operands = HEADER + BLOCKS * 2 * ranks * SLOT
        self.bytes = -(-(self.operands + operand_bytes) // grain.value) * grain.value
        handle, base = C.c_uint64(), C.c_uint64()
        must("cuMemCreate", C.byref(handle), C.c_size_t(self.bytes), C.byref(where), C.c_uint64(0))
        fd = C.c_int()
        must("cuMemExportToShareableHandle", C.byref(fd), handle, 1, C.c_uint64(0))
        must("cuMemAddressReserve", C.byref(base), C.c_size_t(self.bytes * ranks), C.c_size_t(grain.value), C.c_uint64(0), C.c_uint64(0))
        self.base = base.value
        handles = {rank: handle}
        for other, got in self.exchange(fd.value).items():
            handles[other] = C.c_uint64()
            must("cuMemImportFromShareableHandle", C.byref(handles[other]), C.c_void_p(got), 1)
            os.close(got)
        access = Access(Location(1, rank), 3)
        for other, one in handles.items():
            at = C.c_uint64(self.base + other * self.bytes)
            must("cuMemMap", at, C.c_size_t(self.bytes), C.c_size_t(0), one, C.c_uint64(0))
            must("cuMemSetAccess", at, C.c_size_t(self.bytes), C.byref(access), C.c_size_t(1))
        self.whole = Memory(self.base + rank * self.bytes, self.bytes, torch.uint8)
        self.reset()
        d.barrier()

    def exchange(self, fd):
        import torch.distributed as d
        name = b"\0lathe-%d-%d"
        port = int(os.environ["MASTER_PORT"])
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name % (port, self.rank))
        listener.listen(self.ranks)
        d.barrier()
        for other in range(self.ranks):
            if other != self.rank:
                with socket.socket(socket.AF_UNIX) as to:
                    to.connect(name % (port, other))
                    socket.send_fds(to, [bytes([self.rank])], [fd])
        got = {}
        while len(got) < self.ranks - 1:
            with listener.accept()[0] as peer:
                message, fds, _, _ = socket.recv_fds(peer, 1, 1)
                got[message[0]] = fds[0]
        listener.close()
        return got

    def reset(self):
        """As before the first launch; all ranks do it, and meet."""
        import torch
        import torch.distributed as d
        torch.cuda.synchronize()
        d.barrier()
        self.whole.tensor[:HEADER] = 0
        self.whole.tensor[HEADER:self.operands] = 255
        torch.cuda.synchronize()
        d.barrier()

    def operand(self, offset, count, dtype):
        """In this rank's arena."""
        return Memory(self.base + self.rank * self.bytes + self.operands + offset, count, dtype).tensor


class Kernels:
    def __init__(self, folder, rank, ranks, arena):
        self.arena, self.rank, self.ranks = arena, rank, ranks
        self.functions, self.folder = {}, folder
        for path in glob.glob(os.path.join(folder, f"{ranks}.*.cubin")):
            module = C.c_void_p()
            with open(path, "rb") as f:
                must("cuModuleLoadData", C.byref(module), f.read())
            self.functions[".".join(os.path.basename(path).split(".")[1:3])] = module
        import torch
        self.status = torch.zeros(2, dtype=torch.int64, device="cuda")

    def launch(self, image, function, grid, threads, buffers, numbers, timeout=5 * 10**9, pdl=True):
        """A function that launches on torch's stream."""
        import torch
        handle = C.c_void_p()
        must("cuModuleGetFunction", C.byref(handle), self.functions[image], function.encode())
        address = [b if isinstance(b, int) else b.data_ptr() for b in buffers]
        words = [*address, self.arena.base, self.arena.bytes, self.rank, *numbers, timeout, 5, self.status.data_ptr()]
        values = (C.c_uint64 * len(words))(*words)
        pointers = (C.c_void_p * len(words))(*[C.addressof(values) + 8 * i for i in range(len(words))])
        attributes = (Attribute * 1)()
        attributes[0].id, attributes[0].value[0] = 6, 1
        config = Config((C.c_uint * 3)(grid, 1, 1), (C.c_uint * 3)(threads, 1, 1), 0, None, C.cast(attributes, C.POINTER(Attribute)),
                        1 if pdl else 0)

        def go():
            config.stream = torch.cuda.current_stream().cuda_stream
            rc = driver().cuLaunchKernelEx(C.byref(config), handle, pointers, None)
            assert rc == 0, f"cuLaunchKernelEx: {rc}"
        go.keep = (values, buffers, attributes)
        return go

    def all_reduce(self, form, image, x, y, shape=None, **more):
        bytes_of = x.numel() * x.element_size()
        grid, threads = shape or shape_of(form, bytes_of, self.ranks)
        return self.launch(image, "allReduce" + form, grid, threads, [x, y], [x.numel()], **more)


def form_of(bytes_of, ranks):
    """As allReduceForm, for operands of the arena."""
    one_shot = 2 * MB if ranks == 2 else 128 * KB if ranks <= 4 else 32 * KB
    if bytes_of > BLOCKS * ranks * (SLOT // 2):
        return "Direct"
    return "OneShot" if bytes_of <= one_shot else "Direct" if bytes_of > (2 if ranks == 2 else 4) * MB else "TwoShot"


def shape_of(form, bytes_of, ranks):
    """As allReduceShape."""
    if form == "Direct" and ranks > 2:
        return 32, THREADS
    if form == "Direct":
        return 32 if bytes_of // ranks <= MB else 64 if bytes_of // ranks <= 2 * MB else 128, THREADS
    part = bytes_of if form == "OneShot" else -(-bytes_of // ranks)
    vectors = max(-(-part // 16), 1)
    if form == "TwoShot" and ranks > 2 and vectors >= 16384:
        return min(-(-vectors // THREADS), BLOCKS), THREADS
    threads = 128 if vectors <= 8192 else 256 if vectors <= 32768 else THREADS
    return min(max(-(-vectors // threads), 1), BLOCKS), threads


def fits(form, bytes_of, ranks, grid, threads):
    if form == "Direct":
        return True
    vectors = -(-bytes_of // 16) if form == "OneShot" else -(-(-(-bytes_of // 16)) // ranks)
    return -(-vectors // (grid * threads)) * threads * 16 <= (SLOT if form == "OneShot" else SLOT // 2)


# ---- Results ------------------------------------------------------------------------------------

class Session:
    def __init__(self, folder):
        import torch
        import torch.distributed as d
        self.rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.rank)
        d.init_process_group("nccl", device_id=torch.device("cuda", self.rank))
        self.ranks = d.get_world_size()
        torch.zeros(1, device="cuda")  # its context is the one that the driver's calls are for
        self.arena = Arena(self.rank, self.ranks, 288 * MB)
        self.kernels = Kernels(folder, self.rank, self.ranks, self.arena)
        self.bad = 0
        self.random = torch.Generator("cuda").manual_seed(100 + self.rank)

    def say(self, *words):
        if self.rank == 0:
            print(*words, flush=True)

    def judge(self, good, what):
        import torch
        import torch.distributed as d
        wrong = torch.tensor(0 if good else 1, device="cuda")
        d.all_reduce(wrong)
        if wrong.item():
            self.bad += 1
            self.say(f"  WRONG on {wrong.item()} ranks: {what}")
        return wrong.item() == 0

    def gather(self, x):
        import torch
        import torch.distributed as d
        raw = x.contiguous().view(torch.uint8)
        parts = [torch.empty_like(raw) for _ in range(self.ranks)]
        d.all_gather(parts, raw)
        return [p.view(x.dtype) for p in parts]

    def reduced(self, x, op):
        """In the order of ranks, in f32 where it is a float."""
        import torch
        parts = [p.float() if p.is_floating_point() else p for p in self.gather(x)]
        total = parts[0]
        for p in parts[1:]:
            total = total + p if op == "sum" else torch.maximum(total, p)
        return total.to(x.dtype)

    def same(self, got, want):
        import torch
        if not got.is_floating_point():
            return torch.equal(got, want)
        words = torch.int32 if got.element_size() == 4 else torch.int16
        differs = (got.view(words) != want.view(words)) & ~(got.isnan() & want.isnan())
        return not bool(differs.any())

    def values(self, x, spread=3.0):
        """Random numbers into x, now and then what an empty slot has."""
        import torch
        if not x.is_floating_point():
            x.copy_(torch.randint(-2**31, 2**31 - 1, x.shape, generator=self.random, device="cuda", dtype=torch.int64))
            return
        x.copy_(torch.randn(x.shape, generator=self.random, device="cuda") * spread)
        x[torch.rand(x.shape, generator=self.random, device="cuda") < 1e-3] = -0.0
        words = x.view(torch.int32 if x.element_size() == 4 else torch.int16)
        words[torch.rand(x.shape, generator=self.random, device="cuda") < 1e-3] = -1


def torch_type(name):
    import torch
    return {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i32": torch.int32}[name]


def check(s):
    import torch
    import torch.distributed as d
    k, calls = s.kernels, 0
    for image in sorted(k.functions):
        op, kind = image.split(".")
        dtype = torch_type(kind)
        for form in ("OneShot", "TwoShot", "Direct"):
            if kind == "i32" and form != "Direct":
                continue
            for count in (1, 7, 8, 100, 1001, 4096, 32 * KB, 100003, MB // 2 + 5, 3 * MB + 9):
                bytes_of = count * dtype.itemsize
                shape = shape_of(form, bytes_of, s.ranks)
                if not fits(form, bytes_of, s.ranks, *shape):
                    continue
                for same_memory in (False, True):
                    x, y = s.arena.operand(0, count, dtype), s.arena.operand(64 * MB, count + 8, dtype)
                    s.values(x)
                    y.fill_(77)
                    want = s.reduced(x, op)
                    k.all_reduce(form, image, x, x if same_memory else y, shape)()
                    got = x if same_memory else y[:count]
                    s.judge(s.same(got, want) and (same_memory or bool((y[count:] == 77).all())), f"{image} {form} {count}")
                    calls += 1
        x, y = s.arena.operand(0, s.ranks * 5 * 1024, dtype), torch.zeros(5 * 1024, dtype=dtype, device="cuda")
        for rows, run in ((1, 1024), (5, 64), (3, 1024)):
            whole, part = x[:rows * s.ranks * run], y[:rows * run]
            s.values(whole)
            want = s.reduced(whole, op).view(rows, s.ranks, run)[:, s.rank].reshape(-1)
            k.launch(image, "reduceScatter", 3, 512, [whole, part], [rows, run])()
            s.judge(s.same(part, want), f"{image} reduceScatter {rows} {run}")
            s.values(part)
            want = torch.stack([p.view(rows, run) for p in s.gather(part)], 1).reshape(-1)
            k.launch(image, "allGather", 3, 512, [part, whole], [rows, run * dtype.itemsize])()
            s.judge(s.same(whole, want), f"{image} allGather {rows} {run}")
            calls += 2
        if op == "sum" and kind != "i32":
            for rows, columns in ((1, 4096), (5, 256), (64, 4096), (128, 2048), (3, 1000)):
                go, buffers = norm_of(s, image, rows, columns)
                s.values(buffers["in"], 0.5), s.values(buffers["residual"], 0.5), s.values(buffers["weight"])
                for name in ("in", "residual", "weight"):
                    buffers[name].nan_to_num_(0.5)
                d.broadcast(buffers["residual"], 0), d.broadcast(buffers["weight"], 0)
                total = sum(p.float() for p in s.gather(buffers["in"])) + buffers["residual"].float()
                lines = total.view(rows, columns).double()
                want = lines * torch.rsqrt(lines.square().mean(1, keepdim=True) + 1e-5) * buffers["weight"].double()
                go()
                unit = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-21}[dtype]
                close = (buffers["normed"].double().view(rows, columns) - want).abs() <= want.abs() * unit * 1.01 + 1e-7
                all_same = all(s.same(p, buffers["normed"]) for p in s.gather(buffers["normed"]))
                s.judge(s.same(buffers["sum"], total.to(dtype)) and bool(close.all()) and all_same, f"{image} allReduceNorm {rows} {columns}")
                calls += 1
    s.say(f"check: {calls} calls of {len(k.functions)} images, {s.bad} wrong")
    late(s)
    replayed(s)
    lost(s)


def late(s):
    """Ranks that come at different times; each result is compared."""
    import torch
    draw, mine, before = random.Random(3), random.Random(50 + s.rank), s.bad
    for _ in range(300):
        form, count = draw.choice(("OneShot", "TwoShot", "Direct")), draw.choice((64, 4096, 20000, 65536))
        x, y = s.arena.operand(0, count, torch.bfloat16), s.arena.operand(64 * MB, count, torch.bfloat16)
        s.values(x)
        want = s.reduced(x, "sum")
        calls = [s.kernels.all_reduce(form, "sum.bf16", x, y) for form in ("OneShot", form, "Direct", "OneShot")]
        for go in calls:
            torch.cuda._sleep(int(mine.choice((0, 0, 2000, 40000))))
            go()
        s.judge(s.same(y, want), f"late {form} {count}")
    s.say(f"late: 300 rounds, {s.bad - before} wrong")


def replayed(s):
    import torch
    before, k = s.bad, s.kernels
    sizes = {"OneShot": 4096, "TwoShot": 65536, "Direct": 262144}
    pairs = {f: (s.arena.operand(i * 4 * MB, n, torch.bfloat16), s.arena.operand(64 * MB + i * 4 * MB, n, torch.bfloat16))
             for i, (f, n) in enumerate(sizes.items())}
    calls = [k.all_reduce(f, "sum.bf16", *pairs[f]) for f in ("OneShot", "TwoShot", "OneShot", "Direct", "Direct", "OneShot", "TwoShot")]
    for go in calls:
        go()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for go in calls:
            go()
    for turn in range(100):
        wants = {}
        for f, (x, y) in pairs.items():
            s.values(x)
            y.fill_(7)
            wants[f] = s.reduced(x, "sum")
        for _ in range(1 + turn % 7):
            graph.replay()
        s.judge(all(s.same(pairs[f][1], wants[f]) for f in pairs), f"replay {turn}")
    s.say(f"graphs: 100 rounds of replays, {s.bad - before} wrong")


def lost(s):
    """The last rank does not come."""
    import torch
    before, k = s.bad, s.kernels
    for name in ("OneShot", "TwoShot", "Direct", "allGather"):
        s.arena.reset()
        x, y = s.arena.operand(0, 65536, torch.bfloat16), s.arena.operand(64 * MB, 65536 * s.ranks, torch.bfloat16)
        k.status.zero_()
        torch.cuda.synchronize()
        begin = time.time()
        if s.rank != s.ranks - 1:
            if name == "allGather":
                go = k.launch("sum.bf16", name, 4, 512, [x, y], [1, 65536 * 2], timeout=200 * 10**6)
            else:
                go = k.all_reduce(name, "sum.bf16", x, y, timeout=200 * 10**6)
            for _ in range(20):
                go()
            torch.cuda.synchronize()
        took = time.time() - begin
        code, detail = k.status.tolist()
        good = s.rank == s.ranks - 1 or (code == PEER_LOST and detail >> 32 == s.ranks - 1 and detail & 0xffffffff == 5 and took < 2)
        s.judge(good, f"lost peer: {name}, code {code}, detail {detail:#x}, {took:.2f} s")
    k.status.zero_()
    s.arena.reset()
    x, y = s.arena.operand(0, 5000, torch.bfloat16), s.arena.operand(64 * MB, 5000, torch.bfloat16)
    s.values(x)
    want = s.reduced(x, "sum")
    k.all_reduce("OneShot", "sum.bf16", x, y)()
    s.judge(s.same(y, want), "after a lost peer")
    s.say(f"lost peer: 4 kernels, {s.bad - before} wrong")


def norm_of(s, image, rows, columns, threads=None):
    """(launch, its buffers by name)"""
    import torch
    dtype = torch_type(image.split(".")[1])
    names = ("in", "residual", "sum", "normed")
    buffers = {name: s.arena.operand(i * 16 * MB, rows * columns, dtype) for i, name in enumerate(names)}
    buffers["weight"] = torch.ones(columns, dtype=dtype, device="cuda")
    vectors = columns * dtype.itemsize // 16
    is_paired = 8 <= rows <= 32 and vectors <= 512
    threads = threads or (128 if vectors <= 128 else 256 if vectors <= 256 or is_paired else THREADS)  # as allReduceNormShape
    epsilon = int.from_bytes(array.array("f", [1e-5]).tobytes(), "little")
    ordered = [buffers[n] for n in ("in", "residual", "weight", "sum", "normed")]
    return s.kernels.launch(image, "allReduceNorm", min(rows, BLOCKS), threads, ordered, [rows, columns, epsilon]), buffers


# ---- Times --------------------------------------------------------------------------------------

def race(candidates, calls=20, rounds=15):
    """{name: function that enqueues} -> {name: median microseconds a call on rank 0}: graphs of `calls`, in turn."""
    import torch
    import torch.distributed as d
    graphs, times = {}, {name: [] for name in candidates}
    for name, go in candidates.items():
        for _ in range(3):
            go()
        torch.cuda.synchronize()
        d.barrier()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(calls):
                go()
    order = list(graphs)
    for turn in range(rounds + 1):
        order.append(order.pop(0))
        for name in order:
            graph = graphs[name]
            d.barrier()
            torch.cuda.synchronize()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            before.record()
            graph.replay()
            after.record()
            torch.cuda.synchronize()
            if turn:
                times[name].append(before.elapsed_time(after) * 1e3 / calls)
    return {name: median(values) for name, values in times.items()}


def rivals(s, bytes_of):
    import torch
    import torch.distributed as d
    import torch.distributed._symmetric_memory as sm
    group, count = d.group.WORLD.group_name, bytes_of // 2
    x = torch.zeros(count, dtype=torch.bfloat16, device="cuda")
    found = {"nccl": lambda: d.all_reduce(x)}
    try:
        y = sm.empty(count, dtype=torch.bfloat16, device="cuda")
        sm.rendezvous(y, group)
        y.zero_()
        if bytes_of <= 2 * MB:
            found["torch one-shot"] = lambda: torch.ops.symm_mem.one_shot_all_reduce(y, "sum", group)
        found["torch two-shot"] = lambda: torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", group)
    except Exception as error:  # no symmetric memory: NCCL is left
        s.say("symmetric memory of torch:", str(error)[:200])
    return found


SIZES = [2 * KB, 8 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, 512 * KB, MB, 2 * MB, 4 * MB, 16 * MB, 64 * MB]


def few(bytes_of):
    """Calls of a graph."""
    return 50 if bytes_of <= MB else 20 if bytes_of <= 8 * MB else 6


def run_race(s):
    import torch
    k = s.kernels
    for bytes_of in SIZES:
        x, y = s.arena.operand(0, bytes_of // 2, torch.bfloat16), s.arena.operand(64 * MB, bytes_of // 2, torch.bfloat16)
        form = form_of(bytes_of, s.ranks)
        ours = {"lathe": k.all_reduce(form, "sum.bf16", x, y), "no overlap": k.all_reduce(form, "sum.bf16", x, y, pdl=False)}
        times = race({**ours, **rivals(s, bytes_of)}, few(bytes_of), 15 if bytes_of <= 8 * MB else 9)
        best = min((v, n) for n, v in times.items() if n not in ours)
        mine, one, nccl = times["lathe"], times.get("torch one-shot", best[0]), times["nccl"]
        if s.ranks == 2:
            met = (mine <= 4.8 and one / mine >= 1.3 and nccl / mine >= 2 if bytes_of <= 64 * KB
                   else best[0] / mine >= (1.15 if bytes_of <= MB else 1.0))
        else:
            met = best[0] / mine >= 1 and (mine <= 6 or bytes_of > 16 * KB or s.ranks > 4)
        s.bad += not met
        s.say(f"all-reduce x{s.ranks} {bytes_of // KB:6} KB  {form:8}" + "".join(f"  {n} {v:.2f}" for n, v in times.items()) +
              f" us;  {best[0] / mine:.2f} x {best[1]}, {nccl / mine:.2f} x nccl{'' if met else '  BELOW'}")
    race_norm(s)
    import torch.distributed as d
    for bytes_of in (16 * KB, 128 * KB, MB, 16 * MB):  # of a part
        count = bytes_of // 2
        part = torch.zeros(count, dtype=torch.bfloat16, device="cuda")
        whole = s.arena.operand(0, count * s.ranks, torch.bfloat16)
        theirs = torch.zeros(count * s.ranks, dtype=torch.bfloat16, device="cuda")
        grid = min(max(bytes_of // 16 // THREADS, 1), 64)
        times = race({"gather": k.launch("sum.bf16", "allGather", grid, THREADS, [part, whole], [1, bytes_of]),
                      "nccl gather": lambda: d.all_gather_into_tensor(theirs, part),
                      "scatter": k.launch("sum.bf16", "reduceScatter", grid, THREADS, [whole, part], [1, count]),
                      "nccl scatter": lambda: d.reduce_scatter_tensor(part, theirs)}, few(bytes_of * s.ranks))
        s.say(f"parts x{s.ranks} {bytes_of // KB:6} KB " + "".join(f"  {n} {v:.2f}" for n, v in times.items()) +
              f" us;  {times['nccl gather'] / times['gather']:.2f}, {times['nccl scatter'] / times['scatter']:.2f} x nccl")


def race_norm(s):
    k = s.kernels
    with open(os.path.join(k.folder, "norms.json")) as f:
        kernels = json.load(f)
    for rows in NORM_ROWS:
        bytes_of = rows * WIDTH * 2
        if s.ranks > 2 and bytes_of > (384 * KB if s.ranks <= 4 else 96 * KB):
            break  # as hasAllReduceNorm
        go, b = norm_of(s, "sum.bf16", rows, WIDTH)
        form = form_of(bytes_of, s.ranks)
        reduce = k.all_reduce(form, "sum.bf16", b["in"], b["sum"])
        with open(os.path.join(k.folder, f"norm{rows}.cubin"), "rb") as f:
            add_norm = load(kernels[str(rows)], f.read())([b["sum"], b["residual"], b["weight"], b["sum"], b["normed"]])

        def apart():
            reduce()
            add_norm()
        times = race({"fused": go, "apart": apart}, few(bytes_of))
        met = times["apart"] / times["fused"] >= (1.15 if bytes_of <= 256 * KB else 1)
        s.bad += not met
        s.say(f"with norm x{s.ranks} {bytes_of // KB:5} KB  {form:8}  fused {times['fused']:.2f}  apart {times['apart']:.2f} us;  "
              f"{times['apart'] / times['fused']:.2f}{'' if met else '  BELOW'}")


def sweep(s):
    import torch
    for rows in (1, 16, 64):
        times = race({f"{threads}": norm_of(s, "sum.bf16", rows, WIDTH, threads)[0] for threads in (256, 384, 512)}, 50, 7)
        s.say(f"sweep x{s.ranks} norm of {rows} rows, threads " + ", ".join(f"{n} {v:.2f}" for n, v in times.items()))
    for bytes_of in SIZES:
        x, y = s.arena.operand(0, bytes_of // 2, torch.bfloat16), s.arena.operand(64 * MB, bytes_of // 2, torch.bfloat16)
        tried = {}
        for form in ("OneShot", "TwoShot", "Direct"):
            if form == "Direct" and bytes_of < 128 * KB:
                continue
            part = -(-bytes_of // 16) if form == "OneShot" else -(-bytes_of // 16 // s.ranks)
            for threads in (64, 128, 256, 512):
                blocks = {min(max(part // threads, 1), BLOCKS)} if form != "Direct" else {16, 32, 64, 96, 128}
                if form == "Direct" and threads < 256:
                    continue
                for grid in blocks:
                    if fits(form, bytes_of, s.ranks, grid, threads) and part >= threads // 2:
                        tried[f"{form} {grid}x{threads}"] = s.kernels.all_reduce(form, "sum.bf16", x, y, (grid, threads))
        times = race(tried, few(bytes_of), 5)
        for form in ("OneShot", "TwoShot", "Direct"):
            found = sorted((v, n) for n, v in times.items() if n.startswith(form))
            if found:
                s.say(f"sweep x{s.ranks} {bytes_of // KB:6} KB " + ", ".join(f"{n} {v:.2f}" for v, n in found))


# ---- More ranks than GPUs -------------------------------------------------------------------------

class SharedArena:
    """Those of ranks of one process, rank r on GPU r % `cards`."""

    def __init__(self, ranks, cards, operand_bytes):
        import torch
        places = [Properties(1, 0, Location(1, r % cards), None) for r in range(ranks)]
        grain, base = C.c_size_t(), C.c_uint64()
        must("cuMemGetAllocationGranularity", C.byref(grain), C.byref(places[0]), 1)
        self.operands = HEADER + BLOCKS * 2 * ranks * SLOT
        self.bytes = -(-(self.operands + operand_bytes) // grain.value) * grain.value
        must("cuMemAddressReserve", C.byref(base), C.c_size_t(self.bytes * ranks), C.c_size_t(grain.value), C.c_uint64(0), C.c_uint64(0))
        self.base = base.value
        access = (Access * cards)(*[Access(Location(1, c), 3) for c in range(cards)])
        for r, place in enumerate(places):
            handle, at = C.c_uint64(), C.c_uint64(self.base + r * self.bytes)
            must("cuMemCreate", C.byref(handle), C.c_size_t(self.bytes), C.byref(place), C.c_uint64(0))
            must("cuMemMap", at, C.c_size_t(self.bytes), C.c_size_t(0), handle, C.c_uint64(0))
            must("cuMemSetAccess", at, C.c_size_t(self.bytes), access, C.c_size_t(cards))
            with torch.cuda.device(r % cards):
                whole = Memory(at.value, self.bytes, torch.uint8).tensor
                whole[:HEADER] = 0
                whole[HEADER:self.operands] = 255

    def operand(self, rank, offset, count, dtype):
        return Memory(self.base + rank * self.bytes + self.operands + offset, count, dtype).tensor


def streams(folder, ranks):
    import torch
    cards, bad, calls = torch.cuda.device_count(), 0, 0
    for card in range(cards):
        torch.zeros(1, device=f"cuda:{card}")
    arena = SharedArena(ranks, cards, 32 * MB)
    on, kernels = [], []
    for r in range(ranks):
        with torch.cuda.device(r % cards):
            on.append(torch.cuda.Stream())
            kernels.append(Kernels(folder, r, ranks, arena))
    draw = torch.Generator().manual_seed(1)

    def everywhere(what):
        for r in range(ranks):
            with torch.cuda.device(r % cards), torch.cuda.stream(on[r]):
                what(r)
        for card in range(cards):
            torch.cuda.synchronize(card)

    def operands(offset, count, dtype):
        made = []
        for r in range(ranks):
            with torch.cuda.device(r % cards):
                made.append(arena.operand(r, offset, count, dtype))
        return made

    for image in sorted(kernels[0].functions):
        op, kind = image.split(".")
        dtype = torch_type(kind)
        if not dtype.is_floating_point:
            continue
        for form in ("OneShot", "TwoShot", "Direct"):
            for count in (1, 1001, 4096, 20003):
                xs, ys = operands(0, count, dtype), operands(16 * MB, count, dtype)
                for turn in range(6):
                    given = [torch.randn(count, generator=draw).to(dtype) for _ in range(ranks)]
                    everywhere(lambda r: (xs[r].copy_(given[r]), ys[r].fill_(77)))
                    everywhere(lambda r: kernels[r].all_reduce(form, image, xs[r], ys[r], (8, 256))())
                    want = given[0].float()
                    for other in given[1:]:
                        want = want + other.float() if op == "sum" else torch.maximum(want, other.float())
                    wrong = sum(not torch.equal(y.cpu(), want.to(dtype)) for y in ys)
                    calls, bad = calls + 1, bad + (wrong > 0)
                    if wrong:
                        print(f"  WRONG on {wrong} of {ranks} ranks: {image} {form} {count}, turn {turn}", flush=True)
    run, rows = 1024, 3
    part, whole = operands(0, rows * run, torch.bfloat16), operands(16 * MB, rows * run * ranks, torch.bfloat16)
    for turn in range(6):
        given = [torch.randn(rows, run, generator=draw).bfloat16() for _ in range(ranks)]
        everywhere(lambda r: part[r].copy_(given[r].reshape(-1)))
        everywhere(lambda r: kernels[r].launch("sum.bf16", "allGather", 4, 256, [part[r], whole[r]], [rows, run * 2])())
        good = all(torch.equal(w.cpu(), torch.stack(given, 1).reshape(-1)) for w in whole)
        everywhere(lambda r: kernels[r].launch("sum.bf16", "reduceScatter", 4, 256, [whole[r], part[r]], [rows, run])())
        for r in range(ranks):  # all have the same whole
            want = torch.zeros(rows, run)
            for _ in range(ranks):
                want = want + given[r].float()
            good = good and torch.equal(part[r].cpu(), want.bfloat16().reshape(-1))
        calls, bad = calls + 2, bad + (not good)
        if not good:
            print(f"  WRONG: parts, turn {turn}", flush=True)
    codes = [k.status.tolist() for k in kernels]
    bad += any(code for code, _ in codes)
    print(f"{ranks} ranks as streams of {cards} GPUs: {calls} calls, {bad} wrong, status words {codes}", flush=True)
    return 1 if bad else 0


def run(folder, modes):
    import torch.distributed as d
    s = Session(folder)
    s.say(f"{s.ranks} ranks")
    for mode in modes or ["check", "race"]:
        begin = time.time()
        {"check": check, "race": run_race, "sweep": sweep}[mode](s)
        code = s.kernels.status.tolist()
        s.judge(code[0] == 0, f"a status word {code} after {mode}")
        s.say(f"{mode}: {time.time() - begin:.0f} s")
    d.destroy_process_group()
    return 1 if s.bad else 0


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "prepare":
        prepare(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) > 3 and sys.argv[1] == "streams":
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"  # loading waits for kernels that run, and those wait for other ranks
        sys.exit(streams(sys.argv[2], int(sys.argv[3])))
    elif len(sys.argv) > 2 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit(__doc__)
