# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoders divided among ranks compute what one device does, meet where they must and hold their part.

All ranks have the same bits: `lathe run` compares them.
"""
import json
import os
import re

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


@pytest.mark.parametrize("name,ranks", [("llama3", 2), ("llama3", 4), ("gemma3", 2), ("gpt2", 2), ("gpt2", 4)])
def test_ranks_agree_with_one_device(engines, tmp_path, name, ranks):
    model = os.path.join(DECODERS, name, "model.onnx")
    one, many = engines(model, *DIMS), engines(model, *DIMS, f"--mesh=tp={ranks}")
    inputs = inputs_of(model)
    want, got = (lathe_cli.run(e, tmp_path / str(i), inputs=inputs) for i, e in enumerate((one, many)))
    assert max(lathe_cli.relative_error(got[n], want[n]) for n in want) <= 1e-5
    assert packed_bytes(many) <= 1.1 / ranks * packed_bytes(one)


@pytest.mark.parametrize("name", ["llama3", "qwen3", "mistral", "gemma3", "gpt2"])
def test_a_layer_meets_twice(tmp_path, name):
    """Caches are states, of which a rank has its heads; the embedding and the head are gathered."""
    model, text = os.path.join(DECODERS, name, "model.onnx"), tmp_path / "shard.mlir"
    donated = [f"--donate={past}=p{past}" for past in sizes.INPUTS[3:]]
    lathe_cli.lathe("compile", model, "-o", text, "--stop-after=shard", "--mesh=tp=2", *DIMS, *donated)
    ops = text.read_text()
    assert [ops.count(f"lathe.{op} ") for op in ("all_reduce", "all_gather", "reduce_scatter")] == [
        2 * sizes.LAYERS, 2, 0]


def test_states_are_divided(engines, tmp_path):
    """Prompt and steps in one chain, caches living on: each rank has half of them."""
    model = os.path.join(DECODERS, "llama3", "model.onnx")
    options = [*DIMS, "--entry=prefill:P=0", "--entry=decode:S=1",
               *(f"--donate={past}=p{past}" for past in sizes.INPUTS[3:])]
    logits, states = [], []
    for mesh in ([], ["--mesh=tp=2"]):
        engine, out = engines(model, *options, *mesh), tmp_path / f"out{len(mesh)}"
        said = lathe_cli.lathe("run", engine, "--entry", "prefill", "--entry", "decode*3", "--save", out)
        logits.append([lathe_cli.load_outputs(out / f)["logits"] for f in ("0-prefill", "3-decode")])
        states.append(re.search(r"states ([\d.]+ \w+)", said).group(1))
    for want, got in zip(*logits):
        assert lathe_cli.relative_error(got, want) <= 1e-5
    one, many = (float(s.split()[0]) for s in states)
    assert states[0].split()[1] == states[1].split()[1] and many == pytest.approx(one / 2, rel=0.01)


# All-reduces of both layers: two each, one where attention and MLP stand side by side; three where there is cross-attention, beside two of each layer of the encoder.
# Whisper's two convolutions have one more.
FAMILIES = {"bert": 4, "vit": 4, "falcon": 2, "phi3": 4, "qwen2": 4, "gemma": 4, "whisper": 11, "t5": 10}


@pytest.mark.parametrize("name,ranks", [("falcon", 2), ("phi3", 4), ("qwen2", 4), ("gemma", 4), ("bert", 2), ("vit", 2),
                                        ("whisper", 2), ("t5", 2)])
def test_families_are_divided_without_hints(engines, tmp_path, name, ranks):
    """71 heads on 2 ranks, 2 heads of keys on 4 ranks, packed products: each rank holds its share."""
    folder = os.path.join(lathe_cli.MODELS, "families", name)
    model = os.path.join(folder, "model.onnx")
    one, many = engines(model), engines(model, f"--mesh=tp={ranks}")
    names = [i.name for i in onnx.load(model, load_external_data=False).graph.input]
    inputs = {n: np.load(os.path.join(folder, f"input_{i}.npy")) for i, n in enumerate(names)}
    want, got = (lathe_cli.run(e, tmp_path / str(i), inputs=inputs)["logits"] for i, e in enumerate((one, many)))
    assert lathe_cli.relative_error(got, want) <= 1e-5
    assert packed_bytes(many) <= 1.1 / ranks * packed_bytes(one)
    assert sum(c["name"] == "all_reduce" for c in sharding(many)["collectives"]) <= FAMILIES[name]


# How people divide these models by hand (Megatron-LM: Shoeybi et al., 2019), product by product as they stand in the
# graph: by columns, by rows, or as the search likes.
LLAMA, PACKED, ENCODER, T5_DECODER, WHISPER_DECODER = "cccrccr", "crcr", "cccrcr", "cccrcccrccr", "cccrcccrcr"
BY_HAND = {"families/bert": ENCODER * 2 + ".c", "families/vit": ENCODER * 2 + ".", "families/falcon": PACKED * 2 + "c",
           "families/phi3": PACKED * 2 + "c", "families/qwen2": LLAMA * 2 + "c", "families/gemma": LLAMA * 2 + "c",
           "families/whisper": ENCODER * 2 + WHISPER_DECODER * 2 + "c", "families/t5": LLAMA * 2 + T5_DECODER * 2 + "c",
           "decoders/gpt2": PACKED * 2 + "c", "decoders/llama3": LLAMA * 2 + "c"}


def hints_by_hand(model, roles):
    graph = onnx.load(model, load_external_data=False).graph
    initializers = {i.name for i in graph.initializer}
    weights = [node.input[1] for node in graph.node
               if node.op_type in ("MatMul", "Gemm") and node.input[1] in initializers]
    assert len(weights) == len(roles)
    return [f"--shard={weight}=dim:{'rc'.index(role)}" for weight, role in zip(weights, roles) if role != "."]


def plan_of(model, folder, *options):
    """Estimated microseconds, collectives by name, and whether no other plan is cheaper."""
    remarks = folder / "remarks.json"
    lathe_cli.lathe("compile", model, "-o", folder / "shard.mlir", "--stop-after=shard", f"--remarks={remarks}",
                    *options)
    (text,) = [r["message"] for r in json.loads(remarks.read_text())
               if r["name"] == "Shard" and r["message"].startswith("entry 'main'")]
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)[,;]", text)}
    return float(re.search(r"estimated ([\d.]+) us", text).group(1)), counts, "local search" not in text


@pytest.mark.parametrize("name", BY_HAND)
def test_no_plan_by_hand_is_cheaper(name, tmp_path):
    model = os.path.join(lathe_cli.MODELS, name, "model.onnx")
    options = ["--mesh=tp=2", *(DIMS if name.startswith("decoders") else [])]
    found, _, exact = plan_of(model, tmp_path, *options)
    hinted, counts, _ = plan_of(model, tmp_path, *options, *hints_by_hand(model, BY_HAND[name]))
    blocks = BY_HAND[name].count("r") // (2 if name.endswith("falcon") else 1)
    assert counts["all_reduce"] >= blocks, "the hints do not make the plan that they stand for"
    assert exact and found <= hinted


def wide_model(path, layers, width=256):
    """Each product reads the sum of all values before it: a graph in which few ops part the others."""
    order, nodes, weights = ["x"], [], []
    rng = np.random.default_rng(0)
    for i in range(layers):
        total = order[-1]
        for j, value in enumerate(order[-2::-1]):
            nodes.append(onnx.helper.make_node("Add", [total, value], [f"s{i}_{j}"], f"add{i}_{j}"))
            total = f"s{i}_{j}"
        weights.append(onnx.numpy_helper.from_array((rng.standard_normal((width, width)) / width).astype(np.float32), f"w{i}"))
        nodes += [onnx.helper.make_node("MatMul", [total, f"w{i}"], [f"p{i}"], f"product{i}"),
                  onnx.helper.make_node("Tanh", [f"p{i}"], [f"v{i}"], f"tanh{i}")]
        order.append(f"v{i}")
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [64, width]) for n in ("x", order[-1])]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "wide", values[:1], values[1:], weights),
                                     opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)


def test_wide_graphs_get_a_plan_as_good_as_by_hand(tmp_path):
    """Where elimination is too wide the search within limits is asked: a column-parallel product and a gather each layer,
    and an all-reduce at the end."""
    wide_model(tmp_path / "wide.onnx", 14)
    by_hand = [f"--shard=w{i}=dim:{int(i < 13)}" for i in range(14)]
    found, counts, _ = plan_of(tmp_path / "wide.onnx", tmp_path, "--mesh=tp=4")
    hinted, _, _ = plan_of(tmp_path / "wide.onnx", tmp_path, "--mesh=tp=4", *by_hand)
    assert found <= hinted * 1.0001
    assert sum(counts.values()) <= 14


def attention_model(path, heads, queries, keys, **attributes):
    """One attention of f32 with a head of 16; a bias by query and key where `attributes` has one."""
    with_bias = attributes.pop("bias", False)
    shapes = {"q": [1, heads, queries, 16], "k": [1, heads, keys, 16], "v": [1, heads, keys, 16]}
    if with_bias:
        shapes["bias"] = [queries, keys]
    node = onnx.helper.make_node("Attention", list(shapes), ["y"], "attention", **attributes)
    inputs = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shapes["q"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "attention", inputs, [output]),
                                     opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10), path)
    rng = np.random.default_rng(0)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


ATTENTIONS = {"causal": (1, 512, 512, {"is_causal": 1}), "odd": (3, 411, 411, {"is_causal": 1}),
              "biased": (1, 256, 400, {"is_causal": 1, "bias": True}), "whole": (1, 413, 300, {})}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_queries_of_attention_are_divided(tmp_path, name, ranks):
    """Each rank has all keys and a part of the queries; of causal attention a part of each half."""
    heads, queries, keys, attributes = ATTENTIONS[name]
    model = tmp_path / "model.onnx"
    inputs = attention_model(model, heads, queries, keys, **attributes)
    one, many, text = (tmp_path / f for f in ("one.lathe", "many.lathe", "shard.mlir"))
    options = [f"--mesh=tp={ranks}", "--shard=attention=dim:2"]
    lathe_cli.lathe("compile", model, "-o", one)
    lathe_cli.lathe("compile", model, "-o", many, *options)
    lathe_cli.lathe("compile", model, "-o", text, "--stop-after=shard", *options)
    half = -(-(queries - queries // 2) // ranks)
    rows = [half, -(-(queries // 2) // ranks)] if "is_causal" in attributes else [-(-queries // ranks)]
    assert [int(n) for n in re.findall(r"= lathe.attention .*-> tensor<1x\d+x(\d+)x16xf32>", text.read_text())] == rows
    want, got = (lathe_cli.run(e, tmp_path / e.stem, inputs=inputs)["y"] for e in (one, many))
    assert lathe_cli.relative_error(got, want) <= 1e-6


@pytest.mark.parametrize("heads,dim", [(1, 2), (8, 1)])
def test_queries_are_divided_where_heads_are_too_few(tmp_path, heads, dim):
    model, text = tmp_path / "model.onnx", tmp_path / "shard.mlir"
    attention_model(model, heads, 1024, 1024, is_causal=1)
    lathe_cli.lathe("compile", model, "-o", text, "--stop-after=shard", "--mesh=tp=4")
    assert re.findall(r"lathe.all_gather %\S+ {dim = (\d) : i64", text.read_text()) == [str(dim)]
