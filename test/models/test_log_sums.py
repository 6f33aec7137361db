# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention that gives the log-sum-exp of its scores too, as torch exports it and as ONNX writes it."""
import numpy as np
import pytest
from onnx import TensorProto, helper, save

import lathe_cli

BATCH, HEADS, KEY_HEADS, QUERIES, KEYS, HEAD = 2, 4, 2, 19, 45, 32


def operands():
    rng = np.random.default_rng(0)
    make = lambda heads, rows: rng.standard_normal((BATCH, heads, rows, HEAD)).astype(np.float32)
    return make(HEADS, QUERIES), make(KEY_HEADS, KEYS), make(KEY_HEADS, KEYS)


@pytest.mark.parametrize("form", ["beside", "parts"])
def test_against_torch(tmp_path, form):
    """The sum beside the softmax, and of two parts of the keys, which are joined by theirs."""
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        def part(self, q, k, v):
            k, v = (x[:, :, None].expand(-1, -1, HEADS // KEY_HEADS, -1, -1).reshape(BATCH, HEADS, -1, HEAD) for x in (k, v))
            scores = q @ k.transpose(2, 3) * HEAD ** -0.5
            total = torch.logsumexp(scores, -1, keepdim=True)
            return torch.softmax(scores, -1) @ v, total

        def forward(self, q, k, v):
            if form != "parts":
                y, total = self.part(q, k, v)
                return y, total.squeeze(-1)
            (y1, l1), (y2, l2) = (self.part(q, k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 16), (16, KEYS)))
            total = torch.log(torch.exp(l1) + torch.exp(l2))
            return y1 * torch.exp(l1 - total) + y2 * torch.exp(l2 - total), total.squeeze(-1)

    q, k, v = operands()
    given = tuple(map(torch.from_numpy, (q, k, v)))
    model = str(tmp_path / "m.onnx")
    torch.onnx.export(Attention(), given, model, input_names=["q", "k", "v"], output_names=["y", "l"], dynamo=False)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    names = [kernel["name"] for kernel in lathe_cli.plans(engine)[0]["kernels"]]
    got = lathe_cli.run(engine, tmp_path / "out", inputs={"q": q, "k": k, "v": v})
    # The whole, whichever way it was computed.
    wide = [x.double() for x in given]
    scores = wide[0] @ wide[1].repeat_interleave(2, 1).transpose(2, 3) * HEAD ** -0.5
    assert np.abs(got["l"] - torch.logsumexp(scores, -1).numpy()).max() < 1e-5
    want = torch.softmax(scores, -1) @ wide[2].repeat_interleave(2, 1)
    assert lathe_cli.relative_error(got["y"], want.float().numpy()) < 1e-5
    attentions = [name for name in names if "attention" in name]
    assert len(attentions) == (2 if form == "parts" else 1), names
    assert form == "parts" or len(names) == 1, names


def test_rows_that_see_nothing(tmp_path):
    """-inf, beside what onnxruntime gives for the others."""
    node, value = helper.make_node, helper.make_tensor_value_info
    float32, shape = TensorProto.FLOAT, [BATCH, HEADS, QUERIES, HEAD]
    nodes = [node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s"]), node("Add", ["s", "m"], ["masked"]),
             node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "v"], ["y"]),
             node("Constant", [], ["last"], value=helper.make_tensor("last", TensorProto.INT64, [1], [3])),
             node("ReduceLogSumExp", ["masked", "last"], ["l"], keepdims=0)]
    keys = [BATCH, HEADS, KEYS, HEAD]
    graph = helper.make_graph(nodes, "g", [value("q", float32, shape), value("k", float32, keys), value("v", float32, keys),
                                           value("m", float32, [QUERIES, KEYS])],
                              [value("y", float32, shape), value("l", float32, shape[:3])])
    model = str(tmp_path / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), model)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(s).astype(np.float32) * 0.3 for s in (shape, keys, keys))
    mask = np.where(np.arange(KEYS)[None] < np.arange(QUERIES)[:, None] * 2, 0, -np.inf).astype(np.float32)
    given = {"q": q, "k": k, "v": v, "m": mask}
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    assert len(lathe_cli.plans(engine)[0]["kernels"]) == 1
    got = lathe_cli.run(engine, tmp_path / "out", inputs=given)
    y, logs = lathe_cli.session(model).run(None, given)
    assert (got["l"][:, :, 0] == -np.inf).all() and np.isnan(got["y"][:, :, 0]).all() and np.isnan(y[:, :, 0]).all()
    assert np.abs(got["l"][:, :, 1:] - logs[:, :, 1:]).max() < 1e-5
    assert lathe_cli.relative_error(got["y"][:, :, 1:], y[:, :, 1:]) < 1e-5
