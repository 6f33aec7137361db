# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DLPack of both forms, in and out, without copies."""
import gc

import numpy as np
import pytest

import lathe
from lathe import _tensor


@pytest.fixture
def tensor(affine):
    return affine[0].run([np.ones((2, 8), np.float32)])["y"]


class Producer:
    """An array that speaks one form of DLPack and says which was asked for."""

    def __init__(self, array, old):
        self.array, self.old, self.asked = array, old, []

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **kwargs):
        self.asked.append(kwargs)
        if self.old and kwargs:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**kwargs)


@pytest.mark.parametrize("old", [False, True])
def test_in(affine, old):
    engine, _, weight, bias = affine
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    producer = Producer(x, old)
    context = engine.context()
    np.testing.assert_allclose(context.run([producer])["y"].numpy(), np.maximum(x @ weight + bias, 0),
                               rtol=1e-5, atol=1e-6)
    assert producer.asked == ([{"max_version": (1, 0)}, {}] if old else [{"max_version": (1, 0)}])


def test_read_only_arrays(affine):
    x = np.ones((2, 8), np.float32)
    x.flags.writeable = False
    assert affine[0].run([Producer(x, False)])["y"].shape == (2, 4)


def test_refused(affine):
    class Refuses(Producer):
        def __dlpack__(self, **kwargs):
            raise BufferError("not today")

    with pytest.raises(lathe.Error, match="not today") as raised:
        affine[0].run([Refuses(None, False)])
    assert raised.value.code == lathe.Code.USAGE and "input 'x'" in str(raised.value)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_out(tensor, version):
    before = len(_tensor._exported)
    capsule = tensor.__dlpack__(max_version=version)
    new = version is not None and version >= (1, 0)
    assert ("dltensor_versioned" in repr(capsule)) == new
    assert len(_tensor._exported) == before + 1
    del capsule
    gc.collect()
    assert len(_tensor._exported) == before  # never consumed, and freed


def test_out_shares_memory(tensor):
    torch = pytest.importorskip("torch")
    for shared in (np.from_dlpack(tensor), torch.from_dlpack(tensor).numpy()):
        assert shared.ctypes.data == tensor.numpy().ctypes.data
    copied = np.from_dlpack(tensor, copy=True)
    assert copied.ctypes.data != tensor.numpy().ctypes.data
    np.testing.assert_array_equal(copied, tensor.numpy())
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))


def test_consumed_outlives_the_tensor(tensor):
    before = len(_tensor._exported)
    array = np.from_dlpack(tensor)
    kept = array.copy()
    del tensor
    gc.collect()
    np.testing.assert_array_equal(array, kept)
    del array
    gc.collect()
    assert len(_tensor._exported) == before


def test_results_go_in_again(affine):
    first = affine[0].run([np.ones((2, 8), np.float32)])["y"]
    again = np.concatenate([first.numpy(), first.numpy()], axis=1)
    with pytest.raises(lathe.Error):
        affine[0].run([first])  # 4 columns, not 8
    assert affine[0].run([again])["s"].shape == (2,)
