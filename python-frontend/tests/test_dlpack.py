# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DLPack of both forms, in and out, without copies."""
import asyncio
import ctypes
import gc
import threading

import numpy as np
import pytest
from conftest import double_model
from onnx import TensorProto

import lathe
from lathe import _exchange, _tensor


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


def test_jax_arrays(affine):
    """In and out, without a copy."""
    jax = pytest.importorskip("jax")
    engine, _, weight, bias = affine
    context = engine.context()
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    y = context.run([jax.numpy.asarray(x)])["y"]
    assert context.counters["bytes_staged"] == 0
    back = jax.dlpack.from_dlpack(y)
    assert back.unsafe_buffer_pointer() == y.numpy().ctypes.data
    np.testing.assert_allclose(np.asarray(back), np.maximum(x @ weight + bias, 0), rtol=1e-5, atol=1e-6)


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


class OnDevice:
    """A value in the memory of a GPU, by DLPack; says in which thread it was asked for and with what."""

    def __init__(self, tensor, device=None):
        self.tensor, self.device, self.asked = tensor, device or tensor.__dlpack_device__(), []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **kwargs):
        self.asked.append((threading.get_ident(), kwargs))
        return self.tensor.__dlpack__(**kwargs)


@pytest.fixture(scope="module")
def on_fake_gpu():
    """(engine, context, a value there)"""
    engine = lathe.compile(double_model(TensorProto.FLOAT), target="sm_90a")
    context = engine.context("fake:0")
    return engine, context, context.run([np.ones(4, np.float32)], memory="device")["y"]


def test_streams_of_a_gpu(on_fake_gpu):
    """Who made a value is told of a stream that the runs begin behind, by the thread whose stream is current."""
    engine, context, tensor = on_fake_gpu
    value = OnDevice(tensor)
    context.reset_counters()
    made = context.run([value], memory="device")["y"]
    context.submit([value]).wait()
    asyncio.run(context.run_async([value]))
    context.bind([value], {"y": made})()
    assert len(value.asked) == 4 and {thread for thread, _ in value.asked} == {threading.get_ident()}
    streams = {asked["stream"] for _, asked in value.asked}
    assert len(streams) == 1 and min(streams) > 2  # none of the default streams
    assert context.counters["bytes_staged"] == 0
    other = engine.context("fake:0")
    other.run([value])
    assert value.asked[-1][1]["stream"] not in streams


def test_streams_that_are_waited_for(on_fake_gpu):
    engine, context, tensor = on_fake_gpu
    owner = engine.context("fake:0")

    class Stream:  # as torch's
        cuda_stream = owner._place.stream

    for stream in (Stream(), Stream.cuda_stream):
        context.wait_for(stream)
        asyncio.run(context.run_async([tensor], stream=stream))
        context.submit([tensor], stream=stream).wait()
    engine.context("fake:0", stream=Stream).run([tensor])
    for wrong in ("0", 1.5, None):
        with pytest.raises(lathe.Error, match="a stream is torch's, cupy's or a number") as raised:
            context.wait_for(wrong)
        assert raised.value.code == lathe.Code.USAGE
    with pytest.raises(lathe.Error, match="default stream"):
        engine.context("fake:0", stream=0)


def test_other_devices(on_fake_gpu, affine):
    """Memory that the context's device cannot read is never touched."""
    _, context, tensor = on_fake_gpu
    for device, of in (((2, 1), context), ((2, 0), affine[0].context())):
        with pytest.raises(lathe.Error, match=f"it is on cuda:{device[1]}, and the context on {of.device}") as raised:
            of.run([OnDevice(tensor, device)])
        assert raised.value.code == lathe.Code.USAGE and raised.value.location == "input 'x'"
    with pytest.raises(lathe.Error, match="no streams on this device"):
        affine[0].context().wait_for(3)


def exchanging(view, stream):
    """A type of tensors with DLPack's table of C functions, and what must live as long."""
    functions = _exchange._VIEW(view), _exchange._STREAM(stream)
    table = _exchange._Table(1, 3, None, None, None, None, *(ctypes.cast(f, ctypes.c_void_p) for f in functions))
    capsule = _tensor._capsule_new(ctypes.addressof(table), _exchange._CAPSULE, None)
    return type("Exchanging", (OnDevice,), {_exchange._NAME: capsule}), (functions, table)


def test_views_on_a_gpu(on_fake_gpu):
    """Where a producer has C functions no capsule is made, and runs begin behind the stream that is current there."""
    engine, context, tensor = on_fake_gpu
    asked, owner = [], engine.context("fake:0")

    def view(value, out):
        out[0] = value.tensor._managed.contents.dl_tensor
        out[0].device.device_id = value.device[1]
        return 0

    def stream(device, number, out):
        asked.append((device, number))
        out[0] = owner._place.stream
        return 0

    kind, _alive = exchanging(view, stream)
    value = kind(tensor)
    result = context.run([value])["y"].numpy()
    np.testing.assert_array_equal(result, context.run([tensor])["y"].numpy())
    assert asked == [(2, 0)] and not value.asked
    with pytest.raises(lathe.Error, match=f"it is on cuda:1, and the context on {context.device}"):
        context.run([kind(tensor, (2, 1))])

    class More(kind):  # its memory may not be all of it
        pass

    context.run([More(tensor)])
    assert len(asked) == 1


def test_views_of_torch(affine):
    torch = pytest.importorskip("torch")
    if _exchange.producer_of(torch.ones(1)) is None:
        pytest.skip("this torch has no table of C functions")
    engine, _, weight, bias = affine
    x = torch.linspace(-1, 1, 24).reshape(8, 3).t()
    want = np.maximum(x.numpy() @ weight + bias, 0)
    np.testing.assert_allclose(engine.run([x])["y"].numpy(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(lathe.Error, match="it gives no DLPack: .*requires? grad"):
        engine.run([x.clone().requires_grad_()])
    with pytest.raises(lathe.Error, match="input 'x': it gives no DLPack"):
        engine.run([x.to_sparse()])
    negative = torch.complex(torch.ones(3, 8), x).conj().imag
    assert negative.is_neg()
    np.testing.assert_array_equal(engine.run([negative])["y"].numpy(), engine.run([-x])["y"].numpy())
