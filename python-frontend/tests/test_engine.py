# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Load, run, compile, numpy and DLPack, and what goes wrong."""
import gc
import os
import subprocess
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lathe
from lathe import _abi


def expect(x, weight, bias):
    y = np.maximum(x @ weight + bias, 0)
    return y, y.sum(-1)


def test_ports(affine):
    engine = affine[0]
    assert engine.inputs() == [lathe.Port("x", "f32", ("N", "8"))]
    assert [p.name for p in engine.outputs()] == ["y", "s"]
    symbol, = [s for s in engine.symbols() if s.name == "N"]
    assert (symbol.min, symbol.max) == (0, 64)
    assert len(engine.targets) == 1 and len(engine.entries) == 1 and engine.states == []


@pytest.mark.parametrize("rows", [0, 1, 13, 64])
def test_numpy(affine, rows):
    engine, _, weight, bias = affine
    x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
    outputs = engine.run({"x": x})
    y, s = expect(x, weight, bias)
    np.testing.assert_allclose(outputs["y"].numpy(), y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(outputs["s"]), s, rtol=1e-5, atol=1e-5)


def test_load_from_file_and_from_bytes(affine):
    _, path, weight, bias = affine
    x = np.ones((3, 8), np.float32)
    for source in (path, open(path, "rb").read()):
        got = lathe.load(source).context("cpu", threads=1).run([x])["y"].numpy()
        np.testing.assert_allclose(got, expect(x, weight, bias)[0], rtol=1e-5, atol=1e-5)


def test_a_key_ring_decides_what_is_loaded(affine, tmp_path):
    """Unsigned, foreign and altered engines are errors where a ring is given; ours is loaded."""
    _, path, weight, bias = affine
    command = os.path.join(_abi.folders()[-1], "..", "bin", "lathe")
    signed = str(tmp_path / "signed.lathe")
    for name in ("ours", "theirs"):
        subprocess.run([command, "keygen", tmp_path / name], check=True)
    subprocess.run([command, "sign", path, "--key", tmp_path / "ours.key", "-o", signed], check=True)
    x = np.ones((3, 8), np.float32)
    with open(signed, "rb") as f:
        data = f.read()
    for source in (signed, data):
        got = lathe.load(source, trust=tmp_path / "ours.pub").context("cpu", threads=1).run([x])
        np.testing.assert_allclose(got["y"].numpy(), expect(x, weight, bias)[0], rtol=1e-5, atol=1e-5)
    altered = data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]
    for source, ring, said in ((path, "ours", "is not signed"), (data[:-128], "ours", "is not signed"),
                               (signed, "theirs", "not in the key ring"), (altered, "ours", "damaged")):
        with pytest.raises(lathe.Error, match=said) as raised:
            lathe.load(source, trust=tmp_path / f"{ring}.pub")
        assert raised.value.code == lathe.Code.INVALID


def test_the_runtime_is_small():
    """With all that is linked into it: what an application ships."""
    path = os.path.join(_abi.folders()[-1], "liblathe_runtime.so")
    assert os.path.getsize(path) <= 2_000_000


@pytest.mark.parametrize("view", [
    lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: np.asfortranarray(a), lambda a: a[::2]])
def test_strided_input(affine, view):
    engine, _, weight, bias = affine
    x = view(np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32))
    np.testing.assert_allclose(engine.run([x])["y"].numpy(), expect(x, weight, bias)[0],
                               rtol=1e-5, atol=1e-5)


def test_result_outlives_everything(affine):
    _, path, weight, bias = affine
    x = np.ones((5, 8), np.float32)
    array = lathe.load(path).context().run([x])["y"].numpy()
    gc.collect()
    np.testing.assert_allclose(array, expect(x, weight, bias)[0], rtol=1e-5, atol=1e-5)


def test_results_are_apart(affine):
    context = affine[0].context()
    first = context.run([np.ones((2, 8), np.float32)])["y"].numpy()
    kept = first.copy()
    context.run([np.full((2, 8), 7, np.float32)])
    np.testing.assert_array_equal(first, kept)


def test_dlpack_out_shares_memory(affine):
    tensor = affine[0].run([np.ones((2, 8), np.float32)])["y"]
    shared = np.from_dlpack(tensor)
    assert shared.ctypes.data == tensor.numpy().ctypes.data
    kept = shared.copy()
    del tensor
    gc.collect()
    np.testing.assert_array_equal(shared, kept)


