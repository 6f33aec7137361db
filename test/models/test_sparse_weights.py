# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights with blocks of zeros: products that leave them out against onnxruntime, with their epilogues, for one row
and many, in f32 and f16; what infinities make of zeros stays."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lathe_cli

K, H = 96, 80
TARGETS = ["x86-64-v3"]


def sparse(rng, depth, columns, share, rows=1):
    """Gaussian weights of which so many blocks of rows x 16 are zero."""
    w = rng.normal(size=(depth, columns))
    for k in range(0, depth, rows):
        for n in range(0, columns, 16):
            if rng.random() < share:
                w[k:k + rows, n:n + 16] = 0
    return w


def write_model(path, dtype=np.float32, rows=1):
    """x through two layers with bias, activation and a residual; the second weight is stored transposed."""
    rng = np.random.default_rng(3)
    w1, w2 = sparse(rng, K, H, 0.8, rows), sparse(rng, H, K, 0.8, rows).T
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"], name="up"), helper.make_node("Add", ["a", "b1"], ["c"]),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Gemm", ["r", "w2", "b2"], ["d"], name="down", transB=1),
             helper.make_node("Add", ["d", "x"], ["y"])]
    constants = {"w1": w1, "w2": w2, "b1": rng.normal(size=H), "b2": rng.normal(size=K)}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, ["M", K])],
                              [helper.make_tensor_value_info("y", kind, ["M", K])],
                              [numpy_helper.from_array(np.ascontiguousarray(v).astype(dtype), n) for n, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def of_onnxruntime(path, x):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def kernels(engine):
    return lathe_cli.lathe("inspect", engine, "--kernels")


@pytest.mark.parametrize("dtype, block", [(np.float32, 1), (np.float32, 4), (np.float16, 1)])
def test_against_onnxruntime(tmp_path, dtype, block):
    path = tmp_path / "m.onnx"
    write_model(path, dtype, block)
    for target in TARGETS:
        engine = lathe_cli.compile_model(path, tmp_path / "m.lathe", "--remarks", tmp_path / "r.json", target=target)
        assert kernels(engine).count("gemm.bsr") >= 2, kernels(engine)
        assert kernels(engine).count(f"blocks16x{block}c") >= 2 or "packing" not in kernels(engine)
        remarks = [r for r in json.load(open(tmp_path / "r.json")) if "SparseWeights" in json.dumps(r)]
        assert len(remarks) == 2 and all("of its time by estimate" in json.dumps(r) for r in remarks), remarks
        for m in (1, 7, 130):
            x = np.random.default_rng(m).normal(size=(m, K)).astype(dtype)
            y = lathe_cli.run(engine, tmp_path / f"out{m}", inputs={"x": x})["y"]
            want = of_onnxruntime(path, x)
            np.testing.assert_allclose(y, want, rtol=2e-2 if dtype == np.float16 else 1e-4, atol=6e-2 if dtype == np.float16 else 1e-4)


def test_infinities_and_never(tmp_path):
    """--sparse-weights=never is the dense product; both make the same of infinities and NaN."""
    path = tmp_path / "m.onnx"
    write_model(path)
    x = np.random.default_rng(5).normal(size=(9, K)).astype(np.float32)
    x[2, 3], x[4, 90], x[8, 0] = np.inf, -np.inf, np.nan
    results = {}
    for how in ("never", "auto"):
        engine = lathe_cli.compile_model(path, tmp_path / f"{how}.lathe", f"--sparse-weights={how}", target=TARGETS[0])
        assert ("gemm.bsr" in kernels(engine)) == (how == "auto")
        results[how] = lathe_cli.run(engine, tmp_path / how, inputs={"x": x})["y"]
    assert np.isnan(results["never"]).any()
    np.testing.assert_allclose(results["auto"], results["never"], rtol=1e-4, atol=1e-4)
    text = lathe_cli.lathe("compile", path, "-o", tmp_path / "x.lathe", "--sparse-weights=maybe", code=2)
    assert "takes auto, never or always, not 'maybe'" in text


def test_text_of_a_phase(tmp_path):
    """From the text behind each phase, which names the weights, comes the same engine."""
    path = tmp_path / "m.onnx"
    write_model(path)
    whole = lathe_cli.compile_model(path, tmp_path / "m.lathe", target=TARGETS[0]).read_bytes()
    for phase in ("sparsify", "select"):
        folder = tmp_path / phase
        folder.mkdir()
        lathe_cli.lathe("compile", path, "-o", folder / "m.mlir", f"--stop-after={phase}", f"--target={TARGETS[0]}")
        assert "lathe.nonzero_blocks" in (folder / "m.mlir").read_text()
        lathe_cli.lathe("compile", folder / "m.mlir", "-o", folder / "m.lathe")
        assert (folder / "m.lathe").read_bytes() == whole


def two_of_four(rng, depth, columns):
    """Of each four neighbours along the depth two are zero."""
    w = rng.normal(size=(depth // 4, 4, columns))
    np.put_along_axis(w, np.argsort(rng.random(w.shape), axis=1)[:, :2], 0, axis=1)
    return w.reshape(depth, columns)


def write_two_of_four(path, spoil=False):
    """The same layers with 2:4 sparse weights, stored either way; `spoil`: but for one element of the first."""
    rng = np.random.default_rng(4)
    w1, w2 = two_of_four(rng, K, H), two_of_four(rng, H, K).T
    if spoil:
        w1[8:12, 3] = 1
    write_model(path, np.float16)
    model = onnx.load(path)
    for tensor, w in zip(model.graph.initializer, (w1, w2)):
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(w).astype(np.float16), tensor.name))
    onnx.save(model, path)


def test_two_of_four(tmp_path):
    """Sparse tensor cores multiply them where --sparse-weights=always says so, with any epilogue and number of rows."""
    path = tmp_path / "m.onnx"
    write_two_of_four(path)
    remarks = {}
    for how in ("always", "auto"):
        engine = lathe_cli.compile_model(path, tmp_path / f"{how}.lathe", f"--sparse-weights={how}", "--remarks", tmp_path / "r.json",
                                         target="sm_90a")
        assert ("gemm.sparse" in kernels(engine)) == (how == "always"), kernels(engine)
        remarks[how] = [r for r in json.load(open(tmp_path / "r.json")) if "2:4" in json.dumps(r)]
    assert kernels(tmp_path / "always.lathe").count("gemm.sparse") >= 2
    assert len(remarks["always"]) == 2 and all("are left out" in json.dumps(r) for r in remarks["always"]), remarks
    assert len(remarks["auto"]) == 2 and all("--sparse-weights=always" in json.dumps(r) for r in remarks["auto"]), remarks
    lathe_cli.lathe("prune", path, "--scheme", "2:4", "--check")


def write_codes(path, element):
    """One product in f16 of 2:4 sparse codes of 8 bits, of what a model quantized ahead."""
    rng = np.random.default_rng(5)
    codes = helper.make_tensor("w", element, [K, 64], np.rint(two_of_four(rng, K, 64) * 20).ravel().astype(np.int8).tolist())
    constants = [codes, *(helper.make_tensor(n, TensorProto.FLOAT16, [], [s]) for n, s in (("sx", 0.05), ("sw", 0.01))),
                 helper.make_tensor("zero", element, [], [0])]
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "zero"], ["q"]), helper.make_node("DequantizeLinear", ["q", "sx", "zero"], ["a"]),
             helper.make_node("DequantizeLinear", ["w", "sw", "zero"], ["b"]), helper.make_node("MatMul", ["a", "b"], ["y"])]
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims)
    graph = helper.make_graph(nodes, "g", [value("x", ["M", K])], [value("y", ["M", 64])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


@pytest.mark.parametrize("element,kernel,allow", [
    (TensorProto.FLOAT8E4M3FN, "gemm.sparse.promoted", []), (TensorProto.INT8, "gemm.sparse.pingpong", []),
    (TensorProto.FLOAT8E4M3FN, "gemm.sparse.pingpong", ["--allow=reduced-sums"])])
def test_two_of_four_codes(tmp_path, element, kernel, allow):
    """Codes are what tensor cores multiply, whose zeros mean zero; the engine is the same where it is made from the text of a
    phase."""
    path, options = tmp_path / "m.onnx", ["--sparse-weights=always", "--target=sm_90a", *allow]
    write_codes(path, element)
    lathe_cli.lathe("compile", path, "-o", tmp_path / "whole.lathe", *options)
    assert kernel in kernels(tmp_path / "whole.lathe"), kernels(tmp_path / "whole.lathe")
    lathe_cli.lathe("compile", path, "-o", tmp_path / "m.mlir", "--stop-after=sparsify", *options)
    assert "lathe.two_of_four" in (tmp_path / "m.mlir").read_text()
    lathe_cli.lathe("compile", tmp_path / "m.mlir", "-o", tmp_path / "m.lathe")
    assert (tmp_path / "m.lathe").read_bytes() == (tmp_path / "whole.lathe").read_bytes()


@pytest.mark.parametrize("scheme", ["w8a8-int8", "w8a8-fp8"])
def test_quantizing_keeps_two_of_four(tmp_path, scheme):
    """Pruned first, quantized then: a zero's code is zero."""
    write_model(tmp_path / "m.onnx", np.float32)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(32, K)).astype(np.float32))
    lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", "--scheme", "2:4", "--apply", "all")
    lathe_cli.lathe("quantize", tmp_path / "p.onnx", "-o", tmp_path / "q.onnx", "--scheme", scheme, "--data", tmp_path / "x.npz")
    model = onnx.load(tmp_path / "q.onnx")
    codes = [numpy_helper.to_array(t).astype(np.float32) for t in model.graph.initializer if len(t.dims) == 2 and t.data_type != TensorProto.FLOAT]
    assert len(codes) == 2
    for w in codes:
        along = [(np.moveaxis(w, axis, -1).reshape(-1, 4) != 0).sum(axis=1).max() <= 2 for axis in (0, 1)]
        assert any(along) and w.any()


