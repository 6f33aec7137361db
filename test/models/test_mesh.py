# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders divided among ranks compute what one device does, meet where they must and hold their part.

All ranks have the same bits (`lathe run` compares them). A layer costs two all_reduces where key heads are at
least as many as ranks; beside them the embedding, the head and what leaves of each cache are gathered.
"""
import json
import os

import numpy as np
import onnx
import pytest

import export_llama as sizes
import lathe_cli

DECODERS = os.path.join(lathe_cli.MODELS, "decoders")
DIMS = ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511"]
B, S, P = 2, 7, 5
pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="ranks are threads of the CPU")


def inputs_of(model):
    rng = np.random.default_rng(0)
    graph = onnx.load(model, load_external_data=False).graph
    names = {i.name for i in graph.initializer}
    made = {}
    for value in graph.input:
        if value.name in names:
            continue
        dims = [d.dim_value or {"B": B, "S": S, "P": P}.get(d.dim_param, P + S)
                for d in value.type.tensor_type.shape.dim]
        if value.name == "ids":
            made[value.name] = rng.integers(0, sizes.VOCAB, dims)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            made[value.name] = rng.standard_normal(dims).astype(np.float32)
        elif value.name == "mask":
            made[value.name] = np.ones((B, P + S), np.int64)
        else:
            made[value.name] = np.tile(np.arange(P, P + S), (B, 1))
    return made


def sharding(engine):
    (plan,) = json.loads(lathe_cli.lathe("inspect", engine, "--sharding", "--json"))["plans"]
    return plan["sharding"]


def packed_bytes(engine):
    """Of the weights that products read."""
    return sum(w["bytes"] for w in sharding(engine)["weights"] if w["packing"])


@pytest.mark.parametrize("name,ranks", [("llama3", 2), ("llama3", 4), ("gemma3", 2), ("gpt2", 2), ("gpt2", 8)])
def test_ranks_agree_with_one_device(engines, tmp_path, name, ranks):
    model = os.path.join(DECODERS, name, "model.onnx")
    one, many = engines(model, *DIMS), engines(model, *DIMS, f"--mesh=tp={ranks}")
    inputs = inputs_of(model)
    want, got = (lathe_cli.run(e, tmp_path / str(i), inputs=inputs) for i, e in enumerate((one, many)))
    assert max(lathe_cli.relative_error(got[n], want[n]) for n in want) <= 1e-5
    assert packed_bytes(many) <= 1.1 / ranks * packed_bytes(one)
    if ranks == 2:
        names = [c["name"] for c in sharding(many)["collectives"]]
        assert names.count("all_reduce") == 2 * sizes.LAYERS
        # Keys and values of each layer leave as outputs; GPT-2's are made by one product, and leave so.
        assert names.count("all_gather") <= 2 + 2 * sizes.LAYERS
        assert "reduce_scatter" not in names
