# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of which a mask hides whole blocks: by positions (Longformer's, with steps), by a table of blocks (BigBird's), and
by blocks that a run chooses (the best of pooled scores). The mask is never a tensor of queries x keys, hidden blocks are
left out, and nothing changes: against numpy in double."""
import os
import re

import numpy as np
import onnx.parser
import pytest
from onnx import save

import lathe_cli

HEADS, HEAD, SIZE, BLOCK, CHOSEN, REACH, STEP = 2, 16, 1100, 50, 3, 120, 3
BLOCKS = SIZE // BLOCK
Q, K = np.arange(SIZE)[:, None], np.arange(SIZE)

POSITIONS = """
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  n1 = Shape<start = 2, end = 3>(q)
  n = Squeeze(n1)
  t = Range(zero, n, one)
  last = Constant<value_ints = [-1]>()
  s = Unsqueeze(t, last)
""" + f"""
  reach = Constant<value_int = {REACH}>()
  step = Constant<value_int = {STEP}>()
  few = Constant<value_int = 40>()
  size = Constant<value_int = {BLOCK}>()
  d = Sub(s, t)
  far = Abs(d)
  near = LessOrEqual(far, reach)
  sb = Div(s, size)
  tb = Div(t, size)
  b1 = Div(t, size)
  db = Sub(sb, tb)
"""
POOLED = f"""
  apart = Constant<value_ints = [1, {HEADS}, {BLOCKS}, {BLOCK}, {HEAD}]>()
  three = Constant<value_ints = [3]>()
  qa = Reshape(q, apart)
  ka = Reshape(k, apart)
  qp = ReduceMean<keepdims = 0>(qa, three)
  kp = ReduceMean<keepdims = 0>(ka, three)
  kt = Transpose<perm = [0, 1, 3, 2]>(kp)
  pooled = MatMul(qp, kt)
  best = Constant<value_ints = [{CHOSEN}]>()
  value, index = TopK(pooled, best)
"""
SCATTERED = POOLED + f"""
  dims = Constant<value_ints = [1, {HEADS}, {BLOCKS}, {BLOCKS}]>()
  some = Constant<value_ints = [1, {HEADS}, {BLOCKS}, {CHOSEN}]>()
  zerof = Constant<value_float = 0.0>()
  onef = Constant<value_float = 1.0>()
  empty = Expand(zerof, dims)
  ones = Expand(onef, some)
  written = ScatterElements<axis = 3>(empty, index, ones)
  table = Greater(written, zerof)
"""
SPREAD = f"""
  pieces = Constant<value_ints = [1, {HEADS}, {BLOCKS}, 1, {BLOCKS}, 1]>()
  times = Constant<value_ints = [1, {HEADS}, {BLOCKS}, {BLOCK}, {BLOCKS}, {BLOCK}]>()
  full = Constant<value_ints = [1, {HEADS}, {SIZE}, {SIZE}]>()
  tp = Reshape(table, pieces)
  te = Expand(tp, times)
  {{}} = Reshape(te, full)
