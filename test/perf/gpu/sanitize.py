# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compute-sanitizer over every family of kernels.

    sanitize.py prepare FOLDER      without a GPU: a small engine for each form; fails when a family that
                                    include/lathe/codegen/Skeletons.def names has none
    sanitize.py run FOLDER [N] [S]  on a GPU: memcheck, synccheck, initcheck and racecheck over all of them, N processes
                                    for each tool side by side (4), none of them after S seconds; fails on anything that
                                    FALSE does not explain, and on what did not run, whose
                                    whole reports it leaves in FOLDER

No torch is needed: inputs are random bits and results stay on the device. That every byte of a result is written, and
rightly, is what the race programs check: they fill results with NaN before.
"""
import ctypes as C
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from generated import LATHE, SOURCE, TARGET, compile_cubin, prepare_all

TOOLS = ("memcheck", "synccheck", "initcheck", "racecheck")
# (tool, part, pattern of a report's first line): why it is no fault. One by one; nothing else is left out.
FALSE = {
    ("initcheck", "control.bulk", r"^Host API memory access error"):
        "initcheck does not see what bulk copies write: a kernel that stores a constant with cp.async.bulk is reported when "
        "the host reads it, though all words arrive; the same with plain stores is not. So engines' results, which the "
        "TMA may have written, are not read by the host here",
}

# (tool, engine): why it is left out there.
LEFT_OUT = {("racecheck", "attention.warpgroups"): "three warpgroups run from some 400 tiles of queries on, which takes racecheck minutes; "
                                              "their text is that of two warpgroups (attention.causal, attention.full), with another number"}

# ---- What is run --------------------------------------------------------------------------------


def gemms():
    from race_gemm import save_model
    force = lambda tile: ["--config", "*=gemm." + tile]
    form = lambda *case, more=(): (lambda path: save_model(path, *case, constant=case[1] * case[2] > 4096), list(more))
    return {
        "gemm": {
            "pingpong_residual": form(300, 520, 520, "residual", True, more=force("pingpong.m128.n128")),
            "pingpong_gelu": form(100, 264, 264, "bias+gelu", True, more=force("pingpong.m64.n64")),
            "cooperative": form(300, 520, 520, "", True, more=force("cooperative.m128.n256")),
            "across": form(300, 520, 520, "", False, more=force("pingpong.m128.n128")),
            "quantize": form(300, 512, 512, "quantize", True, more=force("pingpong.m128.n64")),
            "quantize_amax": form(304, 512, 520, "quantize+amax", True), "swiglu_amax": form(304, 640, 520, "swiglu+amax", True),
            "swapped": form(300, 520, 520, "residual", True, more=force("pingpong.swapped.m96.n128")),
            "swapped_cooperative": form(300, 520, 520, "residual", True, more=force("cooperative.swapped.m96.n128")),
            "paired": form(1500, 1920, 264, "", True, more=force("pingpong.m128.n128.c2")),
            "paired_cooperative": form(300, 520, 520, "residual", True, more=force("cooperative.m128.n256.c2")),
            "shared": form(1500, 1920, 264, "", True, more=force("pingpong.streamk.m128.n128")),
            "shared_cooperative": form(1500, 1920, 264, "", True, more=force("cooperative.streamk.m128.n128")),
            "odd_result": form(129, 129, 64, "bias+gelu", True)},
        "gemm.few": {
            "split": form(70, 264, 520, "", True, more=force("split.m64.n32")),
            "split_cluster": form(16, 776, 1032, "residual", True, more=force("split.m64.n64.c4")),
            "pair": form(70, 736, 512, "swiglu", True), "pair_few": form(7, 736, 512, "swiglu", True),
            "skinny": form(7, 776, 1032, "", True), "stream": form(7, 3000, 1032, "residual", True, more=force("stream")),
            "stream_pair": form(13, 1520, 1032, "swiglu", True, more=force("stream.t384.s3")), "row": form(1, 776, 1032, "bias+gelu", True),
            "columns": form(1, 776, 1032, "", False)},
        "gemm.heads": {
            "row": rotated(1, 1, 128, 1032), "tiles": rotated(2, 1088, 64, 264),
            "ragged": rotated(1, 2101, 128, 264), "direct": rotated(3, 705, 128, 264),
            "row_neighbours": rotated(1, 1, 128, 1032, True), "neighbours": rotated(1, 2101, 128, 264, True),
            "direct_neighbours": rotated(3, 705, 128, 264, True)},
        "gemm.portable": {
            "along": form(2, 200, 1029, "", True), "across": form(2, 77, 301, "", False), "mma": form(100, 77, 45, "", False),
            "mma_residual": form(130, 77, 261, "residual", True), "heads": (heads, []), "batched": (batched, []),
            "simt": (lambda path: matmul(path, [70, 45], [45, 33], "FLOAT"), []),
            "random": (random_weights, ["--random-weights=1"])}}


def quantized():
    from race_gemm8 import save_model
    form = lambda *case: (lambda path: save_model(path, *case), ["--allow=tf32"] if case[3] == "tf32" else
                          ["--allow=reduced-sums"] if "fast" in case[3] else [])
    return {"gemm8": {f"{m}_{kind}": form(m, n, k, kind) for m, n, k in ((150, 264, 272),) for kind in (
        "e4m3", "e4m3fast", "e4m3+quantize", "e5m2", "int8", "int8+scale", "int8+quantize", "tf32")} |
        {"304_e4m3_amax": form(304, 256, 272, "e4m3+quantize+amax")},
        "gemm8.few": {f"{m}_{kind}": form(m, n, k, kind) for m, n, k in ((16, 512, 8192), (1, 256, 272)) for kind in (
            "e4m3", "e4m3fast", "int8")}}


def mixed_input():
    from race_weights import save_model
    form = lambda *case: (lambda path: save_model(path, *case), [])
    return {"gemm.mixed": {
        "row": form(1, 776, 1040, "u8", 16, True), "skinny": form(7, 776, 1040, "e4m3", 0, False),
        "cluster": form(70, 264, 1040, "i8", 48, False), "high": form(300, 776, 528, "i8", 0, False)}}


def convolutions():
    from race_conv import Case, save_model

    def form(*size, config="", **more):
        case = Case("forms", *size, **more)
        kernel = "conv_add" + "_add" * ("residual" in case.epilogue) + "_max" * ("relu" in case.epilogue) + "_0"
        return lambda path: save_model(path, case), ["--config", f"{kernel}=conv.{config}"] if config else []
    return {
        "conv": {
            "pingpong": form(2, 136, 152, 3, 1, (13, 11), "residual+relu", config="pingpong.m128.n128"),
            "cooperative": form(2, 192, 60, 3, 2, (37, 21), "relu", config="cooperative.m256.n64"),
            "swapped": form(2, 136, 152, 3, 1, (13, 11), "residual+relu", config="pingpong.swapped.m112.n64"),
            "swapped_cooperative": form(2, 136, 152, 3, 1, (13, 11), "relu", config="cooperative.swapped.m96.n128"),
            "split": form(5, 128, 320, [3], [1], [301], "", config="split.m64.n32.c4"),
            "dilated": form(2, 128, 128, 3, 1, (31, 7), "relu", dilation=2, pads=[2, 2, 2, 2]),
            "volume": form(2, 64, 64, 3, 1, (5, 9, 7), "relu"), "groups": form(1, 256, 128, 3, 2, 15, "residual+relu", groups=4)},
        "conv.other": {
            "stem": form(2, 3, 64, 7, 2, (64, 48), "relu"), "mma": form(2, 1, 96, 5, 2, (20, 72), "residual+relu"),
            "depthwise": form(2, 32, 32, 3, 1, 14, "relu", groups=32), "small_groups": form(2, 96, 96, 3, 2, (19, 21), "relu", groups=4),
            "pairs_of_groups": form(2, 32, 32, 3, 1, (19, 21), "relu", groups=8),
            "long_windows": form(2, 96, 96, [72], [1], [150], "", groups=2),
            "simt": (lambda path: convolution(path, 3, 17, 1), []), "direct": (lambda path: convolution(path, 6, 12, 6), []),
            "planes": (lambda path: convolution(path, 6, 6, 6), [])}}


def attentions():
    import onnx
    from onnx import helper
    from race_attention import graph_of

    def form(kind, *shape):
        def save(path):
            onnx.save(helper.make_model(graph_of(kind, shape), opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path)
        return save, []
    return {
        "attention": {
            "causal": form("causal", 1, 2, 1, 333, 333, 128), "full": form("full", 2, 2, 1, 197, 197, 96),
            "masked": form("masked", 1, 1, 1, 200, 200, 192), "softcap": form("softcap", 1, 1, 1, 200, 200, 128),
            "alibi": form("alibi", 1, 1, 1, 200, 200, 64), "wide": form("causal", 1, 2, 1, 65, 65, 256),
            "warpgroups": form("full", 7, 16, 16, 800, 800, 64), "odd": form("full", 1, 2, 2, 100, 100, 20),
            "padded": form("padded", 7, 16, 16, 300, 300, 64), "padding": form("padding", 2, 4, 2, 197, 197, 96),
            "pages": form("pagedcausal", 1, 2, 1, 208, 208, 128), "sums": form("maskedsums", 1, 2, 1, 200, 208, 128)},
        "attention.blocks": {
            "document": form("document", 1, 1, 1, 1100, 1100, 128), "window": form("window", 1, 1, 1, 1031, 1031, 64),
            "lengths": form("lengths", 1, 1, 1, 1100, 1100, 128), "padding": form("padding", 1, 1, 1, 1031, 1031, 64)},
        "attention.few": {
            "decode": form("full", 1, 8, 2, 1, 500, 128), "made": (made_keys, []), "decode4": form("full", 1, 8, 2, 4, 500, 128),
            "cached": form("causal", 2, 8, 2, 7, 333, 80), "paged": form("paged", 3, 8, 2, 4, 208, 64),
            "many": form("full", 70, 8, 2, 1, 200, 128), "sums": form("sums", 1, 8, 2, 1, 500, 128), "thin": form("full", 1, 2, 2, 1, 77, 8),
            "float": (lambda path: attention32(path, 40), []), "float1": (lambda path: attention32(path, 1), [])}}


def memory_forms():
    import onnx
    from onnx import TensorProto, helper
    from race import models
    node = helper.make_node

    def form(name, rows, columns, width=2):
        def save(path):
            nodes, inputs, outputs, _ = models(rows, columns, width)[name]
            kind = TensorProto.BFLOAT16 if width == 2 else TensorProto.FLOAT
            values = lambda v: [helper.make_tensor_value_info(n, kind, s) for n, s in v.items()]
            save_graph(path, nodes, values(inputs), values(outputs))
        return save, []
    names = ("gelu", "chain", "residual", "rmsnorm", "layernorm", "softmax", "transpose", "colsum")
    return {"memory": {f"{name}": form(name, 20, 4096) for name in names},
            "memory.odd": {f"{name}": form(name, 33, 1237, 4) for name in names},
            "memory.more": {f"{name}_{rows}x{columns}": form(name, rows, columns) for name, rows, columns in (
                ("colsum", 1000, 769), ("colsum", 1024, 512), ("softmax", 40, 77), ("layernorm", 9, 769), ("rmsnorm", 5, 1000),
                ("softmax", 2, 32768), ("rmsnorm", 2, 65536), ("transpose", 77, 136), ("residual", 1, 131072))},
            "memory.shared": {f"{name}_{rows}x{columns}": form(name, rows, columns) for name, rows, columns in (
                ("colsum", 9000, 16), ("colsum", 20001, 3), ("layernorm", 1, 400000), ("softmax", 3, 300001), ("softmax", 4099, 40),
                ("rmsnorm", 4099, 77))},
            "memory.rows": {**{f"{name}_{columns}_{width}": form(name, rows, columns, width) for name in ("softmax", "layernorm")
                               for rows, columns, width in ((1, 262144, 2), (2, 65536, 4), (30, 512, 2))},
                            "scan": (lambda path: scan(path), []), "scatter": (lambda path: scatter(path, "none"), []),
                            "scatter_add": (lambda path: scatter(path, "add"), []),
                            "scatter_pieces": (lambda path: scatter(path, "add", 300), []),
                            "scatter_ahead": (lambda path: scatter(path, "add", 30000, 3), []),
                            "resize": (resize, []),
                            "transpose_few": (lambda path: save_graph(path, [node("Transpose", ["x"], ["y"], perm=[1, 2, 0])],
                                                                      [value("x", [5, 1237, 8])], [value("y", [1237, 8, 5])]), [])}}


def packed():
    from race_int4 import save_model

    def form(m, kind, block, zero, k=1040, n=264):
        return (lambda path: save_model(path, m, n, k, kind, block, zero)), []
    return {"gemm.packed": {"int4_1": form(1, "u4", 128, True, k=1024), "int4_16": form(16, "i4", 128, False, k=1024),
                            "int4_deep": form(16, "i4", 128, False, k=14336), "int4_100": form(100, "i4", 128, False, k=1024, n=256),
                            "int8_200": form(200, "i8", 0, False, k=1024, n=256), "int8_5": form(5, "i8", 0, False),
                            "int8_100": form(100, "i8", 0, False)}}


def selections():
    """What finds places: in its results are as many as the run finds, so that the host reads a count."""
    from onnx import TensorProto, helper
    node, numbers = helper.make_node, lambda name, *v: helper.make_tensor(name, TensorProto.INT64, [len(v)], v)

    def top(rows, columns, k):
        return (lambda path: save_graph(path, [node("TopK", ["x", "k"], ["y", "i"])], [value("x", [rows, columns], "FLOAT")],
                                        [value("y", [rows, k], "FLOAT"), value("i", [rows, k], "INT64")], [numbers("k", k)])), []

    def found(rows):
        return (lambda path: save_graph(path, [node("NonZero", ["x"], ["y"])], [value("x", [rows, 1001], "BOOL")],
                                        [value("y", [2, "n"], "INT64")])), []

    def boxes(path):
        save_graph(path, [node("NonMaxSuppression", ["x", "s", "most", "iou"], ["y"])],
                   [value("x", [1, 700, 4], "FLOAT"), value("s", [1, 3, 700], "FLOAT")], [value("y", ["n", 3], "INT64")],
                   [numbers("most", 20), helper.make_tensor("iou", TensorProto.FLOAT, [1], [0.5])])

    def short(path):
        matmul(path, [3, 1, 40], [3, 40, 264], "BFLOAT16", transposed=True)
    return {"selection": {"top_short": top(300, 200, 5), "top_few": top(40, 1000, 5), "top_long": top(2, 70001, 50),
                          "top_many": top(3, 2000, 1500), "sort": top(3, 5000, 5000), "nonzero": found(37), "nonzero_few": found(3),
                          "nms": (boxes, [])},
            "gemv.short": {"batched": (short, [])}}


def transforms():
    from onnx import TensorProto, helper
    number = lambda name, v: helper.make_tensor(name, TensorProto.INT64, [], [v])

    def frames(path):
        save_graph(path, [helper.make_node("STFT", ["x", "step", "", "length"], ["y"])], [value("x", [3, 5000, 1], "FLOAT")],
                   [value("y", [3, 46, 201, 2], "FLOAT")], [number("step", 100), number("length", 400)])

    def rows(size, parts, results, **attributes):
        return (lambda path: save_graph(path, [helper.make_node("DFT", ["x", "", "axis"], ["y"], **attributes)],
                                        [value("x", [7, size, parts], "FLOAT")], [value("y", [7, *results], "FLOAT")],
                                        [number("axis", 1)])), []
    return {"fourier": {"frames": (frames, []), "complex": rows(1001, 2, [1001, 2], inverse=1),
                        "half": rows(33, 2, [64, 1], inverse=1, onesided=1)}}


def all_cases():
    return {**gemms(), **quantized(), **mixed_input(), **packed(), **convolutions(), **attentions(), **memory_forms(), **selections(),
            **transforms()}


def save_graph(path, nodes, inputs, outputs, constants=(), opset=23):
    import onnx
    from onnx import helper
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)


def value(name, dims, kind="BFLOAT16"):
    from onnx import TensorProto, helper
    return helper.make_tensor_value_info(name, getattr(TensorProto, kind), dims)


def matmul(path, a, b, kind, transposed=False):
    """`transposed`: B is given as [.., n, k]."""
    from onnx import helper
    order = [*range(len(b) - 2), len(b) - 1, len(b) - 2]
    nodes = [helper.make_node("Transpose", ["t"], ["b"], perm=order)] * transposed + [helper.make_node("MatMul", ["a", "b"], ["y"])]
    save_graph(path, nodes, [value("a", a, kind), value("t", [b[i] for i in order], kind) if transposed else value("b", b, kind)],
               [value("y", [*a[:-1], b[-1]], kind)])


def batched(path):
    matmul(path, [3, 100, 64], [3, 64, 72], "BFLOAT16")


def heads(path):
    """Rows are stored as heads of tokens."""
    from onnx import TensorProto, helper
    node = helper.make_node
    shape = helper.make_tensor("s", TensorProto.INT64, [4], [2, 128, 4, 64])
    save_graph(path, [node("MatMul", ["a", "w"], ["p"]), node("Reshape", ["p", "s"], ["r"]),
                      node("Transpose", ["r"], ["y"], perm=[0, 2, 1, 3])],
               [value("a", [2, 128, 512]), value("w", [512, 256])], [value("y", [2, 4, 128, 64])], [shape])


def rotated(batch, tokens, size, width, neighbours=False):
    """Three heads that are rotated by their positions, halves or neighbours together, and two beside them."""
    def save(path):
        import onnx
        from onnx import TensorProto, helper
        node = helper.make_node
        numbers = {"shape": [batch, tokens, 5, size], "zero": [0], "three": [3], "five": [5], "half": [size // 2],
                   "whole": [size], "heads": [1], "last": [3], "two": [2], "end": [4], "back": [batch, 3, tokens, size]}
        weight = onnx.TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[5 * size, width],
                                  data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value="absent.bin")
        weight.external_data.add(key="length", value=str(2 * 5 * size * width))
        rotated = [node("Slice", ["q", "zero", "half", "last"], ["l"]), node("Slice", ["q", "half", "whole", "last"], ["u"]),
                  node("Neg", ["u"], ["n"]), node("Concat", ["n", "l"], ["c"], axis=3)]
        if neighbours:
            rotated = [node("Slice", ["q", "zero", "whole", "last", "two"], ["l"]),
                      node("Slice", ["q", "heads", "whole", "last", "two"], ["u"]), node("Neg", ["u"], ["n"]),
                      node("Unsqueeze", ["n", "end"], ["n1"]), node("Unsqueeze", ["l", "end"], ["l1"]),
                      node("Concat", ["n1", "l1"], ["c5"], axis=4), node("Reshape", ["c5", "back"], ["c"])]
        save_graph(path, [
            node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["a", "t"], ["m"]),
            node("Reshape", ["m", "shape"], ["r"]), node("Transpose", ["r"], ["p"], perm=[0, 2, 1, 3]),
            node("Slice", ["p", "zero", "three", "heads"], ["q"]), node("Slice", ["p", "three", "five", "heads"], ["o"]),
            *rotated, node("Mul", ["c", "sin"], ["d"]),
            node("Mul", ["q", "cos"], ["e"]), node("Add", ["e", "d"], ["y"]), node("Neg", ["o"], ["v"])],
            [value("a", [batch, tokens, width]), value("cos", [tokens, size]), value("sin", [tokens, size])],
            [value("y", [batch, 3, tokens, size]), value("v", [batch, 2, tokens, size])],
            [helper.make_tensor(n, TensorProto.INT64, [len(v)], v) for n, v in numbers.items()] + [weight])
    return save, ["--random-weights=1"]


def random_weights(path):
    """The weight's file is absent: it is made on the device."""
    import onnx
    from onnx import TensorProto, helper
    weight = onnx.TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[512, 520], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="absent.bin")
    weight.external_data.add(key="length", value=str(2 * 512 * 520))
    save_graph(path, [helper.make_node("MatMul", ["a", "w"], ["y"])], [value("a", [100, 512])], [value("y", [100, 520])], [weight])


