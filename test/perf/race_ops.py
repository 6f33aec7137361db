#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that choose, sort and sample, and ensembles of trees, by themselves, against onnxruntime on the CPU.

    test/perf/race_ops.py prepare [--target native] [NAME...]             models, engines and a comparison of results
    test/perf/race_ops.py run [--threads 1] [--rounds 5] [--seconds 0.1] [--log FILE] [--any-load] [NAME...]

A row is one node over random data, or 500 trees of depth 8 as skl2onnx or onnxmltools write them: one file and one engine
for 1 and 10,000 rows. `prepare` works in build/race-ops; `run` times what lies there, by the rules of race_measure.py. With
--log each round is added to FILE. Ends with 1 where a row takes more than 1.1 of onnxruntime's time, a row of trees more than
0.7, or the geometric mean is above 0.8.
"""
import argparse
import os
import statistics
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "models")]
import lathe_cli  # noqa: E402
import race_measure  # noqa: E402

FOLDER = os.path.join(lathe_cli.ROOT, "build", "race-ops")
ROW_BAR, TREE_BAR, MEAN_BAR = 1.1, 0.7, 0.8
TREES, DEPTH, FEATURES = 500, 8, 28


def one(op, inputs, outputs=1, constants=(), opset=22, **attributes):
    """A model of one node, and its inputs; `constants`: names of inputs that are initializers."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    names = [name for name, value in inputs.items() if value is not None]
    node = helper.make_node(op, [name if inputs[name] is not None else "" for name in inputs],
                            [f"y{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph(
        [node], op, [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(inputs[n].dtype), inputs[n].shape)
                     for n in names if n not in constants],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
        [numpy_helper.from_array(inputs[n], n) for n in names if n in constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    for output in inferred.graph.output:
        assert output.type.tensor_type.elem_type != TensorProto.UNDEFINED, op
    return inferred, {n: inputs[n] for n in names if n not in constants}


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def top_k(rows, columns, k):
    return one("TopK", {"x": floats(rows, columns), "k": np.array([k])}, 2, ["k"])


def boxes(count, classes):
    r = np.random.default_rng(0)
    corner, size = r.uniform(0, 600, (1, count, 2)), r.uniform(4, 80, (1, count, 2))
    return one("NonMaxSuppression", {"boxes": np.concatenate([corner, corner + size], 2).astype(np.float32),
                                     "scores": r.uniform(0, 1, (1, classes, count)).astype(np.float32) ** 4,
                                     "most": np.array([100]), "overlap": np.array([0.5], np.float32),
                                     "least": np.array([0.25], np.float32)}, 1, ["most", "overlap", "least"])


def regions():
    r = np.random.default_rng(0)
    corner = r.uniform(0, 500, (300, 2))
    rois = np.concatenate([corner, corner + r.uniform(16, 300, (300, 2))], 1).astype(np.float32)
    return one("RoiAlign", {"x": floats(1, 256, 50, 68), "rois": rois, "batch": np.zeros(300, np.int64)}, opset=16,
               output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1 / 16)


def deformed():
    return one("DeformConv", {"x": floats(1, 64, 56, 56), "w": floats(64, 64, 3, 3) / 24, "offset": floats(1, 18, 56, 56)}, 1,
               ["w"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def spectrum():
    return one("STFT", {"signal": floats(1, 160000, 1), "step": np.array(160), "window": np.hanning(512).astype(np.float32),
                        "length": np.array(512)}, 1, ["step", "window", "length"], opset=17)


def resized(mode, **attributes):
    return one("Resize", {"x": floats(1, 3, 480, 640), "roi": None, "scales": None, "sizes": np.array([1, 3, 640, 960])}, 1,
               ["sizes"], mode=mode, **attributes)


def examples(rows=4000):
    r = np.random.default_rng(0)
    x = r.standard_normal((rows, FEATURES), dtype=np.float32)
    return x, np.sin(x[:, :8] @ r.standard_normal(8)) + x[:, 8] * x[:, 9] + 0.1 * r.standard_normal(rows)


def boosted():
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    model = xgboost.XGBRegressor(n_estimators=TREES, max_depth=DEPTH, min_child_weight=0, learning_rate=0.02, tree_method="hist")
    model.fit(*examples())
    return onnxmltools.convert_xgboost(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset=15)


def forest():
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.ensemble import RandomForestClassifier
    x, y = examples()
    model = RandomForestClassifier(TREES, max_depth=DEPTH, random_state=0).fit(x, np.digitize(y, [-0.7, 0.7]))
    return skl2onnx.convert_sklearn(model, initial_types=[("x", FloatTensorType([None, FEATURES]))], target_opset=18,
                                    options={"zipmap": False})


def trees(make, rows):
    return make(), {"x": floats(rows, FEATURES, seed=1)}


# name: model and inputs
OPS = {
    "TopK 1x131072, k 50": lambda: top_k(1, 131072, 50),
    "TopK 64x50257, k 50": lambda: top_k(64, 50257, 50),
    "sort 1x262144": lambda: top_k(1, 262144, 262144),
    "sort 64x4096": lambda: top_k(64, 4096, 4096),
    "NonZero 1024x1024": lambda: one("NonZero", {"x": np.maximum(floats(1024, 1024) - 0.5, 0)}),
    "Unique 262144 of 1000": lambda: one("Unique", {"x": np.random.default_rng(0).integers(0, 1000, 262144)}, 4, sorted=1),
    "NMS 8400x80": lambda: boxes(8400, 80),
    "RoiAlign 300 of 256x50x68": regions,
    "DeformConv 3x3, 64-64, 56x56": deformed,
    "STFT 512 of 160000": spectrum,
    "Resize nearest 480x640": lambda: resized("nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    "Resize linear 480x640": lambda: resized("linear"),
    "Resize cubic 480x640": lambda: resized("cubic"),
    "trees of xgboost, 1 row": lambda: trees(boosted, 1),
    "trees of xgboost, 10000 rows": lambda: trees(boosted, 10000),
    "trees of skl2onnx, 1 row": lambda: trees(forest, 1),
    "trees of skl2onnx, 10000 rows": lambda: trees(forest, 10000),
}


def folder_of(name):
    return os.path.join(FOLDER, "".join(c if c.isalnum() else "_" for c in name))


def prepare(name, target):
    """Writes model.onnx, ours.npz, model.lathe and the results of both, which must agree; returns the worst error."""
    import onnx
    folder = folder_of(name)
    os.makedirs(folder, exist_ok=True)
    model, inputs = OPS[name]()
    file = os.path.join(folder, "model.onnx")
    onnx.save(model, file)
    np.savez(os.path.join(folder, "ours.npz"), **inputs)
    engine = os.path.join(folder, "model.lathe")
    lathe_cli.lathe("compile", file, "-o", engine, f"--target={target}")
    got = lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs=inputs)
    session, worst = race_measure.ort_session(file, 1), 0.0
    for output, want in zip(session.get_outputs(), session.run(None, inputs)):
        value = got[output.name]
        assert value.shape == want.shape and value.dtype == want.dtype, f"{name}: {output.name}"
        if want.dtype.kind == "f":
            worst = max(worst, lathe_cli.relative_error(value, want))
            assert worst < 1e-3, f"{name}: {output.name} is off by {worst}"
        else:
            differ = np.mean(value != want)
            assert differ < (1e-3 if "trees" in name else 1e-12), f"{name}: {output.name} differs in {differ:.2%}"
    return worst


def run(names, options):
    ratios, tree_ratios, good = [], [], True
    print(f"{'':32} {'lathe ms':>9} {'ort ms':>9}  ratio  {options.threads} thread{'s' * (options.threads > 1)}")
    for name in names:
        folder = folder_of(name)
        row = race_measure.race(folder, os.path.join(folder, "model.onnx"), os.path.join(folder, "ours.npz"), options.threads,
                                ["ort"], options)
        if options.log:
            with open(options.log, "a") as f:
                for one_round in row["raw"]:
                    ms = one_round["ms"]
                    f.write("\t".join([name, str(options.threads), one_round["time"], f"{one_round['load']:.2f}",
                                       str(one_round["others"]), f"{ms['lathe']:.4f}", f"{ms['ort']:.4f}"]) + "\n")
        bar = TREE_BAR if name.startswith("trees") else ROW_BAR
        (tree_ratios if name.startswith("trees") else ratios).append(row["ratio"])
        good &= row["ratio"] <= bar
        print(f"{name:32} {row['ms']['lathe']:9.3f} {row['ms']['ort']:9.3f}  {row['ratio']:5.3f}"
              f"{'' if row['ratio'] <= bar else f'  above {bar}'}", flush=True)
    mean = statistics.geometric_mean(ratios + tree_ratios)
    print(f"{'geometric mean':52}  {mean:5.3f}{'' if mean <= MEAN_BAR else f'  above {MEAN_BAR}'}")
    return good and mean <= MEAN_BAR


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows whose names begin so (default: all)")
    parser.add_argument("--target", default="native")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a burst (default: 0.1)")
    parser.add_argument("--log", metavar="FILE")
    parser.add_argument("--any-load", action="store_true", help="rounds beside other work count, too")
    options = parser.parse_intermixed_args()
    names = [n for n in OPS if not options.names or any(n.startswith(start) for start in options.names)]
    if options.what == "run":
        return 0 if run(names, options) else 1
    for name in names:
        begin = time.perf_counter()
        try:
            worst = prepare(name, options.target)
        except ModuleNotFoundError as missing:
            print(f"{name}: {missing}; install it: .venv/bin/pip install -r test/perf/requirements.txt", file=sys.stderr)
            return 2
        print(f"{name:32} agrees within {worst:.1e}; {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