"""


def data():
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, HEADS, SIZE, HEAD)).astype(np.float32) for _ in range(3))
    table = rng.random((1, HEADS, BLOCKS, BLOCKS)) < 0.15
    table[:, :, 4] = False  # queries that see nothing
    return dict(q=q, k=k, v=v, given=table, ids=np.sort(rng.integers(0, 9, (1, SIZE))))


def spread(table):
    return table.repeat(BLOCK, -2).repeat(BLOCK, -1)


def chosen(a):
    pooled = np.matmul(*(x.reshape(1, HEADS, BLOCKS, BLOCK, HEAD).astype(np.float64).mean(3).transpose(0, 1, *order)
                         for x, order in ((a["q"], (2, 3)), (a["k"], (3, 2)))))
    table = np.zeros(pooled.shape, bool)
    np.put_along_axis(table, np.argsort(-pooled, -1)[..., :CHOSEN], True, -1)
    return table


# Text that makes the mask m, and what is seen.
FORMS = {
    "window_and_global": (POSITIONS + "  g = Less(t, few)\n  h = Less(s, few)\n  x = Or(near, g)\n  m = Or(x, h)\n",
                          lambda a: (abs(Q - K) <= REACH) | (K < 40) | (Q < 40)),
    "every_third_block": (POSITIONS + "  r = Mod(db, step)\n  e = Equal(r, zero)\n  fb = Abs(db)\n  w = LessOrEqual(fb, step)\n  m = And(e, w)\n",
                          lambda a: np.isin(Q // BLOCK - K // BLOCK, (-STEP, 0, STEP))),
    "every_third_token": (POSITIONS + "  r = Mod(d, step)\n  e = Equal(r, zero)\n  m = And(e, near)\n",
                          lambda a: ((Q - K) % STEP == 0) & (abs(Q - K) <= REACH)),
    "documents": ("  x = Constant<value_ints = [1, 3]>()\n  y1 = Constant<value_ints = [1, 2]>()\n  q4 = Unsqueeze(ids, x)\n"
                  "  k4 = Unsqueeze(ids, y1)\n  m = Equal(q4, k4)\n", lambda a: a["ids"][:, None, :, None] == a["ids"][:, None, None]),
    "table_by_position": (POSITIONS + "  rows = Gather<axis = 2>(given, b1)\n  m = Gather<axis = 3>(rows, b1)\n", lambda a: spread(a["given"])),
    "table_repeated": (SPREAD.format("m").replace("Reshape(table", "Reshape(given"), lambda a: spread(a["given"])),
    "best_scattered": (SCATTERED + SPREAD.format("m"), lambda a: spread(chosen(a))),
    "best_by_threshold": (POOLED + f"""
  from = Constant<value_ints = [{CHOSEN - 1}]>()
  to = Constant<value_ints = [{CHOSEN}]>()
  three1 = Constant<value_ints = [3]>()
  least = Slice(value, from, to, three1)
  table = GreaterOrEqual(pooled, least)
""" + SPREAD.format("m"), lambda a: spread(chosen(a))),
    "best_of_numbers": (POOLED + f"""
  depth = Constant<value_int = {BLOCKS}>()
  offon = Constant<value_floats = [0.0, 1.0]>()
  hot = OneHot(index, depth, offon)
  any = ReduceMax<keepdims = 0>(hot, three)
  zerof = Constant<value_float = 0.0>()
  table = Greater(any, zerof)
""" + SPREAD.format("m"), lambda a: spread(chosen(a))),
    "best_and_own_and_causal": (SCATTERED + SPREAD.format("c") + POSITIONS + "  own = Equal(sb, tb)\n  x = Or(c, own)\n"
                                "  before = LessOrEqual(t, s)\n  m = And(x, before)\n",
                                lambda a: (spread(chosen(a)) | (Q // BLOCK == K // BLOCK)) & (K <= Q)),
}


def truth(a, seen):
    """Rows that see nothing are zeros."""
    q, k, v = (a[n].astype(np.float64) for n in "qkv")
    scores = np.where(seen, q @ k.transpose(0, 1, 3, 2) / np.sqrt(HEAD), -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


ATTENTION = "  y = Attention(q, k, v, m)\n"
APART = """
  turned = Transpose<perm = [0, 1, 3, 2]>(k)
  product = MatMul(q, turned)
  scale = Constant<value_float = 0.25>()
  scaled = Mul(product, scale)
  nought = Constant<value_float = 0.0>()
  hidden = Log(nought)
  scores = Where(m, scaled, hidden)
  weights = Softmax<axis = -1>(scores)
  y = MatMul(weights, v)
