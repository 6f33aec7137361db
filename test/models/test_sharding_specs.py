# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own sharding specs (IR 11) are hints of how a model is divided."""
import onnx
import pytest

import lathe_cli

pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="ranks are of the CPU")


def test_sharding_specs_of_a_model_are_followed(two_products, tmp_path):
    """ONNX's own (IR 11), as hints: what the user says goes ahead, and what cannot be is told."""
    def plan(name, specs, *options):
        made = onnx.load(two_products)
        made.configuration.add(name="two", num_devices=2)
        for node in made.graph.node:
            for tensor, axis, parts in specs:
                if tensor in (*node.input, *node.output):
                    configuration = node.device_configurations.add(configuration_id="two")
                    spec = configuration.sharding_spec.add(tensor_name=tensor, device=[0, 1])
                    if parts:
                        dim = spec.sharded_dim.add(axis=axis)
                        dim.simple_sharding.add(num_shards=parts)
        onnx.save(made, tmp_path / f"{name}.onnx")
        text, remarks = tmp_path / f"{name}.mlir", tmp_path / f"{name}.json"
        lathe_cli.lathe("compile", tmp_path / f"{name}.onnx", "-o", text, "--stop-after=shard", f"--remarks={remarks}",
                        *options)
        ops = text.read_text()
        return ops.count("lathe.all_reduce "), ops.count("lathe.all_gather "), remarks.read_text()

    mesh = "--mesh=tp=2"
    assert plan("none", [], mesh)[:2] == (1, 0)
    assert plan("columns", [("b", 1, 2)], mesh)[:2] == (0, 2)
    assert plan("result", [("y", 1, 2)], mesh)[:2] == (0, 2)
    assert plan("user", [("b", 1, 2)], mesh, "--shard=b=dim:0")[:2] == (1, 0)
    *ops, remarks = plan("four", [("b", 1, 4)], mesh)
    assert ops == [1, 0] and "the model divides 'b' in 4, not among 2 ranks" in remarks
    *ops, remarks = plan("cannot", [("b", 2, 2)], mesh)
    assert ops == [1, 0] and "sharding spec b=dim:2: cannot hold" in remarks
    assert "--mesh follows that" in plan("meshless", [("b", 1, 2)])[2]
