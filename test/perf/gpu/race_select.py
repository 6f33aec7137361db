# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races ops that choose elements by their values, the geometry of detectors and STFT against torch.

    race_select.py prepare FOLDER [NAME...]     without a GPU: writes the graphs and compiles engines for sm_90a
    race_select.py run FOLDER [--check] [--before=FOLDER] [NAME...]   on a GPU with torch, python-frontend and the
                                          runtime library: checks each result, then times both sides in turn;
                                          --check: no times; --before: engines of another build beside ours

topk      1 x 131072 k 50, 4096 x 50257 k 50, 8192 x 128 k 8, and lengths between them
sort      2^24 elements with their places; torch's is CUB's radix sort
nonzero   2^24 floats, half of them 0; also against a copy of the same bytes
unique    2^20 integers of 65536 values: values, inverse, counts
nms       8400 boxes, 80 classes; roi_align, deform_conv: rivals are torchvision's, where it is installed
stft      frames of 400 to 2048 samples

Each result is compared with what the op is defined to give: places exactly, ties to the lower one, NaN greatest; on
numbers at random and on few values with NaN, infinities and zeros of either sign. Replays of graphs are timed where
both sides have one; where a size depends on data, calls until the host knows it, and the kernels' own time beside it.
Exit code 1 when a result is wrong.
"""
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(HERE, "..", "..", "..")))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
from race_forms import Ours, Replays  # noqa: E402

MILLION = 1 << 20
ROUNDS, SLOW_ROUNDS, SLOW = 25, 3, 0.2  # seconds of a call beyond which few rounds must do
BOXES, CLASSES, OVERLAP, LEAST, MOST = 8400, 80, 0.5, 0.9, 100


# ---- Graphs -------------------------------------------------------------------------------------------------

def model(path, nodes, inputs, outputs, constants=()):
    """`inputs`: name -> (type, shape); `outputs`: name -> (type, rank)."""
    from onnx import TensorProto, helper, numpy_helper, save

    def value(name, kind, shape):
        return helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
    graph = helper.make_graph(nodes, "select", [value(n, *v) for n, v in inputs.items()],
                              [value(n, kind, [None] * rank) for n, (kind, rank) in outputs.items()],
                              [numpy_helper.from_array(v, n) for n, v in dict(constants).items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)


def node(kind, inputs, outputs, **attributes):
    from onnx import helper
    return helper.make_node(kind, inputs, outputs, **attributes)


def random_floats(shape, hard):
    """On the GPU; `hard`: few values, and all that compares in its own way."""
    import torch
    generator = torch.Generator("cuda").manual_seed(1)
    if not hard:
        return torch.randn(shape, generator=generator, device="cuda")
    x = torch.randint(-100, 100, shape, generator=generator, device="cuda").float()
    special = torch.tensor([float("nan"), -0.0, float("inf"), -float("inf")], device="cuda")
    which = torch.randint(0, 400, shape, generator=generator, device="cuda")
    return torch.where(which < 4, special[which.clamp_max(3)], x)


def unique_keys(x):
    """Integers that order as the elements of the last axis do, ties by place: no two are equal."""
    import torch
    bits = torch.where(x == 0, 0.0, x).view(torch.int32)
    key = torch.where(bits < 0, bits ^ 0x7fffffff, bits)
    key = torch.where(x.isnan(), 0x7fffffff, key).long()
    return key * 2**32 + (2**32 - 1 - torch.arange(x.shape[-1], device=x.device))


class Form:
    bar = 1.0        # of the rival's time
    counted = False  # sizes of results depend on data: the host waits for them
    roughly = False  # results are sums
    has_rival = staticmethod(lambda: True)


class TopK(Form):
    def __init__(self, rows, length, count):
        self.rows, self.length, self.count = rows, length, count

    def save(self, path):
        import numpy as np
        model(path, [node("TopK", ["x", "k"], ["v", "i"])], {"x": ("FLOAT", [self.rows, self.length])},
              {"v": ("FLOAT", 2), "i": ("INT64", 2)}, {"k": np.array([self.count], np.int64)})

    def inputs(self, hard):
        return [random_floats((self.rows, self.length), hard)]

    def wanted(self, x):
        import torch
        places = torch.cat([torch.topk(unique_keys(part), self.count).indices for part in x.split(1024)])
        return [x.gather(1, places), places]

    def rival(self, x):
        import torch
        return torch.topk(x, self.count)


class Sort(TopK):
    bar = 1.1

    def __init__(self, length):
        super().__init__(1, length, length)

    def save(self, path):
        import numpy as np
        model(path, [node("TopK", ["x", "k"], ["v", "i"], largest=0)], {"x": ("FLOAT", [self.length])},
              {"v": ("FLOAT", 1), "i": ("INT64", 1)}, {"k": np.array([self.length], np.int64)})

    def inputs(self, hard):
        return [random_floats((self.length,), hard)]

    def wanted(self, x):
        import torch
        keys = unique_keys(x)
        place = torch.arange(self.length, device=x.device)
        places = torch.sort(torch.bitwise_right_shift(keys, 32) * 2**32 + place).indices
        return [x[places], places]

    def rival(self, x):
        import torch
        return torch.sort(x, stable=True)


class NonZero(Form):
    counted = True

    def __init__(self, length):
        self.length = length

    def save(self, path):
        model(path, [node("NonZero", ["x"], ["i"])], {"x": ("FLOAT", [self.length])}, {"i": ("INT64", 2)})

    def inputs(self, hard):
        import torch
        x = random_floats((self.length,), hard)
        return [torch.where(x == 50, x, 0.0) if hard else x.clamp_min(0)]

    def wanted(self, x):
        import numpy as np
        import torch
        return [torch.from_numpy(np.stack(np.nonzero(x.cpu().numpy()))).cuda()]

    def rival(self, x):
        import torch
        return torch.nonzero(x)

    def fixed(self, x, found):
        """A rival that a graph can hold: it is told how many there are."""
        import torch
        return torch.nonzero_static(x, size=found[0].shape[1])


class Unique(Form):
    counted = True

    def __init__(self, length, values):
        self.length, self.values = length, values

    def save(self, path):
        model(path, [node("Unique", ["x"], ["y", "", "inverse", "counts"])], {"x": ("INT32", [self.length])},
              {"y": ("INT32", 1), "inverse": ("INT64", 1), "counts": ("INT64", 1)})

    def inputs(self, hard):
        import torch
        generator = torch.Generator("cuda").manual_seed(1)
        top = 3 if hard else self.values
        return [torch.randint(-top, top, (self.length,), generator=generator, device="cuda", dtype=torch.int32)]

    def wanted(self, x):
        import numpy as np
        import torch
        y, inverse, counts = np.unique(x.cpu().numpy(), return_inverse=True, return_counts=True)
        return [torch.from_numpy(v).cuda() for v in (y, inverse.astype(np.int64), counts.astype(np.int64))]

    def rival(self, x):
        import torch
        return torch.unique(x, return_inverse=True, return_counts=True)


def torchvision_ops():
    """None where it is not installed; then there is no rival."""
    try:
        import torchvision
        return torchvision.ops
    except ImportError:
        return None


class Nms(Form):
    """As YOLO has it: every box with every class."""
    counted = True

    def save(self, path):
        import numpy as np
        model(path, [node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["i"])],
              {"boxes": ("FLOAT", [1, BOXES, 4]), "scores": ("FLOAT", [1, CLASSES, BOXES])}, {"i": ("INT64", 2)},
              {"most": np.array([MOST], np.int64), "overlap": np.array([OVERLAP], np.float32),
               "least": np.array([LEAST], np.float32)})

    def inputs(self, hard):
        import torch
        generator = torch.Generator("cuda").manual_seed(1)
        corner = torch.rand(BOXES, 2, generator=generator, device="cuda") * (20 if hard else 600)
        size = 20 + torch.rand(BOXES, 2, generator=generator, device="cuda") * 60
        scores = torch.rand(1, CLASSES, BOXES, generator=generator, device="cuda")
        return [torch.cat([corner, corner + size], 1)[None], (scores * 64).round() / 64 if hard else scores]

    def wanted(self, boxes, scores):
        """All classes at once, box after box in the order of scores, ties to the lower place."""
        import torch
        order = torch.topk(unique_keys(scores[0]), BOXES).indices
        most = int((scores[0] > LEAST).sum(1).max())
        kept = torch.zeros(CLASSES, BOXES, dtype=torch.bool, device="cuda")
        counts = torch.zeros(CLASSES, dtype=torch.long, device="cuda")
        ranked = boxes[0][order[:, :most]]
        area = (ranked[..., 2] - ranked[..., 0]) * (ranked[..., 3] - ranked[..., 1])
        free = torch.gather(scores[0], 1, order[:, :most]) > LEAST
        for i in range(most):
            take = free[:, i] & (counts < MOST)
            kept[:, i], counts = take, counts + take
            low = torch.maximum(ranked[:, :, :2], ranked[:, i:i + 1, :2])
            high = torch.minimum(ranked[:, :, 2:], ranked[:, i:i + 1, 2:])
            common = (high - low).clamp_min(0).prod(-1)
            hides = common / (area + area[:, i:i + 1] - common) > OVERLAP
            free &= ~(hides & take[:, None])
        klass, rank = kept.nonzero(as_tuple=True)
        return [torch.stack([torch.zeros_like(klass), klass, order[klass, rank]], 1)]

    def rival(self, boxes, scores):
        """Candidates of all classes; it does not stop at MOST. One call of nms on boxes moved apart by class takes
        six times as long."""
        import torch
        klass, place = (scores[0] > LEAST).nonzero(as_tuple=True)
        kept = torchvision_ops().batched_nms(boxes[0][place], scores[0][klass, place], klass, OVERLAP)
        return torch.stack([klass[kept], place[kept]], 1)

    has_rival = staticmethod(lambda: torchvision_ops() is not None)


class RoiAlign(Form):
    """The box head of a Faster R-CNN: 1000 regions of a 200 x 272 map of 256 channels."""
    roughly, size, sampling, scale = True, 7, 2, 0.25

    def save(self, path):
        model(path, [node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=self.size, output_width=self.size,
                          sampling_ratio=self.sampling, spatial_scale=self.scale)],
              {"x": ("FLOAT", [1, 256, 200, 272]), "rois": ("FLOAT", [1000, 4]), "batch": ("INT64", [1000])},
              {"y": ("FLOAT", 4)})

    def inputs(self, hard):
        import torch
        generator = torch.Generator("cuda").manual_seed(1)
        corner = torch.rand(1000, 2, generator=generator, device="cuda") * torch.tensor([900.0, 600.0], device="cuda")
        size = 8 + torch.rand(1000, 2, generator=generator, device="cuda") * (600 if hard else 150)
        x = torch.randn(1, 256, 200, 272, generator=generator, device="cuda")
        return [x, torch.cat([corner, corner + size], 1), torch.zeros(1000, dtype=torch.long, device="cuda")]

    def wanted(self, x, rois, batch):
        import torch
        height, width = x.shape[2:]
        n = self.size * self.sampling
        steps = (torch.arange(n, device="cuda") + 0.5) / n
        part = rois * self.scale - 0.5
        result = []
        for low, high in zip(part[:, :2].split(50), part[:, 2:].split(50)):
            at = low[:, :, None] + (high - low)[:, :, None] * steps  # [rois, x and y, n]
            px, py = at[:, 0][:, None, :].expand(-1, n, -1), at[:, 1][:, :, None].expand(-1, -1, n)
            outside = (px < -1) | (px > width) | (py < -1) | (py > height)
            grid = torch.stack([px.clamp(0, width - 1) * 2 / (width - 1) - 1, py.clamp(0, height - 1) * 2 / (height - 1) - 1], -1)
            image = x.double().expand(1, -1, -1, -1)
            y = torch.nn.functional.grid_sample(image, grid.double().reshape(1, -1, n, 2), align_corners=True)
            y = y.reshape(x.shape[1], -1, n, n).transpose(0, 1) * ~outside[:, None]
            result.append(torch.nn.functional.avg_pool2d(y, self.sampling))
        return [torch.cat(result)]

    def rival(self, x, rois, batch):
        import torch
        whole = torch.cat([batch[:, None].float(), rois], 1)
        return torchvision_ops().roi_align(x, whole, self.size, self.scale, self.sampling, True)

    has_rival = staticmethod(lambda: torchvision_ops() is not None)


class DeformConv(Form):
    """A 3 x 3 of a deformable ResNet's third stage."""
    roughly, channels, side = True, 128, 56

    def save(self, path):
        c, s = self.channels, self.side
        model(path, [node("DeformConv", ["x", "w", "offset", "", "mask"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
              {"x": ("FLOAT", [4, c, s, s]), "w": ("FLOAT", [c, c, 3, 3]), "offset": ("FLOAT", [4, 18, s, s]),
               "mask": ("FLOAT", [4, 9, s, s])}, {"y": ("FLOAT", 4)})

    def inputs(self, hard):
        import torch
        generator = torch.Generator("cuda").manual_seed(1)
        made = [torch.randn(*shape, generator=generator, device="cuda")
                for shape in ((4, self.channels, self.side, self.side), (self.channels, self.channels, 3, 3),
                              (4, 18, self.side, self.side), (4, 9, self.side, self.side))]
        made[1] /= (9 * self.channels) ** 0.5
        made[2] *= 40 if hard else 1
        made[3] = made[3].sigmoid()
        return made

    def wanted(self, x, w, offset, mask):
        import torch
        s = self.side
        x, w, offset, mask = (t.double() for t in (x, w, offset, mask))
        row, column = torch.meshgrid(*(torch.arange(s, device="cuda", dtype=torch.double),) * 2, indexing="ij")
        sum_ = 0
        for tap in range(9):
            y_at = row + tap // 3 - 1 + offset[:, 2 * tap]
            x_at = column + tap % 3 - 1 + offset[:, 2 * tap + 1]
            grid = torch.stack([x_at, y_at], -1) * 2 / (s - 1) - 1
            taken = torch.nn.functional.grid_sample(x, grid, align_corners=True, padding_mode="zeros") * mask[:, tap:tap + 1]
            sum_ = sum_ + torch.einsum("nchw,oc->nohw", taken, w[:, :, tap // 3, tap % 3])
        return [sum_]

    def rival(self, x, w, offset, mask):
        return torchvision_ops().deform_conv2d(x, offset, w, padding=1, mask=mask)

    has_rival = staticmethod(lambda: torchvision_ops() is not None)


class Stft(Form):
    """Frames of a signal behind a Hann window, as they are, without padding."""
    roughly, bar = True, 1.2

    def __init__(self, batch, length, frame, step):
        self.batch, self.length, self.frame, self.step = batch, length, frame, step

    def save(self, path):
        import numpy as np
        model(path, [node("STFT", ["x", "step", "window"], ["y"], onesided=1)],
              {"x": ("FLOAT", [self.batch, self.length, 1])}, {"y": ("FLOAT", 4)},
              {"step": np.array(self.step, np.int64), "window": np.hanning(self.frame).astype(np.float32)})

    def inputs(self, hard):
        return [random_floats((self.batch, self.length, 1), False) * (1000 if hard else 1)]

    def frames(self, x, window):
        """[batch, frames, bins, 2]"""
        import torch
        made = torch.stft(x[..., 0], self.frame, self.step, window=window, center=False, return_complex=True)
        return torch.view_as_real(made).transpose(1, 2)

    @functools.cached_property
    def window(self):
        import numpy as np
        import torch
        return torch.from_numpy(np.hanning(self.frame).astype(np.float32)).cuda()

    def wanted(self, x):
        return [self.frames(x.double(), self.window.double())]

    def rival(self, x):
        return self.frames(x, self.window)


FORMS = {
    "topk_1x131072": TopK(1, 131072, 50),
    "topk_4096x50257": TopK(4096, 50257, 50),
    "topk_8192x128": TopK(8192, 128, 8),
    "topk_16x1000000": TopK(16, 1000000, 100),
    "topk_64x8400": TopK(64, 8400, 300),
    "topk_100000x32": TopK(100000, 32, 4),
    "sort_16M": Sort(16 * MILLION),
    "sort_100000": Sort(100000),
    "nonzero_16M": NonZero(16 * MILLION),
    "nonzero_100000": NonZero(100000),
    "unique_1M": Unique(MILLION, 32768),
    "unique_100000": Unique(100000, 32768),
    "nms_8400x80": Nms(),
    "roi_align": RoiAlign(),
    "deform_conv": DeformConv(),
    "stft_160000": Stft(1, 160000, 512, 160),
    "stft_8x480000": Stft(8, 480000, 400, 160),
    "stft_1M_2048": Stft(1, MILLION, 2048, 512),
    "stft_16x160000_1024": Stft(16, 160000, 1024, 256),
}


def chosen(names):
    return {k: v for k, v in FORMS.items() if not names or any(k.startswith(n) for n in names)}


def prepare(folder, names):
    lathe = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name, form in chosen(names).items():
        path = os.path.join(folder, name)
        form.save(path + ".onnx")
        done = subprocess.run([lathe, "compile", path + ".onnx", "--target=sm_90a", "-o", path + ".lathe"],
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            failed += 1
            print(f"{name}: {done.stderr.strip()[:400]}", flush=True)
            continue
        kernels = json.loads(subprocess.run([lathe, "inspect", path + ".lathe", "--kernels", "--json"], check=True,
                                            capture_output=True).stdout)["plans"][0]["kernels"]
        found = [v["config"] if isinstance(v, dict) else v for k in kernels for v in k.get("variants", k.get("configs", []))]
        print(f"{name}: {len(kernels)} kernels: {', '.join(map(str, found))}", flush=True)
    return failed > 0


# ---- On a GPU -----------------------------------------------------------------------------------------------

class Calls:
    """A call that ends when the host knows the sizes of its results; in ms."""

    def __init__(self, call):
        self.call = call

    def once(self):
        import torch
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self.result = self.call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3


def tensors(outcome):
    import torch
    return [torch.from_dlpack(v) for v in outcome.values()]


def problem_of(form, got, want, theirs):
    """What is wrong, or nothing. Sums: an error no greater than half as much again as the rival's is right."""
    import torch

    def error_of(x, wanted):
        return float((x.double() - wanted).abs().max() / wanted.abs().max())
    for i, (g, w) in enumerate(zip(got, want)):
        if g.shape != w.shape:
            return f"result {i} has the shape {tuple(g.shape)}, not {tuple(w.shape)}"
        if form.roughly:
            error, other = error_of(g, w), error_of(theirs, w) if theirs is not None else 0
            if not error < max(2e-5, 1.5 * other):
                return f"result {i} is off by {error:.1e} of the greatest value, the rival's by {other:.1e}"
        elif not torch.equal(g.nan_to_num(7e30) if g.is_floating_point() else g,
                             w.nan_to_num(7e30) if w.is_floating_point() else w):
            at = (g != w).nonzero()[0].tolist()
            return f"result {i} at {at} is {g[tuple(at)]}, not {w[tuple(at)]}; {int((g != w).sum())} differ"
    return ""


def kernel_time(ours):
    """Of one run, all kernels, in us; and the longest ones."""
    with ours.context.profile() as profile:
        for _ in range(3):
            ours.context.run(ours.inputs, memory="device")
    rows = sorted(((1e6 * r.seconds / 3, r.config) for r in profile.rows), reverse=True)
    return sum(t for t, _ in rows), ", ".join(f"{config} {t:.1f}" for t, config in rows[:5])


def race(name, form, folder, before):
    import torch
    given = form.inputs(hard=False)
    ours = Ours(os.path.join(folder, name + ".lathe"), given)
    ours.once()
    found = tensors(ours.result)
    captured = not form.counted
    ours.context.time_graphs(captured)  # calls are timed from outside, with the graphs of their segments
    side = Replays if captured else Calls
    sides = {"lathe": ours if captured else Calls(lambda: ours.context.run(given, memory="device"))}
    if form.has_rival():
        sides["torch"] = side(lambda: form.rival(*given))
    moved = sum(t.numel() * t.element_size() for t in given + found)
    source = torch.empty(moved // 2, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    sides["copy"] = Replays(lambda: target.copy_(source))
    if hasattr(form, "fixed"):
        sides["fixed"] = Replays(lambda: form.fixed(given[0], found))
    other = before and os.path.join(before, name + ".lathe")
    if other and os.path.exists(other):
        was = Ours(other, given)
        was.context.time_graphs(captured)
        sides["before"] = was if captured else Calls(lambda: was.context.run(given, memory="device"))
    times, order = {k: [] for k in sides}, list(sides.items())
    begin = time.perf_counter()
    sides["lathe"].once()
    rounds = SLOW_ROUNDS if time.perf_counter() - begin > SLOW else ROUNDS
    for i in range(rounds):
        random.Random(i).shuffle(order)  # none stands behind the same neighbour each time
        for k, one in order:
            t = one.once()
            if i > rounds // 6:
                times[k].append(t * 1e3)
    t = {k: statistics.median(v) for k, v in times.items()}
    kernels, longest = kernel_time(ours)
    line = " ".join(f"{k} {v:.1f}" for k, v in t.items()) + f" us{'' if captured else ' a call'}, kernels {kernels:.1f} us ({longest})"
    verdict = "no rival: torchvision is not installed"
    if "torch" in t:
        ratio = t["lathe"] / t["torch"]
        verdict = f"{ratio:.2f} x torch, bar {form.bar}"
    if "fixed" in t:
        verdict += f"; kernels {kernels / t['fixed']:.2f} x torch's with a known count"
    return line, f"{verdict}; {100 * t['copy'] / kernels:.0f} % of copy by kernels"


def run(folder, names, check, before):
    import torch
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "torchvision",
          "installed" if torchvision_ops() else "not installed", flush=True)
    bad, verdicts = 0, []
    for name, form in chosen(names).items():
        try:
            for hard in (True, False):
                given = form.inputs(hard)
                ours = Ours(os.path.join(folder, name + ".lathe"), given)
                ours.once()
                theirs = form.rival(*given) if form.roughly and form.has_rival() else None
                problem = problem_of(form, tensors(ours.result), form.wanted(*given), theirs)
                if problem:
                    raise ValueError(("few values: " if hard else "") + problem)
                del ours, given
            if not check:
                line, verdict = race(name, form, folder, before)
                verdicts.append((name, verdict))
                print(f"{name:18} {line}", flush=True)
            else:
                print(f"{name:18} right", flush=True)
        except Exception as wrong:
            print(f"{name:18} FAILED {str(wrong)[:300]}", flush=True)
            bad += 1
        torch.cuda.empty_cache()
    for name, verdict in verdicts:
        print(f"{name:18} {verdict}", flush=True)
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    rest = [a for a in sys.argv[3:] if not a.startswith("--")]
    given_before = [a.removeprefix("--before=") for a in sys.argv[3:] if a.startswith("--before=")]
    if sys.argv[1] == "prepare":
        sys.exit(prepare(sys.argv[2], rest))
    sys.exit(int(run(sys.argv[2], rest, "--check" in sys.argv, given_before[0] if given_before else None) > 0))
