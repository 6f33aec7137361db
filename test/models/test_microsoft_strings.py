# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""onnxruntime's Tokenizer against onnxruntime, over random attributes."""
import os
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import lathe_cli
from microsoft import DOMAIN, ROUNDS

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="strings are on CPUs")
TEXTS = ["", "abc de", "a,b;;c d", "héé wörld_9", " lead", "x", "XX", "aXbXc", "日本 語", "𝄞", "aXXbXXXc", "line\nnext", "--", "a-b-c-d"]
PATTERNS = ["[a-zA-Z0-9_]+", "[a-z]*", ".", "b|bc|c", "[^ ]+", r"\w\w+"]
SEPARATORS = [[" "], [";;", ",", " "], ["[,; ]+"], [""], ["XbX", "X"], ["X", "XX"], ["é", "-"], ["[a-c]+"]]


def tokenizer(sizes, **attributes):
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain=DOMAIN, **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.STRING, sizes)],
                              [helper.make_tensor_value_info("y", TensorProto.STRING, [*sizes, "D"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)


def test_tokenizer():
    """"Tokenizer": an engine for each set, with sizes of the run."""
    rng = np.random.default_rng(0)
    ways = [*({"tokenexp": pattern} for pattern in PATTERNS), *({"separators": list(some)} for some in SEPARATORS)]
    for i in range(ROUNDS + len(ways)):
        way = ways[i % len(ways)]
        each = way in ({"tokenexp": "."}, {"separators": [""]})
        model = tokenizer(["N", "C"][i % 2:], mark=int(rng.integers(2)), mincharnum=1 if each else int(rng.integers(1, 4)),
                          pad_value=str(rng.choice(["#", "", "é"])), **way)
        engine, session = lathe.compile(model, target="x86-64-v3"), onnxruntime.InferenceSession(model.SerializeToString())
        for count in (5, 1, 14):
            x = rng.choice(np.array(TEXTS, object), [3, count][i % 2:])
            np.testing.assert_array_equal(engine.run({"x": x})["y"].numpy(), session.run(None, {"x": x})[0], err_msg=f"{way} of {x}")


def test_no_strings():
    engine = lathe.compile(tokenizer(["C"], mark=1, mincharnum=1, pad_value="#", separators=[" "]), target="x86-64-v3")
    assert engine.run({"x": np.array([], object)})["y"].numpy().size == 0


@pytest.mark.parametrize("attributes, said", [
    ({"mincharnum": 0, "separators": [" "]}, "mincharnum is positive"), ({"mincharnum": 2, "tokenexp": "."}, "mincharnum is positive"),
    ({"mincharnum": 1}, "separators or tokenexp is needed"), ({"mincharnum": 1, "separators": [" "], "pad_value": b"\xa4"}, "no UTF-8")])
def test_bad_attributes(attributes, said):
    with pytest.raises(lathe.Error, match=said):
        lathe.compile(tokenizer(["C"], **attributes), target="x86-64-v3")


@pytest.mark.parametrize("way", [{"tokenexp": "("}, {"separators": [" ", "("]}])
def test_bad_expression(way):
    engine = lathe.compile(tokenizer(["C"], mark=0, mincharnum=1, pad_value="#", **way), target="x86-64-v3")
    with pytest.raises(lathe.Error, match="no regular expression"):
        engine.run({"x": np.array(["a"], object)})
