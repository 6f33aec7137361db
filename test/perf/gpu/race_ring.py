# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Causal attention of a long prompt whose queries several GPUs share, against one GPU.

`race_ring.py prepare FOLDER` needs a build and onnx: engines of 32 heads of queries and 8 of keys, 128 elements each, in bf16,
for 131,072 tokens and, to be checked, 4,096; for one GPU and divided by queries among two and four, as no heads were to divide.
`race_ring.py predict FOLDER TOPOLOGY` needs a build: what `lathe simulate` says of the long ones.
`race_ring.py run FOLDER` needs GPUs, numpy, python-frontend and the runtime library (LATHE_RUNTIME_LIBRARY). GPUs are raced in
turn. Exit code 1 when a result is wrong or below the bar of two GPUs, 1.85 x one.

Queries, keys and values are weights made from a seed, queries times a number that is given: so nothing but the attention and what
it takes to divide it is timed.
"""
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import race_tp as tp

HEADS, GROUPS, DEPTH = 32, 8, 128
TOKENS = {"short": 4096, "long": 131072}
BAR = {2: 1.85}


def export(path, tokens):
    import onnx
    from onnx import helper
    half = onnx.TensorProto.BFLOAT16
    sizes = {"q": [1, HEADS, tokens, DEPTH], "k": [1, GROUPS, tokens, DEPTH], "v": [1, GROUPS, tokens, DEPTH]}
    weights = []
    for name, dims in sizes.items():
        weight = onnx.TensorProto(name=name, data_type=half, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (("location", f"{name}.absent"), ("offset", "0"), ("length", str(2 * int(np.prod(dims))))):
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
    nodes = [helper.make_node("Cast", ["x"], ["factor"], "factor", to=half),
             helper.make_node("Mul", ["q", "factor"], ["queries"], "queries"),
             helper.make_node("Attention", ["queries", "k", "v"], ["logits"], "attention", is_causal=1)]
    graph = helper.make_graph(nodes, "ring", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("logits", half, sizes["q"])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, tokens in TOKENS.items():
            graph = os.path.join(scratch, f"{name}.onnx")
            export(graph, tokens)
            for ranks in tp.MESHES:
                options = [f"--mesh=tp={ranks}", "--shard=attention=dim:2"] if ranks > 1 else []
                tp.compile_engine(graph, os.path.join(folder, f"{name}-{ranks}.lathe"), *options)


def predict(folder, topology):
    alone = None
    for ranks in tp.MESHES:
        with lzma.open(os.path.join(folder, f"long-{ranks}.lathe.xz")) as packed, tempfile.NamedTemporaryFile(suffix=".lathe") as plain:
            plain.write(packed.read())
            plain.flush()
            said = json.loads(subprocess.run([tp.LATHE, "simulate", plain.name, f"--topology={topology}", "--json"], check=True,
                                             capture_output=True, text=True).stdout)
        alone = alone or said["seconds"]
        print(f"{ranks} GPUs: {said['seconds'] * 1e3:.2f} ms, of it exchanges {said['exchanges'] * 1e3:.2f} ms: "
              f"{alone / said['seconds']:.3f} x one")


def run(folder):
    factor, counts, bad = [np.ones(1, np.float32)], [n for n in tp.MESHES if n <= tp.gpus()], 0
    alone = None
    for ranks in counts:
        found = tp.Ranks(folder, "short", ranks).run(factor, "main")
        alone = tp.widened(found[0]) if alone is None else alone
        equal, off = all(f.tobytes() == found[0].tobytes() for f in found), tp.error(tp.widened(found[0]), alone)
        bad += not equal or not off < 4e-3  # either side is rounded to bf16
        print(f"{TOKENS['short']} tokens, {ranks} GPUs: {off:.2e} off one GPU's, ranks {'equal' if equal else 'DIFFER'}", flush=True)
    rows, engines = {ranks: [] for ranks in counts}, {ranks: tp.Ranks(folder, "long", ranks) for ranks in counts}
    for _ in range(4):
        for ranks, engine in engines.items():
            rows[ranks].append(tp.median_step(engine, factor, "main", lambda: None, 1, 4))
    for ranks, times in rows.items():
        gain = statistics.median(rows[1]) / statistics.median(times)
        bad += gain < BAR.get(ranks, 0)
        print(f"{TOKENS['long']} tokens, {ranks} GPUs: {statistics.median(times):.2f} ms ({min(times):.2f} to {max(times):.2f}), "
              f"{gain:.3f} x one GPU", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "predict": predict, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
