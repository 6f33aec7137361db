# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models in one graph against torch.compile in a graph, the faster of default and max-autotune.

`race_models.py GRAPHS CASE...` on a GPU with torch and a build of lathe; GRAPHS is the folder that
export_graphs.py wrote. A case is NAME.EXPORTER:BATCH (resnet50.ts:64), llama.dynamo:step or
llama.dynamo:prefill. Weights come from a seed, the same on both sides; results are checked against
torch in float32 before anything is timed; replays alternate. Exit code 1 when a result is wrong or
a bar is missed.
"""
import argparse
import contextlib
import fcntl
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
import export_graphs as models
import lathe

LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
CASES = [f"{n}.ts:{b}" for n, bs in (("resnet50", (1, 64)), ("vit_b16", (1, 64)),
                                     ("bert_base", (1, 32))) for b in bs]
LLAMA = ["llama.dynamo:step", "llama.dynamo:prefill"]
BARS = {True: (1.09, 1.05), False: (1.15, 1.08)}  # by whether it is Llama: mean, each
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
MASK = (1 << 64) - 1
FOLDER = tempfile.mkdtemp()


def signed(x):
    x &= MASK
    return x - (1 << 64) if x >> 63 else x


def shifted(z, by):
    """Logical shift of int64."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def random_weight(digest, shape, dtype):
    """include/lathe/support/RandomWeights.h in torch, on the device."""
    stream = int(digest[:16], 16)
    center, reach = (torch.tensor([signed(int(digest[i:i + 8], 16))], dtype=torch.int64)
                     .to(torch.int32).view(torch.float32).item() for i in (16, 24))
    count, parts = torch.Size(shape).numel(), []
    for begin in range(0, count, 1 << 26):
        z = torch.arange(begin + 1, min(count, begin + (1 << 26)) + 1, device="cuda")
        z = z * signed(0x9e3779b97f4a7c15) + signed(stream)
        z = (z ^ shifted(z, 30)) * signed(0xbf58476d1ce4e5b9)
        z = (z ^ shifted(z, 27)) * signed(0x94d049bb133111eb)
        z = z ^ shifted(z, 31)
        u = (shifted(z, 40) - (1 << 23)).double() * 2.0 ** -23
        parts.append((center + reach * u).float().to(dtype))
    return torch.cat(parts).reshape(shape)


def weights(graph, seed, folder):
    """{name: tensor} of the weights that lathe makes."""
    text = os.path.join(folder, "import.mlir")
    subprocess.run([LATHE, "compile", graph, f"--random-weights={seed}", "--stop-after=import",
                    "-o", text], check=True, capture_output=True)
    with open(text) as f:
        lines = f.read()
    names = dict(re.findall(r'^(#loc\d*) = loc\("([^"]*)"', lines, re.M))
    found = {}
    for digest, dims, dtype, loc in re.findall(
            r'#lathe.weight<"random", 0, \d+, "(\w+)"> : tensor<([0-9x]+)x(\w+)> loc\((#?[^)]*)\)',
            lines):
        name = names.get(loc, loc.strip('"'))
        found[name] = random_weight(digest, [int(d) for d in dims.split("x")], DTYPES[dtype])
    return found


def load(module, found):
    """Fills the module; NAME.T is transposed, weights of a convolution hold its batch norm."""
    state = module.state_dict()
    left = dict(found)
    with torch.no_grad():
        for name, value in state.items():
            if name in left:
                value.copy_(left.pop(name))
            elif name + ".T" in left:
                value.copy_(left.pop(name + ".T").T)
            elif name.endswith(("running_var",)):
                value.fill_(1 - 1e-5)
            elif name.endswith("running_mean") or name.endswith("bias"):
                value.zero_()
            elif name.endswith("weight") and value.dim() == 1:
                value.fill_(1)
        for name in [n for n in left if n.endswith(".norm_bias")]:
            state[name.removesuffix(".norm_bias") + ".bias"].copy_(left.pop(name))
    if left:
        raise RuntimeError(f"the module has no {sorted(left)[:5]}")
    return module