def convolution(path, channels, filters, groups):
    from onnx import helper
    save_graph(path, [helper.make_node("Conv", ["x", "w"], ["y"], group=groups, pads=[1] * 4)],
               [value("x", [2, channels, 19, 23], "FLOAT"), value("w", [filters, channels // groups, 3, 3], "FLOAT")],
               [value("y", [2, filters, 19, 23], "FLOAT")])


def attention32(path, queries):
    from onnx import helper
    save_graph(path, [helper.make_node("Attention", ["q", "k", "v"], ["y"])],
               [value(n, [2, 3, t, 40], "FLOAT") for n, t in (("q", queries), ("k", 77), ("v", 77))],
               [value("y", [2, 3, queries, 40], "FLOAT")])


def made_keys(path):
    """Keys that a kernel of the program writes: they are not copied before it is over."""
    from onnx import helper
    keys, queries = [2, 3, 500, 64], [2, 3, 1, 64]
    save_graph(path, [helper.make_node("Relu", ["x"], ["k"]), helper.make_node("Attention", ["q", "k", "k"], ["y"])],
               [value("q", queries), value("x", keys)], [value("y", queries)])


def scan(path):
    from onnx import TensorProto, helper
    save_graph(path, [helper.make_node("CumSum", ["x", "axis"], ["y"])], [value("x", [33, 257], "FLOAT")],
               [value("y", [33, 257], "FLOAT")], [helper.make_tensor("axis", TensorProto.INT64, [], [1])])


def resize(path):
    """Four neighbours along rows and columns; few channels behind them."""
    from onnx import TensorProto, helper
    save_graph(path, [helper.make_node("Transpose", ["x"], ["c"], perm=[0, 3, 1, 2]),
                      helper.make_node("Resize", ["c", "", "scales"], ["r"], mode="cubic"),
                      helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1])],
               [value("x", [2, 33, 40, 5])], [value("y", [2, 66, 60, 5])],
               [helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 1.5])])


