# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe quantize --budget` against int8 everywhere: a table of four models, on one CPU thread.

    .venv/bin/python test/perf/race_quantize.py [MODEL...]

The budget is what int8 everywhere loses on the same inputs, which are seeded: the search must take no more time at no more loss. It
is a tie where it finds int8 everywhere itself, which is measured once. Times are medians as shares of the float model's, whose
runs alternate; the prediction is what the search sums up out of times of kernels, which must be right to 5 %. The models are those
that `tools/check` and `tools/demo` leave in build/models. Ends with 1 where int8 everywhere is better in anything, or a prediction
is off by more.
"""
import json
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))
import lathe_cli  # noqa: E402

MODELS = {"bert": "families/bert/model.onnx", "vit": "families/vit/model.onnx", "magika": "magika.onnx", "ppocr_cls": "ppocr_cls.onnx"}


def examples(name, folder, count=8):
    rng = np.random.default_rng(5)
    for i in range(count):
        arrays = {"bert": lambda: {"input_ids": rng.integers(5, 90, size=(2, 7)), "attention_mask": np.ones((2, 7), np.int64)},
                  "vit": lambda: {"pixel_values": rng.normal(size=(2, 3, 48, 48)).astype(np.float32)},
                  "magika": lambda: {"bytes": rng.integers(0, 256, size=(1, 2048)).astype(np.int32)},
                  "ppocr_cls": lambda: {"x": rng.uniform(-1, 1, size=(1, 3, 48, 192)).astype(np.float32)}}[name]()
        np.savez(os.path.join(folder, f"{i}.npz"), **arrays)


def race(name):
    model = os.path.join(lathe_cli.MODELS, MODELS[name])
    sizes = {"magika": ["--dim=bytes[0]=1"], "ppocr_cls": ["--dim=x[0]=1", "--dim=x[2]=48", "--dim=x[3]=192"]}.get(name, [])
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data")
        os.mkdir(data)
        examples(name, data)
        whole, found = (os.path.join(folder, n) for n in ("whole.onnx", "found.onnx"))
        common = ["--data", data, "--threads=1", *sizes]
        lathe_cli.lathe("quantize", model, "-o", whole, "--scheme=w8a8-int8", *common)
        text = lathe_cli.lathe("compare", "--float", model, whole, "--loss=1e30", *common)
        loss = max(float(m) for m in re.findall(r"loss ([0-9.e+-]+),", text))
        lathe_cli.lathe("quantize", model, "-o", found, "--scheme=w8a8-int8,w8a16", f"--budget=loss={loss * 1.005}", *common,
                        "--report", os.path.join(folder, "r.json"))
        with open(os.path.join(folder, "r.json"), encoding="utf-8") as file:
            search = json.load(file)["search"]
    uniform = next(one for one in search["measured"] if one["name"] == "all of w8a8-int8")
    chosen = next(one for one in search["measured"] if one["chosen"])
    ratio = {id(one): one["ms"] / one["float_ms"] for one in (uniform, chosen)}
    counts = {}
    for layer in search["layers"]:
        counts[layer["chosen"]] = counts.get(layer["chosen"], 0) + 1
    off = chosen["predicted_ratio"] / ratio[id(chosen)] - 1
    print(f"| {name} | {search['float_ms']:.3f} | {uniform['loss']:.3g} | {ratio[id(uniform)]:.3f} | {chosen['loss']:.3g} | {ratio[id(chosen)]:.3f} | "
          f"{100 * off:+.1f} % | {', '.join(f'{n} {s}' for s, n in sorted(counts.items()))} | {search['builds']} |", flush=True)
    return chosen["loss"] <= uniform["loss"] * 1.005 and ratio[id(chosen)] <= ratio[id(uniform)] and abs(off) <= 0.05


def main():
    print("| model | float, ms | int8: loss | int8: time | search: loss | search: time | prediction off by | layers | builds |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    results = [race(name) for name in sys.argv[1:] or MODELS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
