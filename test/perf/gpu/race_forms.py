# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races small graphs that whole models are slow by against torch, eager and compiled, and a copy of the same bytes.

    race_forms.py prepare FOLDER [NAME...]     without a GPU: exports the graphs, compiles engines
    race_forms.py run FOLDER [--quick] [--before=FOLDER] [NAME...]   on a GPU with torch: checks each result against
                                          float64, then times graph replays in turn; --quick: no torch.compile;
                                          --before: engines of another build beside ours

any       T5 in f16: a residual, whether anything in it is infinite, a clamp by that; without and with the norm behind it
reduce    whole tensors of 1.5 M to 64 M elements; few results along first, last and middle axes; argmax
norm      few long rows: group, instance and layer norm, softmax, weight norm
short     norms and softmax over rows of 32 to 160 elements
depthwise channels last, as models have them, with strides, asymmetric pads and products around
conv1d    a grouped convolution of many taps

Exit code 1 when a result is wrong.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(HERE, "..", "..", "..")))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
from generated import timed  # noqa: E402

MILLION = 1 << 20
LENGTHS = (32, 49, 64, 96, 144, 160)


def forms():
    """name -> (function of its inputs, their shapes); everything is f16, the last inputs are often weights."""
    import torch
    import torch.nn.functional as F
    most = torch.finfo(torch.float16).max

    def clamped(h):
        c = torch.where(torch.isinf(h).any(), most - 1000, most)
        return torch.clamp(h, min=-c, max=c)

    def t5_norm(h, w):
        return w * (h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(h.dtype)

    def images(convolve):
        return lambda x, *w: convolve(x.permute(0, 3, 1, 2), *w).permute(0, 2, 3, 1)

    def depthwise(stride, pad):
        return images(lambda x, w: F.conv2d(x, w, stride=stride, padding=pad, groups=x.shape[1]))

    def inverted(x, a, d, b):
        x = F.relu6(F.conv2d(x, a))
        x = F.relu6(F.conv2d(F.pad(x, (0, 1, 0, 1)), d, stride=2, groups=x.shape[1]))
        return F.conv2d(x, b)
    out = {
        "any": (lambda a, b: clamped(a + b), [(4, 512, 768), (4, 512, 768)]),
        "any_norm": (lambda a, b, w: (lambda h: (h, t5_norm(h, w)))(clamped(a + b)), [(4, 512, 768), (4, 512, 768), (768,)]),
        "any_ffn": (lambda x, r, u, d, w: (lambda h: (h, t5_norm(h, w)))(clamped(r + F.linear(F.relu(F.linear(x, u)), d))),
                    [(4, 512, 768), (4, 512, 768), (1024, 768), (768, 1024), (768,)]),
        "reduce_sum_1.5M": (lambda x: x.sum(), [(1536, 1024)]),
        "reduce_max_16M": (lambda x: x.max(), [(16, MILLION)]),
        "reduce_mean_64M": (lambda x: x.mean(), [(64, MILLION)]),
        "reduce_argmax_4M": (lambda x: x.argmax(-1), [(4, MILLION)]),
        "reduce_rows_8": (lambda x: x.sum(-1), [(8, 4 * MILLION)]),
        "reduce_channels": (lambda x: x.mean((0, 2, 3)), [(64, 256, 56, 56)]),
        "reduce_columns_16": (lambda x: x.sum(0), [(MILLION, 16)]),
        "reduce_columns_128": (lambda x: (x * x).sum((0, 1)), [(768, 48, 128)]),
        "reduce_middle": (lambda x: x.amax((0, 2)), [(32, 64, 2048, 8)]),
        "norm_group512": (lambda x, w, b: F.gelu(F.group_norm(x, 512, w, b)), [(4, 512, 9599), (512,), (512,)]),
        "norm_group32": (lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), [(2, 128, 512, 512), (128,), (128,)]),
        "norm_instance": (lambda x: F.instance_norm(x), [(1, 16, 1024, 1024)]),
        "norm_layer": (lambda x: F.layer_norm(x, x.shape[1:]), [(2, 4 * MILLION)]),
        "norm_softmax": (lambda x: torch.softmax(x, -1), [(4, 4 * MILLION)]),
        "norm_softmax_columns": (lambda x: torch.softmax(x, 1), [(4, 9600, 96)]),
        "norm_weight": (lambda v, g: torch._weight_norm(v, g, 2), [(768, 48, 128), (1, 1, 128)]),
        "depthwise_7x7": (depthwise(1, 3), [(32, 28, 28, 384), (384, 1, 7, 7)]),
        "depthwise_7x7_56": (depthwise(1, 3), [(32, 56, 56, 192), (192, 1, 7, 7)]),
        "depthwise_3x3": (depthwise(1, 1), [(32, 56, 56, 144), (144, 1, 3, 3)]),
        "depthwise_3x3_s2": (depthwise(2, 1), [(32, 112, 112, 96), (96, 1, 3, 3)]),
        "depthwise_5x5_s2": (depthwise(2, 2), [(32, 56, 56, 144), (144, 1, 5, 5)]),
        "depthwise_inverted": (images(inverted), [(32, 112, 112, 16), (96, 16, 1, 1), (96, 1, 3, 3), (24, 96, 1, 1)]),
        "conv1d_grouped": (lambda x, w: F.conv1d(x, w, padding=64, groups=16), [(4, 768, 499), (768, 48, 128)]),
    }
    for n in LENGTHS:
        rows = 16 * MILLION // n // 8 * 8
        out[f"short_layernorm_{n}"] = (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), [(rows, n), (n,), (n,)])
        out[f"short_softmax_{n}"] = (lambda x: torch.softmax(x, -1), [(rows, n)])
    return out


