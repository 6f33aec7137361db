# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derivatives of each op that Gradient of ai.onnx.preview.training goes back through, against central
differences of the same graph in f64, which ONNX's own reference evaluates."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import lathe_cli

STEP = 1e-5
# name: (nodes as (op, operands, attributes), sizes of the operands x, z and so on; the last node is the term)
CASES = {
    "add": ([("Add", ["x", "z"], {})], [(2, 3), (3,)]),
    "sub": ([("Sub", ["x", "z"], {})], [(2, 1), (2, 3)]),
    "mul": ([("Mul", ["x", "z"], {})], [(2, 3), (1, 3)]),
    "div": ([("Div", ["x", "z"], {})], [(3,), (2, 3)]),
    "max": ([("Max", ["x", "z"], {})], [(2, 3), (3,)]),
    "min": ([("Min", ["x", "z"], {})], [(3,), (2, 3)]),
    "neg": ([("Neg", ["x"], {})], [(4,)]),
    "abs": ([("Abs", ["x"], {})], [(6,)]),
    "exp": ([("Exp", ["x"], {})], [(4,)]),
    "log": ([("Mul", ["x", "x"], {}), ("Log", ["0"], {})], [(4,)]),
    "sqrt": ([("Exp", ["x"], {}), ("Sqrt", ["0"], {})], [(4,)]),
    "reciprocal": ([("Reciprocal", ["x"], {})], [(4,)]),
    "sin": ([("Sin", ["x"], {})], [(4,)]),
    "cos": ([("Cos", ["x"], {})], [(4,)]),
    "tanh": ([("Tanh", ["x"], {})], [(4,)]),
    "sigmoid": ([("Sigmoid", ["x"], {})], [(4,)]),
    "relu": ([("Relu", ["x"], {})], [(6,)]),
    "where": ([("Less", ["x", "z"], {}), ("Where", ["0", "x", "z"], {})], [(2, 3), (3,)]),
    "reshape": ([("Flatten", ["x"], {"axis": 0}), ("Transpose", ["0"], {}), ("Exp", ["1"], {})], [(2, 3)]),
    "transpose": ([("Transpose", ["x"], {"perm": [2, 0, 1]}), ("Exp", ["0"], {})], [(1, 2, 3)]),
    "expand": ([("Expand", ["x", "sizes"], {}), ("Sin", ["0"], {})], [(2, 1)]),
    "sum": ([("ReduceSum", ["x", "axis"], {"keepdims": 0}), ("Tanh", ["0"], {})], [(2, 3)]),
    "mean": ([("ReduceMean", ["x"], {"axes": [0]}), ("Exp", ["0"], {})], [(2, 3)]),
    "softmax": ([("Softmax", ["x"], {"axis": 0})], [(3, 2)]),
    "matmul": ([("MatMul", ["x", "z"], {})], [(2, 2, 3), (3, 2)]),
    "gemm": ([("Gemm", ["x", "z", "v"], {"transA": 1, "alpha": 0.5})], [(3, 2), (3, 2), (2,)]),
    "gemm_b": ([("Gemm", ["x", "z"], {"transB": 1})], [(2, 3), (2, 3)]),
    "gemm_both": ([("Gemm", ["x", "z"], {"transA": 1, "transB": 1})], [(3, 2), (2, 3)]),
    "twice": ([("Sin", ["x"], {}), ("Mul", ["0", "x"], {}), ("Add", ["1", "0"], {})], [(5,)]),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The derivatives of the sum of all terms by lathe, and by differences: {input: array} each."""
    folder, rng = tmp_path_factory.mktemp("gradient"), np.random.default_rng(4)
    nodes, feeds, initial, terms = [], {}, [], []
    for name, (ops, sizes) in CASES.items():
        given = dict(zip("xzv", (f"{name}_{o}" for o in "xzv")), sizes="sizes", axis="axis")
        for operand, size in zip("xzv", sizes):
            # Away from 0, and from each other, where some functions have no derivative.
            feeds[given[operand]] = rng.choice([-1, 1], size) * rng.uniform(0.3, 1.5, size) + 0.01
        for i, (op, operands, attributes) in enumerate(ops):
            nodes.append(helper.make_node(op, [given.get(o, f"{name}_{o}") for o in operands], [f"{name}_{i}"],
                                          **attributes))
        # Each element counts differently: the derivative of a plain sum hides transpositions.
        last = f"{name}_{len(ops) - 1}"
        nodes += [helper.make_node("Sin", [last], [f"{name}_s"]), helper.make_node("Mul", [f"{name}_s", last], [f"{name}_m"]),
                  helper.make_node("ReduceSum", [f"{name}_m"], [f"{name}_t"], keepdims=0)]
        terms.append(f"{name}_t")
    total = terms[0]
    for i, term in enumerate(terms[1:]):
        nodes.append(helper.make_node("Add", [total, term], [f"total{i}"]))
        total = f"total{i}"
    initial = [numpy_helper.from_array(np.array([2, 4]), "sizes"), numpy_helper.from_array(np.array([1]), "axis")]
    value = lambda n, dims: helper.make_tensor_value_info(n, TensorProto.DOUBLE, dims)
    inputs = [value(n, v.shape) for n, v in feeds.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.preview.training", 1)]

    def saved(file, nodes, outputs):
        graph = helper.make_graph(nodes, "g", inputs, outputs, initial)
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / file)
        return str(folder / file)
    forward = ReferenceEvaluator(saved("terms.onnx", nodes, [value(t, []) for t in terms]))
    gradient = helper.make_node("Gradient", list(feeds), [f"d_{n}" for n in feeds], domain="ai.onnx.preview.training",
                                xs=list(feeds), y=total)
    model = saved("gradient.onnx", nodes + [gradient], [value(f"d_{n}", v.shape) for n, v in feeds.items()])
    got = lathe_cli.run(lathe_cli.compile_model(model, folder / "m.lathe"), folder / "out", inputs=feeds)

    # Terms share no input: the elements of a number are moved in all terms at once, one operand after the other.
    want = {n: np.zeros_like(v) for n, v in feeds.items()}
    for letter in "xzv":
        moved = [n for n in feeds if n.endswith("_" + letter)]
        for i in range(max((feeds[n].size for n in moved), default=0)):
            sides = []
            for sign in (1, -1):
                now = {n: v.copy() for n, v in feeds.items()}
                for n in moved:
                    if i < now[n].size:
                        now[n].flat[i] += sign * STEP
                sides.append(dict(zip(terms, forward.run(None, now))))
            for n in moved:
                if i < feeds[n].size:
                    term = n[:-1] + "t"
                    want[n].flat[i] = (sides[0][term] - sides[1][term]) / (2 * STEP)
    return got, want


@pytest.mark.parametrize("case", CASES)
def test_derivative(models, case):
    got, want = models
    found = [n for n in want if n[:-2] == case]
    assert len(found) == len(CASES[case][1])
    for name in found:
        np.testing.assert_allclose(got[f"d_{name}"], want[name], rtol=1e-6, atol=1e-8)
