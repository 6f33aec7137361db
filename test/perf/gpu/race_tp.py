# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders divided among GPUs: that all ranks have the same bits and what one device has, and times at Llama-3-8B's and 70B's sizes.

`race_tp.py prepare FOLDER [check] [race] [race70]` needs a build, torch and no GPU: engines of a small decoder for one GPU, two and
four, of Llama-3-8B's graph for the same, and of the 70B's for two and four, which one card does not hold. Weights are made from a
seed where an engine runs, of each rank its part. `race_tp.py run FOLDER [check] [race] [race70]` needs GPUs, numpy, python-frontend
and the runtime library (LATHE_RUNTIME_LIBRARY); what there are not enough GPUs for, or what was not prepared, is left out.
`torchrun --nproc-per-node=N race_tp.py rivals [race] [race70]` needs torch: torch.compile in a graph with NCCL and with torch's
all-reduces over symmetric memory, a process a GPU, in the sizes of the race. Exit code 1 when a result is wrong.

Steps are timed as a caller sees them: several are submitted behind each other, and the last is waited for.
"""
import argparse
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
MESHES = (1, 2, 4)


class Small:
    width, inner, layers, heads, groups, words, head, capacity = 512, 1024, 2, 8, 4, 1000, 64, 640


DTYPES = ("f32", "bf16")
BATCH, PROMPT, STEPS = 3, 70, 12


# Preparing ----------------------------------------------------------------------------------------


def names_of(sizes):
    return [f"{part}{i}" for i in range(sizes.layers) for part in "kv"]


def export(path, model, sizes, dtype):
    """The graph of a decoder whose batch, new and old tokens are symbols; weights are absent."""
    import onnx
    import torch

    import export_graphs
    dims = {name: torch.export.Dim(name, min=0 if name == "P" else 1) for name in "BSP"}
    past = [torch.zeros(2, sizes.groups, 5, sizes.head, dtype=dtype) for _ in names_of(sizes)]
    ids = torch.zeros(2, 3, dtype=torch.int64)
    names = names_of(sizes)
    program = torch.onnx.export(
        model.eval(), (ids, *past), dynamo=True, opset_version=18, input_names=["ids", *names],
        output_names=["logits", *(f"{n}_out" for n in names)],
        dynamic_shapes=({0: dims["B"], 1: dims["S"]}, tuple({0: dims["B"], 2: dims["P"]} for _ in names)),
        external_data=False, optimize=False)
    export_graphs.refer_to_absent(program.model)
    proto = program.model_proto
    export_graphs.drop_weights(proto)
    onnx.save(proto, path)


def compile_engine(graph, engine, *options, target="sm_90a"):
    begin = time.time()
    subprocess.run([LATHE, "compile", graph, "-o", engine, f"--target={target}", "--random-weights=1", *options], check=True,
                   stdout=subprocess.DEVNULL)
    print(f"{os.path.basename(engine)}: {time.time() - begin:.1f} s, {os.path.getsize(engine) / 1e6:.1f} MB", flush=True)
    with open(engine, "rb") as plain, lzma.open(engine + ".xz", "wb") as packed:
        packed.write(plain.read())
    os.remove(engine)


def prepare_check(folder):
    import torch

    import export_graphs
    ids = np.random.default_rng(1).integers(0, Small.words, (BATCH, PROMPT + STEPS))
    np.save(os.path.join(folder, "ids.npy"), ids)
    options = [f"--donate={n}_out={n}" for n in names_of(Small)] + [
        "--dim=B=1:2:8", "--dim=S=1:64:512", f"--dim=P=0:64:{Small.capacity}", "--entry=prefill:P=0", "--entry=step:S=1"]
    with tempfile.TemporaryDirectory() as scratch:
        for dtype, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            graph = os.path.join(scratch, f"{dtype}.onnx")
            if not os.path.exists(graph):
                export(graph, export_graphs.Llama(Small).to(kind), Small, kind)
            for ranks in MESHES:
                compile_engine(graph, os.path.join(folder, f"{dtype}-{ranks}.lathe"), *options,
                               *([f"--mesh=tp={ranks}"] if ranks > 1 else []))
        compile_engine(os.path.join(scratch, "f32.onnx"), os.path.join(scratch, "cpu-1.lathe"), *options, target="x86-64-v3")
        np.save(os.path.join(folder, "truth.npy"), chain(Ranks(scratch, "cpu", 1, device="cpu"), ids)[0])


class Engine:
    """A prepared engine of a race: what its steps are called, and how many tokens its cache is filled with at a time."""

    def __init__(self, name, step, batch, piece, meshes, prompt=None):
        self.name, self.step, self.batch, self.piece, self.meshes, self.prompt = name, step, batch, piece, meshes, prompt


RACES = {
    "race": (Engine("llama1", "one", 1, 1016, MESHES, "prompt"), Engine("llama64", "many", 64, 16, MESHES)),
    "race70": (Engine("llama70", "one of 70B", 1, 1016, MESHES[1:]),),
}


def prepare_race(folder, what):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import export_graphs
    s = export_graphs.Llama70Sizes if what == "race70" else export_graphs.LlamaSizes
    torch.set_default_dtype(torch.bfloat16)
    donated = [f"--donate={n}_out={n}" for n in names_of(s)]
    with tempfile.TemporaryDirectory() as scratch:
        graph = os.path.join(scratch, "model.onnx")
        with FakeTensorMode(allow_non_fake_inputs=True):
            export(graph, export_graphs.Llama(s), s, torch.bfloat16)
        for engine in RACES[what]:
            dims = [f"--dim=B={engine.batch}:{engine.batch}:{engine.batch}", "--dim=S=1:2048:2048" if engine.batch == 1 else "--dim=S=1:16:16",
                    "--dim=P=0:1024:2048" if engine.batch == 1 else "--dim=P=0:1024:1152", "--entry=prefill:P=0", "--entry=step:S=1"]
            if engine.batch > 1: # fills the cache by pieces
                dims[-2] = f"--entry=prefill:S={engine.piece}"
            for ranks in engine.meshes:
                compile_engine(graph, os.path.join(folder, f"{engine.name}-{ranks}.lathe"), *dims, *donated,
                               *([f"--mesh=tp={ranks}"] if ranks > 1 else []))


def prepare(folder, what):
    os.makedirs(folder, exist_ok=True)
    if "check" in what:
        prepare_check(folder)
    for race in RACES:
        if race in what:
            prepare_race(folder, race)


# Running ------------------------------------------------------------------------------------------


def gpus():
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return found.stdout.count("GPU ") if found.returncode == 0 else 0


class Ranks:
    """An engine on as many GPUs as it has ranks, all given the same."""

    def __init__(self, folder, name, ranks, graphs=True, device="cuda"):
        import lathe
        self.ranks = ranks
        with lzma.open(os.path.join(folder, f"{name}-{ranks}.lathe.xz")) as packed, \
                tempfile.NamedTemporaryFile(suffix=".lathe", delete=False) as plain:
            plain.write(packed.read())
        engine = lathe.load(plain.name)
        os.remove(plain.name)
        self.states = engine.states
        devices = ["cpu"] if device == "cpu" else [f"{device}:{i}" for i in range(ranks)]
        self.group = engine.group(devices, graphs=graphs, deadline=10) if ranks > 1 else None
        self.context = None if self.group else engine.context(devices[0], graphs=graphs)

    def submit(self, inputs, entry, memory="host"):
        if self.group:
            return self.group.submit([inputs] * self.ranks, entry, memory=memory)
        return self.context.submit(inputs, entry, memory=memory)

    def finish(self, step):
        """Waits for a step and all ahead of it; nobody takes the outputs."""
        if self.group:
            self.group._library.lathe_group_wait(self.group._owned.handle, step.number, -1)
        else:
            self.context._library.lathe_wait(self.context._handle, step.number, -1)

    def run(self, inputs, entry):
        """The logits of each rank."""
        results = self.submit(inputs, entry).wait()
        return [np.array(r["logits"]) for r in (results if self.group else [results])]

    def members(self):
        return self.group.members if self.group else [self.context]

    def truncate(self, length):
        for member in self.members():
            for state in self.states:
                member.truncate_state(state, length)

    def reset(self):
        for member in self.members():
            member.reset_state()


def widened(x):
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else np.asarray(x).astype(np.float32)


def chain(ranks, ids):
    """Logits as chain_of() has them, and whether all ranks have the same bits."""
    out, equal = [], True
    for i, entry in [(PROMPT, "prefill")] + [(i + 1, "step") for i in range(PROMPT, ids.shape[1])]:
        given = np.ascontiguousarray(ids[:, (0 if entry == "prefill" else i - 1):i])
        found = ranks.run([given], entry)
        equal &= all(f.tobytes() == found[0].tobytes() for f in found)
        out.append(widened(found[0]))
    return np.stack(out), equal


def error(got, want):
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def check(folder, device):
    cards, bad = gpus() if device == "cuda" else 2, 0
    ids = np.load(os.path.join(folder, "ids.npy"))
    for dtype in DTYPES:
        truth, alone, first = np.load(os.path.join(folder, "truth.npy")), None, {}
        for ranks in [n for n in MESHES if n <= cards]:
            for graphs in (True, False):
                name = f"small decoder, {dtype}, {ranks} GPU{'s' if ranks > 1 else ''}, {'graphs' if graphs else 'no graphs'}"
                try:
                    one = Ranks(folder, dtype, ranks, graphs, device)
                    got, equal = chain(one, ids)
                    one.reset()
                    again, _ = chain(one, ids)
                    begin = time.perf_counter()
                    for _ in range(5):
                        one.reset()
                        chain(one, ids)
                    took = (time.perf_counter() - begin) / 5 / (STEPS + 1)
                    if ranks == 1:
                        alone = error(got, truth)
                    off = error(got, truth)
                    same = got.tobytes() == again.tobytes() and got.tobytes() == first.setdefault(ranks, got).tobytes()
                    # As exact as one device is, up to the other order of sums.
                    wrong = not off <= max(1.2 * alone, 2e-6) or not equal or not same
                    bad += wrong
                    print(f"{name}: error {off:.2e} (one GPU {alone:.2e}), ranks {'equal' if equal else 'DIFFER'}, "
                          f"runs {'equal' if same else 'DIFFER'}, {took * 1e6:.0f} us a step{'  WRONG' if wrong else ''}", flush=True)
                    del one
                except Exception as problem:
                    bad += 1
                    print(f"{name}: FAILED {str(problem)[:600]}", flush=True)
    return bad


def median_step(one, inputs, entry, rewind, count, rounds):
    """Milliseconds of a step, of `count` that are submitted behind each other."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        steps = [one.submit(inputs, entry, "device") for _ in range(count)]  # which keep what outputs are written to
        one.finish(steps[-1])
        times.append((time.perf_counter() - begin) / count * 1e3)
        rewind()
    return statistics.median(times[1:])


