# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares results of a model that goes on with the best of its scores (TopK), where scores are tied.

Scores that differ by less than results may be off have no order that two runtimes must share, and one other choice
moves whole rows of what follows. Such a model is judged around its choices: onnxruntime runs it with the indices that
lathe chose in place of TopK's, and everything else, what TopK reads included, must agree as anywhere; and the choices
themselves must be right: distinct, and what they choose is what sorting onnxruntime's own scores gives, place by place,
within the tolerance.
"""
import os

import numpy as np


def choices_of(graph):
    """The nodes of a graph (not of those inside it) that choose."""
    return [node for node in graph.node if node.op_type == "TopK"]


def watched(model):
    """The model with what each TopK reads and its indices as further outputs."""
    import onnx
    model = onnx.shape_inference.infer_shapes(model)
    known = {v.name: v for v in [*model.graph.value_info, *model.graph.input]}
    there = {o.name for o in model.graph.output}
    for node in choices_of(model.graph):
        for name, kind in ((node.input[0], onnx.TensorProto.FLOAT), (node.output[1], onnx.TensorProto.INT64)):
            if name not in there:
                model.graph.output.append(known.get(name) or onnx.helper.make_tensor_value_info(name, kind, None))
                there.add(name)
    return model


def given(model):
    """The watched model with the indices of each TopK as inputs, and what they choose gathered."""
    import onnx
    from onnx import helper
    nodes = []
    for node in model.graph.node:
        if node.op_type != "TopK":
            nodes.append(node)
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
        model.graph.input.append(helper.make_tensor_value_info(node.output[1], onnx.TensorProto.INT64, None))
        if node.output[0]:
            read = [node.input[0], node.output[1]]
            nodes.append(helper.make_node("GatherElements", read, [node.output[0]], axis=axis))
    taken = {node.output[1] for node in choices_of(model.graph)}
    outputs = [o for o in model.graph.output if o.name not in taken]
    for field, new in ((model.graph.node, nodes), (model.graph.output, outputs)):
        del field[:]
        field.extend(new)
    return model


def choice_error(node, scores, indices):
    """How far what was chosen is from the best scores, over the largest; infinite where something is chosen twice."""
    settings = {a.name: a.i for a in node.attribute}
    axis = settings.get("axis", -1)
    scores, indices = (np.moveaxis(a, axis, -1) for a in (np.asarray(scores, np.float64), indices))
    count = indices.shape[-1]
    ordered = np.sort(indices, -1)
    if (ordered[..., 1:] == ordered[..., :-1]).any() or (indices < 0).any() or (indices >= scores.shape[-1]).any():
        return float("inf")
    chosen, best = np.take_along_axis(scores, indices, -1), np.sort(scores, -1)
    best = best[..., :count] if settings.get("largest", 1) == 0 else best[..., ::-1][..., :count]
    if settings.get("sorted", 1) == 0:
        chosen, best = np.sort(chosen, -1), np.sort(best, -1)
    error = np.max(np.abs(chosen - best), initial=0) / max(np.max(np.abs(scores), initial=0), 1e-30)
    return float(error) if error == error else float("inf")


def error_around_choices(path, inputs, run, session, error_of):
    """The largest error of a model's results, judged as above; None where it does not choose. `run` gives the results
    of lathe for the model in a file, `session` onnxruntime's session of one, `error_of(wanted, found)` the error of
    one result."""
    import onnx
    plain = onnx.load(path)
    nodes = choices_of(plain.graph)
    if not nodes:
        return None
    place = os.path.dirname(path)
    seen = watched(plain)
    onnx.save(seen, os.path.join(place, "watched.onnx"))
    found = run(os.path.join(place, "watched.onnx"))
    onnx.save(given(seen), os.path.join(place, "given.onnx"))
    reference = session(os.path.join(place, "given.onnx"))
    indices = {node.output[1]: found[node.output[1]] for node in nodes}
    names = [o.name for o in reference.get_outputs()]
    wanted = dict(zip(names, reference.run(names, inputs | indices)))
    return max([error_of(w, found[n]) for n, w in wanted.items()] +
               [choice_error(node, wanted[node.input[0]], indices[node.output[1]]) for node in nodes])
