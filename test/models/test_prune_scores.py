# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe prune --score`: what data decide (Wanda, SparseGPT) against numpy, and that it pays; ratios over all weights."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lathe_cli
from test_quantize import H, K, of_onnxruntime, write_model

SPAN = 128


def sparsegpt(w, gram, ratio, rows=1, columns=1, group=None, damping=0.01):
    """SparseGPT as its authors' program does it, on w [inputs, outputs]; a group (n, m) keeps n of m inputs."""
    w = w.astype(np.float64).T.copy()
    outputs, depth = w.shape
    mean, unseen = np.mean(np.diag(gram)), np.diag(gram) == 0
    h = gram + np.diag(np.where(unseen, mean, 0) + damping * mean)
    u = np.linalg.cholesky(np.linalg.inv(h)).T
    for begin in range(0, depth, SPAN):
        end = min(depth, begin + SPAN)
        gone = np.zeros((outputs, depth), bool)
        if not group:
            cost = np.where(unseen, 0, w / np.diag(u))[:, begin:end] ** 2
            units = cost.T.reshape((end - begin) // rows, rows, outputs // columns, columns).sum(axis=(1, 3))
            out = np.zeros(units.size, bool)
            out[np.argsort(units.ravel(), kind="stable")[:int(np.floor(ratio * units.size + 0.5))]] = True
            gone[:, begin:end] = np.repeat(np.repeat(out.reshape(units.shape), rows, 0), columns, 1).T
        for k in range(begin, end):
            if group and k % group[1] == 0:
                cost = np.where(unseen, 0, w / np.diag(u))[:, k:k + group[1]] ** 2
                np.put_along_axis(gone[:, k:k + group[1]], np.argsort(cost, axis=1, kind="stable")[:, :group[1] - group[0]], True, 1)
            error = np.where(gone[:, k], w[:, k] / u[k, k], 0)
            w[:, k + 1:] -= np.outer(error, u[k, k + 1:])
            w[gone[:, k], k] = 0
    return w.T


def correlated(rows, integers=False, columns=K):
    """Inputs that have much in common, of very different sizes."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 12)) @ rng.normal(size=(12, columns)) + 0.3 * rng.normal(size=(rows, columns))
    x *= np.exp(rng.normal(size=columns))
    return (np.clip(np.rint(x), -30, 30) if integers else x).astype(np.float32)


def prune(folder, score, scheme, *options, data=None):
    if data is not None:
        np.savez(folder / "data.npz", x=data)
        options = (*options, "--data", folder / "data.npz")
    lathe_cli.lathe("prune", folder / "m.onnx", "-o", folder / "p.onnx", f"--scheme={scheme}", f"--score={score}", "--apply=all",
                    "--seconds=0.01", *options)
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(folder / "p.onnx").graph.initializer}


@pytest.mark.parametrize("scheme, ratio, sizes", [("unstructured", 0.5, {}), ("block:1x16", 0.75, {"columns": 16}),
                                                  ("block:4x16", 0.5, {"rows": 4, "columns": 16}), ("2:4", 0, {"group": (2, 4)})])
def test_sparsegpt(tmp_path, scheme, ratio, sizes):
    """Small integers, whose products every order of summing makes alike, so that the choice is the same. The depth of
    320 is two spans and a half."""
    depth, outputs = 320, 64
    w = np.random.default_rng(3).normal(size=(depth, outputs)).astype(np.float32)
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                                   [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["M", depth])],
                                   [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["M", outputs])],
                                   [numpy_helper.from_array(w, "w")])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    x = correlated(496, integers=True, columns=depth)
    assert np.any(np.all(x == 0, axis=0)) # inputs that are never seen
    got = prune(tmp_path, "sparsegpt", scheme, *([f"--ratio={ratio}"] if ratio else []), data=x)["w"]
    want = sparsegpt(w, x.T.astype(np.float64) @ x, ratio, **sizes)
    np.testing.assert_array_equal(got == 0, want == 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert np.mean(got == 0) == pytest.approx(ratio or 0.5, abs=1e-3)


def test_wanda(tmp_path):
    w1, _ = write_model(tmp_path / "m.onnx")
    x = correlated(64)
    got = prune(tmp_path, "wanda", "unstructured", "--ratio=0.5", data=x)
    score = np.abs(w1) * np.linalg.norm(x.astype(np.float64), axis=0)[:, None]
    want = w1.copy()
    np.put_along_axis(want, np.argsort(score, axis=0)[:K // 2], 0, 0)
    np.testing.assert_array_equal(got["w1"], want)
    hidden = np.maximum(x @ w1, 0)  # what the second product reads, of the model as it was
    score = np.abs(onnx_weight(tmp_path / "m.onnx", "w2")) * np.linalg.norm(hidden.astype(np.float64), axis=0)
    zero = np.zeros(score.shape, bool)
    np.put_along_axis(zero, np.argsort(score, axis=1)[:, :H // 2], True, 1)
    np.testing.assert_array_equal(got["w2"] == 0, zero)


def onnx_weight(path, name):
    return next(numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer if t.name == name)


@pytest.mark.parametrize("scheme, ratio", [("unstructured", 0.5), ("2:4", None), ("block:1x16", 0.5)])
def test_data_pay(tmp_path, scheme, ratio):
    """On data that were not seen: SparseGPT loses less than Wanda, Wanda less than magnitudes, and these than chance."""
    write_model(tmp_path / "m.onnx")
    x = correlated(600)
    dense = of_onnxruntime(str(tmp_path / "m.onnx"), x[400:])
    loss = {}
    for score in ("sparsegpt", "wanda", "l1", "random"):
        prune(tmp_path, score, scheme, *([f"--ratio={ratio}"] if ratio else []),
              data=x[:400] if score in ("sparsegpt", "wanda") else None)
        loss[score] = float(np.linalg.norm(of_onnxruntime(str(tmp_path / "p.onnx"), x[400:]) - dense) / np.linalg.norm(dense))
    assert loss["sparsegpt"] < 0.8 * loss["wanda"] < loss["l1"] < loss["random"], loss


def test_over_all(tmp_path):
    """The least of all weights go: more of the matrix that is smaller."""
    write_model(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(0.5), "w1"))
    onnx.save(model, tmp_path / "m.onnx")
    before = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    got = prune(tmp_path, "l1", "unstructured", "--ratio=0.4", "--over-all")
    zero = np.concatenate([(got[n] == 0).ravel() for n in ("w1", "w2")])
    size = np.concatenate([np.abs(before[n]).ravel() for n in ("w1", "w2")])
    assert zero.sum() == round(0.4 * zero.size) and size[zero].max() <= size[~zero].min()
    assert np.mean(got["w1"] == 0) > 1.5 * np.mean(got["w2"] == 0)


def test_refusals(tmp_path):
    write_model(tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=correlated(16))
    np.savez(tmp_path / "other.npz", z=correlated(16))
    bad = correlated(16)
    bad[3, 4] = np.nan
    np.savez(tmp_path / "nan.npz", x=bad)
    data = ["--data", tmp_path / "data.npz"]
    for options, code, text in ((["--score=wanda"], 2, "--score=wanda: wants examples"),
                                (["--score=l1", *data], 2, "--data: is for --score=wanda and sparsegpt"),
                                (["--score=sparsegpt", "--over-all", *data], 2, "without --over-all"),
                                (["--score=sparsegpt", "--damping=101", *data], 2, "--damping: wants a number of 0 to 100"),
                                (["--score=wanda", "--data", tmp_path / "other.npz"], 2, "the model has no such input"),
                                (["--score=wanda", "--data", tmp_path / "nan.npz"], 3, "holds NaN"),
                                (["--score=wanda", "--scheme=ffn", *data], 2, "are for zeros in weights"),
                                (["--score=l1", "--scheme=2:4", "--ratio=0.5", "--over-all"], 2, "--over-all: is for block")):
        text_ = lathe_cli.lathe("prune", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx", "--scheme=unstructured", "--ratio=0.5",
                                *options, code=code)
        assert text in text_ and not (tmp_path / "p.onnx").exists()