class Replays:
    """Device time of one graph launch, by events. `call` keeps the code that the graph runs."""

    def __init__(self, call):
        self.call = call
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = call()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(self):
        torch.cuda.synchronize()
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)


class Ours:
    """The same of lathe's graph."""

    def __init__(self, engine, inputs, entry=None, keep=None, overlap=True):
        self.context = engine.context("cuda:0", overlap=overlap)
        self.inputs, self.entry = inputs, entry
        self.keep, self.total = keep or {}, 0.0
        self.context.time_graphs()

    def once(self):
        self.result = self.context.run(self.inputs, self.entry, memory="device")
        for state, length in self.keep.items():
            self.context.truncate_state(state, length)
        total = self.context.counters["graph_seconds"]
        spent, self.total = total - self.total, total
        return spent * 1e3


def compiled(graph, engine, options):
    begin = time.time()
    subprocess.run([LATHE, "compile", graph, "-o", engine, "--target=sm_90a",
                    "--random-weights=1", *options], check=True, stdout=subprocess.DEVNULL)
    return time.time() - begin


def error(got, want):
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


DEFAULT, TUNED = "default", "max-autotune-no-cudagraphs"


class Rivals(dict):
    """Replays of a module by the mode it was compiled in."""

    def __init__(self, module, call):
        super().__init__()
        self.module, self.call = module, call

    def add(self, mode):
        begin = time.time()
        # Graphs of earlier cases run compiled code: nothing is reset. Each size has its own code.
        fast = torch.compile(self.module, mode=mode, dynamic=False)
        try:
            self[mode] = Replays(lambda: self.call(fast))
        except Exception as problem:  # a mode that cannot is no rival
            print(f"  {mode}: {str(problem)[:200]}")
            return
        print(f"  torch.compile {mode}: {time.time() - begin:.1f} s", flush=True)


RIVALS = {}


def rivals(key, module, call, modes):
    """Those of a module and its sizes, whatever exporter made lathe's graph of it."""
    if key not in RIVALS:
        RIVALS[key] = Rivals(module, call)
        for mode in modes:
            RIVALS[key].add(mode)
    return RIVALS[key]


def race(name, ours, theirs, rounds, by_kernel=False):
    """Median times and the ratio to the fastest rival, in alternating rounds."""
    if by_kernel:
        for side, one in {"lathe": ours, **theirs}.items():
            kernels(name, side, one)
        return None
    for one in (ours, *theirs.values()):
        one.once()
    times = {"lathe": [], **{mode: [] for mode in theirs}}
    for _ in range(rounds):
        times["lathe"].append(ours.once())
        for mode, one in theirs.items():
            times[mode].append(one.once())
    medians = {k: statistics.median(v) for k, v in times.items()}
    if not theirs:
        print(f"{name:20} lathe {medians['lathe']:8.4f} ms", flush=True)
        return None
    best = min(theirs, key=lambda mode: medians[mode])
    ratio = medians[best] / medians["lathe"]
    spread = statistics.quantiles(times["lathe"], n=10)
    others = ", ".join(f"{mode} {medians[mode]:.4f}" for mode in theirs)
    print(f"{name:20} lathe {medians['lathe']:8.4f} ms ({spread[0]:.4f} to {spread[-1]:.4f})  torch "
          f"{medians[best]:8.4f} ms ({others})  {ratio:.3f} x", flush=True)
    return ratio