def scatter(path, reduction, updates=7, columns=65):
    from onnx import TensorProto, helper
    # Of seven no two of a column are the same.
    places = [(row * columns + column) % 33 for row in range(updates) for column in range(columns)]
    save_graph(path, [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction=reduction)],
               [value("x", [33, columns], "FLOAT"), value("u", [updates, columns], "FLOAT")], [value("y", [33, columns], "FLOAT")],
               [helper.make_tensor("i", TensorProto.INT64, [updates, columns], places)])


# ---- Without a GPU ------------------------------------------------------------------------------

CONTROL = """extern "C" __global__ void plain(unsigned *p) { p[threadIdx.x] = 7; }
extern "C" __global__ void bulk(unsigned *p) {
  __shared__ __align__(128) unsigned words[256];
  words[threadIdx.x] = 7;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;\\n"
                 "cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group 0;" ::
                 "l"(p), "r"((unsigned)__cvta_generic_to_shared(words)) : "memory");
}
"""


def families():
    """The families of GPU kernels: those of Skeletons.def that are not the CPU's."""
    listed = open(os.path.join(SOURCE, "include", "lathe", "codegen", "Skeletons.def")).read()
    names = set(re.findall(r"^LATHE_SKELETON\((?!kCpu)(\w+)\)", listed, re.M))
    found = {}
    for path in glob.glob(os.path.join(SOURCE, "codegen", "**", "*.cpp"), recursive=True):
        found.update(re.findall(r'Skeleton (k\w+) = \{\s*\.family = "([\w.]+)"', open(path).read()))
    if names - found.keys():
        sys.exit(f"no family was found of {' '.join(sorted(names - found.keys()))}")
    return {found[name] for name in names} | {"random"}


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    cases = [(group, name, *case) for group, forms in all_cases().items() for name, case in forms.items()]

    def one(case):
        group, name, save, options = case
        stem = os.path.join(folder, f"{group}.{name}".replace("+", "_"))
        save(stem + ".onnx")
        made = subprocess.run([LATHE, "compile", stem + ".onnx", f"--target={TARGET}", "-o", stem + ".lathe", *options],
                              capture_output=True, text=True)
        for end in (".onnx", ".onnx.bin"):
            if os.path.exists(stem + end):
                os.remove(stem + end)
        if made.returncode:
            return {"group": group, "name": name, "error": made.stderr.strip()}
        plan = json.loads(subprocess.run([LATHE, "inspect", stem + ".lathe", "--kernels", "--json"], check=True,
                                         capture_output=True).stdout)["plans"][0]
        configs = [v["config"] for k in plan["kernels"] for v in k["variants"]]
        return {"group": group, "name": name, "file": os.path.basename(stem) + ".lathe", "configs": configs}
    rows = prepare_all(cases, one)
    bad = [r for r in rows if "error" in r]
    for row in rows:
        print(f"{row['group']:18} {row['name']:20} {row.get('error') or ' '.join(row['configs'])}")
    covered = {re.split(r"\.[a-z]+\d", config)[0] for r in rows for config in r.get("configs", [])}
    covered |= {"random"} if any(r["name"] == "random" and "error" not in r for r in rows) else set()
    missing = sorted(families() - covered)
    open(os.path.join(folder, "control.cubin"), "wb").write(compile_cubin(CONTROL, "control.cu")[0])
    json.dump(rows, open(os.path.join(folder, "sanitize.json"), "w"), indent=1)
    print(f"{len(rows)} engines, {len(covered)} families" + (f"; NONE OF: {' '.join(missing)}" if missing else ""))
    return bool(bad or missing)


