# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an engine is: the same bytes from the same input, from any phase; few kernels; variants."""
import json
import os
import re
import shutil

import numpy as np
import pytest

import lathe_cli
from lathe_cli import MODELS, lathe

LLAMA = os.path.join(MODELS, "llama", "dynamo18_sdpa", "model.onnx")
STATES = ["--entry=prefill:P=0", "--entry=decode:S=1", "--donate=k0=pk0", "--donate=v0=pv0",
          "--donate=k1=pk1", "--donate=v1=pv1"]
# name: model, options, the most kernels
THREE = {
    "magika": (os.path.join(MODELS, "magika.onnx"), ["--dim=unk__214=1:1:16"], 25),
    "cls": (os.path.join(MODELS, "ppocr_cls.onnx"),
            ["--dim=x[0]=1:1:16", "--dim=x[2]=32:48:64", "--dim=x[3]=32:192:320"], 75),
    "llama": (LLAMA, ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511", *STATES], None),
}
PHASES = ["import", "legalize", "simplify", "quantize", "sparsify", "shard", "layout", "fuse",
          "select", "plan", "codegen"]
FIXED = "--target=x86-64-v3"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def compile_to(path, model, *options, **more):
    lathe("compile", model, "-o", path, *options, **more)
    return read(path)


@pytest.fixture(scope="module", params=THREE)
def dumped(request, tmp_path_factory):
    """(folder with every phase's text, the engine's bytes) of one model."""
    model, options, _ = THREE[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    data = compile_to(folder / "model.lathe", model, FIXED, *options,
                      f"--dump-dir={folder / 'dump'}")
    return folder, data


def test_same_bytes_from_another_folder_without_cache(request, tmp_path, dumped):
    name = request.node.callspec.params["dumped"]
    model, options, _ = THREE[name]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(model, elsewhere / os.path.basename(model))
    data = compile_to(elsewhere / "again.lathe", os.path.basename(model), FIXED, *options,
                      cwd=elsewhere, env={"LATHE_NO_CACHE": "1"})
    assert data == dumped[1]


@pytest.mark.parametrize("phase", PHASES)
def test_continue_from(dumped, phase):
    folder, data = dumped
    text, = [f for f in os.listdir(folder / "dump") if f.endswith(f"-{phase}.mlir")]
    again = compile_to(folder / f"{phase}.lathe", folder / "dump" / text,
                       env={"LATHE_NO_CACHE": "1"})
    assert again == data


@pytest.mark.parametrize("name", ["magika", "cls"])
def test_kernel_count(engines, name):
    model, options, most = THREE[name]
    plan, = lathe_cli.plans(engines(model, *options))
    assert 0 < lathe_cli.launches(plan) <= most


@pytest.mark.parametrize("entry", ["prefill", "decode"])
def test_kernels_per_llama_layer(engines, entry):
    model, options, _ = THREE["llama"]
    plan, = [p for p in lathe_cli.plans(engines(model, *options)) if p["entry"] == entry]
    # Two layers; beside them the embedding, the mask, the rotation's angles, the head.
    assert 0 < lathe_cli.launches(plan) <= 2 * 12 + 8


def test_variants_in_one_engine(tmp_path):
    """CPU, sm_80 and sm_90a in one file, built without a GPU; M = 1 and M = 512 in one list."""
    pytest.importorskip("nvidia.cu13")
    engine = tmp_path / "all.lathe"
    model, options, _ = THREE["magika"]
    first = compile_to(engine, model, "--target=x86-64-v3,sm_80,sm_90a", *options)
    assert [p["target"] for p in lathe_cli.plans(engine)] == ["x86-64-v3", "sm_80", "sm_90a"]
    again = compile_to(tmp_path / "again.lathe", model, "--target=x86-64-v3,sm_80,sm_90a",
                       *options, env={"LATHE_NO_CACHE": "1"})
    assert first == again


def product_model(folder):
    """y = x @ w with M rows, and w."""
    from onnx import TensorProto, helper, numpy_helper, save
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["M", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["M", 256])],
        [numpy_helper.from_array(weight, "w")])
    model = str(folder / "m.onnx")
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
         model)
    return model, weight


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_one_row_and_many_are_different_kernels(tmp_path, target):
    pytest.importorskip("nvidia.cu13")
    model, _ = product_model(tmp_path)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--dim=M=1:1:512",
                                     target=f"x86-64-v3,{target}")
    kernel, = next(p for p in lathe_cli.plans(engine) if p["target"] == target)["kernels"]
    few, many = kernel["variants"][0], kernel["variants"][-1]
    assert few["config"] != many["config"]
    bound = re.fullmatch(r"M <= (\d+)", few["guard"])
    assert bound and 1 <= int(bound[1]) < 512
    assert many["guard"] == "otherwise"


def test_one_row_and_many(tmp_path):
    model, weight = product_model(tmp_path)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--dim=M=1:1:512")
    for rows in (1, 7, 512):
        x = np.random.default_rng(rows).standard_normal((rows, 256)).astype(np.float32)
        got = lathe_cli.run(engine, tmp_path / str(rows), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got, x @ weight) <= 1e-4
