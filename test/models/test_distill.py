# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe.torch.distill`: ONNX files as modules of torch against onnxruntime, and what training brings back."""
import os
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import lathe_cli
from test_prune_widths import FAMILIES, of_onnxruntime, write_cnn, write_encoder

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
from lathe.torch import distill  # noqa: E402
from lathe.torch._onnx_module import OnnxModule  # noqa: E402

torch.set_num_threads(1)  # small products, beside other tests


@pytest.mark.parametrize("name", ["bert", "falcon", "gemma", "phi3", "qwen2", "t5", "vit", "whisper"])
def test_modules_compute_what_files_say(name):
    folder = os.path.join(FAMILIES, name)
    path = os.path.join(folder, "model.onnx")
    module = OnnxModule(path)
    given = {v.name: np.load(os.path.join(folder, f"input_{i}.npy")) for i, v in enumerate(module.model.graph.input)}
    got = module({n: torch.from_numpy(v) for n, v in given.items()})
    for want, value in zip(of_onnxruntime(path, given), got.values()):
        assert lathe_cli.relative_error(value.detach().numpy(), want) < 1e-4


@pytest.mark.parametrize("write, x", [(write_cnn, (2, 3, 8, 8)), (write_encoder, (2, 5, 96))])
def test_modules_of_convolutions_and_attention(tmp_path, write, x):
    write(tmp_path / "m.onnx")
    given = {"x": np.random.default_rng(1).normal(size=x).astype(np.float32)}
    got = OnnxModule(str(tmp_path / "m.onnx"))({"x": torch.from_numpy(given["x"])})
    for want, value in zip(of_onnxruntime(tmp_path / "m.onnx", given), got.values()):
        assert lathe_cli.relative_error(value.detach().numpy(), want) < 1e-4


def change(folder, path, x):
    want, got = of_onnxruntime(folder / "e.onnx", {"x": x})[0], of_onnxruntime(path, {"x": x})[0]
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def test_distillation(tmp_path):
    """Training brings back much of what pruning took, of the narrower and of the masked model, whose zeros stay; the same
    seed writes the same file."""
    write_encoder(tmp_path / "e.onnx")
    lathe_cli.lathe("prune", tmp_path / "e.onnx", "-o", tmp_path / "p.onnx", "--scheme=ffn", "--ratio=0.5", "--apply=all", "--seconds=0",
                    "--masked", tmp_path / "m.onnx")
    x = np.random.default_rng(2).normal(size=(256, 5, 96)).astype(np.float32)
    unseen = np.random.default_rng(3).normal(size=(32, 5, 96)).astype(np.float32)
    for name in ("p", "m"):
        before = onnx.load(tmp_path / f"{name}.onnx")
        history = distill(tmp_path / f"{name}.onnx", tmp_path / "e.onnx", {"x": x}, tmp_path / "t.onnx", epochs=3, rate=1e-3,
                          features={"y": "y", "residual": "residual"})
        assert history[-1] < 0.9 * history[0]
        assert change(tmp_path, tmp_path / "t.onnx", unseen) < 0.92 * change(tmp_path, tmp_path / f"{name}.onnx", unseen)
        after = onnx.load(tmp_path / "t.onnx")
        assert before.graph.node == after.graph.node
        for a, b in zip(before.graph.initializer, after.graph.initializer):
            a, b = numpy_helper.to_array(a), numpy_helper.to_array(b)
            assert a.shape == b.shape and (name == "p" or a.ndim < 2 or np.all(b[a == 0] == 0))
    for name in ("once", "again"):
        distill(tmp_path / "m.onnx", tmp_path / "e.onnx", {"x": x[:64]}, tmp_path / f"{name}.onnx", epochs=1)
    assert (tmp_path / "once.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()


def test_bad_input(tmp_path):
    write_encoder(tmp_path / "e.onnx")
    x = np.zeros((4, 5, 96), np.float32)
    path = tmp_path / "e.onnx"
    for data, options, text in (({"z": x}, {}, "there is no array for input 'x'"), ({"x": x, "z": x}, {}, "the model has no input 'z'"),
                                ({"x": x[:0]}, {}, "of as many rows each"), ({"x": x}, {"epochs": 0}, "want 1 or more"),
                                ({"x": x}, {"logits": ["nothing"]}, "'nothing' is no result of both models"),
                                ({"x": x}, {"features": {"y": "nothing"}}, "has no value 'nothing'"),
                                ({"x": x}, {"features": {"y": "gate"}}, "has sizes [4, 5, 96], 'gate' of the teacher [4, 5, 256]")):
        with pytest.raises(ValueError, match=text.replace("[", r"\[").replace("]", r"\]")):
            distill(path, path, data, tmp_path / "t.onnx", **options)
        assert not (tmp_path / "t.onnx").exists()
    model = onnx.load(path)
    next(n for n in model.graph.node if n.op_type == "Softmax").op_type = "Hardmax"
    onnx.save(model, tmp_path / "h.onnx")
    with pytest.raises(NotImplementedError, match="node 'p_node': Hardmax has no form that trains"):
        distill(tmp_path / "h.onnx", path, {"x": x}, tmp_path / "t.onnx")