def kernels(name, side, one, calls=5):
    """Prints what each kernel of a replay takes, and the time in which none runs."""
    from torch.profiler import ProfilerActivity, profile
    one.once()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            one.once()
        torch.cuda.synchronize()
    spans = [(e.time_range.start, e.time_range.end, e.name) for e in profiler.events()
             if e.device_type == torch.autograd.DeviceType.CUDA]
    found, busy, last = {}, 0.0, 0.0
    for begin, end, kernel in sorted(spans):
        times = found.setdefault(kernel, [])
        times.append(end - begin)
        busy += max(0.0, end - max(begin, last))
        last = max(last, end)
    print(f"{name} {side}: {len(spans) / calls:.0f} kernels, busy {busy / calls:.1f} us")
    for kernel, times in sorted(found.items(), key=lambda item: -sum(item[1])):
        print(f"  {sum(times) / calls:9.1f} us {len(times) / calls:5.0f} x "
              f"{statistics.median(times):8.2f}  {kernel[:110]}")
    sys.stdout.flush()


def network(case, graphs, modes, rounds, overlap):
    name, batch = case.split(":")
    base, batch = name.split(".")[0], int(batch)
    graph = os.path.join(graphs, f"{name}.onnx")
    engine = os.path.join(FOLDER, f"{name}.{batch}.lathe")
    x = models.example(base, batch, "cuda")
    first = "ids" if base == "bert_base" else "x"
    seconds = compiled(graph, engine, [f"--shape={first}={'x'.join(map(str, x.shape))}"])
    found = weights(graph, 1, FOLDER)
    module = load(models.network(base).cuda().eval(), found)
    want = load(models.network(base).cuda().eval().float(), found)(
        x if base == "bert_base" else x.float())
    half = error(module(x), want)
    ours = Ours(lathe.load(engine), [x], overlap=overlap)
    ours.once()
    mine = error(torch.from_dlpack(ours.result["y"]), want)
    bad = not mine <= 1.5 * half
    print(f"{case}: compiled in {seconds:.1f} s, {ours.context.counters['launches']} kernels, error "
          f"{mine:.2e}, torch's {half:.2e}{'  WRONG' if bad else ''}", flush=True)
    if base == "resnet50":
        module, x = module.to(memory_format=torch.channels_last), x.to(
            memory_format=torch.channels_last)
    theirs = rivals((base, batch), module, lambda m: m(x), modes)
    return lambda **more: race(case, ours, theirs, rounds, **more), bad


class FastLlama:
    """Merged weights, a cache written in place: the form that torch.compile is fastest with."""

    def __init__(self, found, sizes):
        self.s, s = sizes, sizes
        get = lambda i, name: found[f"layers.{i}.{name}"]
        join = lambda i, names: torch.cat([get(i, f"{n}.weight") for n in names])
        self.layers = [dict(n1=get(i, "norm1"), n2=get(i, "norm2"), qkv=join(i, "qkv"),
                            o=get(i, "o.weight"), gu=join(i, ("gate", "up")),
                            d=get(i, "down.weight")) for i in range(s.layers)]
        self.words, self.head, self.norm = (found[n] for n in ("words.weight", "head.weight", "norm"))
        pair = torch.arange(0, s.head, 2, device="cuda").float() / s.head
        angle = torch.arange(s.capacity, device="cuda").float()[:, None] / 500000.0 ** pair[None]
        self.cos, self.sin = angle.cos(), angle.sin()
        shape = (1, s.groups, s.capacity, s.head)
        self.keys, self.values = ([torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
                                   for _ in range(s.layers)] for _ in range(2))

    def __call__(self, ids, places):
        s, count, F = self.s, ids.shape[1], torch.nn.functional
        x = F.embedding(ids, self.words)
        cos, sin = self.cos[places], self.sin[places]
        mask = (torch.arange(s.capacity, device="cuda")[None, :] <= places[:, None])[None, None]

        def turn(y):
            a, b = y.float().chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(y.dtype)

        for w, keys, values in zip(self.layers, self.keys, self.values):
            y = F.rms_norm(x, (s.width,), w["n1"], 1e-5)
            parts = F.linear(y, w["qkv"]).view(1, count, -1, s.head).transpose(1, 2)
            q, k, v = parts.split([s.heads, s.groups, s.groups], 1)
            q, k = turn(q), turn(k)
            keys.index_copy_(2, places, k)
            values.index_copy_(2, places, v)
            if count == 1:
                a = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
            else:
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(1, count, -1), w["o"])
            g, u = F.linear(F.rms_norm(x, (s.width,), w["n2"], 1e-5), w["gu"]).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, w["d"])
        return F.linear(F.rms_norm(x[:, -1], (s.width,), self.norm, 1e-5), self.head)