# ---- On a GPU -----------------------------------------------------------------------------------

def operand(port, rng):
    """Random bits that are small numbers, and places that exist."""
    import numpy as np
    dims = [int(d) for d in port.dims]
    if port.dtype == "bool":
        return rng.integers(0, 2, dims).astype(bool)
    if port.name == "table":
        return rng.permutation(int(np.prod(dims))).reshape(dims).astype(np.int32)
    if port.name == "lengths":
        return np.full(dims, 900, np.int64)
    if port.name in ("ids", "i"):
        return np.sort(rng.integers(0, 7, dims), axis=-1).astype(np.int64 if port.dtype == "i64" else np.int32)
    if port.dtype in ("f32", "f16"):
        return np.asarray(rng.standard_normal(dims), np.float32 if port.dtype == "f32" else np.float16)
    if port.dtype == "bf16":
        return (np.asarray(rng.standard_normal(dims), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if port.dtype.startswith("f8"):  # of size below 2
        return rng.integers(0, 256, dims).astype(np.uint8) & np.uint8(0xbf)
    return rng.integers(-100, 100, dims).astype({"i8": np.int8, "ui8": np.uint8, "i32": np.int32, "i64": np.int64}[port.dtype])


def run_engines(files):
    """What the sanitizer watches: each engine runs twice, the second time as a captured graph."""
    sys.path.insert(0, os.path.join(SOURCE, "python-frontend"))
    import lathe
    import numpy as np
    from lathe import _abi
    from lathe._tensor import input_tensor
    for file in files:
        rng = np.random.default_rng(1)
        engine = lathe.load(file)
        context = engine.context("cuda:0")
        made = [input_tensor(operand(p, rng), p.dtype, p.name)[0:2] for p in engine.inputs()]
        tensors = (_abi.CTensor * len(made))(*(tensor for tensor, _ in made))
        for _ in range(2):
            outputs = (_abi.CTensor * len(engine.outputs()))()
            for output in outputs:  # of any type: DLPack does not know all
                output.memory = _abi.DEVICE
            context._library.lathe_run(context._handle, engine.entries[0].encode(), tensors, len(made), outputs, len(outputs))
        print("RAN", os.path.basename(file), flush=True)
        del context, engine
    return 0


def run_control(file, name):
    cu, n = C.CDLL("libcuda.so.1"), 256
    device, context, module, function, memory = C.c_int(), C.c_void_p(), C.c_void_p(), C.c_void_p(), C.c_uint64()

    def call(what, *arguments):
        rc = getattr(cu, what)(*arguments)
        if rc:
            sys.exit(f"{what}: {rc}")
    call("cuInit", 0)
    call("cuDeviceGet", C.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", C.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", C.byref(module), open(file, "rb").read())
    call("cuModuleGetFunction", C.byref(function), module, name.encode())
    call("cuMemAlloc_v2", C.byref(memory), C.c_size_t(4 * n))
    arguments = (C.c_void_p * 1)(C.addressof(memory))
    call("cuLaunchKernel", function, 1, 1, 1, n, 1, 1, 0, None, arguments, None)
    call("cuCtxSynchronize")
    words = (C.c_uint32 * n)()
    call("cuMemcpyDtoH_v2", words, memory, C.c_size_t(4 * n))
    if list(words) != [7] * n:
        sys.exit("the words are not what was stored")
    print("RAN", name, flush=True)
    return 0


def reports(text):
    """First lines of what the sanitizer found; what belongs to them is indented."""
    lines = re.findall(r"^========= (\S.*)$", text, re.M)
    starts = [l for l in lines if re.match(r"(Invalid|Unininitialized|Uninitialized|Host API|Error|Warning|Race|Barrier|Divergent|"
                                           r"Potential|Program hit|Internal|Fatal|Misaligned|Address)", l)]
    return starts


def run(folder, processes, seconds):
    rows = json.load(open(os.path.join(folder, "sanitize.json")))
    jobs, begin = [], time.time()
    for tool in TOOLS:
        names = [r["file"][:-len(".lathe")] for r in rows if (tool, r["file"][:-len(".lathe")]) not in LEFT_OUT]
        known = [n for n in names if any(t == tool and n.startswith(p) for t, p, _ in FALSE)]  # by themselves
        files = [n + ".lathe" for n in names if n not in known]
        jobs += [(tool, n, [n + ".lathe"]) for n in known]
        jobs += [(tool, f"{i + 1} of {processes}", files[i::processes]) for i in range(processes)]
    jobs += [("initcheck", "control." + name, [name]) for name in ("plain", "bulk")]

    def one(job):
        tool, part, files = job
        command = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--print-limit", "20", sys.executable,
                   os.path.abspath(__file__)]
        command += ["control", os.path.join(folder, "control.cubin"), files[0]] if part.startswith("control.") else \
            ["engines", *(os.path.join(folder, f) for f in files)]
        made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            text = made.communicate(timeout=max(1, seconds - (time.time() - begin)))[0]
        except subprocess.TimeoutExpired:
            os.killpg(made.pid, signal.SIGKILL)
            text = made.communicate()[0] + "\nout of time"
        return job, made.returncode, text
    bad, explained = 0, 0
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in as_completed([pool.submit(one, job) for job in jobs]):
            (tool, part, files), status, text = done.result()
            ran = len(re.findall(r"^RAN ", text, re.M))
            counts = [int(n) for n in re.findall(r"(?:ERROR SUMMARY: |SUMMARY: \d+ hazards? displayed \()(\d+) errors?(?! were not printed)\b", text)]
            found = reports(text)
            why = [reason for (t, p, pattern), reason in FALSE.items() if t == tool and part.startswith(p) and sum(counts) > 0 and
                   all(re.search(pattern, f) for f in found)]
            ok = ran == len(files) and len(counts) == 1 and (counts == [0] or bool(why)) and status == 0
            explained += ok and bool(why)
            bad += not ok
            print(f"{tool:10} {part:14} {ran:2} of {len(files):2} ran, {sum(counts)} errors, at {time.time() - begin:.0f} s" +
                  (f"; no fault: {why[0]}: {found[0] if found else ''}" if ok and why else "") + ("" if ok else "  FAULT"), flush=True)
            if not ok:
                lines = text.splitlines()
                with open(os.path.join(folder, f"{tool}.{part}.txt".replace(" ", "_")), "w") as whole:
                    whole.write(text)
                print("\n".join(lines[:40] + ["..."] + lines[-12:] if len(lines) > 52 else lines), flush=True)
    for (tool, name), reason in LEFT_OUT.items():
        print(f"{tool} without {name}: {reason}")
    print(f"{len(TOOLS)} tools over {len(rows)} engines in {time.time() - begin:.0f} s: {bad} parts with faults, {explained} with "
          f"known false reports")
    return int(bad > 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) < 2 or words[0] not in ("prepare", "run", "engines", "control"):
        sys.exit(__doc__)
    if words[0] == "engines":
        sys.exit(run_engines(words[1:]))
    if words[0] == "control":
        sys.exit(run_control(words[1], words[2]))
    if words[0] == "prepare":
        sys.exit(prepare(words[1]))
    sys.exit(run(words[1], int(words[2]) if len(words) > 2 else 4, float(words[3]) if len(words) > 3 else 1e9))