"""


def build(tmp_path, body, symbolic=False, attention=ATTENTION, **more):
    kinds, a = {"given": "bool", "bits": "bool", "ids": "int64"}, {**data(), **more}
    body += attention
    used = {n: x for n, x in a.items() if re.search(rf"\b{n}\b", body)}
    sizes = lambda shape: ",".join("N" if symbolic and d == SIZE else str(d) for d in shape)
    arguments = ", ".join(f"{kinds.get(n, 'float')}[{sizes(x.shape)}] {n}" for n, x in used.items())
    text = (f'<ir_version: 11, opset_import: ["" : 24]> g ({arguments}) => (float[{sizes(a["q"].shape)}] y)\n'
            f"{{\n{body}}}")
    model = tmp_path / "m.onnx"
    save(onnx.parser.parse_model(text), model)
    return model, used


@pytest.mark.parametrize("name, symbolic, apart", [
    *((n, False, False) for n in FORMS), *((n, True, False) for n in ("window_and_global", "every_third_block", "documents")),
    *((n, False, True) for n in ("every_third_block", "best_scattered", "best_and_own_and_causal"))])
def test_form(tmp_path, name, symbolic, apart):
    """Of one attention, or of the products and the softmax that exporters write."""
    body, seen = FORMS[name]
    model, used = build(tmp_path, body, symbolic, APART if apart else ATTENTION)
    sizes = ["--dim=N=1100:1100:1200"] if symbolic else []
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", f"--dump-dir={tmp_path}/d", *sizes)
    text = (tmp_path / "d" / "09-select.mlir").read_text()
    kernels = [line for line in text.splitlines() if 'lathe.kernel "' in line]
    if lathe_cli.DEVICE == "cpu":
        assert sum("attention.listed" in line for line in kernels) == 1, kernels
    whole = re.compile(r"tensor<[^>]*\b(1100x1100|\?x\?)xi1" if not symbolic else r"-> \(tensor<[^>]*\?x\?xi1")
    assert not any(whole.search(line) for line in kernels), kernels
    got = lathe_cli.run(engine, tmp_path / "o", inputs=used)["y"]
    assert lathe_cli.relative_error(got, truth(data(), seen(data()))) < 2e-6


@pytest.mark.parametrize("best", [3, 18])
def test_pages_of_one_query(tmp_path, best):
    """Quest: a step of a decoder sees the pages that may score best, by bounds of their elements."""
    a = data()
    a["q"] = a["q"][:, :, :1]
    body = f"""
  apart = Constant<value_ints = [1, {HEADS}, {BLOCKS}, {BLOCK}, {HEAD}]>()
  three = Constant<value_ints = [3]>()
  pages = Reshape(k, apart)
  low = ReduceMin<keepdims = 0>(pages, three)
  high = ReduceMax<keepdims = 0>(pages, three)
  ql = Mul(q, low)
  qh = Mul(q, high)
  bounds = Max(ql, qh)
  bound = ReduceSum<keepdims = 0>(bounds, three)
  best = Constant<value_ints = [{best}]>()
  value, index = TopK(bound, best)
  none = Constant<value_int = 0>()
  dims = Constant<value_ints = [1, {HEADS}, {BLOCKS}]>()
  some = Constant<value_ints = [1, {HEADS}, {best}]>()
  one = Constant<value_int = 1>()
  empty = Expand(none, dims)
  ones = Expand(one, some)
  written = ScatterElements<axis = 2>(empty, index, ones)
  table = Greater(written, none)
  pieces = Constant<value_ints = [1, {HEADS}, 1, {BLOCKS}, 1]>()
  times = Constant<value_ints = [1, {HEADS}, 1, {BLOCKS}, {BLOCK}]>()
  full = Constant<value_ints = [1, {HEADS}, 1, {SIZE}]>()
  tp = Reshape(table, pieces)
  te = Expand(tp, times)
  m = Reshape(te, full)
