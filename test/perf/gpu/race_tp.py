# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders divided among GPUs: that all ranks have the same bits and what one device has, and times at Llama-3-8B's sizes.

`race_tp.py prepare FOLDER [check] [race]` needs a build, torch and no GPU: engines of a small decoder and of Llama-3-8B's graph, for
one GPU, two and four. Weights are made from a seed where an engine runs, of each rank its part. `race_tp.py run FOLDER [check]
[race]` needs GPUs, numpy, python-frontend and the runtime library (LATHE_RUNTIME_LIBRARY); what there are not enough GPUs for is left
out. `torchrun --nproc-per-node=N race_tp.py rivals` needs torch: torch.compile in a graph with NCCL and with torch's all-reduces over
symmetric memory, a process a GPU, in the sizes of the race. Exit code 1 when a result is wrong.

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


RACES = {"one": (1, 1024), "many": (64, 1024), "prompt": (1, 2048)}


def prepare_race(folder):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import export_graphs
    s = export_graphs.LlamaSizes
    torch.set_default_dtype(torch.bfloat16)
    donated = [f"--donate={n}_out={n}" for n in names_of(s)]
    with tempfile.TemporaryDirectory() as scratch:
        graph = os.path.join(scratch, "model.onnx")
        with FakeTensorMode(allow_non_fake_inputs=True):
            export(graph, export_graphs.Llama(), s, torch.bfloat16)
        for batch in (1, 64):
            dims = [f"--dim=B={batch}:{batch}:{batch}", "--dim=S=1:2048:2048" if batch == 1 else "--dim=S=1:16:16",
                    "--dim=P=0:1024:2048" if batch == 1 else "--dim=P=0:1024:1152", "--entry=prefill:P=0", "--entry=step:S=1"]
            if batch > 1: # fills the cache by pieces
                dims[-2] = "--entry=prefill:S=16"
            for ranks in MESHES:
                compile_engine(graph, os.path.join(folder, f"llama{batch}-{ranks}.lathe"), *dims, *donated,
                               *([f"--mesh=tp={ranks}"] if ranks > 1 else []))


def prepare(folder, what):
    os.makedirs(folder, exist_ok=True)
    if "check" in what:
        prepare_check(folder)
    if "race" in what:
        prepare_race(folder)


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


def race_of(folder, ranks, device, logits):
    """Case by case what it takes as many GPUs, in milliseconds. `logits`: of one GPU for each batch, which it adds."""
    def ids(batch, count):
        return np.random.default_rng(3).integers(0, 1000, (batch, count))
    for batch, name in ((1, "one"), (64, "many")):
        if not os.path.exists(os.path.join(folder, f"llama{batch}-{ranks}.lathe.xz")):
            continue
        begin = time.perf_counter()
        one = Ranks(folder, f"llama{batch}", ranks, device=device)
        print(f"  loaded in {time.perf_counter() - begin:.1f} s", flush=True)
        given = [ids(batch, 300 if batch == 1 else 16)]
        got = one.run(given, "prefill")
        one.reset()
        equal = all(g.tobytes() == got[0].tobytes() for g in got)
        off = error(widened(got[0]), logits.setdefault(batch, widened(got[0])))
        # Either side is rounded to bf16 in 32 layers.
        if not equal or not off < 0.15:
            raise RuntimeError(f"batch {batch}: logits are {off:.2e} off one GPU's, ranks {'equal' if equal else 'DIFFER'}")
        print(f"  batch {batch}: logits {off:.2e} off one GPU's, ranks equal", flush=True)
        if batch == 1:
            yield "prompt", median_step(one, [ids(1, 2048)], "prefill", one.reset, 1, 6)
            one.finish(one.submit([ids(1, 1016)], "prefill"))
        else:
            for _ in range(63):  # the cache by pieces of 16 tokens
                one.finish(one.submit([ids(64, 16)], "prefill", "device"))
        length = 1016 if batch == 1 else 1008
        def rewind():
            one.truncate(length)
        token = [ids(batch, 1)]
        median_step(one, token, "step", rewind, 16, 2)  # makes the graphs
        yield name, median_step(one, token, "step", rewind, 16, 9)
        yield name + ", waited for", median_step(one, token, "step", rewind, 1, 12)
        del one


