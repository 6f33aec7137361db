# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory problems as CSV: those of ONNX graphs by shape inference, and synthetic ones.

    problems.py FOLDER [--models=DIR]

A buffer is a node's output that is no graph output; it lives from its node to the last that reads
it. Nodes stand in the file's order. Sizes are those of one shape.
"""
import argparse
import os
import random
import sys

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, numpy_helper

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
MODELS = os.path.join(ROOT, "build", "models")
ALIGNMENT = 64
SMALL = 4096  # elements of a tensor that may be a shape

# Model: what its dimensions shall be, a problem a list entry. A number stands for a fixed
# dimension's name in the file.
SHAPES = {
    "perf/resnet50.onnx": [{"N": 1}, {"N": 8}],
    "perf/mobilenet_v2.onnx": [{"N": 1}, {"N": 8}],
    "perf/efficientnet_b0.onnx": [{"N": 1}],
    "perf/vit_b16.onnx": [{}],
    "perf/bert_base.onnx": [{"N": 1, "S": 128}, {"N": 8, "S": 384}],
    "perf/minilm.onnx": [{"N": 1, "S": 128}],
    "perf/gpt2.onnx": [{"N": 1, "S": 64}, {"N": 1, "S": 1024}],
    "perf/gpt2_step.onnx": [{"N": 1, "S": 1, "P": 128}, {"N": 4, "S": 1, "P": 1023}],
    "perf/ppocr_det.onnx": [{"": [1, 3, 640, 640]}],
    "perf/ppocr_rec.onnx": [{"": [1, 3, 48, 320]}],
    "magika.onnx": [{"": [1, 2048]}],
    "ppocr_cls.onnx": [{"": [1, 3, 48, 192]}, {"": [8, 3, 48, 192]}],
    "llama/dynamo18_sdpa/model.onnx": [{"B": 1, "S": 16, "P": 0, "s64": 16},
                                       {"B": 4, "S": 128, "P": 0, "s64": 128},
                                       {"B": 1, "S": 1, "P": 511, "s64": 512}],
}


def element_bits(dtype):
    return {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.BOOL: 8}.get(
        dtype, 8 * onnx.helper.tensor_dtype_to_np_dtype(dtype).itemsize)


def fix_inputs(model, dims):
    """Gives the inputs' dimensions the values of `dims`; an entry "" is the first input's shape."""
    initializers = {t.name for t in model.graph.initializer}
    first = True
    for value in model.graph.input:
        if value.name in initializers:
            continue
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            if first and "" in dims:
                dim.dim_value = dims[""][i]
            elif dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
            elif not dim.HasField("dim_value"):
                dim.dim_value = 1
        first = False
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def drop_weights(graph):
    """Large weights become inputs: inference needs their sizes alone."""
    large = [t for t in graph.initializer if np.prod(t.dims, dtype=np.int64) > SMALL]
    known = {v.name for v in graph.input}
    for tensor in large:
        if tensor.name not in known:
            graph.input.append(onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type, list(tensor.dims)))
        graph.initializer.remove(tensor)


def shapes_of(model):
    """{value: (element type, sizes)} of all tensors whose sizes inference finds."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    result = {}
    for value in [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            result[value.name] = tensor.elem_type, [d.dim_value for d in tensor.shape.dim]
    return result


def evaluate(node, model, constants, shapes):
    """Values of a node's outputs when they follow from constants and sizes; else None."""
    if node.op_type == "Shape" and node.input[0] in shapes:
        sizes = shapes[node.input[0]][1]
        start = next((a.i for a in node.attribute if a.name == "start"), 0)
        end = next((a.i for a in node.attribute if a.name == "end"), len(sizes))
        return [np.array(sizes[start:end], np.int64)]
    if not all(name in constants for name in node.input if name) or any(
            a.HasField("g") for a in node.attribute):
        return None
    graph = onnx.helper.make_graph(
        [node], "one", [], [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(constants[name], name) for name in set(node.input) if name])
    one = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    results = onnx.reference.ReferenceEvaluator(one).run(None, {})
    return results if all(isinstance(r, np.ndarray | np.generic) and np.size(r) <= SMALL
                          for r in results) else None


def value_bytes(model):
    """{value: bytes}: inference, with what it cannot evaluate (sizes of sizes) given to it."""
    drop_weights(model.graph)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    known = set(constants)
    while True:
        shapes, fresh = shapes_of(model), 0
        for node in model.graph.node:
            if node.domain not in ("", "ai.onnx") or node.output[0] in constants:
                continue
            values = evaluate(node, model, constants, shapes)
            if values is not None:
                constants.update(zip(node.output, map(np.asarray, values)))
                fresh += 1
        if not fresh:
            break
        nodes = [n for n in model.graph.node if n.output[0] not in constants]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        for name in set(constants) - known:
            model.graph.initializer.append(numpy_helper.from_array(constants[name], name))
        known |= set(constants)
    result = {name: a.nbytes for name, a in constants.items()}
    for name, (dtype, sizes) in shapes.items():
        result[name] = (int(np.prod(sizes, dtype=np.int64)) * element_bits(dtype) + 7) // 8
    return result


def onnx_problem(path, dims):
    """Rows (id, lower, upper, size), and how many values have sizes that are not known."""
    model = onnx.load(path, load_external_data=False)
    fix_inputs(model, dims)
    outputs = {v.name for v in model.graph.output}
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    sizes = value_bytes(model)
    begin, end = {}, {}
    for step, node in enumerate(nodes):
        for name in node.input:
            if name in begin:
                end[name] = step + 1
        if node.op_type == "Constant":
            continue
        for name in node.output:
            if name and name not in outputs:
                begin[name], end[name] = step, step + 1
    rows = [(name, begin[name], end[name], sizes[name]) for name in begin if name in sizes]
    return rows, len(begin) - len(rows)


# Synthetic graphs -------------------------------------------------------------------------------


def trained(count, rng):
    """A network that is trained: activations wait for the backward pass."""
    rows, layers, step = [], max(2, count // 4), 0
    for i in range(layers):
        size = ALIGNMENT * rng.randint(1, 4096)
        back = 2 * layers - i
        rows.append((f"a{i}", step, back + 1, size))         # read by the gradient
        rows.append((f"t{i}", step, step + 2, size // 2 or 1))
        step += 1
    for i in reversed(range(layers)):
        size = rows[2 * i][3]
        rows.append((f"g{i}", step, step + 2, size))
        rows.append((f"w{i}", step, step + 1, ALIGNMENT * rng.randint(1, 2048)))
        step += 1
    return rows[:count]


def unrolled(count, rng):
    """A loop that was unrolled: the same sizes in each round, some values for later rounds."""
    body = [(rng.randint(1, 6), ALIGNMENT * rng.randint(1, 512)) for _ in range(20)]
    rows = []
    for i in range(count):
        life, size = body[i % len(body)]
        late = 20 * rng.randint(1, 3) if i % len(body) == 0 else 0
        rows.append((f"v{i}", i, i + life + late, size))
    return rows


def decoder(count, rng):
    """Layers of a decoder over a long context: scores are large, the residual lives on."""
    rows, step, layer = [], 0, 0
    tokens, width, heads = 2048, 1024, 16
    while len(rows) < count:
        x = 4 * tokens * width
        context = tokens + 256 * (layer % 7)
        base = f"l{layer}."
        rows += [(base + "norm", step, step + 4, x), (base + "q", step + 1, step + 5, x),
                 (base + "k", step + 2, step + 5, x // 4), (base + "v", step + 3, step + 7, x // 4),
                 (base + "scores", step + 4, step + 6, 4 * heads * tokens * context // 16),
                 (base + "soft", step + 5, step + 7, 4 * heads * tokens * context // 16),
                 (base + "mixed", step + 6, step + 8, x), (base + "res", step + 7, step + 12, x),
                 (base + "norm2", step + 8, step + 10, x), (base + "up", step + 9, step + 11, 4 * x),
                 (base + "act", step + 10, step + 12, 4 * x), (base + "out", step + 11, step + 20, x)]
        step += 12
        layer += 1
        if rng.random() < 0.3:
            rows.append((base + "mask", step - 6, step + 12 * rng.randint(1, 4), x // 8))
    return rows[:count]


SYNTHETIC = {"trained": trained, "unrolled": unrolled, "decoder": decoder}
COUNTS = (1000, 20000, 100000)


def write(path, rows):
    with open(path, "w") as f:
        f.write("id,lower,upper,size,alignment\n")
        for name, lower, upper, size in rows:
            name = '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name
            f.write(f"{name},{lower},{upper},{size},{ALIGNMENT}\n")


def describe(dims):
    text = "-".join(f"{k}{v}" if k else "x".join(map(str, v)) for k, v in dims.items())
    return text.replace("-s64", "-T") if "s64" in dims else text or "fixed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--models", default=MODELS)
    options = parser.parse_args()
    for kind in ("onnx", "synthetic"):
        os.makedirs(os.path.join(options.folder, kind), exist_ok=True)
    for model, shapes in SHAPES.items():
        path = os.path.join(options.models, model)
        if not os.path.exists(path):
            print(f"{model}: not there, left out", file=sys.stderr)
            continue
        name = model.replace("perf/", "").replace("/dynamo18_sdpa/model", "").removesuffix(".onnx")
        for dims in shapes:
            rows, unknown = onnx_problem(path, dims)
            print(f"{name} {describe(dims)}: {len(rows)} buffers, {unknown} of unknown size")
            write(os.path.join(options.folder, "onnx", f"{name}.{describe(dims)}.csv"), rows)
    for kind, make in SYNTHETIC.items():
        for count in COUNTS:
            write(os.path.join(options.folder, "synthetic", f"{kind}.{count}.csv"),
                  make(count, random.Random(count)))


if __name__ == "__main__":
    main()