"""
    pages = a["k"].reshape(1, HEADS, BLOCKS, BLOCK, HEAD).astype(np.float64)
    bound = np.maximum(a["q"] * pages.min(3), a["q"] * pages.max(3)).sum(-1)
    table = np.zeros(bound.shape, bool)
    np.put_along_axis(table, np.argsort(-bound, -1)[..., :best], True, -1)
    model, used = build(tmp_path, body, **{"q": a["q"]})
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    got = lathe_cli.run(engine, tmp_path / "o", inputs=used)["y"]
    assert lathe_cli.relative_error(got, truth(a, table.repeat(BLOCK, -1)[:, :, None])) < 2e-6


def test_bits_without_blocks(tmp_path):
    """A mask of any bits is read as it is: nothing is left out that is seen."""
    a, seen = data(), np.random.default_rng(6).random((1, 1, SIZE, SIZE)) < 0.001
    model, used = build(tmp_path, "  m = Identity(bits)\n", bits=seen)
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    got = lathe_cli.run(engine, tmp_path / "o", inputs=used)["y"]
    assert lathe_cli.relative_error(got, truth(a, seen)) < 2e-6


def random_mask(rng, a):
    """Text that makes a mask m of conditions joined at random, and what is seen."""
    text, count = [POSITIONS], [0]

    def node(op, *inputs):
        count[0] += 1
        text.append(f"  r{count[0]} = {op}({', '.join(inputs)})\n")
        return f"r{count[0]}"

    def number(value):
        count[0] += 1
        text.append(f"  r{count[0]} = Constant<value_int = {value}>()\n")
        return f"r{count[0]}"

    def condition():
        kind, n = rng.integers(0, 8), int(rng.integers(-150, 400))
        if kind == 0:
            op, compare = [("LessOrEqual", np.less_equal), ("Greater", np.greater), ("Less", np.less),
                           ("GreaterOrEqual", np.greater_equal)][rng.integers(0, 4)]
            return node(op, "d", number(n)), compare(Q - K, n)
        if kind == 1:
            return node("Less", node("Abs", node("Add", "d", number(n))), number(90)), abs(Q - K + n) < 90
        if kind == 2:
            step = int(rng.integers(2, 7))
            return node("Equal", node("Mod", "db", number(step)), number(1)), (Q // BLOCK - K // BLOCK) % step == 1
        if kind == 3:
            size = int(rng.choice([16, 32, 50, 100, 275]))
            where = node("Div", node("Sub", "t", number(n)), number(size)), node("Div", node("Sub", "s", number(n)), number(size))
            whole = lambda x: np.trunc((x - n) / size).astype(np.int64)
            return node("Equal", *where), whole(Q) == whole(K)
        if kind == 4:
            return node("Less", node("Max", node("Mul", "s", number(2)), "t"), number(3 * abs(n))), np.maximum(2 * Q, K) < 3 * abs(n)
        if kind == 5:
            q4, k4 = (node("Unsqueeze", "ids", f"dims{i}") for i in (0, 1))
            return node("Equal", q4, k4), a["ids"][:, None, :, None] == a["ids"][:, None, None]
        if kind == 6:
            rows = node("Gather<axis = 2>", "given", "b1")
            return node("Gather<axis = 3>", rows, "b1"), spread(a["given"])
        count[0] += 1
        name = f"spread{count[0]}"
        text.append(re.sub(r"\b(pieces|times|full|tp|te)\b", rf"\g<1>{count[0]}", SPREAD.format(name)).replace("Reshape(table", "Reshape(given"))
        return name, spread(a["given"])

    def joined(depth):
        if depth == 0:
            return condition()
        (x, seen), (y, other) = joined(depth - 1), joined(depth - int(rng.integers(1, depth + 1)))
        if rng.integers(0, 2):
            return node("And", x, y), seen & other
        if rng.integers(0, 3) == 0:
            return node("Or", x, node("Not", y)), seen | ~other
        return node("Or", x, y), seen | other

    text.append("  dims0 = Constant<value_ints = [1, 3]>()\n  dims1 = Constant<value_ints = [1, 2]>()\n")
    mask, seen = joined(int(rng.integers(1, 4)))
    return "".join(text) + f"  m = Identity({mask})\n", seen


@pytest.mark.parametrize("seed", range(int(os.environ.get("LATHE_MASK_SEEDS", "12"))))
def test_random_mask(tmp_path, seed):
    """What may be left out is decided by bounds: no key that is seen may be."""
    a = data()
    body, seen = random_mask(np.random.default_rng(seed), a)
    model, used = build(tmp_path, body, symbolic=seed % 3 == 2)
    sizes = ["--dim=N=1100:1100:1200"] if seed % 3 == 2 else []
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe", *sizes)
    got = lathe_cli.run(engine, tmp_path / "o", inputs=used)["y"]
    assert lathe_cli.relative_error(got, truth(a, seen)) < 2e-6
