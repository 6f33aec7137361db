# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branches of different ranks, as torch exports `x.squeeze(d)`, one If inside another; windows with SAME pads of any size."""
import numpy as np
import onnx
import onnx.parser
import pytest

import lathe_cli

SIDE = """{{ s{0} = Slice(x, zero, {1}, one) d{0} = Shape<start = 1, end = 2>(s{0}) q{0} = Squeeze(d{0}) e{0} = Equal(q{0}, n1)
  f{0} = If(e{0})<then_branch = t{0} () => (float[N] u{0}) {{ u{0} = Squeeze(s{0}, one) }},
                  else_branch = i{0} () => (float[N, M] v{0}) {{ v{0} = Identity(s{0}) }}>
  y{0} = Unsqueeze(f{0}, one) }}"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A side takes one column of x, or, where x has more, two: only the side that the run takes has to fit."""
    folder = tmp_path_factory.mktemp("branches")
    text = ('<ir_version: 10, opset_import: ["" : 21]> g (float[N, W] x, int64 k) => (float[N, P] y) '
            '<int64[1] zero = {0}, int64[1] one = {1}, int64[1] all = {9}, int64 n1 = {1}, int64 want = {16}> {'
            " c = Equal(k, want) y = If(c)<then_branch = a () => (float[N, P] y1) " + SIDE.format(1, "one") +
            ", else_branch = b () => (float[N, Q] y2) " + SIDE.format(2, "all") + "> }")
    model = str(folder / "m.onnx")
    onnx.save(onnx.parser.parse_model(text), model)
    return lathe_cli.compile_model(model, folder / "m.lathe")


@pytest.mark.parametrize("k, width", [(16, 1), (16, 5), (8, 1)])
def test_side_that_fits(engine, tmp_path, k, width):
    x = np.arange(3 * width, dtype=np.float32).reshape(3, width)
    got = lathe_cli.run(engine, tmp_path, inputs={"x": x, "k": np.int64(k)})
    np.testing.assert_array_equal(got["y"], x[:, :1])


def test_side_that_does_not_fit(engine, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 5), np.float32))
    np.save(tmp_path / "k.npy", np.int64(8))
    said = lathe_cli.lathe("run", engine, "--input", f"x={tmp_path}/x.npy", "--input", f"k={tmp_path}/k.npy", code=5)
    assert "takes_then_branch" in said or "number of elements" in said


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_pads(tmp_path, mode):
    text = (f'<ir_version: 10, opset_import: ["" : 21]> g (float[N, 2, W] x) => (float[N, 2, M] y) {{'
            f' w = Constant<value = float[2, 1, 3] {{1, 2, 3, 4, 5, 6}}>() a = MaxPool<kernel_shape = [3], strides = [2], auto_pad = "{mode}">(x)'
            f' b = AveragePool<kernel_shape = [3], strides = [2], auto_pad = "{mode}">(a) y = Conv<group = 2, strides = [2], auto_pad = "{mode}">(b, w) }}')
    model = str(tmp_path / "m.onnx")
    onnx.save(onnx.parser.parse_model(text), model)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    session = lathe_cli.session(model)
    for width in (1, 8, 17, 31):
        x = np.random.default_rng(width).standard_normal((2, 2, width)).astype(np.float32)
        got = lathe_cli.run(engine, tmp_path / str(width), inputs={"x": x})
        assert lathe_cli.relative_error(got["y"], session.run(None, {"x": x})[0]) <= 1e-6