def race_of(folder, engine, ranks, device, logits):
    """Case by case what it takes as many GPUs, in milliseconds. `logits`: of the fewest GPUs for each engine, which it adds."""
    def ids(count):
        return np.random.default_rng(3).integers(0, 1000, (engine.batch, count))
    begin = time.perf_counter()
    one = Ranks(folder, engine.name, ranks, device=device)
    print(f"  {engine.name} loaded in {time.perf_counter() - begin:.1f} s", flush=True)
    for count in {1: (300, 2048) if engine.prompt else (300,)}.get(engine.batch, (engine.piece,)):
        got = one.run([ids(count)], "prefill")
        one.reset()
        equal = all(g.tobytes() == got[0].tobytes() for g in got)
        off = error(widened(got[0]), logits.setdefault((engine.name, count), widened(got[0])))
        # Either side is rounded to bf16 in all layers.
        if not equal or not off < 0.15:
            raise RuntimeError(f"{engine.name}: logits behind {count} tokens are {off:.2e} off those of fewer GPUs, "
                               f"ranks {'equal' if equal else 'DIFFER'}")
        print(f"  {engine.name}: logits behind {count} tokens {off:.2e} off those of the fewest GPUs, ranks equal", flush=True)
    if engine.prompt:
        yield engine.prompt, median_step(one, [ids(2048)], "prefill", one.reset, 1, 6)
    length = 0
    while length + engine.piece <= 1016:
        one.finish(one.submit([ids(engine.piece)], "prefill", "device"))
        length += engine.piece

    def rewind():
        one.truncate(length)
    token = [ids(1)]
    median_step(one, token, "step", rewind, 8, 2)  # makes the graphs
    yield engine.step, median_step(one, token, "step", rewind, 8, 15)
    yield engine.step + ", waited for", median_step(one, token, "step", rewind, 1, 12)


