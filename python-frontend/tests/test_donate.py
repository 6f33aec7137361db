# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs whose memory an output takes."""
import numpy as np
import pytest

import lathe

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
update (float[40,16] pool, int64[N,1] rows, float[N,16] x) => (float[40] old, float[40,16] next, float[40] new)
<int64[1] last = {1}>
{
  next = ScatterND(pool, rows, x)
  new = ReduceSum<keepdims = 0>(next, last)
  old = ReduceSum<keepdims = 0>(pool, last)
}
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("donate") / "update.onnxtxt"
    path.write_text(MODEL)
    return lathe.compile(path, donate={"pool": "next"}, dims={"N": (1, 2, 8)})


def aligned(array):
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    out = memory[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[:] = array
    return out


def inputs():
    random = np.random.default_rng(3)
    return {"pool": aligned(random.standard_normal((40, 16)).astype(np.float32)),
            "rows": np.array([[39], [-38], [0]]), "x": random.standard_normal((3, 16)).astype(np.float32)}


def test_in_place(engine):
    assert [p.donated_to for p in engine.inputs()] == [1, -1, -1]
    context, given = engine.context("cpu"), inputs()
    pool = given["pool"].copy()
    want = pool.copy()
    want[[39, 2, 0]] = given["x"]
    kept = context.run(given)
    np.testing.assert_array_equal(given["pool"], pool)  # without consent the input stays
    np.testing.assert_array_equal(kept["next"].numpy(), want)
    before = context.counters["bytes_staged"]
    out = context.run(given, donate=["pool"])
    assert out["next"] is given["pool"]
    np.testing.assert_array_equal(given["pool"], want)
    np.testing.assert_allclose(out["old"].numpy(), pool.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["new"].numpy(), want.sum(1), rtol=1e-5, atol=1e-5)
    assert context.counters["bytes_staged"] - before < pool.nbytes


class Foreign:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()


def test_memory_of_others(engine):
    given = inputs()
    pool, want = given["pool"], given["pool"].copy()
    want[[39, 2, 0]] = given["x"]
    given["pool"] = Foreign(pool)
    assert engine.context("cpu").run(given, donate=["pool"])["next"] is given["pool"]
    np.testing.assert_array_equal(pool, want)


def test_refused(engine):
    given = inputs()
    with pytest.raises(lathe.Error, match="no output lies in its memory"):
        engine.context("cpu").run(given, donate=["x"])
    given["pool"].flags.writeable = False
    with pytest.raises(lathe.Error, match="cannot be written"):
        engine.context("cpu").run(given, donate=["pool"])
