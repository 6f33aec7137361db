# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context.bind: results, mistakes, and what a call costs above the call of C."""
import ctypes
import gc
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import lathe


def expect(x, weight, bias):
    y = np.maximum(x @ weight + bias, 0)
    return y, y.sum(-1)


def test_reads_and_writes_in_place(affine):
    engine, _, weight, bias = affine
    x, y = np.zeros((3, 8), np.float32), np.full((3, 4), 9, np.float32)
    bound = engine.context().bind({"x": x}, {"y": y})
    for step in range(3):
        x[:] = np.random.default_rng(step).standard_normal((3, 8))
        outputs = bound()
        assert list(outputs) == ["y", "s"] and outputs["y"] is y
        want = expect(x, weight, bias)
        np.testing.assert_allclose(y, want[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(outputs["s"], want[1], rtol=1e-5, atol=1e-5)
    kept = outputs["s"]
    assert bound()["s"] is kept  # made by the first call, then written again


def test_torch_memory(affine):
    torch = pytest.importorskip("torch")
    engine, _, weight, bias = affine
    x, y = torch.ones(2, 8), torch.zeros(2, 4)
    bound = engine.context().bind([x], {"y": y})
    del engine
    gc.collect()
    bound()
    x += 1
    bound()
    np.testing.assert_allclose(y.numpy(), expect(x.numpy(), weight, bias)[0], rtol=1e-5, atol=1e-5)


def test_mistakes(affine):
    context = affine[0].context()
    x = np.ones((2, 8), np.float32)
    for inputs, outputs, where in [
            ({"x": [1.0] * 8}, {}, "input 'x'"),
            ({"x": x[::-1]}, {}, "input 'x'"),
            ({"x": x}, {"nothing": x}, "output 'nothing'"),
            ({"x": x}, {"y": np.zeros((2, 4))}, "output 'y'"),
            ({"x": x}, {"y": np.zeros((4, 2), np.float32).T}, "output 'y'"),
            ({"x": x}, {"y": [0.0]}, "output 'y'"),
            ({}, {}, "input 'x'")]:
        with pytest.raises(lathe.Error, match=where) as raised:
            context.bind(inputs, outputs)
        assert raised.value.code == lathe.Code.USAGE
    for y in (np.zeros((2, 3), np.float32), np.zeros((4, 4), np.float32)):  # too small; too large
        with pytest.raises(lathe.Error, match="y"):
            context.bind({"x": x}, {"y": y})()
    with pytest.raises(lathe.Error, match="x"):
        context.bind({"x": np.ones((2, 9), np.float32)})()


def test_sizes_that_data_decide():
    graph = helper.make_graph([helper.make_node("Range", ["start", "limit", "delta"], ["y"])], "g",
                              [helper.make_tensor_value_info(n, TensorProto.INT64, [])
                               for n in ("start", "limit", "delta")],
                              [helper.make_tensor_value_info("y", TensorProto.INT64, ["K"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    context = lathe.compile(model).context()
    assert context.run([0, 5, 2])["y"].numpy().tolist() == [0, 2, 4]
    with pytest.raises(lathe.Error, match="use run"):
        context.bind([np.array(0), np.array(5), np.array(2)])


def best_of(call, count, tries=9):
    """Seconds a call takes, the best of several tries."""
    times = []
    for _ in range(tries):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begin) / count)
    return min(times)


def test_overhead(affine):
    """What Python adds to the call of C: at most 5 us. It is the same call with a null context to a
    function of C that then returns at once."""
    context = affine[0].context(threads=1)
    x, y, s = np.ones((1, 8), np.float32), np.zeros((1, 4), np.float32), np.zeros(1, np.float32)
    bound = context.bind({"x": x}, {"y": y, "s": s})
    bound()
    whole = best_of(bound, 2000)
    nothing = ctypes.CFUNCTYPE(ctypes.c_void_p, *[type(a) for a in bound._arguments])(
        ctypes.cast(context._library.lathe_context_destroy, ctypes.c_void_p).value)
    nulls = (ctypes.c_void_p(), *bound._arguments[1:])
    empty = best_of(lambda: nothing(*nulls), 2000)
    loop = best_of(lambda: None, 2000)
    print(f"call {1e6 * whole:.2f} us, of that Python and ctypes {1e6 * (empty - loop):.2f} us")
    assert empty - loop <= 5e-6


def test_the_lock_is_free_while_it_runs():
    """Another thread of Python works on while a run computes."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("MatMul", ["p", "x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1200, 1200])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1200, 1200])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    bound = lathe.compile(model).context(threads=1).bind({"x": np.ones((1200, 1200), np.float32)})
    bound()
    running, steps = threading.Event(), []

    def work():
        running.set()
        for _ in range(3):
            bound()
        running.clear()

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    while running.is_set():
        steps.append(time.perf_counter())
    thread.join()
    assert len(steps) > 1000 and max(np.diff(steps)) < (steps[-1] - steps[0]) / 3
