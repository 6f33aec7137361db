# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an engine is: the same bytes from the same input, from any phase; few kernels; variants."""
import importlib.util
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
CUDA = ["sm_80", "sm_90a"]
PHASES = ["import", "legalize", "simplify", "quantize", "sparsify", "shard", "layout", "fuse",
          "select", "plan", "codegen"]
CPU = "x86-64-v3"


def has_nvrtc():
    return importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cu13")


def targets_of(name):
    """The Llama is compiled for all targets, so that each is continued from every phase."""
    return ",".join([CPU, *CUDA] if name == "llama" and has_nvrtc() else [CPU])


def read(path):
    with open(path, "rb") as f:
        return f.read()


def compile_to(path, model, *options, **more):
    lathe("compile", model, "-o", path, *options, **more)
    return read(path)


class Dumped:
    """One model compiled to `data` with every phase's text in `folder`/dump. Its kernels are kept
    in a cache of its own, without the engine: a dump keeps none."""

    def __init__(self, name, folder):
        self.model, self.options, _ = THREE[name]
        self.options = [f"--target={targets_of(name)}", *self.options]
        self.folder = folder
        self.kernels = {"LATHE_CACHE_DIR": str(folder / "cache")}
        self.data = compile_to(folder / "model.lathe", self.model, *self.options,
                               f"--dump-dir={folder / 'dump'}", env=self.kernels)


@pytest.fixture(scope="module", params=THREE)
def dumped(request, tmp_path_factory):
    return Dumped(request.param, tmp_path_factory.mktemp(request.param))


def test_same_bytes_from_another_folder_without_cache(tmp_path, dumped):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(dumped.model, elsewhere / os.path.basename(dumped.model))
    data = compile_to(elsewhere / "again.lathe", os.path.basename(dumped.model), *dumped.options,
                      cwd=elsewhere, env={"LATHE_NO_CACHE": "1"})
    assert data == dumped.data


@pytest.mark.parametrize("phase", PHASES)
def test_continue_from(dumped, phase):
    """A fresh process goes on from the text; kernels whose source is the same may be kept ones."""
    text, = [f for f in os.listdir(dumped.folder / "dump") if f.endswith(f"-{phase}.mlir")]
    again = compile_to(dumped.folder / f"{phase}.lathe", dumped.folder / "dump" / text,
                       env=dumped.kernels)
    assert again == dumped.data


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


@pytest.fixture(scope="module")
def product_engine(tmp_path_factory):
    """One engine for the CPU and two GPUs, built twice, in two folders, without a GPU."""
    pytest.importorskip("nvidia.cu13")
    engines = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        model, _ = product_model(folder)
        engines.append(folder / f"{name}.lathe")
        compile_to(engines[-1], os.path.basename(model), f"--target={','.join([CPU, *CUDA])}",
                   "--dim=M=1:1:512", cwd=folder, env={"LATHE_NO_CACHE": "1"})
    assert read(engines[0]) == read(engines[1])
    return engines[0]


def test_variants_in_one_engine(product_engine):
    assert [p["target"] for p in lathe_cli.plans(product_engine)] == [CPU, *CUDA]


@pytest.mark.parametrize("target", [CPU, *CUDA])
def test_one_row_and_many_are_different_kernels(product_engine, target):
    """M = 1 and M = 512 take different kernels of one guard list."""
    kernel, = next(p for p in lathe_cli.plans(product_engine) if p["target"] == target)["kernels"]
    few, many = kernel["variants"][0], kernel["variants"][-1]
    assert few["config"] != many["config"]
    bound = re.fullmatch(r"M (?:<=|==) (\d+)", few["guard"])
    assert bound and 1 <= int(bound[1]) < 512
    assert many["guard"] == "otherwise"


def test_one_row_and_many(tmp_path):
    model, weight = product_model(tmp_path)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", "--dim=M=1:1:512")
    for rows in (1, 7, 512):
        x = np.random.default_rng(rows).standard_normal((rows, 256)).astype(np.float32)
        got = lathe_cli.run(engine, tmp_path / str(rows), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got, x @ weight) <= 1e-4