LLAMA_STATE = {}


def llama_parts(graphs):
    """What both entries share: engine, weights, tokens, logits in float32, the rival."""
    if LLAMA_STATE:
        return LLAMA_STATE
    s, graph = models.LlamaSizes, os.path.join(graphs, "llama.dynamo.onnx")
    engine = os.path.join(FOLDER, "llama.lathe")
    options = [f"--dim=S=1:512:512", f"--dim=P=0:512:{s.capacity}", "--entry=prefill:S=512,P=0",
               "--entry=step:S=1"]
    options += [f"--donate={p}{i}_out={p}{i}" for i in range(s.layers) for p in "kv"]
    seconds = compiled(graph, engine, options)
    found = weights(graph, 1, FOLDER)
    torch.manual_seed(1)
    ids = torch.randint(0, s.words, (1, 513), device="cuda")
    with torch.device("meta"):
        exact = models.Llama()
    exact.load_state_dict({k: v.float() for k, v in found.items()}, assign=True)
    past = [torch.zeros(1, s.groups, 0, s.head, device="cuda") for _ in range(2 * s.layers)]
    with torch.device("cuda"):
        first, *present = exact(ids[:, :512], *past)
        second = exact(ids[:, 512:], *present)[0]
    del exact, present
    torch.cuda.empty_cache()
    LLAMA_STATE.update(engine=lathe.load(engine), seconds=seconds, ids=ids, wants=(first, second),
                       fast=FastLlama(found, s), states=[f"{p}{i}" for i in range(s.layers)
                                                              for p in "kv"])
    return LLAMA_STATE


def llama(case, graphs, modes, rounds, overlap):
    parts = llama_parts(graphs)
    step, ids, fast = case.endswith("step"), parts["ids"], parts["fast"]
    names = parts["engine"].states
    first, second = ids[:, :512].contiguous(), ids[:, 512:].contiguous()
    theirs = (second, torch.arange(512, 513, device="cuda")) if step else (
        first, torch.arange(512, device="cuda"))
    fast(first, torch.arange(512, device="cuda"))
    ours = Ours(parts["engine"], [second if step else first], case.rpartition(":")[2],
                dict.fromkeys(names, 512 if step else 0), overlap)
    if step:
        ours.context.run([first], "prefill", memory="device")
    ours.once()
    want = parts["wants"][step]
    half, mine = error(fast(*theirs), want), error(torch.from_dlpack(ours.result["logits"]), want)
    bad = not mine <= 1.5 * half
    launches = ours.context.counters["launches"]
    ours.once()
    print(f"{case}: compiled in {parts['seconds']:.1f} s, "
          f"{ours.context.counters['launches'] - launches} kernels, error {mine:.2e}, torch's "
          f"{half:.2e}{'  WRONG' if bad else ''}", flush=True)
    found = rivals(case, fast, lambda f: f(*theirs), modes)
    return lambda **more: race(case, ours, found, rounds, **more), bad


