# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What hides keys from queries: as ONNX states it, and as exporters write it in comparisons, against numpy in double.
Each spelling becomes operands of one attention, which are named here."""
import re

import numpy as np
import onnx.parser
import pytest
from onnx import save

import lathe_cli

BATCH, HEADS, KEY_HEADS, QUERIES, KEYS, HEAD = 2, 4, 2, 6, 21, 16
REACH = 5
# Of each batch.
LENGTHS, STARTS = np.array([21, 9]), np.array([0, 2])
MINE, THEIRS = np.array([[0, 0, 0, 1, 1, 2]] * BATCH), np.array([[0] * 9 + [1] * 5 + [2] * 7, [2] * 4 + [0] * 9 + [1] * 8])

# Sizes are known, so that positions fold to constants, or come with the run.
SIZES = {"folded": f"""
  count = Constant<value_int = {QUERIES}>()
  last = Constant<value_int = {KEYS}>()
""", "symbolic": """
  count1 = Shape<start = 2, end = 3>(q)
  count = Squeeze(count1)
  last1 = Shape<start = 2, end = 3>(k)
  last = Squeeze(last1)
"""}
RANGES = f"""
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  t = Range(zero, last, one)
  i = Range(zero, count, one)
  minus1 = Constant<value_ints = [-1]>()
  s = Unsqueeze(i, minus1)
  past = Sub(last, count)
  place = Add(s, past)
  reach = Constant<value_int = {REACH}>()
  dims = Constant<value_ints = [1, 2, 3]>()
  ones = Constant<value_ints = [1, 2]>()
  l4 = Unsqueeze(lengths, dims)
  first = Sub(l4, count)
  own = Add(s, first)