# Inputs that are weights: constants of the graph.
WEIGHTS = {"any_ffn": (2, 3, 4), "any_norm": (2,), "conv1d_grouped": (1,)}


def weights_of(name, shapes):
    if name.startswith(("depthwise", "short_layernorm", "norm_group")):
        return tuple(range(1, len(shapes)))
    return WEIGHTS.get(name, ())


def operands(name, shapes):
    """The same on every machine."""
    import torch
    generator = torch.Generator().manual_seed(1)
    made = []
    for i, shape in enumerate(shapes):
        x = torch.randn(*shape, generator=generator)
        if i in weights_of(name, shapes) and len(shape) > 1:
            x /= (x.numel() / shape[0]) ** 0.5
        made.append(x.half())
    return made


def chosen(names):
    return {k: v for k, v in forms().items() if not names or any(k.startswith(n) for n in names)}


def prepare(folder, names):
    import torch
    lathe = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
    os.makedirs(folder, exist_ok=True)
    for name, (function, shapes) in chosen(names).items():
        tensors, fixed = operands(name, shapes), weights_of(name, shapes)
        path = os.path.join(folder, name)

        class Form(torch.nn.Module):
            def __init__(self):
                super().__init__()
                for i in fixed:
                    self.register_buffer(f"w{i}", tensors[i])

            def forward(self, *given):
                given = iter(given)
                return function(*(getattr(self, f"w{i}") if i in fixed else next(given) for i in range(len(shapes))))
        given = tuple(t for i, t in enumerate(tensors) if i not in fixed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(Form(), given, path + ".onnx", dynamo=False, opset_version=17,
                              input_names=[f"x{i}" for i in range(len(given))])
        subprocess.run([lathe, "compile", path + ".onnx", "--target=sm_90a", "-o", path + ".lathe", f"--remarks={path}.remarks"],
                       check=True)
        kernels = json.loads(subprocess.run([lathe, "inspect", path + ".lathe", "--kernels", "--json"], check=True,
                                            capture_output=True).stdout)["plans"][0]["kernels"]
        found = [v["config"] if isinstance(v, dict) else v for k in kernels for v in k.get("variants", k.get("configs", []))]
        print(f"{name}: {len(kernels)} kernels: {', '.join(map(str, found))}", flush=True)


class Replays:
    """Device time of one replay of what `call` launches, by events."""

    def __init__(self, call):
        import torch
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        self.keep, self.graph = call, torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = call()

    def once(self):
        import torch
        torch.cuda.synchronize()
        begin, end = timed(self.graph)
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


class Ours:
    """The same of an engine's graph."""

    def __init__(self, path, inputs):
        import lathe
        self.context, self.inputs, self.total = lathe.load(path).context("cuda:0"), inputs, 0.0
        self.context.time_graphs()

    def once(self):
        self.result = self.context.run(self.inputs, memory="device")
        total = self.context.counters["graph_seconds"]
        spent, self.total = total - self.total, total
        return spent * 1e3


def worst(got, want):
    """Largest error in units of the largest value, and of the mean."""
    e = (got.double() - want.double()).abs()
    return float((e / want.double().abs().clamp_min(float(want.double().abs().mean()))).max().nan_to_num(1e9))


def run(folder, names, quick, before):
    import torch
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    bad = 0
    with torch.no_grad():
        for name, (function, shapes) in chosen(names).items():
            tensors = [t.cuda() for t in operands(name, shapes)]
            given = [t for i, t in enumerate(tensors) if i not in weights_of(name, shapes)]
            as_list = lambda y: list(y) if isinstance(y, tuple) else [y]
            want = as_list(function(*(t.double() if not name.startswith("any") else t.float() for t in tensors)))
            eager = as_list(function(*tensors))
            try:
                ours = Ours(os.path.join(folder, name + ".lathe"), given)
                ours.once()
                again = [torch.from_dlpack(v).clone() for v in ours.result.values()]
                ours.once()
                got = [torch.from_dlpack(v) for v in ours.result.values()]
            except Exception as problem:
                print(f"{name:22} FAILED {str(problem)[:300]}", flush=True)
                bad += 1
                continue
            same = all(torch.equal(a, b) for a, b in zip(again, got))
            mine = max(worst(g.reshape(w.shape), w) for g, w in zip(got, want))
            theirs = max(worst(g, w) for g, w in zip(eager, want))
            right = same and mine <= max(2.0 ** -9, 1.5 * theirs)
            bad += not right
            moved = sum(t.numel() * t.element_size() for t in tensors + eager)
            source = torch.empty(moved // 2, device="cuda", dtype=torch.uint8)
            target = torch.empty_like(source)
            sides = {"lathe": ours, "copy": Replays(lambda: target.copy_(source)), "eager": Replays(lambda: function(*tensors))}
            if not quick:
                torch._dynamo.reset()
                fast = torch.compile(function, dynamic=False)
                try:
                    sides["compiled"] = Replays(lambda: fast(*tensors))
                except Exception as problem:  # what cannot is no rival
                    print(f"{name}: torch.compile: {str(problem)[:200]}")
            other = before and os.path.join(before, name + ".lathe")
            if other and os.path.exists(other):
                sides["before"] = Ours(other, given)
            times = {k: [] for k in sides}
            order = list(sides.items())
            for i in range(25):
                random.Random(i).shuffle(order)  # none stands behind the same neighbour each time
                for k, one in order:
                    t = one.once()
                    if i > 4:
                        times[k].append(t * 1e3)
            t = {k: statistics.median(v) for k, v in times.items()}
            rival = min(v for k, v in t.items() if k in ("eager", "compiled"))
            print(f"{name:22} " + " ".join(f"{k} {v:8.1f}" for k, v in t.items()) + f" us  {moved / t['lathe'] / 1e6:5.2f} TB/s "
                  f"{t['copy'] / t['lathe']:.2f} of copy {rival / t['lathe']:.2f} x torch, error {mine:.1e}, eager's {theirs:.1e}"
                  f"{'' if same else '  DIFFERS FROM RUN TO RUN'}{'' if right else '  WRONG'}", flush=True)
            del ours, sides, tensors, want, eager, got, again
            torch.cuda.empty_cache()
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    rest = [a for a in sys.argv[3:] if not a.startswith("--")]
    before = [a.removeprefix("--before=") for a in sys.argv[3:] if a.startswith("--before=")]
    if sys.argv[1] == "prepare":
        sys.exit(prepare(sys.argv[2], rest))
    sys.exit(int(run(sys.argv[2], rest, "--quick" in sys.argv, before[0] if before else None) > 0))
