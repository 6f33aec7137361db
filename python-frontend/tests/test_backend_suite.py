# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sample of the ONNX backend suite through lathe.onnxruntime; backend_suite.py runs all of it."""
import os

import backend_suite
import ml_dtypes
import numpy as np
import pytest


def test_sample():
    if not os.path.exists(backend_suite.CORPUS):
        pytest.fail("build/corpus is missing: test/conformance/make_corpus.py writes it")
    count, wrong = backend_suite.compare(every=97)
    assert count >= 20 and not wrong, wrong


def test_the_whole_has_been_run():
    """In the last whole run, of which backend_suite.tsv tells, all tests of this ledger agreed with it."""
    with open(backend_suite.RESULT) as f:
        assert f.read() == backend_suite.summary(backend_suite.ledger_rows())


def test_narrow_types_and_nested_inputs():
    """Each dtype of less than a byte, and each kind of input that is no tensor."""
    for pattern in ("cast_FLOAT_to_INT2", "cast_UINT4_to_FLOAT", "cast_FLOAT_to_FLOAT4E2M1", "identity_opt",
                    "sequence_insert_at_back", "optional_has_element_empty_optional_input"):
        count, wrong = backend_suite.compare(pattern=pattern)
        assert count and not wrong, (pattern, wrong)


def test_differences_are_seen():
    x = np.array([1, 2, 3], np.float32)
    assert backend_suite.same(x, x, 1e-3, 1e-7, False)
    assert not backend_suite.same(x + np.float32(0.01), x, 1e-3, 1e-7, False)
    assert not backend_suite.same(x[:2], x, 1e-3, 1e-7, True)
    assert not backend_suite.same([x], [x, x], 1e-3, 1e-7, False)
    narrow = np.arange(4).astype(ml_dtypes.uint4)
    assert backend_suite.same(narrow, narrow.copy(), 0, 0, False)
    assert not backend_suite.same(narrow, narrow[::-1], 0, 0, False)