def race(folder, what, device):
    cards, bad, alone, logits = gpus() if device == "cuda" else 2, 0, {}, {}
    for ranks in [n for n in MESHES if n <= cards]:
        for engine in RACES[what]:
            if not os.path.exists(os.path.join(folder, f"{engine.name}-{ranks}.lathe.xz")):
                continue
            try:
                for case, ms in race_of(folder, engine, ranks, device, logits):
                    if ranks == 1:
                        alone[case] = ms
                    print(f"llama, {ranks} GPU{'s' if ranks > 1 else ''}, {case}: {ms:.3f} ms"
                          + (f", {alone[case] / ms:.3f} x one GPU" if ranks > 1 and case in alone else ""), flush=True)
            except Exception as problem:
                bad += 1
                print(f"llama, {ranks} GPUs, {engine.name}: FAILED {str(problem)[:600]}", flush=True)
    return bad


# Rivals -------------------------------------------------------------------------------------------


def rivals(what):
    """A rank of torch: Llama's sizes divided by hand, compiled layers in one CUDA graph."""
    import random

    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    import torch.nn.functional as F
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    ranks, group = dist.get_world_size(), dist.group.WORLD.group_name
    buffers = {}

    def nccl(x):
        return dist._functional_collectives.all_reduce(x, "sum", dist.group.WORLD)

    def symmetric_way(op):
        def reduce(x):
            b = buffers[x.shape]
            b.copy_(x.reshape(-1))
            return op(b).view(x.shape)
        return reduce
    ways = {"nccl": nccl, "one-shot": symmetric_way(lambda b: torch.ops.symm_mem.one_shot_all_reduce(b, "sum", group)),
            "two-shot": symmetric_way(lambda b: torch.ops.symm_mem.two_shot_all_reduce_(b, "sum", group))}

    def turn(z, cos, sin):
        a, b = z.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(z.dtype)

    def model(s, reduce, prompt):
        width, inner, head = s.width, s.inner // ranks, s.head
        heads, groups = s.heads // ranks, s.groups // ranks

        def weight(*dims):
            return torch.randn(*dims, device="cuda", dtype=torch.bfloat16) * 0.02
        # A layer's weights are larger than the cache: two sets take as long as all.
        sets = [dict(n1=weight(width), n2=weight(width), qkv=weight((heads + 2 * groups) * head, width), o=weight(width, heads * head),
                     gu=weight(2 * inner, width), d=weight(width, inner)) for _ in range(2)]
        final, top, embed = weight(width), weight(s.words // ranks, width), weight(s.words, width)

        # Between all-reduces, so that sums of the residual fuse with the norms behind them.
        def attend(x, more, w_n, w_qkv, w_o, keys, values, cos, sin, place):
            x = x + more
            batch, count, _ = x.shape
            y = F.linear(F.rms_norm(x, (width,), w_n, 1e-5), w_qkv).view(batch, count, -1, head).transpose(1, 2)
            q, k, v = y.split([heads, groups, groups], 1)
            q, k = turn(q, cos, sin), turn(k, cos, sin)
            if prompt:
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                keys.index_copy_(2, place, k)
                values.index_copy_(2, place, v)
                a = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
            return x, reduce(F.linear(a.transpose(1, 2).reshape(batch, count, -1), w_o))

        def feed(x, more, w_n, w_gu, w_d):
            x = x + more
            gate, up = F.linear(F.rms_norm(x, (width,), w_n, 1e-5), w_gu).chunk(2, -1)
            return x, reduce(F.linear(F.silu(gate) * up, w_d))
        attend, feed = (torch.compile(f, dynamic=False) for f in (attend, feed))

        def run(ids, keys, values, cos, sin, place):
            x = F.embedding(ids, embed)
            more = torch.zeros_like(x)
            for i in range(s.layers):
                w = sets[i % 2]
                x, more = attend(x, more, w["n1"], w["qkv"], w["o"], keys[i], values[i], cos, sin, place)
                x, more = feed(x, more, w["n2"], w["gu"], w["d"])
            return F.linear(F.rms_norm((x + more)[:, -1], (width,), final, 1e-5), top)
        return run

    def timed(call):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        times = []
        for _ in range(15):
            dist.barrier()
            torch.cuda.synchronize()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()  # so that ranks that begin apart do not count
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)

    class Sizes8:
        width, inner, layers, heads, groups, words, head = 4096, 14336, 32, 32, 8, 128256, 128

    class Sizes70(Sizes8):
        width, inner, layers, heads = 8192, 28672, 80, 64
    cases = {"race": (("one", Sizes8, 1, 1, 1024), ("many", Sizes8, 64, 1, 1024), ("prompt", Sizes8, 1, 2048, 0)),
             "race70": (("one of 70B", Sizes70, 1, 1, 1024),)}
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    ms = timed(lambda: target.copy_(source))
    if rank == 0:
        print(f"a copy of 1 GiB: {2 * source.numel() / ms / 1e9:.2f} TB/s read and written", flush=True)
    del source, target
    for case, s, batch, count, old in [c for race in cases if race in what for c in cases[race]]:
        groups = s.groups // ranks
        ids = torch.randint(0, s.words, (batch, count), device="cuda")
        keys, values = ([torch.randn(batch, groups, max(old, 1), s.head, device="cuda", dtype=torch.bfloat16) for _ in range(s.layers)]
                        for _ in range(2))
        cos, sin = (torch.rand(count, s.head // 2, device="cuda") for _ in range(2))
        place = torch.tensor([max(old - 1, 0)], device="cuda")
        shape = torch.Size((batch, count, s.width))
        for name, reduce in ways.items():
            if (name == "two-shot") != (case == "prompt") and name != "nccl":
                continue
            try:
                buffers.clear()
                buffers[shape] = symmetric.empty(shape.numel(), device="cuda", dtype=torch.bfloat16)
                symmetric.rendezvous(buffers[shape], group)
                torch._dynamo.reset()
                # Compiled code names its symmetric memory by drawn numbers, and memory of one name has one size.
                random.seed(f"{case}, {name}")
                with torch.no_grad():
                    run = model(s, reduce, case == "prompt")
                    ms = timed(lambda: run(ids, keys, values, cos, sin, place))
                if rank == 0:
                    print(f"torch, {ranks} GPUs, {case}, {name}: {ms:.3f} ms", flush=True)
            except Exception as problem:
                if rank == 0:
                    print(f"torch, {ranks} GPUs, {case}, {name}: FAILED {str(problem)[:300]}", flush=True)
            run = None
            torch.cuda.empty_cache()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prepare", "run", "rivals"])
    parser.add_argument("arguments", nargs="*", help="FOLDER, of prepare and run, then what of it: check, race, race70")
    parser.add_argument("--device", default="cuda", help="cuda, or fake for a dry run without results")
    options = parser.parse_args()
    folder = None if options.verb == "rivals" else options.arguments.pop(0)
    what = options.arguments or ["check", "race"]
    if options.verb == "prepare":
        prepare(folder, what)
        return 0
    if options.verb == "rivals":
        rivals(what)
        return 0
    bad = check(folder, options.device) if "check" in what else 0
    for each in RACES:
        if each in what:
            bad += race(folder, each, options.device)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
