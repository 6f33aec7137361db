# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products with weights kept in 8 or 4 bits (DequantizeLinear of a constant, or what exporters write instead), against
numpy in double: scales of columns or of blocks of k, zero points, either layout. One kernel reads the codes: on sm_90a
beside 16-bit activations, on a CPU beside any."""
import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, save

import lathe_cli

HALVES = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8e-3), "f16": (TensorProto.FLOAT16, np.float16, 2e-3)}
NARROW = {"i8": (TensorProto.INT8, np.int8), "u8": (TensorProto.UINT8, np.uint8),
          "e4m3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)}
ROWS = (5,) if lathe_cli.DEVICE == "cpu" else (1, 7, 13, 33, 300)


def tensor(name, code, values):
    return helper.make_tensor(name, code, values.shape, values.tobytes(), raw=True)


@pytest.mark.parametrize("half, narrow, block, zero, along, n, k", [
    ("bf16", "i8", 0, False, False, 301, 528), ("f16", "u8", 0, True, True, 264, 1024),
    ("bf16", "i8", 32, False, False, 272, 544), ("f16", "i8", 16, True, True, 300, 336),
    ("bf16", "e4m3", 0, False, True, 137, 608), ("bf16", "u8", 48, True, False, 200, 400)])
def test_dequantized(tmp_path, half, narrow, block, zero, along, n, k):
    code, dtype, tolerance = HALVES[half]
    narrow_code, narrow_type = NARROW[narrow]
    rng = np.random.default_rng(3)
    shape, axis = ((n, k), 1) if along else ((k, n), 0)  # axis: of k
    if narrow == "e4m3":
        q = rng.standard_normal(shape).astype(narrow_type)
    else:
        q = rng.integers(0, 256, shape).astype(np.uint8).view(narrow_type)
    blocks = list(shape)
    blocks[axis] = -(-k // block) if block else 1
    s = rng.uniform(0.002, 0.02, blocks).astype(dtype)
    constants = [tensor("q", narrow_code, q), tensor("s", code, s if block else s.reshape(-1))]
    wide = lambda p: np.repeat(p.astype(np.float32), block or k, axis).take(range(k), axis)
    z = np.zeros(blocks, np.float32)
    if zero:
        z = rng.integers(0, 100, blocks).astype(narrow_type)
        constants.append(tensor("z", narrow_code, z if block else z.reshape(-1)))
    attributes = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"][:2 + zero], ["w"], **attributes),
             helper.make_node("Gemm", ["x", "w"], ["t"], transB=1) if along else helper.make_node("MatMul", ["x", "w"], ["t"]),
             helper.make_node("Relu", ["t"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", code, ["M", k])], [value("y", code, ["M", n])], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == 1
    w = ((q.astype(np.float32) - wide(z)) * wide(s)).astype(dtype).astype(np.float64)
    for m in ROWS:
        x = rng.standard_normal((m, k)).astype(dtype)
        want = np.maximum(x.astype(np.float64) @ (w.T if along else w), 0)
        got = lathe_cli.run(engine, tmp_path / str(m), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got.astype(np.float64), want) < tolerance


def pack4(values):
    """Two codes to a byte along rows, the first lowest."""
    codes = (values.astype(np.int64) & 15).astype(np.uint8).reshape(-1, 2)
    return codes[:, 0] | codes[:, 1] << 4


def four_bits(rng, n, k, block, unsigned, zero):
    """Codes [n, k], scales and zero points [n, k / block], and the weights that they stand for."""
    q = rng.integers(0, 16, (n, k)) - (0 if unsigned else 8)
    s = rng.uniform(0.002, 0.02, (n, k // block)).astype(np.float16)
    z = rng.integers(2, 14, (n, k // block)) - (0 if unsigned else 8) if zero else np.zeros((n, k // block), np.int64)
    wide = lambda p: np.repeat(p.astype(np.float32), block, 1)
    return q, s, z, (q - wide(z)) * wide(s)


def check_rows(tmp_path, engine, rows, k, dtype, w, tolerance):
    for m in rows:
        x = np.random.default_rng(m).standard_normal((m, k)).astype(dtype)
        got = lathe_cli.run(engine, tmp_path / str(m), inputs={"x": x})["y"]
        assert lathe_cli.relative_error(got.astype(np.float64), x.astype(np.float64) @ w.T) < tolerance


def save_model(path, nodes, x, y, constants, opset):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", *x)],
                              [helper.make_tensor_value_info("y", *y)], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11), path)


# A GPU multiplies many rows in 16 bits: one launch more.
@pytest.mark.parametrize("rows", [1, 7, "M"] if lathe_cli.DEVICE == "cpu" else [1, 7])
@pytest.mark.parametrize("block, unsigned, zero, along, n, k", [
    (32, False, False, True, 301, 512), (64, True, True, False, 264, 1024), (128, False, True, True, 200, 640)])
def test_four_bits(tmp_path, block, unsigned, zero, along, n, k, rows):
    """int4 in groups, symmetric or not, as opset 21 has it. A GPU reads the codes for few rows."""
    rng = np.random.default_rng(5)
    q, s, z, w = four_bits(rng, n, k, block, unsigned, zero)
    code = TensorProto.UINT4 if unsigned else TensorProto.INT4
    float_code, dtype, tolerance = HALVES["f16"] if lathe_cli.DEVICE != "cpu" else (TensorProto.FLOAT, np.float32, 1e-6)
    order = (lambda v: v) if along else (lambda v: np.ascontiguousarray(v.T))
    make = lambda name, v: helper.make_tensor(name, code, order(v).shape, pack4(order(v)).tobytes(), raw=True)
    constants = [make("q", q), helper.make_tensor("s", TensorProto.FLOAT16, order(s).shape, order(s).tobytes(), raw=True)]
    if zero:
        constants.append(make("z", z))
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"][:2 + zero], ["w"], axis=1 if along else 0,
                              block_size=block, output_dtype=float_code),
             helper.make_node("Gemm", ["x", "w"], ["y"], transB=1) if along else helper.make_node("MatMul", ["x", "w"], ["y"])]
    save_model(tmp_path / "m.onnx", nodes, (float_code, [rows, k]), (float_code, [rows, n]), constants, 23)
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == 1
    check_rows(tmp_path, engine, (1, 5, 60) if rows == "M" else (rows,), k, dtype, w.astype(dtype).astype(np.float64), tolerance)


@pytest.mark.parametrize("rows, half, config, packed", [
    (1, "FLOAT16", "gemv.row", "gemm.packed"), (9, "FLOAT16", "gemm.skinny", "gemm.packed"), (200, "FLOAT16", "", "gemm.widened"),
    (200, "BFLOAT16", "", "gemm.widened")])
def test_four_bits_on_a_gpu(tmp_path, rows, half, config, packed):
    """Compiled for a GPU: the product of few rows, with packed codes of many, reads them, no kernel is ahead of it."""
    n, k, block = 256, 1024, 64
    q, s, _, _ = four_bits(np.random.default_rng(5), n, k, block, unsigned=False, zero=False)
    code = getattr(TensorProto, half)
    if half == "BFLOAT16":
        s = (s.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    constants = [helper.make_tensor("q", TensorProto.INT4, q.shape, pack4(q).tobytes(), raw=True),
                 helper.make_tensor("s", code, s.shape, s.tobytes(), raw=True)]
    nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1, block_size=block),
             helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    save_model(tmp_path / "m.onnx", nodes, (code, [rows, k]), (code, [rows, n]), constants, 23)
    for target in ("sm_80", "sm_90a"):
        engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / f"{target}.lathe", target=target)
        kernels = lathe_cli.plans(engine)[0]["kernels"]
        wanted = packed if target == "sm_90a" else config
        assert lathe_cli.launches({"kernels": kernels}) == (1 if wanted else 2)
        assert not wanted or kernels[0]["variants"][0]["config"].startswith(wanted)


def test_unpacked_by_the_exporter(tmp_path):
    """Bytes that the model takes apart by shifts and masks, centred and scaled in groups: still one kernel."""
    n, k, block = 288, 512, 32
    rng = np.random.default_rng(7)
    q, s, _, w = four_bits(rng, n, k, block, unsigned=False, zero=False)
    float_code, dtype, tolerance = HALVES["f16"] if lathe_cli.DEVICE != "cpu" else (TensorProto.FLOAT, np.float32, 1e-6)
    ints = lambda name, values: helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    constants = [tensor("b", TensorProto.UINT8, pack4(q + 8).reshape(n, k // 2)), tensor("s", TensorProto.FLOAT16, s.reshape(n, -1, 1)),
                 tensor("mask", TensorProto.UINT8, np.uint8([15])), tensor("four", TensorProto.UINT8, np.uint8([4])),
                 tensor("eight", TensorProto.INT8, np.int8([8])), ints("last", [-1]), ints("flat", [n, k]),
                 ints("groups", [n, k // block, block])]
    node = helper.make_node
    nodes = [node("BitwiseAnd", ["b", "mask"], ["low"]), node("BitShift", ["b", "four"], ["high"], direction="RIGHT"),
             node("Unsqueeze", ["low", "last"], ["low1"]), node("Unsqueeze", ["high", "last"], ["high1"]),
             node("Concat", ["low1", "high1"], ["pairs"], axis=-1), node("Reshape", ["pairs", "flat"], ["codes"]),
             node("Cast", ["codes"], ["signed"], to=TensorProto.INT8), node("Sub", ["signed", "eight"], ["centred"]),
             node("Cast", ["centred"], ["float"], to=float_code), node("Reshape", ["float", "groups"], ["grouped"]),
             node("Cast", ["s"], ["scale"], to=float_code), node("Mul", ["grouped", "scale"], ["scaled"]),
             node("Reshape", ["scaled", "flat"], ["w"]), node("Gemm", ["x", "w"], ["y"], transB=1)]
    save_model(tmp_path / "m.onnx", nodes, (float_code, [3, k]), (float_code, [3, n]), constants, 21)
    engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / "m.lathe")
    assert lathe_cli.launches(lathe_cli.plans(engine)[0]) == 1
    check_rows(tmp_path, engine, (3,), k, dtype, w.astype(dtype).astype(np.float64), tolerance)


E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def check_stored(tmp_path, rows, k, w, code, dtype, tolerance, storage=""):
    """m.onnx is one kernel that reads the weights w as they are stored; of one row a GEMV. A GPU does so for 16 bits."""
    targets = {lathe_cli.TARGET} | ({"sm_90a"} if code != TensorProto.FLOAT else set())
    for target in targets:
        remarks = tmp_path / f"{target}.json"
        engine = lathe_cli.compile_model(tmp_path / "m.onnx", tmp_path / f"{target}.lathe", f"--remarks={remarks}", target=target)
        assert f"weights are read as they are stored: {storage}" in remarks.read_text()
        kernels = lathe_cli.plans(engine)[0]["kernels"]
        assert lathe_cli.launches({"kernels": kernels}) == 1
        assert target != "sm_90a" or kernels[0]["variants"][0]["config"].startswith("gemv.row" if rows == 1 else "gemm.skinny")
        if target == lathe_cli.TARGET:
            check_rows(tmp_path, engine, (rows,), k, dtype, w.astype(dtype).astype(np.float64), tolerance)


def check_floats4(tmp_path, rows, q, w, block, constants, scales, code, dtype, tolerance):
    """Codes q of weights w: `scales` are the nodes that make "s" of the constants. One kernel; of one row a GEMV."""
    n, k = q.shape
    nodes = scales + [
        helper.make_node("DequantizeLinear", ["q", "s"], ["wide"], axis=1, block_size=block, output_dtype=TensorProto.FLOAT),
        helper.make_node("Cast", ["wide"], ["w"], to=code), helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    constants = constants + [helper.make_tensor("q", TensorProto.FLOAT4E2M1, [n, k], pack4(q).tobytes(), raw=True)]
    save_model(tmp_path / "m.onnx", nodes, (code, [rows, k]), (code, [rows, n]), constants, 25)
    check_stored(tmp_path, rows, k, w, code, dtype, tolerance)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("rows", [1, 6])
def test_mxfp4(tmp_path, rows, half):
    """Floats of 4 bits, an exponent for each 32 of them along k."""
    rng = np.random.default_rng(11)
    q, exponents = rng.integers(0, 16, (272, 640)), rng.integers(120, 130, (272, 20)).astype(np.uint8)
    w = E2M1[q] * np.repeat(np.exp2(exponents.astype(np.float32) - 127), 32, 1)
    constants = [helper.make_tensor("s", TensorProto.FLOAT8E8M0, exponents.shape, exponents.tobytes(), raw=True)]
    check_floats4(tmp_path, rows, q, w, 32, constants, [], *HALVES[half])


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("rows", [1, 6])
def test_nvfp4(tmp_path, rows, half):
    """Floats of 4 bits, a float of 8 bits for each 16 of them along k, which one f32 scales."""
    rng = np.random.default_rng(12)
    q, t, outer = rng.integers(0, 16, (272, 640)), rng.uniform(0.5, 400, (272, 40)).astype(ml_dtypes.float8_e4m3fn), np.float32(0.003)
    w = E2M1[q] * np.repeat(t.astype(np.float32) * outer, 16, 1)
    constants = [tensor("t", TensorProto.FLOAT8E4M3FN, t), helper.make_tensor("u", TensorProto.FLOAT, [], [outer])]
    scales = [helper.make_node("DequantizeLinear", ["t", "u"], ["s"])]
    check_floats4(tmp_path, rows, q, w, 16, constants, scales, *HALVES[half])


NF4 = np.float32([-1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0, 0.0795803,
                  0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1])


@pytest.mark.parametrize("half", [*HALVES, "f32"])
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("packed", [False, True])
def test_nf4(tmp_path, packed, rows, half):
    """Codes of 4 bits that choose from a table of 16 numbers, scaled in blocks along k: as tensors of 4 bits, and as
    bytes with two codes each, the first in the upper half."""
    code, dtype, tolerance = HALVES.get(half, (TensorProto.FLOAT, np.float32, 1e-6))
    rng, n, k, block = np.random.default_rng(13), 272, 640, 64
    q, s = rng.integers(0, 16, (n, k)), rng.uniform(0.01, 0.3, (n, k // block)).astype(np.float32)
    w = NF4[q] * np.repeat(s, block, 1)
    ints = lambda name, values: helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    node = helper.make_node
    constants = [tensor("table", TensorProto.FLOAT, NF4), tensor("s", TensorProto.FLOAT, s.reshape(n, -1, 1)),
                 ints("groups", [n, k // block, block]), ints("flat", [n, k])]
    if packed:
        upper_first = q[:, ::2] << 4 | q[:, 1::2]
        constants += [tensor("b", TensorProto.UINT8, upper_first.astype(np.uint8)), ints("last", [-1]),
                      tensor("mask", TensorProto.UINT8, np.uint8([15])), tensor("four", TensorProto.UINT8, np.uint8([4]))]
        nodes = [node("BitwiseAnd", ["b", "mask"], ["low"]), node("BitShift", ["b", "four"], ["high"], direction="RIGHT"),
                 node("Unsqueeze", ["low", "last"], ["low1"]), node("Unsqueeze", ["high", "last"], ["high1"]),
                 node("Concat", ["high1", "low1"], ["pairs"], axis=-1), node("Reshape", ["pairs", "flat"], ["q"])]
    else:
        constants.append(helper.make_tensor("q", TensorProto.UINT4, [n, k], pack4(q).tobytes(), raw=True))
        nodes = []
    nodes += [node("Cast", ["q"], ["places"], to=TensorProto.INT32), node("Gather", ["table", "places"], ["numbers"]),
              node("Reshape", ["numbers", "groups"], ["grouped"]), node("Mul", ["grouped", "s"], ["scaled"]),
              node("Reshape", ["scaled", "flat"], ["wide"]), node("Cast", ["wide"], ["w"], to=code),
              node("Gemm", ["x", "w"], ["y"], transB=1)]
    save_model(tmp_path / "m.onnx", nodes, (code, [rows, k]), (code, [rows, n]), constants, 23)
    check_stored(tmp_path, rows, k, w, code, dtype, tolerance, "nf4")
