# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context.run_async: many tasks, one context."""
import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper

import lathe


def test_a_thousand_requests(affine):
    engine, _, weight, bias = affine
    context = engine.context()
    inputs = [np.full((i % 5, 8), i / 1000, np.float32) for i in range(1000)]
    turns = 0

    async def turn(done):
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def main():
        done = asyncio.Event()
        other = asyncio.create_task(turn(done))
        results = await asyncio.gather(*(context.run_async({"x": x}) for x in inputs))
        done.set()
        await other
        return results

    for x, result in zip(inputs, asyncio.run(main())):
        np.testing.assert_allclose(result["y"].numpy(), np.maximum(x @ weight + bias, 0), rtol=1e-5, atol=1e-6)
    assert turns > 10  # the loop went on meanwhile


def test_results_of_steps_in_flight_are_apart(affine):
    """What a wait gives is there until the next submission, also where steps queue behind it."""
    engine, _, weight, bias = affine
    context = engine.context()
    for sizes in ([1, 0], [2, 3, 4, 1], [0, 0, 1, 0, 2], list(range(20))):
        inputs = [np.full((n, 8), n / 7, np.float32) for n in sizes]
        steps = [context.submit([x]) for x in inputs]
        for x, step in zip(inputs, steps):
            np.testing.assert_allclose(step.wait()["y"].numpy(), np.maximum(x @ weight + bias, 0),
                                       rtol=1e-5, atol=1e-6)
            assert step.wait() is step.wait()


def test_one_fails_the_others_do_not(affine):
    engine, _, weight, bias = affine
    context = engine.context()

    async def main():
        sizes = [8, 8, 7, 8, 8, 9, 8, 8]
        return await asyncio.gather(*(context.run_async([np.ones((2, n), np.float32)]) for n in sizes),
                                    return_exceptions=True)

    results = asyncio.run(main())
    want = np.maximum(np.ones((2, 8)) @ weight + bias, 0)
    for at, result in enumerate(results):
        if at in (2, 5):
            assert isinstance(result, lathe.Error) and "x" in str(result)
        else:
            np.testing.assert_allclose(result["y"].numpy(), want, rtol=1e-5)


def test_runs_that_fail_late():
    """Steps behind one that fails on the way are cancelled with it, and submitted again."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
         helper.make_tensor_value_info("i", TensorProto.INT64, ["K"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["K"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    context = lathe.compile(model).context()
    x = np.arange(4, dtype=np.float32)

    async def main():
        return await asyncio.gather(
            *(context.run_async([x, np.array([9 if k % 5 == 2 else k % 4])]) for k in range(40)),
            return_exceptions=True)

    for k, result in enumerate(asyncio.run(main())):
        if k % 5 == 2:
            assert isinstance(result, lathe.Error) and result.code == lathe.Code.RUNTIME_FAILURE
        else:
            assert result["y"].numpy().tolist() == [k % 4]


def test_cancelled_task(affine):
    context = affine[0].context()

    async def main():
        x = np.ones((2, 8), np.float32)
        tasks = [asyncio.create_task(context.run_async([x])) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert all(isinstance(r, asyncio.CancelledError) for r in results[::2])
    assert all(r["y"].shape == (2, 4) for r in results[1::2])


def test_thread_ends_with_the_context(affine):
    context = affine[0].context()
    asyncio.run(context.run_async([np.ones((2, 8), np.float32)]))
    alive = weakref.ref(context)
    threads = [t for t in threading.enumerate() if t.name == "lathe"]
    del context
    gc.collect()
    assert alive() is None
    for thread in threads:
        thread.join(10)
    assert not any(t.is_alive() for t in threads)


def test_wrong_use(affine):
    async def main():
        await affine[0].context().run_async({"z": 1})

    with pytest.raises(lathe.Error, match="z"):
        asyncio.run(main())