def test_dlpack_unconsumed(affine):
    from lathe import _tensor
    before = len(_tensor._exported)
    capsule = affine[0].run([np.ones((2, 8), np.float32)])["y"].__dlpack__()
    assert len(_tensor._exported) == before + 1
    del capsule
    gc.collect()
    assert len(_tensor._exported) == before


def test_torch_both_ways(affine):
    torch = pytest.importorskip("torch")
    engine, _, weight, bias = affine
    x = torch.linspace(-1, 1, 24).reshape(3, 8)
    got = torch.from_dlpack(engine.run({"x": x})["y"])
    np.testing.assert_allclose(got.numpy(), expect(x.numpy(), weight, bias)[0], rtol=1e-5,
                               atol=1e-5)


@pytest.mark.parametrize("name,values", [
    ("FLOAT16", np.array([1.5, -2, 0], np.float16)), ("DOUBLE", np.array([1.5, -2e300])),
    ("INT64", np.array([1 << 40, -3])), ("INT8", np.array([5, -7], np.int8)),
    ("UINT8", np.array([5, 100], np.uint8))])
def test_types(doubled, name, values):
    got = doubled(getattr(onnx.TensorProto, name)).run([values])["y"].numpy()
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values + values)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4",
                                  "uint4"])
def test_types_of_eight_bits_and_less(name, tmp_path):
    """They come out, too; those of 4 bits as packed bytes."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=kind)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
                              [helper.make_tensor_value_info("y", kind, ["N"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    x = np.array([1, 0, 3, 2, 7], np.float32)
    y = lathe.compile(model).run([x])["y"].numpy()
    if name in ("int4", "uint4"):
        assert y.tolist() == [0x01, 0x23, 0x07]
    else:
        assert y.tolist() == x.astype(dtype).view(y.dtype if y.dtype == np.uint8 else dtype).tolist()



@pytest.mark.parametrize("op,expected", [("Div", [2, 0, -4, 0, -2 ** 31]), ("Mod", [0, 0, 0, 0, 0])])
def test_integer_division_by_zero_gives_zero(tmp_path, op, expected):
    """ONNX leaves it open, onnxruntime stops; a kernel of lathe never traps. The least number by
    -1 wraps."""
    graph = helper.make_graph(
        [helper.make_node(op, ["a", "b"], ["y"])], "g",
        [helper.make_tensor_value_info(n, TensorProto.INT32, ["N"]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["N"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10),
              tmp_path / "m.onnx")
    a = np.array([6, 7, -8, 0, -2 ** 31] * 5, np.int32)
    b = np.array([3, 0, 2, 0, -1] * 5, np.int32)
    got = lathe.compile(tmp_path / "m.onnx").run([a, b])["y"].numpy()
    np.testing.assert_array_equal(got, np.array(expected * 5, np.int32))


def test_bfloat16(doubled):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    engine = doubled(onnx.TensorProto.BFLOAT16)
    values = np.array([1.5, -2, 0.25], ml_dtypes.bfloat16)
    for given in (values, values.view(np.uint16)):
        got = engine.run([given])["y"].numpy()
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got.astype(np.float32), 2 * values.astype(np.float32))


def raises(code, location, call):
    with pytest.raises(lathe.Error) as raised:
        call()
    assert raised.value.code == code, raised.value
    assert location in str(raised.value)


def test_wrong_inputs(affine):
    run = affine[0].context().run
    x = np.ones((2, 8), np.float32)
    usage = lathe.Code.USAGE
    raises(usage, "x", lambda: run({}))
    raises(usage, "z", lambda: run({"x": x, "z": x}))
    raises(usage, "0 inputs", lambda: run([]))
    raises(usage, "2 inputs", lambda: run([x, x]))
    raises(usage, "x", lambda: run([x.astype(np.float64)]))
    raises(usage, "x", lambda: run([np.array(["a"])]))
    raises(usage, "nobody", lambda: run([x], "nobody"))


def test_wrong_sizes(affine):
    run = affine[0].context().run
    for shape in ((2, 9), (65, 8), (2, 8, 1)):
        with pytest.raises(lathe.Error, match="x") as raised:
            run([np.ones(shape, np.float32)])
        assert raised.value.code in (lathe.Code.USAGE, lathe.Code.RUNTIME_FAILURE)


def test_damaged_engine(affine, tmp_path):
    data = bytearray(open(affine[1], "rb").read())
    data[len(data) // 2] ^= 1
    raises(lathe.Code.INVALID, "", lambda: lathe.load(bytes(data)))
    raises(lathe.Code.INVALID, "", lambda: lathe.load(bytes(data[:100])))
    with pytest.raises(lathe.Error, match="nothing.lathe"):
        lathe.load(tmp_path / "nothing.lathe")


def test_unknown_device(affine):
    with pytest.raises(lathe.Error):
        affine[0].context("abacus")


def test_compile_errors(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(lathe.Error, match="bad.onnx") as raised:
        lathe.compile(tmp_path / "bad.onnx", tmp_path / "bad.lathe")
    assert raised.value.code == lathe.Code.INVALID
    assert not (tmp_path / "bad.lathe").exists()


def test_counters(affine):
    context = affine[0].context()
    context.run([np.ones((2, 8), np.float32)])
    context.run([np.ones((2, 8), np.float32)])
    assert context.counters["runs"] == 2 and context.counters["launches"] >= 2
    context.reset_counters()
    assert context.counters["runs"] == 0


def custom_model():
    """y = -Scaled(x): the user's own op between two of ONNX's."""
    node = helper.make_node("Scaled", ["a"], ["b"], domain="lathe.custom", factor=10, by=[0.5, 2.0],
                            note="by ten")
    shape = ["N", 8]
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["a"]), node, helper.make_node("Neg", ["b"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        value_info=[helper.make_tensor_value_info("b", TensorProto.FLOAT, shape)])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 22), helper.make_opsetid("lathe.custom", 1)])


def test_custom_call(tmp_path):
    onnx.save(custom_model(), tmp_path / "custom.onnx")
    context = lathe.compile(tmp_path / "custom.onnx").context()
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
    raises(lathe.Code.USAGE, "'Scaled' is not registered", lambda: context.run([x]))
    seen = []

    def scaled(inputs, outputs, attributes):
        seen.append((attributes, inputs[0].shape, inputs[0].flags.writeable))
        outputs[0][:] = inputs[0] * attributes["factor"][0]

    context.register_call("Scaled", scaled)
    for rows in (3, 0, 1):  # the registered function outlives its name here
        got = context.run([x[:rows]])["y"].numpy()
        np.testing.assert_allclose(got, -10 * np.abs(x[:rows]), rtol=1e-6)
    del scaled
    gc.collect()
    assert context.run([x])["y"].shape == (3, 8)
    assert seen[0] == ({"factor": (10,), "by": (0.5, 2.0), "note": "by ten"}, (3, 8), False)

    def broken(inputs, outputs, attributes):
        raise ValueError("not today")

    context.register_call("Scaled", broken)
    raises(lathe.Code.RUNTIME_FAILURE, "custom call 'Scaled': ValueError: not today",
           lambda: context.run([x]))


def test_contexts_on_threads(affine):
    engine, _, weight, bias = affine
    wrong = []

    def work(seed):
        context = engine.context(threads=1)
        x = np.random.default_rng(seed).standard_normal((16, 8)).astype(np.float32)
        for _ in range(10):
            if not np.allclose(context.run([x])["y"].numpy(), expect(x, weight, bias)[0],
                               rtol=1e-4, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_threads_on_one_context():
    """The second is refused while the first runs, and harms nothing."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["p"]), helper.make_node("MatMul", ["p", "x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1500, 1500])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1500, 1500])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    context, x = lathe.compile(model).context(threads=1), np.eye(1500, dtype=np.float32)
    together, results = threading.Barrier(2), []

    def work():
        together.wait()
        try:
            results.append(context.run([x])["y"].numpy())
        except lathe.Error as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [r for r in results if isinstance(r, lathe.Error)]
    assert len(results) == 2 and len(refused) == 1, results
    assert refused[0].code == lathe.Code.USAGE and "in use by another thread" in str(refused[0])
    for y in (*(r for r in results if r is not refused[0]), context.run([x])["y"].numpy()):
        np.testing.assert_array_equal(y, x)


def test_steps_that_are_submitted(affine):
    engine, _, weight, bias = affine
    context = engine.context()
    x = np.random.default_rng(9).standard_normal((3, 8)).astype(np.float32)
    want, steps = [], []
    for i in range(4):
        x[0, 0] = i
        want.append(np.maximum(x @ weight + bias, 0))
        steps.append(context.submit({"x": x}))
    x[:] = 0  # the steps have their own copies
    for step, expected in zip(steps, want):
        np.testing.assert_allclose(step.wait(timeout=60)["y"].numpy(), expected, rtol=1e-5,
                                   atol=1e-6)
        assert step.ended
    with pytest.raises(lathe.Error, match="sizes|axis|expected"):
        context.submit({"x": np.zeros((3, 7), np.float32)}).wait()
