# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of the schema versions, from opset 7 on, that no model of the ONNX corpus has: one model each."""
import dataclasses
import itertools

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ML = "ai.onnx.ml"


@dataclasses.dataclass
class Case:
    """`inputs`: arrays, or None where an operand is absent. `constants`: operands that are initializers. `differs`:
    what the version, or its newer one, has that this case holds. `expected`: the results where neither onnxruntime
    nor ONNX's reference can be asked, or what makes them of those of the case `twin`."""
    op: str
    version: int
    inputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    outputs: int = 1
    constants: tuple = ()
    domain: str = ""
    differs: str = ""
    expected: object = None
    twin: "Case" = None

    def __str__(self):
        return f"{self.op}-{self.version}"

    def opset(self):
        """The first one that has this version, among those that lathe takes."""
        return self.version if self.domain else max(self.version, 7)

    def model(self, types=None):
        """`types` of the results, (element type, sizes) each; without them only their names are stated."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        results = [f"y{k}" for k in range(self.outputs)]
        tensors = {n: numpy_helper.from_array(np.asarray(x), n) for n, x in zip(names, self.inputs) if n}
        node = helper.make_node(self.op, names, results, self.op, domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info(n, t.data_type, t.dims) for i, (n, t) in enumerate(tensors.items())
             if int(n[1:]) not in self.constants],
            [helper.make_tensor_value_info(n, *types[k]) if types else onnx.ValueInfoProto(name=n) for k, n in enumerate(results)],
            [t for n, t in tensors.items() if int(n[1:]) in self.constants])
        opsets = [helper.make_opsetid("", 21 if self.domain else self.opset())]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.version))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10 if self.opset() < 23 or self.domain else 12)

    def feeds(self):
        return {f"x{i}": np.asarray(x) for i, x in enumerate(self.inputs) if x is not None and i not in self.constants}


rng = np.random.default_rng(22)


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def between(low, high, *shape):
    return rng.uniform(low, high, shape).astype(np.float32)


def whole(end, *shape, begin=0, dtype=np.int64):
    return rng.integers(begin, end, shape).astype(dtype)


def flags(*shape):
    return rng.integers(0, 2, shape).astype(bool)


def ints(*values):
    return np.array(values, np.int64)


def info(name, elem, shape):
    return helper.make_tensor_value_info(name, elem, shape)


def elementwise():
    for op, x, versions, attributes in (
            ("Acos", between(-1, 1, 3, 4), [7], {}), ("Acosh", between(1, 5, 3, 4), [9], {}),
            ("Asin", between(-1, 1, 3, 4), [7], {}), ("Asinh", f(3, 4), [9], {}), ("Atan", f(3, 4), [7], {}),
            ("Atanh", between(-1, 1, 3, 4), [9], {}), ("Ceil", f(3, 4), [6], {}), ("Celu", f(3, 4), [12], {"alpha": 0.7}),
            ("Cosh", f(3, 4), [9], {}), ("Erf", f(3, 4), [9], {}), ("Floor", f(3, 4), [6], {}),
            ("HardSigmoid", f(3, 4) * 3, [6], {"alpha": 0.3, "beta": 0.4}), ("HardSwish", f(3, 4) * 3, [14], {}),
            ("Log", between(0.1, 4, 3, 4), [6], {}), ("Mish", f(3, 4), [18], {}), ("Reciprocal", between(1, 4, 3, 4), [6], {}),
            ("Relu", f(3, 4), [13], {}), ("Sin", f(3, 4), [7], {}), ("Sinh", f(3, 4), [9], {}), ("Softsign", f(3, 4), [1], {}),
            ("Tan", f(3, 4), [7], {}), ("ThresholdedRelu", f(3, 4), [10], {"alpha": 0.5}), ("Det", f(2, 3, 3), [11], {})):
        for version in versions:
            yield Case(op, version, [x], attributes, differs="bfloat16, or no more than types, is new behind it")
    odd = np.array([np.inf, -np.inf, np.nan, 1, 0], np.float32)
    yield Case("IsInf", 10, [odd], {"detect_negative": 0}, differs="float16 and 8-bit floats from 20")
    yield Case("IsNaN", 9, [odd], differs="bfloat16 from 13")
    yield Case("IsNaN", 13, [odd.astype(np.float16)], differs="8-bit floats from 20")
    yield Case("Relu", 13, [f(3, 4).astype(np.float64)], differs="integers from 14")
    for version in (6, 8):
        yield Case("Mean", version, [f(3, 4), f(3, 4), f(3, 4) if version == 6 else f(4)], differs="broadcasts from 8")
    for op in ("Equal", "Greater", "Less"):
        both = [whole(3, 3, 4), whole(3, 4)]
        if op == "Equal":
            yield Case(op, 7, [flags(3, 4), flags(4)], differs="floats from 11")
            yield Case(op, 11, [np.round(f(3, 4)), np.round(f(4))], differs="strings from 19")
        else:
            yield Case(op, 7, [np.round(f(3, 4)), np.round(f(4))], differs="integers from 9")
            yield Case(op, 9, both, differs="bfloat16 from 13")
            yield Case(op + "OrEqual", 12, both, differs="a function of bfloat16 from 16")
    yield Case("BitShift", 11, [whole(99, 5, dtype=np.uint8), whole(8, 5, dtype=np.uint8)], {"direction": "LEFT"})
    yield Case("Mod", 10, [whole(9, 3, 4, begin=-9), whole(5, 4, begin=1)], differs="bfloat16 from 13")
    yield Case("Mod", 10, [f(3, 4), between(1, 2, 4)], {"fmod": 1}, differs="fmod of floats")
    yield Case("Mul", 13, [f(3, 4), f(4)], differs="8 and 16 bits from 14")
    for op in ("Max", "Min"):
        yield Case(op, 12, [whole(9, 3, 4, dtype=np.uint8), whole(9, 4, dtype=np.uint8)], differs="integers, not before 12")
    yield Case("Pow", 7, [between(0.2, 3, 3, 4), f(4)], differs="two types from 12")
    yield Case("Pow", 12, [between(0.2, 3, 3, 4), whole(4, 4)], differs="bfloat16 from 13")
    yield Case("PRelu", 7, [f(2, 3, 4), f(3, 1)], differs="integers from 9")
    yield Case("PRelu", 9, [whole(9, 2, 4, begin=-9, dtype=np.int32), whole(5, 4, dtype=np.int32)], differs="bfloat16 from 16")
    yield Case("Clip", 12, [whole(20, 3, 4, begin=-20, dtype=np.int8), np.int8(-5), np.int8(9)], differs="integers, not before 12")


def reductions():
    for op in ("ArgMax", "ArgMin"):
        x = whole(4, 3, 5, 4).astype(np.float32)
        yield Case(op, 1, [x], {"axis": 1, "keepdims": 0}, differs="negative axes from 11")
        yield Case(op, 11, [x], {"axis": -2}, differs="select_last_index from 12")
        yield Case(op, 12, [x], {"axis": -1, "select_last_index": 1}, differs="bfloat16 from 13")
    for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd",
               "ReduceSumSquare", "ReduceMean", "ReduceSum"):
        x = between(0.5, 2, 3, 2, 4)
        axes = {"ReduceMean": [11], "ReduceSum": [11], "ReduceMax": [1], "ReduceMin": [1, 13]}.get(op, [1, 11, 13])
        for version in axes:
            yield Case(op, version, [x], {"axes": [0, 2] if version < 11 else [-3, -1], "keepdims": 0},
                       differs="axes are an attribute, negative ones from 11")
            yield Case(op, version, [x], {"keepdims": 1}, differs="no axes are all of them")
    for op in ("ReduceMax", "ReduceMin"):
        yield Case(op, 12, [whole(99, 3, 2, 4, dtype=np.uint8)], {"axes": [1]}, differs="8-bit integers, not before 12")
    for op in ("ReduceLogSum", "ReduceLogSumExp"):
        yield Case(op, 18, [between(0.5, 2, 3, 2, 4), ints(0, -1)], {"keepdims": 0}, constants=(1,), differs="axes are an operand")
        yield Case(op, 18, [between(0.5, 2, 3, 2, 4), ints()], {"noop_with_empty_axes": 1}, constants=(1,), differs="no axes are none")
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for version in (1, 11) if op == "Hardmax" else (11,):
            yield Case(op, version, [f(2, 3, 4)], differs="the axes from `axis` on, 1 by default, are one row until 13")
            yield Case(op, version, [f(2, 3, 4)], {"axis": 0 if version == 1 else -1}, differs="negative axes from 11")
    yield Case("CumSum", 11, [f(3, 4), np.array(1, np.int32)], {"exclusive": 1, "reverse": 1}, constants=(1,), differs="float16 from 14")
    yield Case("LpNormalization", 1, [f(3, 4)], {"axis": 0, "p": 1}, differs="other types from 22")
    yield Case("MeanVarianceNormalization", 9, [f(2, 3, 4, 4)], {"axes": [0, 2, 3]}, differs="bfloat16 from 13")
    x = f(2, 3, 4, 4)
    for version in (2, 22):
        yield Case("GlobalLpPool", version, [x], {"p": 3}, differs="other types from 22",
                   expected=[(np.abs(x.astype(np.float64)) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)])
    yield Case("GlobalMaxPool", 1, [f(2, 3, 4, 4)], differs="other types from 22")
    for version, old in ((1, True), (10, False), (11, False)):
        x = whole(5, 3, 6).astype(np.float32)
        if old:
            yield Case("TopK", 1, [x], {"k": 2, "axis": 0}, outputs=2, differs="k is an attribute")
        else:
            yield Case("TopK", version, [x, ints(3)], {} if version == 10 else {"largest": 0, "axis": -2}, outputs=2,
                       constants=(1,), differs="largest and sorted from 11")
    yield Case("NonZero", 9, [whole(2, 3, 4).astype(np.float32)], differs="bfloat16 from 13")
    yield Case("Unique", 11, [whole(4, 9).astype(np.float32)], outputs=4, differs="other types from 28")


def windows():
    x = f(2, 3, 9, 8)
    yield Case("AveragePool", 10, [x], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, differs="ceil_mode, not before 10")
    yield Case("AveragePool", 11, [x], {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 1], "count_include_pad": 1},
               differs="dilations from 19")
    yield Case("AveragePool", 19, [x], {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 0, 1, 0]}, differs="other types from 22")
    yield Case("MaxPool", 10, [x], {"kernel_shape": [3, 3], "dilations": [2, 1], "ceil_mode": 1, "strides": [2, 2]},
               differs="dilations and ceil_mode, not before 10")
    yield Case("MaxPool", 11, [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2, differs="8-bit integers from 12")
    yield Case("LpPool", 2, [x], {"kernel_shape": [3, 3], "p": 3, "pads": [1, 1, 1, 1]}, differs="a default of strides, stated from 11")
    yield Case("LpPool", 11, [x], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, differs="ceil_mode and dilations from 18")
    yield Case("LpPool", 18, [x], {"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [2, 2], "ceil_mode": 1},
               differs="other types from 22")
    yield Case("Conv", 11, [x, f(4, 3, 3, 3), f(4)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, constants=(1, 2), differs="other types from 22")
    yield Case("ConvTranspose", 11, [x, f(3, 2, 3, 3), f(2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 0]},
               constants=(1, 2), differs="other types from 22")
    yield Case("ConvTranspose", 11, [x, f(3, 2, 3, 3)], {"strides": [2, 2], "output_shape": [18, 17]}, constants=(1,), differs="output_shape")
    yield Case("DeformConv", 19, [f(1, 1, 5, 5), f(1, 1, 2, 2), f(1, 8, 4, 4)], {"kernel_shape": [2, 2]}, differs="other types from 22")
    pooled, places = np.array([[[[5, 7], [13, 15]]]], np.float32), np.array([[[[5, 7], [13, 15]]]], np.int64)
    for version in (9, 11):
        yield Case("MaxUnpool", version, [pooled, places], {"kernel_shape": [2, 2], "strides": [2, 2]}, differs="a default of strides, stated from 11")
    rois = np.array([[0, 0, 0, 7, 7], [1, 2, 1, 6, 5], [0, 3, 3, 4, 8]], np.float32)
    pool = Case("MaxRoiPool", 1, [f(2, 3, 9, 9), rois], {"pooled_shape": [2, 3], "spatial_scale": 0.9}, differs="other types from 22")
    yield pool
    yield dataclasses.replace(pool, version=22, twin=pool, expected=lambda results: results)
    boxes = np.array([[0.5, 0.5, 6, 7], [1, 2, 4, 4]], np.float32)
    yield Case("RoiAlign", 10, [f(2, 3, 9, 9), boxes, ints(0, 1)], {"output_height": 3, "output_width": 2, "sampling_ratio": 2},
               differs="no shift of half a pixel until 16")
    yield Case("RoiAlign", 16, [f(2, 3, 9, 9), boxes, ints(0, 1)], {"output_height": 3, "output_width": 2, "sampling_ratio": 2},
               differs="a shift of half a pixel, not before 16")
    grid = between(-1.2, 1.2, 2, 5, 4, 2)
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        yield Case("GridSample", 16, [x, grid], {"mode": mode, "padding_mode": padding}, differs="bilinear and bicubic are linear and cubic from 20")
    yield Case("GridSample", 20, [f(1, 2, 3, 4, 5), between(-1.2, 1.2, 1, 2, 3, 4, 3)], {"mode": "linear"}, differs="any number of axes, not before 20")
    yield Case("GridSample", 20, [x, grid], {"mode": "cubic", "align_corners": 1}, differs="other types from 22")
    image, scales = f(1, 2, 4, 5), np.array([1, 1, 1.5, 2], np.float32)
    none = np.array([], np.float32)
    for version in (7, 9):
        if version == 7:
            for mode in ("nearest", "linear"):
                yield Case("Upsample", 7, [image], {"scales": [1.0, 1.0, 1.5, 2.0], "mode": mode}, differs="scales are an attribute until 9")
    for mode in ("nearest", "linear"):
        for factors in (scales, np.array([1, 1, 0.6, 2.6], np.float32)):
            yield Case("Resize", 10, [image, factors], {"mode": mode}, constants=(1,), differs="sizes, roi and modes of coordinates from 11")
    yield Case("Resize", 10, [image, np.array([1, 1, 0.6, 2.6], np.float32)], differs="the scales arrive with the run")
    for version, mode, pixels in ((11, "cubic", "pytorch_half_pixel"), (11, "linear", "tf_half_pixel_for_nn"), (13, "nearest", "align_corners")):
        yield Case("Resize", version, [image, none, scales], {"mode": mode, "coordinate_transformation_mode": pixels}, constants=(1, 2),
                   differs="tf_half_pixel_for_nn until 13")
    yield Case("Resize", 11, [image, none, none, ints(1, 2, 7, 3)], {"mode": "nearest", "nearest_mode": "ceil"}, constants=(1, 2, 3))
    yield Case("Resize", 13, [image, np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.7], np.float32), none, ints(1, 2, 6, 4)],
               {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}, constants=(1, 2, 3))
    yield Case("Resize", 18, [image, None, np.array([0.6, 0.5], np.float32)], {"mode": "linear", "antialias": 1, "axes": [2, 3]},
               constants=(2,), differs="antialias and axes, not before 18")
    yield Case("Resize", 18, [image, None, None, ints(7, 9)], {"mode": "nearest", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
               constants=(3,), differs="half_pixel_symmetric from 19")


def normalizations():
    x, scale, bias, mean, variance = f(2, 3, 4), f(3), f(3), f(3), between(0.5, 2, 3)
    yield Case("BatchNormalization", 7, [x, scale, bias, mean, variance], {"epsilon": 1e-3}, differs="`spatial` until 9")
    each = [f(3, 4), f(3, 4), f(3, 4), between(0.5, 2, 3, 4)]
    yield Case("BatchNormalization", 7, [x, *each], {"spatial": 0}, differs="statistics of each element, until 9",
               expected=[(x - each[2]) / np.sqrt(each[3] + 1e-5) * each[0] + each[1]])
    yield Case("BatchNormalization", 14, [x, scale, bias, mean, variance], differs="two types from 15")
    m, v = x.mean((0, 2)), x.var((0, 2))
    yield Case("BatchNormalization", 14, [x, scale, bias, mean, variance], {"training_mode": 1, "momentum": 0.8}, outputs=3,
               differs="the variance of the batch, divided by its size, not before 14",
               expected=[(x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * scale[:, None] + bias[:, None], mean * 0.8 + m * 0.2,
                         variance * 0.8 + v * 0.2])
    x = f(2, 4, 3)
    grouped = x.reshape(2, 2, 2, 3)
    normal = (grouped - grouped.mean((2, 3), keepdims=True)) / np.sqrt(grouped.var((2, 3), keepdims=True) + 1e-5)
    scale, bias = f(2), f(2)
    yield Case("GroupNormalization", 18, [x, scale, bias], {"num_groups": 2}, differs="scale and bias are one a group until 21",
               expected=[(normal * scale[:, None, None] + bias[:, None, None]).reshape(x.shape)])
    for version in (12, 13):
        yield Case("Dropout", version, [f(3, 4), np.float32(0.4)], outputs=2, constants=(1,), differs="bfloat16 from 13")
    scores, labels = f(3, 5), whole(5, 3)
    yield Case("NegativeLogLikelihoodLoss", 12, [scores, labels, between(0.5, 2, 5)], {"reduction": "sum", "ignore_index": int(labels[0])})
    yield Case("SoftmaxCrossEntropyLoss", 12, [f(3, 5, 2), whole(5, 3, 2)], {"reduction": "mean"}, outputs=2)


def products():
    a, b = f(4, 3), f(4, 5)
    yield Case("Gemm", 7, [a, b, f(5)], {"transA": 1, "alpha": 0.5, "beta": 2.0}, differs="integers from 9")
    yield Case("Gemm", 11, [a, b], {"transA": 1}, differs="C may be absent, not before 11")
    yield Case("MatMul", 9, [whole(9, 2, 4, 3, dtype=np.int32), whole(9, 3, 5, dtype=np.int32)], differs="integers, not before 9")
    yield Case("Einsum", 12, [f(2, 3, 4), f(2, 4, 5)], {"equation": "bij,bjk->bik"})
    yield Case("QLinearMatMul", 10, [whole(255, 3, 4, dtype=np.uint8), np.float32(0.1), np.uint8(120), whole(255, 4, 5, dtype=np.uint8),
                                     np.float32(0.2), np.uint8(3), np.float32(2.5), np.uint8(128)], differs="8-bit floats from 21")


def batch_first(results):
    """[steps, directions, batch, hidden] and [directions, batch, hidden] of layout 0 as layout 1 has them."""
    return [results[0].transpose(2, 0, 1, 3), *(y.transpose(1, 0, 2) for y in results[1:])]


def recurrent():
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
    for op, count in gates.items():
        hidden, size, batch, steps = 5, 3, 2, 4
        for version in (7, 14):
            operands = [f(steps, batch, size), f(2, count * hidden, size) * 0.5, f(2, count * hidden, hidden) * 0.5, f(2, 2 * count * hidden)]
            attributes = {"hidden_size": hidden, "direction": "bidirectional"}
            lengths = np.array([4, 2], np.int32)
            case = Case(op, version, [*operands, lengths], attributes, outputs=3 if op == "LSTM" else 2, constants=(1, 2, 3),
                        differs="layout, not before 14; other types from 22")
            if version == 14:  # onnxruntime has no layout
                case.twin, case.expected = dataclasses.replace(case), batch_first
                case.inputs = [operands[0].transpose(1, 0, 2).copy(), *operands[1:], lengths]
                case.attributes = {**attributes, "layout": 1}
            yield case
        yield Case(op, 7, [f(steps, batch, size), f(1, count * hidden, size), f(1, count * hidden, hidden), None, None, f(1, batch, hidden)],
                   {"hidden_size": hidden, "direction": "reverse", "clip": 0.8}, outputs=2, constants=(1, 2))


def movement():
    x = f(2, 3, 4)
    for version in (9, 11):
        yield Case("Compress", version, [x, np.array([True, False, True])], {"axis": 1 if version == 9 else -2}, differs="negative axes from 11")
    yield Case("Compress", 11, [x, np.array([False, True, True, False, True])], differs="without an axis, of the elements in a row")
    yield Case("Concat", 11, [x, f(2, 1, 4)], {"axis": -2}, differs="negative axes, not before 11")
    image = f(1, 8, 2, 3)
    yield Case("DepthToSpace", 1, [image], {"blocksize": 2}, differs="mode from 11")
    for version in (11, 13):
        yield Case("DepthToSpace", version, [image], {"blocksize": 2, "mode": "CRD"}, differs="bfloat16 from 13")
    for version in (1, 13):
        yield Case("SpaceToDepth", version, [f(1, 2, 4, 6)], {"blocksize": 2}, differs="bfloat16 from 13")
    yield Case("EyeLike", 9, [f(3, 4)], {"k": 1, "dtype": TensorProto.DOUBLE})
    for version, axis in ((9, 2), (11, -1), (21, 0), (23, 1), (24, -2)):
        yield Case("Flatten", version, [x], {"axis": axis}, differs="negative axes from 11")
    yield Case("Gather", 11, [x, ints(-1, 0, 2)], {"axis": -2}, differs="negative indices, not before 11")
    yield Case("GatherElements", 11, [x, whole(3, 2, 2, 4, begin=-3)], {"axis": 1})
    yield Case("GatherND", 11, [x, ints(0, 2, 1, -1).reshape(2, 2)], differs="batch_dims from 12")
    yield Case("GatherND", 12, [x, ints(2, 0).reshape(2, 1)], {"batch_dims": 1}, differs="bfloat16 from 13")
    for version in (14, 21):
        yield Case("Identity", version, [x])
    for version in (9, 11):
        yield Case("OneHot", version, [whole(5, 2, 3), np.int64(5), np.array([0.5, 2], np.float32)], {"axis": 1 if version == 9 else -2},
                   constants=(1,), differs="negative axes and indices from 11")
    for version in (11, 13):
        for mode in ("constant", "edge", "reflect"):
            yield Case("Pad", version, [x, ints(0, 1, 2, 0, 1, 1), *([np.float32(3)] if mode == "constant" else [])], {"mode": mode}, constants=(1, 2),
                       differs="axes from 18")
    for version in (19, 21, 23):
        yield Case("Pad", version, [x, ints(2, 3), None, ints(-1)], {"mode": "wrap"}, constants=(1, 3), differs="wrap, not before 19")
        yield Case("Pad", version, [x, ints(-1, 2), np.float32(1), ints(1)], constants=(1, 3))
    yield Case("ReverseSequence", 10, [f(4, 3, 2), ints(4, 2, 1)], {"time_axis": 0, "batch_axis": 1})
    indices, updates = whole(3, 2, 2, 4), f(2, 2, 4)
    # No index twice without a reduction, or what is left would depend on the order.
    indices = np.array([[[0, 1, 2, 0], [1, 2, 0, 2]], [[2, 0, 1, 1], [0, 1, 2, 2]]])
    for version in (11, 13):
        yield Case("ScatterElements", version, [x, indices - 3, updates], {"axis": 1}, differs="a reduction from 16")
    for op in ("add", "mul"):
        yield Case("ScatterElements", 16, [x, whole(3, 2, 2, 4), updates], {"axis": 1, "reduction": op}, differs="min and max from 18")
    pairs = ints(0, 2, 1, -1).reshape(2, 2)
    for version in (11, 13):
        yield Case("ScatterND", version, [x, pairs, f(2, 4)], differs="a reduction from 16")
    for op in ("add", "mul"):
        yield Case("ScatterND", 16, [x, ints(0, 2, 0, 2).reshape(2, 2), f(2, 4)], {"reduction": op}, differs="min and max from 18")
    yield Case("Shape", 1, [x], differs="start and end from 15")
    for version in (1, 21, 24):
        yield Case("Size", version, [x])
    yield Case("Slice", 10, [x, ints(0, 3), ints(2, -9), ints(1, 2), ints(1, -2)], constants=(1, 2, 3, 4), differs="negative axes from 11")
    yield Case("Split", 11, [f(2, 6)], {"axis": -1, "split": [1, 3, 2]}, outputs=3, differs="sizes are an operand from 13")
    yield Case("Split", 11, [f(2, 6)], {"axis": 1}, outputs=2, differs="equal parts")
    yield Case("Squeeze", 11, [f(1, 3, 1)], {"axes": [-1]}, differs="axes are an operand from 13")
    yield Case("Squeeze", 11, [f(1, 3, 1)])
    yield Case("Transpose", 21, [x], {"perm": [2, 0, 1]})
    yield Case("Cast", 6, [f(3, 4) * 9], {"to": TensorProto.INT32}, differs="strings from 9")
    large = f(3, 4) * 1000
    yield Case("Cast", 19, [large], {"to": TensorProto.FLOAT8E4M3FN, "saturate": 0}, differs="saturate, not before 19",
               expected=[large.astype(ml_dtypes.float8_e4m3fn)])
    yield Case("Cast", 19, [large * 99], {"to": TensorProto.FLOAT8E5M2},
               expected=[np.clip(large * 99, -57344, 57344).astype(ml_dtypes.float8_e5m2)])
    yield Case("CastLike", 21, [f(3, 4) * 9, np.zeros(2, np.int16)])
    yield Case("Constant", 12, [], {"value_floats": [1.5, 2.5]}, differs="value_float, value_ints and the like, not before 12")
    yield Case("Constant", 12, [], {"value_int": 7})
    yield Case("ConstantOfShape", 21, [ints(2, 3)], {"value": helper.make_tensor("v", TensorProto.INT16, [1], [7])}, constants=(0,))
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
    yield Case("NonMaxSuppression", 10, [boxes, np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32), np.int64(3), np.float32(0.5), np.float32(0.5)],
               constants=(2, 3, 4), differs="operands may be absent from 11")


def quantized():
    x, scale, zero = f(3, 4) * 20, np.array([0.2, 0.5, 1], np.float32), np.array([3, 5, 9], np.uint8)
    yield Case("DequantizeLinear", 10, [whole(255, 3, 4, dtype=np.uint8), np.float32(0.3), np.uint8(7)], differs="one scale, until 13")
    yield Case("DequantizeLinear", 13, [whole(255, 3, 4, dtype=np.uint8), scale, zero], {"axis": 0}, differs="8-bit floats from 19")
    yield Case("DequantizeLinear", 19, [f(3, 4).astype(ml_dtypes.float8_e4m3fn), np.float32(0.3)], differs="8-bit floats, not before 19")
    blocks = [whole(9, 4, 6, dtype=np.int16), between(0.1, 1, 2, 6)]
    for version in (21, 23, 24, 25):
        yield Case("DequantizeLinear", version, blocks, {"axis": 0, "block_size": 2}, differs="blocks and 16 bits, not before 21")
    yield Case("QuantizeLinear", 13, [x, scale, zero], {"axis": -2}, differs="8-bit floats from 19")
    yield Case("QuantizeLinear", 19, [x, np.float32(0.5), np.zeros((), ml_dtypes.float8_e5m2)], {"saturate": 1}, differs="8-bit floats, not before 19")
    left, right, narrow = f(3, 4).astype(ml_dtypes.float8_e4m3fn), f(4, 5).astype(ml_dtypes.float8_e4m3fn), ml_dtypes.float8_e5m2
    exact = 0.5 * 0.25 / 0.125 * left.astype(np.float32) @ right.astype(np.float32)
    yield Case("QLinearMatMul", 21, [left, np.float32(0.5), np.zeros((), left.dtype), right, np.float32(0.25), np.zeros((), right.dtype),
                                     np.float32(0.125), np.zeros((), narrow)], differs="8-bit floats, not before 21", expected=[exact.astype(narrow)])
    for version in (21, 23, 24, 25):
        yield Case("QuantizeLinear", version, [f(4, 6) * 20, between(0.1, 1, 2, 6), whole(9, 2, 6, dtype=np.int16)], {"axis": 0, "block_size": 2},
                   differs="blocks and 16 bits, not before 21")
        yield Case("QuantizeLinear", version, [x, np.float32(0.5)], {"output_dtype": TensorProto.INT8}, differs="output_dtype, not before 21")


def random():
    """What only one draw can give."""
    for version in (1, 22):
        yield Case("RandomUniform", version, [], {"shape": [2, 3], "low": 1.5, "high": 1.5}, expected=[np.full((2, 3), 1.5)])
        yield Case("RandomNormal", version, [], {"shape": [2, 3], "mean": 1.5, "scale": 0.0}, expected=[np.full((2, 3), 1.5)])
        yield Case("RandomNormalLike", version, [f(2, 3)], {"mean": 1.5, "scale": 0.0}, expected=[np.full((2, 3), 1.5)])
    yield Case("RandomUniformLike", 1, [f(2, 3)], {"low": 1.5, "high": 1.5}, expected=[np.full((2, 3), 1.5)])
    for version in (7, 22):
        odds = np.full((3, 5), -1e9, np.float32)
        odds[[0, 1, 2], [4, 0, 2]] = 0
        yield Case("Multinomial", version, [odds], {"sample_size": 6}, expected=[np.repeat(np.array([[4], [0], [2]]), 6, 1)])
    certain = whole(2, 3, 4).astype(np.float32)
    yield Case("Bernoulli", 15, [certain], differs="the body of 15, not its text, draws 1 with the probability of 0", expected=[certain])


def control():
    def inside(op, names, out):
        return helper.make_node(op, names, [out])

    for version in (1, 21, 23, 24, 25):
        for taken in (True, False):
            yield Case("If", version, [np.array(taken)], {"then_branch": constant("t", 1.5), "else_branch": constant("e", -2.5)})
    for version in (1, 19, 21, 23, 24):
        body = helper.make_graph(
            [inside("Add", ["v", "v"], "w"), inside("Identity", ["c"], "go"), inside("Identity", ["w"], "row")], "body",
            [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [2])],
            [info("go", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [2]), info("row", TensorProto.FLOAT, [2])])
        yield Case("Loop", version, [np.int64(3), np.array(True), f(2)], {"body": body}, outputs=2, constants=(0, 1))
    for version in (11, 16, 19, 21, 23, 24):
        body = helper.make_graph(
            [inside("Add", ["s", "x"], "t"), inside("Identity", ["t"], "y")], "body",
            [info("s", TensorProto.FLOAT, [2]), info("x", TensorProto.FLOAT, [2])],
            [info("t", TensorProto.FLOAT, [2]), info("y", TensorProto.FLOAT, [2])])
        yield Case("Scan", version, [f(2), f(2, 4)], {"body": body, "num_scan_inputs": 1, "scan_input_axes": [-1], "scan_input_directions": [1]},
                   outputs=2, differs="negative axes, not before 11")
    x = f(2)
    yield Case("OptionalGetElement", 18, [x], differs="a tensor is itself, not before 18")
    yield Case("OptionalHasElement", 18, [x], differs="a tensor is an element, not before 18")


def constant(name, value):
    return helper.make_graph([helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.full((2,), value, np.float32)))], name, [],
                             [info(name, TensorProto.FLOAT, [2])])


def learned():
    x = f(4, 3)
    yield Case("Imputer", 1, [np.array([[1, np.nan], [np.nan, 2]], np.float32)], {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")}, domain=ML)
    yield Case("Imputer", 1, [whole(3, 4, 2)], {"imputed_value_int64s": [9], "replaced_value_int64": 1}, domain=ML)
    yield Case("Imputer", 1, [np.array([[1, 2, 0]], np.float32)], {"imputed_value_floats": [7.0]}, domain=ML)
    yield Case("FeatureVectorizer", 1, [f(4, 2), f(4, 3)], {"inputdimensions": [2, 3]}, domain=ML)
    yield Case("LabelEncoder", 2, [whole(5, 6)], {"keys_int64s": [1, 3, 4], "values_floats": [0.5, 1.5, 2.5], "default_float": -9.0}, domain=ML,
               differs="tensors as tables from 4")
    words = np.array(["b", "no such", "a"], object)
    for op, tables in (("LabelEncoder", {"classes_strings": ["a", "b"]}), ("CategoryMapper", {"cats_strings": ["a", "b"], "cats_int64s": [0, 1]})):
        yield Case(op, 1, [words], {**tables, "default_int64": 7}, domain=ML, differs="one table of strings, until 2")
        yield Case(op, 1, [whole(3, 4)], {**tables, "default_string": "other"}, domain=ML)
    for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        yield Case("LinearClassifier", 1, [x], {"coefficients": f(9).tolist(), "intercepts": f(3).tolist(), "classlabels_ints": [3, 5, 9], "multi_class": 0,
                                                "post_transform": transform}, outputs=2, domain=ML)
    for transform in ("NONE", "LOGISTIC"):
        yield Case("LinearClassifier", 1, [x], {"coefficients": f(3).tolist(), "intercepts": [0.1], "classlabels_ints": [4, 6], "post_transform": transform},
                   outputs=2, domain=ML)
    yield Case("LinearRegressor", 1, [x], {"coefficients": f(6).tolist(), "intercepts": [0.5, -1.0], "targets": 2}, domain=ML)
    for norm in ("MAX", "L1", "L2"):
        yield Case("Normalizer", 1, [x], {"norm": norm}, domain=ML)
    yield Case("OneHotEncoder", 1, [whole(4, 5)], {"cats_int64s": [1, 2, 3], "zeros": 1}, domain=ML)
    yield Case("OneHotEncoder", 1, [whole(3, 5, 2, begin=1).astype(np.float32)], {"cats_int64s": [1, 2, 3], "zeros": 0}, domain=ML)
    yield Case("Scaler", 1, [x], {"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 3.0]}, domain=ML)
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        yield Case("SVMRegressor", 1, [x], {"coefficients": f(5).tolist(), "support_vectors": f(15).tolist(), "n_supports": 5, "rho": [0.3],
                                            "kernel_type": kernel, "kernel_params": [0.4, 0.2, 3.0]}, domain=ML)
    yield Case("SVMRegressor", 1, [x], {"coefficients": f(3).tolist(), "rho": [0.3], "n_supports": 0, "one_class": 1}, domain=ML)
    for labels, each in (([4, 7], [2, 3]), ([4, 7, 9], [2, 1, 2])):
        pairs = len(labels) * (len(labels) - 1) // 2
        for kernel, transform in (("RBF", "NONE"), ("LINEAR", "LOGISTIC"), ("POLY", "SOFTMAX")):
            yield Case("SVMClassifier", 1, [x], {"coefficients": f(5 * (len(labels) - 1)).tolist(), "support_vectors": f(15).tolist(),
                                                 "vectors_per_class": each, "rho": f(pairs).tolist(), "classlabels_ints": labels,
                                                 "kernel_type": kernel, "kernel_params": [0.4, 0.2, 2.0], "post_transform": transform}, outputs=2,
                       domain=ML)
    # Probabilities, of scores whose signs need not be those of the votes.
    for kernel, each in (("RBF", [2, 3]), ("LINEAR", [2, 1, 2]), ("SIGMOID", [1, 2, 3, 1, 2])):
        count, pairs = sum(each), len(each) * (len(each) - 1) // 2
        for transform in ("NONE", "LOGISTIC"):
            yield Case("SVMClassifier", 1, [f(17, 3)], {"coefficients": f(count * (len(each) - 1)).tolist(), "support_vectors": f(3 * count).tolist(),
                                                        "vectors_per_class": each, "rho": f(pairs).tolist(), "prob_a": f(pairs).tolist(),
                                                        "prob_b": f(pairs).tolist(), "classlabels_ints": list(range(4, 4 + len(each))),
                                                        "kernel_type": kernel, "kernel_params": [0.4, 0.2, 2.0], "post_transform": transform},
                       outputs=2, domain=ML)
    tree = dict(nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_values=[0.1, 0.0, 0.0],
                nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0])
    for version in (1, 3):
        yield Case("TreeEnsembleRegressor", version, [x], {**tree, "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 1],
                                                           "target_weights": [1.5, -2.5], "n_targets": 2, "aggregate_function": "SUM"}, domain=ML,
                   differs="tables as tensors from 3; deprecated from 5")
        first = x[:, 1] < 0.1  # of two classes, each with leaves of its own, onnxruntime says the label 1, which is none
        yield Case("TreeEnsembleClassifier", version, [x], {**tree, "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
                                                            "class_weights": [1.5, 2.5], "classlabels_int64s": [4, 7]}, outputs=2, domain=ML,
                   expected=[np.where(first, 4, 7), np.stack([1.5 * first, 2.5 * ~first], 1)])


def all_cases():
    return list(itertools.chain(elementwise(), reductions(), windows(), normalizations(), products(), recurrent(), movement(), quantized(), random(),
                                control(), learned()))
