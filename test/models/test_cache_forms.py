# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One decoder in each form that caches have, compiled with --paged: all generate what the plain form does.

The forms say the same in other words, so the tokens of the plain one, by onnxruntime, are those of all; one that
scores otherwise is compared with itself.
"""
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import lathe_cli

VOCAB, HEADS, GROUPS, HEAD, ROOM, STEPS, GAP = 48, 4, 2, 8, 64, 16, 1e-3
WIDTH, NARROW = HEADS * HEAD, GROUPS * HEAD

# What each form has as inputs and outputs beside ids and logits, and how keys k1 and values v1, [B, G, S, D],
# become a, [B, S, H D], with queries q1, [B, H, S, D]. FLAT: q, k, v are [B, S, heads D] instead.
POSITIONS = """
  room1 = Shape<start = 2, end = 3>(k0)  past = Squeeze(room1)
  total = Add(past, count)  places = Range(past, total, one)
"""
MASK = """
  column = Unsqueeze(places, last)  every = Range(zero, LENGTH, one)  seen = LessOrEqual(every, column)
"""
ATTEND = """
  {k}  {v}  {mask}
  y = Attention(q1, pk0, pv0, seen)  yt = Transpose<perm = [0,2,1,3]>(y)  a = Reshape(yt, joined)
"""
CACHE = "float[B,{g},{p},{d}] k0, float[B,{g},{p},{d}] v0"
PRESENT = "float[B,{g},{p},{d}] pk0, float[B,{g},{p},{d}] pv0"


def cache(text, size):
    return text.format(g=GROUPS, p=size, d=HEAD)


def attend(k, v, length):
    return ATTEND.format(k=k, v=v, mask=MASK.replace("LENGTH", length))


def scatter(name):
    """Tokens first, as index_copy is exported."""
    return f"""{name}t = Transpose<perm = [2,0,1,3]>({name}0)  {name}n = Transpose<perm = [2,0,1,3]>({name}1)
  {name}s = ScatterND({name}t, column, {name}n)  p{name}0 = Transpose<perm = [1,2,0,3]>({name}s)"""


def elements(name):
    return f"""{name}shape = Shape({name}1)  {name}axis = Constant<value_ints = [1, 1, -1, 1]>()
  {name}r = Reshape(places, {name}axis)  {name}i = Expand({name}r, {name}shape)
  p{name}0 = ScatterElements<axis = 2>({name}0, {name}i, {name}1)"""


ROOM_PLACES = "last_place = Add(at, count)  places = Range(at, last_place, one)"
GQA = ("int64[B,U] mask, ", """
  sum = ReduceSum<keepdims = 0>(mask, last)  ends = Sub(sum, one)  lengths = Cast<to = 6>(ends)
  width = Shape<start = 1, end = 2>(mask)  whole = Squeeze(width)  total = Cast<to = 6>(whole)
  [gqa] a, pk0, pv0 = com.microsoft.GroupQueryAttention<num_heads = %d, kv_num_heads = %d>(q, k, v, k0, v0, lengths, total)
