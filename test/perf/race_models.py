# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models of the CPU race: files, inputs, and how lathe is told their sizes."""
import os

import numpy as np

MODELS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "build", "models"))


class Entry:
    """`make(batch)` gives the inputs by name; `group` gathers files into one line of a table."""

    def __init__(self, file, make, dims=(), group=None, const=()):
        self.file, self.make, self.dims, self.group = os.path.join(MODELS, file), make, dims, group
        self.const = const  # inputs that are constants to lathe: it picks branches when it compiles

    def inputs(self, batch=1, seed=0, **sizes):
        return self.make(np.random.default_rng(seed), batch, **sizes)


def image(height, width, name="x"):
    def make(r, n, h=height, w=width):
        return {name: r.uniform(-1, 1, (n, 3, h, w)).astype(np.float32)}
    return make


def tokens(length):
    def make(r, n, s=length):
        ids = r.integers(0, 1000, (n, s), dtype=np.int64)
        return {"ids": ids, "mask": np.ones((n, s), np.int64)}
    return make


def gpt2(r, n, s=64):
    return {"ids": r.integers(0, 1000, (n, s), dtype=np.int64)}


def gpt2_step(r, n, past=64):
    result = {"ids": r.integers(0, 1000, (n, 1), dtype=np.int64)}
    for i in range(12):
        for part in "kv":
            result[f"{part}{i}"] = r.standard_normal((n, 12, past, 64), dtype=np.float32)
    return result


def silero(names):
    def make(r, n):
        every = {"input": r.uniform(-0.5, 0.5, (n, 576)).astype(np.float32),
                 "state": r.standard_normal((2, n, 128), dtype=np.float32) * np.float32(0.1),
                 "h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32),
                 "sr": np.array(16000, np.int64)}
        return {name: every[name] for name in names}
    return make


def magika(r, n):
    return {"bytes": r.integers(0, 257, (n, 2048)).astype(np.int32)}


IMAGE = ["--dim=N=1:1:64"]
TEXT = ["--dim=N=1:1:64", "--dim=S=1:128:512"]
RACE = {
    "resnet50": Entry("perf/resnet50.onnx", image(224, 224), IMAGE),
    "mobilenet_v2": Entry("perf/mobilenet_v2.onnx", image(224, 224), IMAGE),
    "efficientnet_b0": Entry("perf/efficientnet_b0.onnx", image(224, 224), IMAGE),
    "vit_b16": Entry("perf/vit_b16.onnx", image(224, 224), IMAGE),
    "bert_base": Entry("perf/bert_base.onnx", tokens(128), TEXT),
    "minilm": Entry("perf/minilm.onnx", tokens(128), TEXT),
    "gpt2": Entry("perf/gpt2.onnx", gpt2, TEXT),
    "gpt2_step": Entry("perf/gpt2_step.onnx", gpt2_step, ["--dim=N=1:1:64", "--dim=P=1:64:512"]),
    "ppocr_det": Entry("perf/ppocr_det.onnx", image(640, 640)),
    "ppocr_rec": Entry("perf/ppocr_rec.onnx", image(48, 320)),
    "ppocr_cls": Entry("ppocr_cls.onnx", image(48, 192)),
    "silero_vad": Entry("perf/silero_vad.onnx", silero(("input", "state", "sr")), group="silero"),
    "silero_op15": Entry("perf/silero_vad_16k_op15.onnx", silero(("input", "state", "sr")),
                         group="silero"),
    "silero_sequence": Entry("perf/silero_vad_16k_sequence.onnx", silero(("input", "h", "c")),
                             group="silero"),
    "silero_half": Entry("perf/silero_vad_half.onnx", silero(("input", "state")), group="silero"),
    "silero_ifless": Entry("perf/silero_vad_op18_ifless.onnx", silero(("input", "state", "sr")),
                           group="silero"),
    "silero_openvino": Entry("perf/silero_vad_openvino_16k.onnx", silero(("input", "state")),
                             group="silero"),
    "magika": Entry("magika.onnx", magika, ["--dim=unk__214=1:1:16"]),
}

# Sizes at which one engine for `dims` races engines made for one size.
SYMBOLIC = {
    "resnet50": {f"N = {n}": {"batch": n} for n in (1, 2, 5)},
    "mobilenet_v2": {f"N = {n}": {"batch": n} for n in (1, 3, 8)},
    "minilm": {f"N = {n}, S = {s}": {"batch": n, "s": s} for n, s in ((1, 32), (1, 128), (3, 200))},
    "bert_base": {f"N = {n}, S = {s}": {"batch": n, "s": s} for n, s in ((1, 32), (1, 128), (2, 96))},
    "gpt2_step": {f"P = {p}": {"past": p} for p in (16, 64, 300)},
}
