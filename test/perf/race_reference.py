# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outputs of a model in float64: the truth that the runtimes' errors are measured against.

The model's floats become doubles, and onnx's reference evaluator runs it. Convolutions, pools and
the like, which it does in Python loops, are torch's, in double too.
"""
import hashlib
import os

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def widen_tensor(tensor):
    if tensor.data_type in NARROW:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def widen_graph(graph):
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        widen_node(node)


def widen_node(node):
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            widen_graph(attribute.g)
        elif attribute.type == AttributeProto.TENSOR:
            widen_tensor(attribute.t)
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i in NARROW:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            floats = attribute.f if attribute.type == AttributeProto.FLOAT else attribute.floats
            tensor = numpy_helper.from_array(np.array(floats, np.float64))
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def tensor_of(array):
    import torch
    return torch.from_numpy(np.array(array))


def spatial(x, kernel, strides, pads, dilations):
    """Strides, dilations and pads (low, high) a dimension."""
    rank = x.ndim - 2
    pads = list(pads or [0] * 2 * rank)
    return (list(strides or [1] * rank), list(dilations or [1] * rank),
            list(zip(pads[:rank], pads[rank:])))


def padded(x, pads, value):
    import torch
    flat = [n for low, high in reversed(pads) for n in (low, high)]
    return torch.nn.functional.pad(x, flat, value=value) if any(flat) else x


class Conv(OpRun):
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None,
             pads=None, strides=None):
        import torch.nn.functional as F
        assert auto_pad in (None, "NOTSET", "VALID")
        strides, dilations, pads = spatial(x, kernel_shape, strides, pads, dilations)
        run = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
        y = run(padded(tensor_of(x), pads, 0.0), tensor_of(w), None if b is None else tensor_of(b),
                strides, 0, dilations, group or 1)
        return (y.numpy(),)


class ConvTranspose(OpRun):
    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None,
             output_padding=None, output_shape=None, pads=None, strides=None):
        import torch.nn.functional as F
        assert auto_pad in (None, "NOTSET") and not output_shape
        strides, dilations, pads = spatial(x, kernel_shape, strides, pads, dilations)
        assert all(low == high for low, high in pads)
        run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.ndim - 3]
        y = run(tensor_of(x), tensor_of(w), None if b is None else tensor_of(b), strides,
                [low for low, _ in pads], output_padding or 0, group or 1, dilations)
        return (y.numpy(),)


class GlobalMaxPool(OpRun):
    def _run(self, x):
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(OpRun):
    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None,
             storage_order=None, strides=None):
        import torch.nn.functional as F
        assert auto_pad in (None, "NOTSET", "VALID")
        strides, dilations, pads = spatial(x, kernel_shape, strides, pads, dilations)
        run = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.ndim - 3]
        y = run(padded(tensor_of(x), pads, float("-inf")), list(kernel_shape), strides, 0,
                dilations, bool(ceil_mode))
        return (y.numpy(),)


class BatchNormalization(OpRun):
    def _run(self, x, scale, bias, mean, var, epsilon=None, momentum=None, spatial=None,
             training_mode=None):
        assert not training_mode
        across = (-1,) + (1,) * (x.ndim - 2)
        factor = scale / np.sqrt(var + epsilon)
        return (x * factor.reshape(across) + (bias - mean * factor).reshape(across),)


class Erf(OpRun):
    def _run(self, x):
        import torch
        return (torch.erf(tensor_of(x)).numpy().reshape(x.shape),)


NEW_OPS = [BatchNormalization, Conv, ConvTranspose, Erf, GlobalMaxPool, MaxPool]


def run(path, inputs):
    """{name: float64 array} of all outputs."""
    model = onnx.load(path)
    widen_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            widen_node(node)
    session = ReferenceEvaluator(model, new_ops=NEW_OPS)
    feeds = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in inputs.items()}
    return dict(zip(session.output_names, session.run(None, feeds)))


def cached(path, inputs, folder):
    """The same, kept in the folder for this file and these inputs."""
    with open(__file__, "rb") as f:
        key = hashlib.sha256(f.read())
    key.update(str((os.stat(path).st_size, os.stat(path).st_mtime_ns)).encode())
    for name, array in sorted(inputs.items()):
        key.update(name.encode() + array.tobytes())
    file = os.path.join(folder, f"float64-{key.hexdigest()[:16]}.npz")
    if not os.path.exists(file):
        np.savez(file, **run(path, inputs))
    return dict(np.load(file))
