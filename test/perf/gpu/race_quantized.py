#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet-50 at batch 64 whose f16 model `lathe quantize --scheme=w8a8-int8` has quantized, against our engine of that
model, each in one graph, in turn.

`race_quantized.py [--profile]` on a GPU with torch and a build of lathe. Weights come from a seed; results are checked
against torch in f32 first. Exit code 1 when one is wrong or the bar is missed; --profile says what each kernel takes.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import export_models
import race_models
from race_models import LATHE, error, lathe

BATCH, EXAMPLES, ROUNDS, BAR = 64, 4, 21, 1.4
MOST_WRONG = {"f16": 2e-3, "int8": 5e-2}  # of the norm of the result


def start(*command):
    return subprocess.Popen([LATHE, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process):
    text = process.communicate()[0]
    if process.returncode:
        sys.exit(text)
    return text


def engines(folder, model, images):
    """Of the f16 model and of what is quantized of it."""
    path = {n: os.path.join(folder, n) for n in ("f16.onnx", "int8.onnx", "f16.lathe", "int8.lathe", "x.npz")}
    torch.onnx.export(model, (images[:1],), path["f16.onnx"], dynamo=False, opset_version=19, input_names=["x"],
                      output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})
    np.savez(path["x.npz"], x=images[:EXAMPLES].numpy())
    shape = "--shape=x=" + "x".join(map(str, images.shape))
    compiles = {"f16": start("compile", path["f16.onnx"], "-o", path["f16.lathe"], "--target=sm_90a", shape)}
    print(finished(start("quantize", path["f16.onnx"], "-o", path["int8.onnx"], "--scheme=w8a8-int8", f"--data={path['x.npz']}")))
    compiles["int8"] = start("compile", path["int8.onnx"], "-o", path["int8.lathe"], "--target=sm_90a", shape)
    for process in compiles.values():
        finished(process)
    return {name: lathe.load(path[name + ".lathe"]) for name in compiles}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model, images, wrong = export_models.resnet50().eval(), torch.randn(BATCH, 3, 224, 224), 0
    with torch.no_grad():
        want = model.cuda()(images.cuda())
    with tempfile.TemporaryDirectory() as folder:
        loaded = engines(folder, model.cpu().half(), images.half())
    sides = {name: race_models.Ours(engine, [images.cuda().half()]) for name, engine in loaded.items()}
    for name, side in sides.items():
        side.once()
        got = torch.from_dlpack(side.result["y"])
        off, same = error(got, want), (got.float().argmax(1) == want.argmax(1)).float().mean().item()
        wrong += not off < MOST_WRONG[name]
        print(f"{name}: {side.context.counters['launches']} launches, error {off:.1e}, the greatest of {got.shape[1]} the "
              f"same in {same:.3f} of the images{'' if off < MOST_WRONG[name] else '  WRONG'}", flush=True)
    times = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            times[name].append(side.once())
    medians = {name: statistics.median(values) for name, values in times.items()}
    gain = medians["f16"] / medians["int8"]
    print(f"{torch.cuda.get_device_name()}: ResNet-50, batch {BATCH}: f16 {medians['f16']:.4f} ms, int8 {medians['int8']:.4f} ms: "
          f"{gain:.3f} x (bar {BAR}){'' if gain >= BAR else '  MISSED'}", flush=True)
    if options.profile:
        for name, side in sides.items():
            race_models.kernels("resnet50", name, side)
    sys.exit(int(wrong > 0 or gain < BAR))


if __name__ == "__main__":
    main()