def race(folder, device):
    cards, bad, alone, logits = gpus() if device == "cuda" else 2, 0, {}, {}
    for ranks in [n for n in MESHES if n <= cards]:
        try:
            for case, ms in race_of(folder, ranks, device, logits):
                if ranks == 1:
                    alone[case] = ms
                print(f"llama-8B, {ranks} GPU{'s' if ranks > 1 else ''}, {case}: {ms:.3f} ms"
                      + (f", {alone[case] / ms:.3f} x one GPU" if ranks > 1 and case in alone else ""), flush=True)
        except Exception as problem:
            bad += 1
            print(f"llama-8B, {ranks} GPUs: FAILED {str(problem)[:600]}", flush=True)
    return bad


# Rivals -------------------------------------------------------------------------------------------


def rivals():
    """A rank of torch: Llama-3-8B's sizes divided by hand, compiled layers in one CUDA graph."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    import torch.nn.functional as F
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    ranks, group = dist.get_world_size(), dist.group.WORLD.group_name
    width, inner, layers, words, head = 4096, 14336, 32, 128256, 128
    heads, groups, inner, own = 32 // ranks, 8 // ranks, inner // ranks, words // ranks

    def weight(*dims):
        return torch.randn(*dims, device="cuda", dtype=torch.bfloat16) * 0.02
    # A layer's weights are larger than the cache: two sets take as long as 32.
    sets = [dict(n1=weight(width), n2=weight(width), qkv=weight((heads + 2 * groups) * head, width), o=weight(width, heads * head),
                 gu=weight(2 * inner, width), d=weight(width, inner)) for _ in range(2)]
    final, top, embed = weight(width), weight(own, width), weight(words, width)
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

    def model(reduce, prompt):
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
            for i in range(layers):
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

    for case, batch, count, old in (("one", 1, 1, 1024), ("many", 64, 1, 1024), ("prompt", 1, 2048, 0)):
        ids = torch.randint(0, words, (batch, count), device="cuda")
        keys, values = ([torch.randn(batch, groups, max(old, 1), head, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]
                        for _ in range(2))
        cos, sin = (torch.rand(count, head // 2, device="cuda") for _ in range(2))
        place = torch.tensor([max(old - 1, 0)], device="cuda")
        shape = torch.Size((batch, count, width))
        for name, reduce in ways.items():
            if (name == "two-shot") != (case == "prompt") and name != "nccl":
                continue
            try:
                buffers.clear()
                buffers[shape] = symmetric.empty(shape.numel(), device="cuda", dtype=torch.bfloat16)
                symmetric.rendezvous(buffers[shape], group)
                torch._dynamo.reset()
                with torch.no_grad():
                    run = model(reduce, case == "prompt")
                    ms = timed(lambda: run(ids, keys, values, cos, sin, place))
                if rank == 0:
                    print(f"torch, {ranks} GPUs, {case}, {name}: {ms:.3f} ms", flush=True)
            except Exception as problem:
                if rank == 0:
                    print(f"torch, {ranks} GPUs, {case}, {name}: FAILED {str(problem)[:300]}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prepare", "run", "rivals"])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("what", nargs="*", default=["check", "race"])
    parser.add_argument("--device", default="cuda", help="cuda, or fake for a dry run without results")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.folder, options.what)
        return 0
    if options.verb == "rivals":
        rivals()
        return 0
    bad = 0
    if "check" in options.what:
        bad += check(options.folder, options.device)
    if "race" in options.what:
        bad += race(options.folder, options.device)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
