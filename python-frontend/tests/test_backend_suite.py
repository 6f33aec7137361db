# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sample of the ONNX backend suite through lathe.onnxruntime; backend_suite.py runs all of it."""
import os

import backend_suite
import numpy as np
import pytest


def test_sample():
    if not os.path.exists(backend_suite.CORPUS):
        pytest.fail("build/corpus is missing: test/conformance/make_corpus.py writes it")
    count, wrong = backend_suite.compare(every=97)
    assert count >= 20 and not wrong, wrong


def test_differences_are_seen():
    x = np.array([1, 2, 3], np.float32)
    assert backend_suite.same(x, x, 1e-3, 1e-7, False)
    assert not backend_suite.same(x + np.float32(0.01), x, 1e-3, 1e-7, False)
    assert not backend_suite.same(x[:2], x, 1e-3, 1e-7, True)
    assert not backend_suite.same([x], [x, x], 1e-3, 1e-7, False)
