# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""magika and PP-OCR cls agree with onnxruntime at one row, at a prime and at the upper bound."""
import os
import sys

import numpy as np
import pytest

import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "tools"))
import demo_inputs  # noqa: E402

MAGIKA = os.path.join(lathe_cli.MODELS, "magika.onnx")
CLS = os.path.join(lathe_cli.MODELS, "ppocr_cls.onnx")
BOUND = 1e-4


def check(engine, model, folder, inputs):
    want = lathe_cli.session(model).run(None, inputs)
    got = lathe_cli.run(engine, folder, inputs=inputs)
    assert len(got) == len(want)
    for (name, array), expected in zip(got.items(), want):
        assert lathe_cli.relative_error(array, expected) <= BOUND, name


@pytest.mark.parametrize("rows", [1, 7, 16])
def test_magika(engines, tmp_path, rows):
    engine = engines(MAGIKA, "--dim=unk__214=1:1:16")
    random = np.random.default_rng(rows)
    text = open(__file__, "rb").read()
    data = np.stack([demo_inputs.magika_features(
        text[i * 97:] if i % 2 else random.bytes(int(random.integers(9, 5000))))
        for i in range(rows)])
    check(engine, MAGIKA, tmp_path, {"bytes": data})


@pytest.mark.parametrize("rows,height,width",
                         [(1, 48, 192), (7, 48, 192), (1, 48, 97), (2, 37, 101), (3, 32, 32),
                          (16, 64, 320)])
def test_cls(engines, tmp_path, rows, height, width):
    engine = engines(CLS, "--dim=x[0]=1:1:16", "--dim=x[2]=32:48:64", "--dim=x[3]=32:192:320")
    random = np.random.default_rng(width)
    data = random.uniform(-1, 1, (rows, 3, height, width)).astype(np.float32)
    if height == demo_inputs.HEIGHT:
        for i in range(0, rows, 2):
            data[i] = demo_inputs.cls_input(
                demo_inputs.draw_text(f"text {i}", i, upside_down=i % 4 == 2), width)
    check(engine, CLS, tmp_path, {"x": data})