def test_blocks_of_64(tmp_path):
    """sm_90a reads the blocks of 64x64 that are not zero where --sparse-weights=always says so; the engine is the same
    where it is made from the text of a phase."""
    path, sides = tmp_path / "m.onnx", (256, 384)
    rng = np.random.default_rng(6)
    weights = [rng.normal(size=shape) for shape in (sides, sides[::-1])]
    for w in weights:
        keep = rng.random((w.shape[0] // 64, w.shape[1] // 64)) < 0.25
        w *= keep.repeat(64, 0).repeat(64, 1)
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("Relu", ["h"], ["r"]), helper.make_node("MatMul", ["r", "w1"], ["y"])]
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims)
    graph = helper.make_graph(nodes, "g", [value("x", ["N", sides[0]])], [value("y", ["N", sides[0]])],
                              [numpy_helper.from_array(w.astype(np.float16), f"w{i}") for i, w in enumerate(weights)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    for how in ("always", "auto"):
        engine = lathe_cli.compile_model(path, tmp_path / f"{how}.lathe", f"--sparse-weights={how}", "--remarks", tmp_path / "r.json", target="sm_90a")
        assert (kernels(engine).count("gemm.bsr.cooperative") >= 2) == (how == "always"), kernels(engine)
        remarks = [json.dumps(r) for r in json.load(open(tmp_path / "r.json")) if "64x64" in json.dumps(r)]
        assert len(remarks) == 2 and all(("they are left out" in r) == (how == "always") for r in remarks), remarks
    folder = tmp_path / "select"
    folder.mkdir()
    lathe_cli.lathe("compile", path, "-o", folder / "m.mlir", "--stop-after=select", "--target=sm_90a", "--sparse-weights=always")
    assert "bsr64c" in (folder / "m.mlir").read_text()
    lathe_cli.lathe("compile", folder / "m.mlir", "-o", folder / "m.lathe")
    assert (folder / "m.lathe").read_bytes() == (tmp_path / "always.lathe").read_bytes()


def test_almost_two_of_four(tmp_path):
    """The first element that offends is named, and the weights stay dense."""
    path = tmp_path / "m.onnx"
    write_two_of_four(path, spoil=True)
    engine = lathe_cli.compile_model(path, tmp_path / "m.lathe", "--sparse-weights=always", "--remarks", tmp_path / "r.json", target="sm_90a")
    assert kernels(engine).count("gemm.sparse") > 0  # the other product
    assert any("k 10, column 3" in json.dumps(r) for r in json.load(open(tmp_path / "r.json")))
    assert "element [10, 3] is the first" in lathe_cli.lathe("prune", path, "--scheme", "2:4", "--check", code=3)
