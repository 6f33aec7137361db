# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops on codes and packed weights of com.microsoft against onnxruntime, over random attributes.

Codes that onnxruntime rounds from another order of the same formula (a ratio of scales, a table in whole numbers) may differ
by one where the exact value lies between two; scales that are powers of two leave no such room and are compared exactly."""
import numpy as np
import pytest

import lathe_cli
from microsoft import ROUNDS, Case, agree, compare, floats, maybe, pick, without

BYTES = (np.uint8, np.int8)


def dims(rng, rank, least=1, most=7):
    return [int(s) for s in rng.integers(least, most + 1, rank)]


def codes(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(rng, exact):
    return np.float32(2.0 ** rng.integers(-6, -2) if exact else rng.uniform(0.01, 0.1))


def triple(rng, dtype, exact, *shape):
    return [codes(rng, dtype, *shape), scale(rng, exact), codes(rng, dtype)[()]]


def result(rng, dtype, exact):
    return [scale(rng, exact) * np.float32(2), codes(rng, dtype)[()] // 4]


def binary(rng, op, exact):
    shape, dtype = dims(rng, 3), pick(rng, *BYTES)
    other = pick(rng, shape, [1], [shape[0], 1, shape[2]], shape[1:])
    y = [np.float32(1 if op == "QLinearMul" else 0.25), dtype(4)] if exact else result(rng, dtype, exact)
    yield Case(op, [*triple(rng, dtype, exact, *shape), *triple(rng, dtype, exact, *other), *y], constants=(1, 2, 4, 5, 6, 7))


def unary(rng, op, exact):
    dtype = pick(rng, *BYTES)
    y = [np.float32(1 / 256), dtype(0 if dtype == np.uint8 else -128)] if op == "QLinearSigmoid" else result(rng, dtype, exact)
    yield Case(op, [*triple(rng, dtype, exact, *dims(rng, 3)), *y], {"alpha": 0.25} if op == "QLinearLeakyRelu" else {},
               constants=(1, 2, 3, 4))


def average(rng, op, exact):
    dtype, last = pick(rng, *BYTES), int(rng.integers(2))
    n, c, h, w = *dims(rng, 2, 1, 3), *dims(rng, 2, 8, 11)
    attributes = without(channels_last=last or None)
    if op == "QLinearAveragePool":
        kernel = dims(rng, 2, 1, 3)
        attributes |= without(kernel_shape=kernel, strides=maybe(rng, dims(rng, 2, 1, 2)), count_include_pad=maybe(rng, 1),
                              pads=maybe(rng, [int(v) for k in (kernel, kernel) for v in [rng.integers(0, s) for s in k]]),
                              ceil_mode=maybe(rng, 1))
        if "ceil_mode" in attributes:  # onnxruntime counts what lies beyond the padding too
            attributes.pop("count_include_pad", None)
    shape = (n, h, w, c) if last else (n, c, h, w)
    yield Case(op, [*triple(rng, dtype, exact, *shape), *result(rng, dtype, exact)], attributes, constants=(1, 2, 3, 4))


def concat(rng, op, exact):
    dtype, rank = pick(rng, *BYTES), int(rng.integers(1, 4))
    axis, shape = int(rng.integers(-rank, rank)), dims(rng, rank)
    inputs = result(rng, dtype, exact)
    for _ in range(int(rng.integers(1, 4))):
        part = list(shape)
        part[axis] = int(rng.integers(1, 5))
        inputs += triple(rng, dtype, exact, *part)
    constants = [i for i in range(len(inputs)) if i < 2 or i % 3 != 2]
    yield Case(op, inputs, {"axis": axis}, constants=tuple(constants))


def softmax(rng, op, exact):
    dtype, rank = pick(rng, *BYTES), int(rng.integers(2, 4))
    version = int(pick(rng, 12, 13))
    zero = dtype(0 if dtype == np.uint8 else -128)
    # A row of one element is 1, which is beyond the last code; onnxruntime wraps it.
    yield Case(op, [codes(rng, dtype, *dims(rng, rank, 2)), scale(rng, exact), dtype(3), np.float32(1 / 256), zero],
               {"opset": version, "axis": int(rng.integers(0, rank))}, constants=(1, 2, 3, 4))


def where(rng, op, exact):
    dtype, shape = pick(rng, *BYTES), dims(rng, 3)
    yield Case(op, [rng.integers(0, 2, shape).astype(bool), *triple(rng, dtype, exact, *shape), *triple(rng, dtype, exact, *shape),
                    *result(rng, dtype, exact)], constants=(2, 3, 5, 6, 7, 8))


def conv(rng, op, exact):
    a, w = np.uint8, np.uint8
    c, m, group = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 3))
    n, h, wide = 2, *dims(rng, 2, 5, 9)
    kernel, last = dims(rng, 2, 1, 3), int(rng.integers(2))
    shape = (n, h, wide, c * group) if last else (n, c * group, h, wide)
    bias = maybe(rng, rng.integers(-999, 999, m * group).astype(np.int32))
    inputs = [*triple(rng, a, exact, *shape), *triple(rng, w, exact, m * group, c, *kernel), scale(rng, exact) * np.float32(8),
              np.uint8(100)] + ([bias] if bias is not None else [])
    yield Case(op, inputs, without(channels_last=last, group=group, kernel_shape=kernel, strides=maybe(rng, dims(rng, 2, 1, 2)),
                                   pads=maybe(rng, [1, 0, 1, 1])), constants=tuple(range(1, len(inputs))))


def gemm(rng, op, exact):
    a, b = np.uint8, pick(rng, *BYTES)
    m, k, n = dims(rng, 3, 1, 20)
    ta, tb = (int(v) for v in rng.integers(2, size=2))
    columns = rng.integers(2)
    sb = np.array([scale(rng, exact) for _ in range(n)]) if columns else scale(rng, exact)
    zb = codes(rng, b, n) if columns else codes(rng, b)[()]
    c = maybe(rng, rng.integers(-99, 99, pick(rng, (n,), (m, n))).astype(np.int32))
    y = [np.float32(2.0 if exact else 1.7), codes(rng, a)[()]] if rng.integers(2) else []
    yield Case(op, [*triple(rng, a, exact, *((k, m) if ta else (m, k))), codes(rng, b, *((n, k) if tb else (k, n))), sb, zb, c, *y],
               without(transA=ta, transB=tb, alpha=maybe(rng, 0.5)), constants=tuple(range(1, 9)))


def integer_to_float(rng, op, exact):
    a, b = np.uint8, pick(rng, *BYTES)
    m, k, n = dims(rng, 3, 1, 20)
    batch = pick(rng, [], [2], [2, 3])
    columns = rng.integers(2)
    sb = np.array([scale(rng, exact) for _ in range(n)]) if columns else scale(rng, exact)
    zb = None if rng.integers(2) else codes(rng, b, n) if columns else codes(rng, b)[()]
    yield Case(op, [codes(rng, a, *batch, m, k), codes(rng, b, k, n), scale(rng, exact), sb, maybe(rng, codes(rng, a)[()]), zb,
                    maybe(rng, floats(rng, n))], constants=(1, 2, 3, 4, 5, 6))


def dynamic_matmul(rng, op, exact):
    b = pick(rng, *BYTES)
    m, k, n = dims(rng, 3, 1, 20)
    columns = rng.integers(2)
    sb = np.array([scale(rng, exact) for _ in range(n)]) if columns else scale(rng, exact)
    zb = None if rng.integers(2) else codes(rng, b, n) if columns else codes(rng, b)[()]
    yield Case(op, [floats(rng, *pick(rng, [], [2]), m, k), codes(rng, b, k, n), sb, zb, maybe(rng, floats(rng, n))],
               constants=(1, 2, 3, 4), symbols={0: ["M"]})


def linear(rng, op, exact):
    dtype, shape, axis = pick(rng, np.uint8, np.int8, np.uint16, np.int16), dims(rng, 3), maybe(rng, int(rng.integers(3)))
    count = () if axis is None else (shape[axis],)
    s, z = np.full(count, scale(rng, exact), np.float32), codes(rng, dtype, *count)
    x = floats(rng, *shape) if op == "QuantizeLinear" else codes(rng, dtype, *shape)
    yield Case(op, [x, s, z], without(axis=axis), constants=(1, 2))


OPS = {"QLinearAdd": binary, "QLinearMul": binary, "QLinearSigmoid": unary, "QLinearLeakyRelu": unary, "QLinearAveragePool": average,
       "QLinearGlobalAveragePool": average, "QLinearConcat": concat, "QLinearSoftmax": softmax, "QLinearWhere": where,
       "QLinearConv": conv, "QGemm": gemm, "MatMulIntegerToFloat": integer_to_float, "DynamicQuantizeMatMul": dynamic_matmul,
       "QuantizeLinear": linear, "DequantizeLinear": linear}
# Where scales are powers of two, the zero point is even: onnxruntime adds it before it rounds halves to even.
# A division by the number of elements, or e^x, is exact for no scale.
NEVER_EXACT = {"QLinearSigmoid", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearSoftmax"}


@pytest.mark.parametrize("op", OPS)
def test_op(tmp_path, op):
    rng = np.random.default_rng(len(op))
    exact = [case for _ in range(ROUNDS // 2) for case in OPS[op](rng, op, op not in NEVER_EXACT)]
    other = [case for _ in range(ROUNDS // 2) for case in OPS[op](rng, op, False)]
    for case, name, got, want in compare(tmp_path, exact + other):
        what = f"{case.op} {name} {case.attributes} {[np.shape(x) for x in case.inputs]}"
        assert got.dtype == want.dtype and got.shape == want.shape, what
        if np.issubdtype(want.dtype, np.floating):
            assert lathe_cli.relative_error(got, want) <= 2e-6, what
            continue
        apart = np.abs(got.astype(np.int64) - want)
        assert apart.max(initial=0) <= (0 if int(name[1:].split("_")[0]) < len(exact) and op not in NEVER_EXACT else 1), what
        assert (apart > 0).mean() <= 0.1, what


def packed(values, bits):
    """Codes of the last dimension in bytes, the lower bits first."""
    per = 8 // bits
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per)])
    parts = values.reshape(*values.shape[:-1], -1, per).astype(np.uint8)
    return np.bitwise_or.reduce(parts << (np.arange(per, dtype=np.uint8) * bits), -1).astype(np.uint8)


def n_bits(rng):
    bits, block = int(pick(rng, 2, 4, 4, 8)), int(pick(rng, 16, 32, 64))
    k, n = int(rng.integers(1, 150)), int(rng.integers(1, 70))
    blocks = -(-k // block)
    weights = rng.integers(0, 1 << bits, (n, blocks * block))
    b = packed(weights, bits).reshape(n, blocks, block * bits // 8)
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    zero = pick(rng, None, packed(rng.integers(0, 1 << bits, (n, blocks)), bits), floats(rng, n, blocks) + 7 if bits == 4 else None)
    a = floats(rng, *pick(rng, [3, k], [2, 5, k], [1, k]))
    return Case("MatMulNBits", [a, b, scales, zero, None, maybe(rng, floats(rng, n))], {"K": k, "N": n, "bits": bits, "block_size": block},
                constants=(1, 2, 3, 5), symbols={0: ["M"]})


def bnb4(rng):
    block = int(pick(rng, 16, 64))
    k, n = (int(rng.integers(1, 4)) * block, int(rng.integers(1, 40))) if rng.integers(2) else (int(rng.integers(2, 50)), 2 * int(rng.integers(1, 20)))
    b = rng.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    scales = rng.uniform(0.5, 2, -(-n * k // block)).astype(np.float32)
    return Case("MatMulBnb4", [floats(rng, *pick(rng, [3, k], [2, 5, k])), b, scales],
                {"K": k, "N": n, "block_size": block, "quant_type": int(rng.integers(2))}, constants=(1, 2))


def gather_quantized(rng):
    bits, block = int(pick(rng, 2, 4, 8)), int(pick(rng, 16, 32))
    rows, k = int(rng.integers(2, 20)), 32 * int(rng.integers(1, 4))
    scales = rng.uniform(0.01, 0.1, (rows, k // block)).astype(np.float32)
    weights = rng.integers(0, 1 << bits, (rows, k))
    zero = maybe(rng, packed(rng.integers(0, 1 << bits, (rows, k // block)), bits))
    at = rng.integers(-rows, rows, pick(rng, (3,), (2, 4), ())).astype(pick(rng, np.int32, np.int64))
    return Case("GatherBlockQuantized", [packed(weights, bits), at, scales, zero], {"bits": bits, "block_size": block},
                constants=(0, 2, 3))


@pytest.mark.parametrize("make", [n_bits, bnb4, gather_quantized])
def test_weights(tmp_path, make):
    rng = np.random.default_rng(7)
    agree(tmp_path, [make(rng) for _ in range(ROUNDS)], 1e-5)


def test_products_read_codes(tmp_path):
    """Weights of four bits take half a byte each in the engine, and no kernel unpacks them."""
    rng = np.random.default_rng(8)
    b, scales = packed(rng.integers(0, 16, (512, 1024)), 4).reshape(512, 32, 16), rng.uniform(0.01, 0.1, (512, 32)).astype(np.float32)
    agree(tmp_path, [Case("MatMulNBits", [floats(rng, 1, 1024), b, scales], {"K": 1024, "N": 512, "bits": 4, "block_size": 32},
                          constants=(1, 2), symbols={0: ["M"]})], 1e-5)
    plan, = lathe_cli.plans(tmp_path / "m.lathe")
    assert lathe_cli.launches(plan) == 1
    assert (tmp_path / "m.lathe").stat().st_size < 512 * 1024 * 0.9


def lstm(rng, hidden_counts):
    directions, columns = int(rng.integers(1, 3)), rng.integers(2)
    s, b, i, h = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 20)), int(rng.integers(1, 20))
    dtype = pick(rng, *BYTES)
    count = (directions, 4 * h) if columns and dtype == np.int8 else (directions,)
    zero = np.zeros(count, dtype) if columns and dtype == np.int8 else codes(rng, dtype, directions) // 8
    w, r = codes(rng, dtype, directions, i, 4 * h), codes(rng, dtype, directions, h, 4 * h)
    if not hidden_counts:
        r = np.broadcast_to(zero.reshape(directions, 1, -1), r.shape).astype(dtype).copy()
    parameters = [rng.uniform(0.002, 0.01, count).astype(np.float32), zero, rng.uniform(0.002, 0.01, count).astype(np.float32), zero]
    state = lambda: maybe(rng, floats(rng, directions, b, h))
    return Case("DynamicQuantizeLSTM", [floats(rng, s, b, i), w, r, maybe(rng, floats(rng, directions, 8 * h)), None, state(), state(), None, *parameters],
                {"hidden_size": h, "direction": "bidirectional" if directions == 2 else pick(rng, "forward", "reverse")}, outputs=3,
                constants=(1, 2, 3, 8, 9, 10, 11), symbols={0: ["S"]})


def test_lstm_inputs(tmp_path):
    """Where the state does not count (R is 0), inputs are quantized as onnxruntime does."""
    rng = np.random.default_rng(9)
    agree(tmp_path, [lstm(rng, False) for _ in range(ROUNDS)], 2e-5)


def test_lstm(tmp_path):
    """onnxruntime quantizes the state of each step to 8 bits, lathe keeps it in floats: 1/255 of its range apart."""
    rng = np.random.default_rng(10)
    agree(tmp_path, [lstm(rng, True) for _ in range(ROUNDS)], 2e-2)