""" % (HEADS, GROUPS))

FORMS = {
    "concat": (cache(CACHE, "P"), cache(PRESENT, "U"), "heads", POSITIONS + attend(
        "pk0 = Concat<axis = 2>(k0, k1)", "pv0 = Concat<axis = 2>(v0, v1)", "total")),
    "none": ("", "", "heads", """
  places = Range(zero, count, one)  pk0 = Identity(k1)  pv0 = Identity(v1)""" + attend("", "", "count")),
    "scatter_nd": ("int64 at, " + cache(CACHE, ROOM), cache(PRESENT, ROOM), "heads",
                   "room = Constant<value_int = %d>() " % ROOM + ROOM_PLACES + MASK.replace("LENGTH", "room") +
                   ATTEND.format(k=scatter("k"), v=scatter("v"), mask="")),
    "scatter_elements": ("int64 at, " + cache(CACHE, ROOM), cache(PRESENT, ROOM), "heads",
                         "room = Constant<value_int = %d>() " % ROOM + ROOM_PLACES +
                         attend(elements("k"), elements("v"), "room")),
    "tensor_scatter": ("int64[B] at, " + cache(CACHE, ROOM), cache(PRESENT, ROOM), "heads", """
  room = Constant<value_int = %d>()  steps = Range(zero, count, one)  row = Unsqueeze(at, last)
  places = Add(row, steps)  column = Unsqueeze(places, ends_axes)  every = Range(zero, room, one)
  seen = LessOrEqual(every, column)
  pk0 = TensorScatter(k0, k1, at)  pv0 = TensorScatter(v0, v1, at)""" % ROOM + ATTEND.format(k="", v="", mask="")),
    "gqa": (GQA[0] + cache(CACHE, "P"), cache(PRESENT, "U"), "flat", GQA[1]),
    "gqa_room": (GQA[0] + cache(CACHE, ROOM), cache(PRESENT, ROOM), "flat", GQA[1]),
    # Scores that fall with distance, by a slope for each head.
    "alibi": (cache(CACHE, "P"), cache(PRESENT, "U"), "heads", POSITIONS + MASK.replace("LENGTH", "total") + """
  distance = Sub(every, column)  far = Cast<to = 1>(distance)  falls = Mul(slopes, far)
  hide = Where(seen, plain, hidden)  bias = Add(falls, hide)
  pk0 = Concat<axis = 2>(k0, k1)  pv0 = Concat<axis = 2>(v0, v1)
  y = Attention(q1, pk0, pv0, bias)  yt = Transpose<perm = [0,2,1,3]>(y)  a = Reshape(yt, joined)"""),
    "mha": (cache(CACHE, "P").replace(f",{GROUPS},", f",{HEADS},"),
            cache(PRESENT, "U").replace(f",{GROUPS},", f",{HEADS},"), "repeated", """
  a, pk0, pv0 = com.microsoft.MultiHeadAttention<num_heads = %d, unidirectional = 1>(q, k, v, , , , k0, v0)
""" % HEADS),
}


def weights(form):
    generator = np.random.default_rng(5)
    draw = lambda *dims: generator.standard_normal(dims, np.float32)
    k, v = draw(WIDTH, NARROW) / 3, draw(WIDTH, NARROW) / 6
    made = {"embed": draw(VOCAB, WIDTH), "wq": draw(WIDTH, WIDTH) / 3, "wk": k, "wv": v,
            "wo": draw(WIDTH, WIDTH) / 3, "head": draw(WIDTH, VOCAB) / 3,
            "slopes": (0.5 ** np.arange(1, HEADS + 1)).astype(np.float32).reshape(HEADS, 1, 1),
            "plain": np.float32(0), "hidden": np.float32(-np.inf)}
    if form == "repeated":  # as many heads of keys as of queries
        for name in ("wk", "wv"):
            heads = made[name].reshape(WIDTH, GROUPS, 1, HEAD)
            made[name] = np.repeat(heads, HEADS // GROUPS, 2).reshape(WIDTH, WIDTH)
    return made


def model(name, path, changed=None):
    inputs, outputs, kind, body = changed or FORMS[name]
    split = """
  q2 = Reshape(q, heads)  q1 = Transpose<perm = [0,2,1,3]>(q2)  k2 = Reshape(k, groups)
  k1 = Transpose<perm = [0,2,1,3]>(k2)  v2 = Reshape(v, groups)  v1 = Transpose<perm = [0,2,1,3]>(v2)"""
    text = f"""<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]>