"""
CAUSAL = "  m = LessOrEqual(t, place)\n"
B, S, T = np.arange(BATCH)[:, None, None], np.arange(QUERIES)[:, None], np.arange(KEYS)
AT = S + KEYS - QUERIES  # the place of a query
OWN = LENGTHS[:, None, None] + S - QUERIES
# Text that makes the mask m, what is seen, and the operands that the attention then has; others where all folds.
SPELLINGS = {
    "causal": (CAUSAL, T <= AT, "{causal"),
    "causal_from_first": ("  m = GreaterOrEqual(s, t)\n", T <= S, "offset % {causal"),
    "lengths": ("  m = Less(t, l4)\n", T < LENGTHS[:, None, None], "lengths % {"),
    "starts": ("  a = Unsqueeze(starts, dims)\n  m = LessOrEqual(a, t)\n", T >= STARTS[:, None, None], "starts % {"),
    "lengths_causal": ("  e = Less(t, l4)\n  c = Greater(t, own)\n  n = Not(c)\n  m = And(n, e)\n",
                       (T < LENGTHS[:, None, None]) & (T <= OWN), "lengths % {causal"),
    "window": (CAUSAL.replace("m =", "c =") + "  d = Sub(place, t)\n  w = Less(d, reach)\n  m = And(c, w)\n",
               (T <= AT) & (AT - T < REACH), "{causal, scale #, window_left = 4"),
    "around": ("  d = Sub(t, s)\n  f = Abs(d)\n  m = LessOrEqual(f, reach)\n", abs(T - S) <= REACH,
               "offset % {scale #, window_left = 5 : i64, window_right = 5", "offset % {causal"),
    "documents": ("  x = Constant<value_ints = [1, 3]>()\n  q4 = Unsqueeze(mine, x)\n  k4 = Unsqueeze(theirs, ones)\n  m = Equal(q4, k4)\n",
                  MINE[:, :, None] == THEIRS[:, None], "documents %, % {"),
    "padding": (CAUSAL.replace("m =", "c =") + "  p = Unsqueeze(padding, ones)\n  m = And(p, c)\n", None, "mask % {causal"),
}

def arrays():
    rng = np.random.default_rng(3)
    make = lambda heads, rows: rng.standard_normal((BATCH, heads, rows, HEAD)).astype(np.float32)
    padding = rng.random((BATCH, KEYS)) < 0.7
    return dict(q=make(HEADS, QUERIES), k=make(KEY_HEADS, KEYS), v=make(KEY_HEADS, KEYS), lengths=LENGTHS.astype(np.int64),
                starts=STARTS.astype(np.int64), mine=MINE.astype(np.int64), theirs=THEIRS.astype(np.int64), padding=padding)


def truth(data, seen, bias=0.0, cap=None, sink=None):
    """Rows that see nothing are zeros."""
    q, k, v = (data[n].astype(np.float64) for n in "qkv")
    k, v = (np.repeat(x, HEADS // KEY_HEADS, 1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(HEAD)
    if cap:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(seen, scores + bias, -np.inf)
    most = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = weights.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - np.where(np.isinf(most), 0, most))
    return weights / np.where(total == 0, 1, total) @ v


def build(tmp_path, body, inputs, symbolic):
    kinds = {"q": "float", "k": "float", "v": "float", "padding": "bool", "bias": "float", "sinks": "float"}
    data = {**arrays(), **inputs}
    used = {n: a for n, a in data.items() if re.search(rf"\b{n}\b", body)}
    sizes = lambda shape: ",".join({QUERIES: "S", KEYS: "T"}.get(d, str(d)) if symbolic else str(d) for d in shape)
    arguments = ", ".join(f"{kinds.get(n, 'int64')}[{sizes(a.shape)}] {n}" for n, a in used.items())
    text = (f'<ir_version: 11, opset_import: ["" : 24]> g ({arguments}) => (float[{sizes((BATCH, HEADS, QUERIES, HEAD))}] y)\n'
            f"{{\n{body}}}")
    model = tmp_path / "m.onnx"
    save(onnx.parser.parse_model(text), model)
    return model, used


def check(tmp_path, body, operands, want, symbolic=False, **inputs):
    model, used = build(tmp_path, body, inputs, symbolic)
    lathe_cli.lathe("compile", model, "-o", tmp_path / "s.mlir", "--stop-after=simplify", f"--target={lathe_cli.TARGET}")
    lines = [line for line in (tmp_path / "s.mlir").read_text().splitlines() if "lathe.attention" in line]
    assert len(lines) == 1, lines
    wanted = re.escape(operands).replace("%", r"%\w+").replace(r"\#", r"= [^,]*").replace("#", r"= [^,]*")
    assert re.search(wanted, lines[0]), lines[0]
    engine = lathe_cli.compile_model(model, tmp_path / "m.lathe")
    got = lathe_cli.run(engine, tmp_path / "o", inputs=used)["y"]
    assert lathe_cli.relative_error(got, want) < 2e-6


@pytest.mark.parametrize("sizes, select", [("folded", False), ("symbolic", False), ("symbolic", True)])
@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(tmp_path, name, sizes, select):
    """A boolean mask, or numbers of which -inf hides."""
    text, seen, *operands = SPELLINGS[name]
    data = arrays()
    if seen is None:
        seen = data["padding"][:, None, None] & (T <= AT)
    seen = np.broadcast_to(seen if np.ndim(seen) != 3 else seen[:, None], (BATCH, 1, QUERIES, KEYS))
    added = "  open = Constant<value_float = 0.0>()\n  none = Sub(open, open)\n  low = Log(none)\n  n1 = Where(m, open, low)\n"
    body = SIZES[sizes] + RANGES + text + (added if select else "") + f"  y = Attention(q, k, v, {'n1' if select else 'm'})\n"
    check(tmp_path, body, operands[-1 if sizes == "folded" else 0], truth(data, seen), symbolic=sizes == "symbolic")


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_of_the_op(tmp_path, causal):
    """nonpad_kv_seqlen: queries stand at the end of what there is."""
    seen = T < LENGTHS[:, None, None]
    if causal:
        seen = seen & (T <= OWN)
    check(tmp_path, f"  y = Attention<is_causal = {causal}>(q, k, v, , , , lengths)\n",
          "lengths % {" + ("causal" if causal else "scale"), truth(arrays(), seen[:, None]))


@pytest.mark.parametrize("softcap", [False, True])
def test_scores_taken_apart(tmp_path, softcap):
    """Products, a soft cap, a bias of each head, keys hidden by -inf, a sink beside them."""
    rng = np.random.default_rng(4)
    bias, sinks = (rng.standard_normal(shape).astype(np.float32) for shape in ((HEADS, 1, KEYS), (1, HEADS, 1, 1)))
    capped = ("  c = Constant<value_float = 2.0>()\n  x = Div(scaled, c)\n  y0 = Tanh(x)\n  scores = Mul(y0, c)\n"
              if softcap else "  scores = Identity(scaled)\n")
    body = SIZES["folded"] + RANGES + CAUSAL + f"""
  x2 = Constant<value_ints = [2]>()
  k5 = Unsqueeze(k, x2)
  v5 = Unsqueeze(v, x2)
  wide = Constant<value_ints = [{BATCH}, {KEY_HEADS}, {HEADS // KEY_HEADS}, {KEYS}, {HEAD}]>()
  flat = Constant<value_ints = [{BATCH}, {HEADS}, {KEYS}, {HEAD}]>()
  k6 = Expand(k5, wide)
  v6 = Expand(v5, wide)
  kk = Reshape(k6, flat)
  vv = Reshape(v6, flat)
  kt = Transpose<perm = [0, 1, 3, 2]>(kk)
  p = MatMul(q, kt)
  quarter = Constant<value_float = 0.25>()
  scaled = Mul(p, quarter)
{capped}  biased = Add(scores, bias)
  open = Constant<value_float = 0.0>()
  low = Log(open)
  hidden = Where(m, biased, low)
  rows = Constant<value_ints = [{BATCH}, {HEADS}, {QUERIES}, 1]>()
  e = Expand(sinks, rows)
  j = Concat<axis = 3>(hidden, e)
  w = Softmax<axis = -1>(j)
  z = Constant<value_ints = [0]>()
  end = Constant<value_ints = [{KEYS}]>()
  axis = Constant<value_ints = [3]>()
  cut = Slice(w, z, end, axis)
  y = MatMul(cut, vv)
"""
    want = truth(arrays(), T <= AT, bias=bias.astype(np.float64), cap=2.0 if softcap else None, sink=sinks.astype(np.float64))
    check(tmp_path, body, "bias % sink % {causal, scale #" + (", softcap = 2" if softcap else "}"), want, bias=bias, sinks=sinks)