def warm(case, modes):
    """What rivals compile for a case, with weights of any values."""
    name, which = case.split(":")
    base = name.split(".")[0]
    if base == "llama":
        s, count = models.LlamaSizes, 1 if which == "step" else 512
        with torch.device("meta"):
            shapes = {k: v.shape for k, v in models.Llama().state_dict().items()}
        call = FastLlama({k: torch.empty(v, device="cuda", dtype=torch.bfloat16)
                          for k, v in shapes.items()}, s)
        given = (torch.zeros(1, count, device="cuda", dtype=torch.int64),
                 torch.arange(512, 513, device="cuda") if count == 1 else
                 torch.arange(512, device="cuda"))
    else:
        call, given = models.network(base).cuda().eval(), (models.example(base, int(which), "cuda"),)
        if base == "resnet50":
            last = dict(memory_format=torch.channels_last)
            call, given = call.to(**last), (given[0].to(**last),)
    for mode in modes:
        torch.compile(call, mode=mode, dynamic=False)(*given)


def name_of(key):
    """bert_base:32, llama.dynamo:step."""
    return key if isinstance(key, str) else f"{key[0]}:{key[1]}"


@contextlib.contextmanager
def turn(path, warmed):
    """A time in which no other program that was given this file times anything. Until it exists,
    rivals are compiled for which there is a file WARMEDname_of(key)."""
    if not path:
        yield
        return
    torch.cuda.synchronize()
    wanted = {case: one for case, one in RIVALS.items() if TUNED not in one} if warmed else {}
    open(f"{path}.{os.getpid()}", "w").close()  # ready
    while not os.path.exists(path):
        time.sleep(0.05)
        for key in [k for k in wanted if os.path.exists(warmed + name_of(k))]:
            busy = f"{path}-busy.{os.getpid()}"
            open(busy, "w").close()
            wanted.pop(key).add(TUNED)
            torch.cuda.synchronize()
            os.remove(busy)
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs")
    parser.add_argument("cases", nargs="*", default=CASES + LLAMA)
    parser.add_argument("--quick", action="store_true", help="the default mode of torch.compile alone")
    parser.add_argument("--warm", metavar="PREFIX",
                        help="only fill the cache of max-autotune and say so in PREFIXname:size")
    parser.add_argument("--warmed", metavar="PREFIX", help="with --go: also max-autotune for cases "
                        "that another program has filled the cache for")
    parser.add_argument("--go", help="prepare, wait for this file, and time while holding its lock: "
                        "several programs prepare side by side and take turns")
    parser.add_argument("--alone", action="store_true", help="no rival: results and times of lathe")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--no-overlap", action="store_true")
    parser.add_argument("--kernels", action="store_true",
                        help="also what each kernel takes, under the profiler, after the race")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch._dynamo.config.cache_size_limit = 64
    if options.warm:
        for case in options.cases:
            warm(case, [TUNED])
            name, size = case.split(":")
            key = case if name.startswith("llama") else (name.split(".")[0], size)
            open(options.warm + name_of(key), "w").close()
        return 0
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    prepared, ratios, bad = {}, {}, False
    modes = [] if options.alone else [DEFAULT] if options.quick or options.warmed else [DEFAULT, TUNED]
    for case in options.cases:
        try:
            run = llama if case.startswith("llama") else network
            prepared[case], wrong = run(case, options.graphs, modes, options.rounds,
                                        not options.no_overlap)
            bad |= wrong
        except Exception as problem:
            print(f"{case}: FAILED {str(problem)[:600]}", flush=True)
            bad = True
    with turn(options.go, options.warmed):
        for case, measure in prepared.items():
            ratio = measure()
            if ratio:
                ratios[case] = ratio
    for is_llama, (mean, least) in BARS.items():
        group = [r for c, r in ratios.items() if c.startswith("llama") == is_llama]
        if group:
            middle = statistics.geometric_mean(group)
            missed = middle < mean or min(group) < least
            bad |= missed
            print(f"{'Llama' if is_llama else 'networks'}: mean {middle:.3f} (bar {mean}), least "
                  f"{min(group):.3f} (bar {least}){'  MISSED' if missed else ''}")
    if options.kernels:
        with turn(options.go, None):  # behind those who wait for their race
            for measure in prepared.values():
                measure(by_kernel=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
