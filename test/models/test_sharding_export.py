# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lathe shard` writes the division that is found into the model; read again, it makes the same plan."""
import json
import os
import re

import onnx
import pytest

import lathe_cli

pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="ranks are of the CPU")


def plan_of(model, folder, *options):
    """The ops behind the pass, without locations and what says where weights lie; the estimate; remarks."""
    text, remarks = folder / "plan.mlir", folder / "plan.json"
    lathe_cli.lathe("compile", model, "-o", text, "--stop-after=shard", f"--remarks={remarks}", *options)
    ops = [re.sub(r"loc\(.*?\)", "", line).strip() for line in text.read_text().splitlines() if "lathe.all_" in line
           or "lathe.reduce_scatter" in line or "#lathe.sharded" in line]
    said = [r["message"] for r in json.loads(remarks.read_text()) if r["name"] == "Shard"]
    (entry,) = [m for m in said if m.startswith("entry 'main'")]
    return ops, float(re.search(r"estimated ([\d.]+) us", entry).group(1)), said


def without_specs(model):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ClearField("configuration")
    copy.ir_version = 11
    for node in copy.graph.node:
        node.ClearField("device_configurations")
    return copy.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name,ranks", [("families/bert", 2), ("families/qwen2", 4), ("families/phi3", 2), ("decoders/llama3", 2),
                                        ("decoders/gpt2", 4)])
def test_the_plan_survives_the_file(name, ranks, tmp_path):
    model = os.path.join(lathe_cli.MODELS, name, "model.onnx")
    mesh = f"--mesh=tp={ranks}"
    dims = ["--dim=B=1:1:4", "--dim=S=1:16:512", "--dim=P=0:17:511"] if name.startswith("decoders") else []
    before = onnx.load(model, load_external_data=False)
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in before.graph.initializer):
        before = onnx.load(model)
        model = tmp_path / "inside.onnx"
        onnx.save(before, model)
    written = tmp_path / "sharded.onnx"
    said = lathe_cli.lathe("shard", model, "-o", written, mesh, *dims)
    made = onnx.load(written)
    onnx.checker.check_model(made)
    assert made.ir_version >= 11 and without_specs(made) == without_specs(before)
    (configuration,) = made.configuration
    assert (configuration.name, configuration.num_devices) == (f"lathe-tp{ranks}", ranks)
    specs = [s for n in made.graph.node for c in n.device_configurations for s in c.sharding_spec]
    divided = [s for s in specs if s.sharded_dim]
    assert len(divided) >= 4 and f"specs of {len({s.tensor_name for s in specs})} tensors" in said
    sizes = {i.name: i.dims for i in made.graph.initializer}
    for spec in divided:
        (dim,), (simple,) = spec.sharded_dim, spec.sharded_dim[0].simple_sharding
        assert list(spec.device) == list(range(ranks)) and simple.num_shards == ranks
        if spec.tensor_name in sizes:
            assert sizes[spec.tensor_name][dim.axis] == simple.dim_value and simple.dim_value % ranks == 0
    for node in made.graph.node:
        for c in node.device_configurations:
            assert {s.tensor_name for s in c.sharding_spec} <= {*node.input, *node.output}
    ops, seconds, _ = plan_of(model, tmp_path, mesh, *dims)
    again, same, remarks = plan_of(written, tmp_path, mesh, *dims)
    assert again == ops and same == seconds and not any("sharding spec" in r for r in remarks)
    # Written again it is the same file.
    twice = tmp_path / "twice.onnx"
    lathe_cli.lathe("shard", written, "-o", twice, mesh, *dims)
    assert onnx.load(twice).SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)


def test_weights_outside_stay_outside(two_products, tmp_path):
    model = onnx.load(two_products)
    model.metadata_props.add(key="owner", value="test")
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    lathe_cli.lathe("shard", tmp_path / "model.onnx", "-o", tmp_path / "sharded.onnx", "--mesh=tp=2")
    made = onnx.load(tmp_path / "sharded.onnx", load_external_data=False)
    assert all(t.data_location == onnx.TensorProto.EXTERNAL for t in made.graph.initializer)
    assert made.metadata_props[0].value == "test"
    os.mkdir(tmp_path / "elsewhere")
    lathe_cli.lathe("shard", tmp_path / "model.onnx", "-o", tmp_path / "elsewhere" / "sharded.onnx", "--mesh=tp=2", code=2)


def test_hints_are_written(two_products, tmp_path):
    """What --shard asked for is in the file, and so it is what a compilation without hints does."""
    lathe_cli.lathe("shard", two_products, "-o", tmp_path / "sharded.onnx", "--mesh=tp=2", "--shard=b=dim:1")
    asked = plan_of(two_products, tmp_path, "--mesh=tp=2", "--shard=b=dim:1")
    assert plan_of(tmp_path / "sharded.onnx", tmp_path, "--mesh=tp=2")[:2] == asked[:2]
    assert asked[0] != plan_of(two_products, tmp_path, "--mesh=tp=2")[0]


def test_bad_input(two_products, tmp_path):
    lathe_cli.lathe("shard", two_products, "-o", tmp_path / "x.onnx", code=2)
    lathe_cli.lathe("shard", two_products, "-o", tmp_path / "x.onnx", "--mesh=tp=1", code=2)
    lathe_cli.lathe("shard", two_products, "--mesh=tp=2", code=2)
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 40)
    lathe_cli.lathe("shard", tmp_path / "bad.onnx", "-o", tmp_path / "x.onnx", "--mesh=tp=2", code=3)
    assert not (tmp_path / "x.onnx").exists()