decoder (int64[B,S] ids{', ' + inputs if inputs else ''}) => (float[B,S,{VOCAB}] logits{', ' + outputs if outputs else ''})
<int64 zero = {{0}}, int64 one = {{1}}, int64[1] last = {{1}}, int64[2] ends_axes = {{1, 3}}, int64[4] heads = {{0, 0, {HEADS}, {HEAD}}},
 int64[4] groups = {{0, 0, {GROUPS}, {HEAD}}}, int64[3] joined = {{0, 0, {WIDTH}}}>
{{
  count1 = Shape<start = 1, end = 2>(ids)  count = Squeeze(count1)
  x0 = Gather(embed, ids)  q = MatMul(x0, wq)  k = MatMul(x0, wk)  v = MatMul(x0, wv)
  {split if kind == 'heads' else ''}
  {body}
  o = MatMul(a, wo)  x1 = Add(x0, o)  logits = MatMul(x1, head)
}}"""
    made = parser.parse_model(text)
    used = {name for node in made.graph.node for name in node.input}
    for weight, value in weights(kind).items():
        if weight in used:
            made.graph.initializer.append(numpy_helper.from_array(value, weight))
    onnx.save(made, path)
    return str(path)


def plain_tokens(folder, prompt, form):
    """Greedy tokens of a form by onnxruntime, and how far the second choice was at each."""
    session = lathe_cli.session(model(form, folder / "plain.onnx"))
    caches = [np.zeros((1, GROUPS, 0, HEAD), np.float32)] * 2
    ids, tokens, gaps = np.array([prompt], np.int64), [], []
    for _ in range(STEPS):
        logits, *caches = session.run(None, {"ids": ids, "k0": caches[0], "v0": caches[1]})
        second, best = np.sort(logits[0, -1])[-2:]
        tokens.append(int(logits[0, -1].argmax()))
        gaps.append(float(best - second))
        ids = np.array([[tokens[-1]]], np.int64)
    return tokens, gaps


@pytest.mark.parametrize("form", FORMS)
def test_tokens_of_the_plain_form(tmp_path, form):
    engine = lathe_cli.compile_model(model(form, tmp_path / "m.onnx"), tmp_path / "m.lathe", "--paged",
                                     target="native")
    for prompt in ([7, 1, 30, 22, 5], [9]):
        wanted, gaps = plain_tokens(tmp_path, prompt, form if form == "alibi" else "concat")
        text = lathe_cli.lathe("generate", engine, "--tokens=" + ",".join(map(str, prompt)),
                               f"--max-tokens={STEPS}", "--json")
        sure = next((i for i, gap in enumerate(gaps) if gap < GAP), STEPS)
        assert json.loads(text.splitlines()[0])["tokens"][:sure] == wanted[:sure]
        assert sure > STEPS // 2 and len(set(wanted)) > 2
        if form == "alibi":
            assert wanted != plain_tokens(tmp_path, prompt, "concat")[0]


# form: the line that is planted, and words of the refusal.
FAULTS = {
    "scatter_nd": [("kt, column, kn", "kt, moved, kn", "moved = Add(column, one)", "O2"),
                   ("LessOrEqual(every, column)", "LessOrEqual(every, moved)", "moved = Add(column, one)", "O3"),
                   ("ScatterND(kt", "ScatterND<reduction = \"add\">(kt", "", "O2"),
                   ("Add(at, count)  places = Range(at, ", "Add(at, count)  places = Range(zero, ", "", "O2")],
    "tensor_scatter": [("TensorScatter(v0, v1, at)", "TensorScatter(v0, v1, moved)", "moved = Add(at, one)", "O2"),
                       ("TensorScatter(k0", "TensorScatter<mode = \"circular\">(k0", "", "O2")],
    "none": [("LessOrEqual(every", "GreaterOrEqual(every", "", "O3")],
    "alibi": [("Sub(every, column)", "Mul(every, every)", "", "O3"), ("Add(falls, hide)", "Add(twice, hide)",
              "twice = Mul(falls, falls)", "O3")],
}


@pytest.mark.parametrize("form, at", [(form, at) for form, faults in FAULTS.items() for at in range(len(faults))])
def test_planted_fault(tmp_path, form, at):
    old, new, line, obligation = FAULTS[form][at]
    inputs, outputs, kind, body = FORMS[form]
    assert old in body
    body = body.replace(old, new, 1)
    if line:  # ahead of the line that reads what it defines
        begin = body.rindex("  ", 0, body.rindex(" = ", 0, body.index(new)))
        body = body[:begin] + "  " + line + body[begin:]
    path = model(form, tmp_path / "m.onnx", (inputs, outputs, kind, body))
    text = lathe_cli.lathe("explain", path, code=4)
    assert f"cannot be paged ({obligation}," in text
