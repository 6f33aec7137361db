# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every schema version of ONNX that its corpus leaves out (schema_versions.py), against onnxruntime, or ONNX's reference."""
import os
import sys

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import lathe_cli
from schema_versions import Case, all_cases

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

BAR = 2e-6  # of the largest value; below 32 bits the results are those of one rounding


def oracle(case):
    """Results by who can compute them: the case, onnxruntime, ONNX's reference."""
    if case.twin:
        return case.expected(oracle(case.twin))
    if case.expected:
        return case.expected
    model = case.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, case.feeds())
    except Exception:  # onnxruntime has classes of its own for each way not to know an op or a type
        return ReferenceEvaluator(model).run(None, case.feeds())


CASES = list(all_cases())


@pytest.mark.parametrize("version", [15, 28])
def test_optional(version):
    """An optional is no result that a case could compare."""
    text = f'<ir_version: 14, opset_import: ["" : {version}]> g (float[2] x) => (float[2] y) {{ o = Optional(x) y = OptionalGetElement(o) }}'
    x = np.array([1.5, -2], np.float32)
    got = lathe.compile(onnx.parser.parse_model(text), target="x86-64-v3").run({"x": x})["y"].numpy()
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("case", CASES, ids=[f"{case}-{i}" for i, case in enumerate(CASES)])
def test_version(case):
    wanted = [np.asarray(y) for y in oracle(case)]
    engine = lathe.compile(case.model([(helper.np_dtype_to_tensor_dtype(y.dtype), [None] * y.ndim) for y in wanted]), target="x86-64-v3")
    for got, want in zip(engine.run(case.feeds()).values(), wanted):
        if want.dtype == object or want.dtype.name.startswith("float8"):
            same = object if want.dtype == object else np.float32  # numpy compares NaNs of its own types alone
            np.testing.assert_array_equal(got.numpy().astype(same), want.astype(same))
            continue
        assert lathe_cli.relative_error(got.numpy(), want) <= BAR


@pytest.mark.parametrize("op, version, domain", [
    ("Scatter", 11, ""), ("Upsample", 10, ""), ("TreeEnsembleClassifier", 5, "ai.onnx.ml"), ("TreeEnsembleRegressor", 5, "ai.onnx.ml")])
def test_deprecated(op, version, domain):
    """What ONNX has taken back, and onnxruntime refuses, too."""
    model = Case(op, version, [np.zeros((2, 2), np.float32)], domain=domain).model([(onnx.TensorProto.FLOAT, [None, None])])
    with pytest.raises(lathe.Error, match=f"{op} is deprecated.* Name: {op}") as raised:
        lathe.compile(model, target="x86-64-v3")
    assert raised.value.code == lathe.Code.INVALID
