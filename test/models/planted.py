# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small decoder as ONNX text, graphs that say the same in other words, and graphs with one thing wrong.

The decoder has two layers, the second with a window, positions and padding as inputs, and grows its caches by Concat.
A variant replaces lines of it, each given by the value that the line defines.
"""
import numpy as np
import onnx
from onnx import numpy_helper, parser

VOCAB, HEADS, GROUPS, HEAD, WINDOW = 24, 4, 2, 8, 4
WIDTH, NARROW, HALF = HEADS * HEAD, GROUPS * HEAD, HEAD // 2

LAYER = """
q{i}m = MatMul(x{i}, wq{i})
k{i}m = MatMul(x{i}, wk{i})
v{i}m = MatMul(x{i}, wv{i})
q{i}s = Reshape(q{i}m, heads)
k{i}s = Reshape(k{i}m, groups)
v{i}s = Reshape(v{i}m, groups)
q{i}t = Transpose<perm = [0, 2, 1, 3]>(q{i}s)
k{i}t = Transpose<perm = [0, 2, 1, 3]>(k{i}s)
v{i}t = Transpose<perm = [0, 2, 1, 3]>(v{i}s)
q{i}a, q{i}b = Split<axis = 3, num_outputs = 2>(q{i}t)
q{i}ac = Mul(q{i}a, cos)
q{i}bs = Mul(q{i}b, sin)
q{i}x = Sub(q{i}ac, q{i}bs)
q{i}bc = Mul(q{i}b, cos)
q{i}as = Mul(q{i}a, sin)
q{i}y = Add(q{i}bc, q{i}as)
q{i}r = Concat<axis = 3>(q{i}x, q{i}y)
k{i}a, k{i}b = Split<axis = 3, num_outputs = 2>(k{i}t)
k{i}ac = Mul(k{i}a, kcos)
k{i}bs = Mul(k{i}b, ksin)
k{i}x = Sub(k{i}ac, k{i}bs)
k{i}bc = Mul(k{i}b, kcos)
k{i}as = Mul(k{i}a, ksin)
k{i}y = Add(k{i}bc, k{i}as)
k{i}r = Concat<axis = 3>(k{i}x, k{i}y)
pk{i} = Concat<axis = 2>(k{i}, k{i}r)
pv{i} = Concat<axis = 2>(v{i}, v{i}t)
a{i} = Attention(q{i}r, pk{i}, pv{i}, bias{i})
a{i}t = Transpose<perm = [0, 2, 1, 3]>(a{i})
a{i}j = Reshape(a{i}t, joined)
o{i} = MatMul(a{i}j, wo{i})
x{n} = Add(x{i}, o{i})
"""
DECODER = """
past1 = Shape<start = 2, end = 3>(k0)
past = Squeeze(past1)
count1 = Shape<start = 1, end = 2>(ids)
count = Squeeze(count1)
total = Add(past, count)
query = Range(past, total, one)
every = Range(zero, total, one)
column = Unsqueeze(query, last)
causal = LessOrEqual(every, column)
first = Sub(column, window)
recent = Greater(every, first)
real = Cast<to = 9>(mask)
real4 = Unsqueeze(real, axes)
seen0 = And(causal, real4)
near = And(causal, recent)
seen1 = And(near, real4)
bias0 = Where(seen0, nothing, hidden)
bias1 = Where(seen1, nothing, hidden)
place = Cast<to = 1>(pos)
place3 = Unsqueeze(place, last)
angle = Mul(place3, rates)
cos3 = Cos(angle)
sin3 = Sin(angle)
cos = Unsqueeze(cos3, head_axis)
sin = Unsqueeze(sin3, head_axis)
kcos = Identity(cos)
ksin = Identity(sin)
x0 = Gather(embed, ids)
""" + LAYER.format(i=0, n=1) + LAYER.format(i=1, n=2) + """
logits = MatMul(x2, head)
"""


def weights():
    generator = np.random.default_rng(3)
    draw = lambda *dims: generator.standard_normal(dims, np.float32)
    made = {"embed": draw(VOCAB, WIDTH), "head": draw(WIDTH, VOCAB) / 3,
            "rates": (1.0 / 10 ** np.arange(HALF)).astype(np.float32), "nothing": np.float32(0),
            "hidden": np.float32(-np.inf), "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2),
            "half": np.float32(0.5), "last": np.array([-1]), "axes": np.array([1, 2]), "head_axis": np.array([1]),
            "heads": np.array([0, 0, HEADS, HEAD]), "groups": np.array([0, 0, GROUPS, HEAD]),
            "joined": np.array([0, 0, WIDTH]), "window": np.int64(WINDOW), "reach": np.int64(WINDOW - 1),
            "zero1": np.array([0]), "one1": np.array([1]), "two1": np.array([2]), "back": np.array([-1]),
            "end": np.array([2 ** 31]), "start": np.array([-2 ** 31]), "low": np.float32(-65504),
            "lower": np.float32(-1e9), "lowest": np.float32(np.finfo(np.float32).min), "weak": np.float32(-5),
            "high": np.float32(1e9), "five": np.int64(5), "four": np.int64(4),
            "rows_of": np.array([-1, WIDTH]), "scale": np.float32(HEAD ** -0.5),
            "cos_table": np.cos(np.outer(np.arange(64), 1.0 / 10 ** np.arange(HALF))).astype(np.float32),
            "sin_table": np.sin(np.outer(np.arange(64), 1.0 / 10 ** np.arange(HALF))).astype(np.float32)}
    for i in (0, 1):
        made.update({f"wq{i}": draw(WIDTH, WIDTH) / 3, f"wk{i}": draw(WIDTH, NARROW) / 3,
                     f"wv{i}": draw(WIDTH, NARROW) / 6, f"wo{i}": draw(WIDTH, WIDTH) / 3})
    made["packed0"] = np.concatenate([made["wq0"], made["wk0"], made["wv0"]], 1)
    made["parts0"] = np.array([WIDTH, NARROW, NARROW])
    made["wo0t"] = made["wo0"].T.copy()
    return made


def variant(changes, path, outputs=("logits", "pk0", "pv0", "pk1", "pv1"), renamed=None):
    """The decoder with the lines of `changes` in the place of those that define the same value."""
    lines = [line for line in DECODER.splitlines() if line]
    for value, text in changes.items():
        at = [i for i, line in enumerate(lines) if line.split(" =")[0].split(",")[0] == value]
        assert len(at) == 1, value
        lines[at[0]:at[0] + 1] = [line.strip() for line in text.strip().splitlines()]
    cache, present = f"float[B,{GROUPS},P,{HEAD}] ", f"float[B,{GROUPS},U,{HEAD}] "
    types = {"logits": f"float[B,S,{VOCAB}] logits", **{p: present + p for p in ("pk0", "pv0", "pk1", "pv1")}}
    made = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23]>\ndecoder (int64[B,S] ids, int64[B,S] pos, int64[B,U] mask, '
        + ", ".join(cache + name for name in ("k0", "v0", "k1", "v1")) + ") => ("
        + ", ".join(types.get(o, "float[B,S,%d] %s" % (WIDTH, o)) for o in outputs) + ")\n{\n" + "\n".join(lines) + "\n}")
    used = {name for node in made.graph.node for name in node.input}
    for name, value in weights().items():
        if name in used:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    for i, node in enumerate(made.graph.node):
        node.name = node.output[0]
    onnx.save(made, path)
    return str(path)


def inputs(padded):
    """Two rows, nine tokens of before and three new ones; the first row maybe padded by two."""
    generator = np.random.default_rng(11)
    mask = np.ones((2, 12), np.int64)
    positions = np.broadcast_to(np.arange(9, 12), (2, 3)).copy()
    if padded:
        mask[0, :2] = 0
        positions[0] -= 2
    return {"ids": generator.integers(0, VOCAB, (2, 3)), "pos": positions, "mask": mask,
            **{name: generator.standard_normal((2, GROUPS, 9, HEAD), np.float32) for name in ("k0", "v0", "k1", "v1")}}


FLIP = "Slice({x}, back, start, {axis}, back)"


def flip(x, axis):
    return FLIP.format(x=x, axis={0: "zero1", 1: "one1", 2: "two1"}[axis])


ADD_TO_LOGITS = "plain = MatMul(x2, head)\n{lines}\nlogits = Add(plain, more)"

# name: (the obligation that refuses, changed lines)
FAULTS = {
    # Masks.
    "future": ("O3", {"causal": "later = Add(column, one)\ncausal = LessOrEqual(every, later)"}),
    "far future": ("O3", {"causal": "later = Add(column, two)\ncausal = LessOrEqual(every, later)"}),
    "blind": ("O3", {"causal": "causal = Less(every, column)"}),
    "blinder": ("O3", {"causal": "before = Sub(column, one)\ncausal = Less(every, before)"}),
    "backwards": ("O3", {"causal": "causal = GreaterOrEqual(every, column)"}),
    "not causal": ("O3", {"causal": "beyond = Add(column, total)\ncausal = LessOrEqual(every, beyond)"}),
    "queries from 0": ("O3", {"query": "query = Range(zero, count, one)"}),
    "queries from P + 1": ("O3", {"query": "begin = Add(past, one)\nstop = Add(total, one)\nquery = Range(begin, stop, one)"}),
    "keys from 1": ("O3", {"every": "stop = Add(total, one)\nevery = Range(one, stop, one)"}),
    "every other key": ("O3", {"every": "stop = Add(total, total)\nevery = Range(zero, stop, two)"}),
    "window of the last keys": ("O3", {"first": "first = Sub(total, window)"}),
    "window of the past": ("O3", {"first": "first = Sub(column, past)"}),
    "window of half": ("O3", {"first": "first = Div(column, two)"}),
    "window outside": ("O3", {"recent": "recent = Less(every, first)"}),
    "window or causal": ("O3", {"near": "near = Or(causal, recent)"}),
    "window to the future": ("O3", {"near": "later = Add(column, one)\nahead = LessOrEqual(every, later)\nnear = And(ahead, recent)"}),
    "window that ends behind": ("O3", {"near": "behind = Less(every, column)\nnear = And(behind, recent)"}),
    "first keys alone": ("O3", {"near": "leading = Less(every, two)\nnear = And(causal, leading)"}),
    "first keys that are to come": ("O3", {"near": "within = And(causal, recent)\nleading = Less(every, two)\nnear = Or(within, leading)"}),
    "all but the first keys": ("O3", {"near": "later = GreaterOrEqual(every, two)\nnear = And(causal, later)"}),
    "first keys of the new tokens": ("O3", {"near": "stop = Add(past, two)\nleading = Less(every, stop)\nlate = Or(recent, leading)\nnear = And(causal, late)"}),
    "chunks": ("O3", {"seen0": "ck = Div(every, four)\ncq = Div(column, four)\nsame = Equal(ck, cq)\nboth = And(causal, same)\nseen0 = And(both, real4)"}),
    "another row's padding": ("O3", {"real": f"other = {flip('mask', 0)}\nreal = Cast<to = 9>(other)"}),
    "the first row's padding": ("O3", {"real": "other = Slice(mask, zero1, one1, zero1)\nreal = Cast<to = 9>(other)"}),
    "padding backwards": ("O3", {"real": f"other = {flip('mask', 1)}\nreal = Cast<to = 9>(other)"}),
    "padding shifted": ("O3", {"real": "tail = Slice(mask, one1, end, one1)\nhead0 = Slice(mask, zero1, one1, one1)\nother = Concat<axis = 1>(tail, head0)\nreal = Cast<to = 9>(other)"}),
    "padding inverted": ("O3", {"real": "counts = Cast<to = 9>(mask)\nreal = Not(counts)"}),
    "padding of queries": ("O3", {"real4": "own = Slice(real, past1, end, one1)\nrow = Unsqueeze(own, head_axis)\nreal4 = Unsqueeze(row, last)"}),
    "padding or causal": ("O3", {"seen0": "seen0 = Or(causal, real4)"}),
    "a weak number hides": ("O3", {"bias0": "bias0 = Where(seen0, nothing, weak)"}),
    "a number shows": ("O3", {"bias0": "bias0 = Where(seen0, nothing, high)"}),
    "hidden and seen swapped": ("O3", {"bias0": "bias0 = Where(seen0, hidden, nothing)"}),
    "recent keys count more": ("O3", {"bias0": "plain0 = Where(seen0, nothing, hidden)\nmore0 = Where(recent, half, nothing)\nbias0 = Add(plain0, more0)"}),
    "mask of another size": ("O3", {"causal": "most = Min(column, five)\ncausal = LessOrEqual(every, most)"}),
    # Positions.
    "positions + 1": ("O4", {"place": "moved = Add(pos, one)\nplace = Cast<to = 1>(moved)"}),
    "positions twice": ("O4", {"place": "moved = Mul(pos, two)\nplace = Cast<to = 1>(moved)"}),
    "positions backwards": ("O4", {"place": f"moved = {flip('pos', 1)}\nplace = Cast<to = 1>(moved)"}),
    "positions from 0": ("O4", {"place": "own = Range(zero, count, one)\nrow = Unsqueeze(own, zero1)\nplace = Cast<to = 1>(row)"}),
    "positions from the end": ("O4", {"place": "stop = Add(total, count)\nown = Range(total, stop, one)\nrow = Unsqueeze(own, zero1)\nplace = Cast<to = 1>(row)"}),
    "positions capped": ("O4", {"place": "moved = Min(pos, five)\nplace = Cast<to = 1>(moved)"}),
    "keys rotated further": ("O4", {"kcos": "moved = Add(pos, one)\nkplace = Cast<to = 1>(moved)\nkplace3 = Unsqueeze(kplace, last)\nkangle = Mul(kplace3, rates)\nkcos3 = Cos(kangle)\nkcos = Unsqueeze(kcos3, head_axis)",
                                    "ksin": "ksin3 = Sin(kangle)\nksin = Unsqueeze(ksin3, head_axis)"}),
    "rates by the length": ("O5", {"angle": "long = Cast<to = 1>(total)\nscaled = Mul(rates, long)\nangle = Mul(place3, scaled)"}),
    "two tables by the length": (None, {"angle": "islong = Greater(total, five)\nslow = Mul(rates, half)\nchosen = Where(islong, slow, rates)\nangle = Mul(place3, chosen)"}),
    # Caches.
    "present negated": ("O2", {"pk0": "keys0 = Concat<axis = 2>(k0, k0r)\npk0 = Neg(keys0)", "a0": "a0 = Attention(q0r, keys0, pv0, bias0)"}),
    "present without rotation": ("O2", {"pk0": "keys0 = Concat<axis = 2>(k0, k0r)\npk0 = Concat<axis = 2>(k0, k0t)", "a0": "a0 = Attention(q0r, keys0, pv0, bias0)"}),
    "new ones ahead of past": ("O2", {"pk0": "pk0 = Concat<axis = 2>(k0r, k0)"}),
    "past halved": ("O2", {"pk0": "less = Mul(k0, half)\npk0 = Concat<axis = 2>(less, k0r)"}),
    "past by its length": ("O2", {"pk0": "length = Cast<to = 1>(past)\nlonger = Mul(k0, length)\npk0 = Concat<axis = 2>(longer, k0r)"}),
    "past of another row": ("O2", {"pk0": f"other = {flip('k0', 0)}\npk0 = Concat<axis = 2>(other, k0r)"}),
    "past of other heads": ("O2", {"pv0": f"other = {flip('v0', 1)}\npv0 = Concat<axis = 2>(other, v0t)"}),
    "past backwards": ("O2", {"pk0": f"other = {flip('k0', 2)}\npk0 = Concat<axis = 2>(other, k0r)"}),
    "past turned by one": ("shape", {"pk0": "tail = Slice(k0, one1, end, two1)\nlead = Slice(k0, zero1, one1, two1)\nother = Concat<axis = 2>(tail, lead)\npk0 = Concat<axis = 2>(other, k0r)"}),
    "new ones backwards": (None, {"pv0": f"other = {flip('v0t', 2)}\npv0 = Concat<axis = 2>(v0, other)"}),
    "new ones of another row": (None, {"pv0": f"other = {flip('v0t', 0)}\npv0 = Concat<axis = 2>(v0, other)"}),
    "keys for values": ("O2", {"a0": "a0 = Attention(q0r, pk0, pk0, bias0)"}),
    "one cache for two layers": ("O2", {"a1": "a1 = Attention(q1r, pk0, pv1, bias1)"}),
    "keys of one layer, values of another": (None, {"a1": "a1 = Attention(q1r, pk1, pv0, bias1)"}),
    "past in the logits": ("O2", {"logits": ADD_TO_LOGITS.format(lines="more = ReduceMean<keepdims = 0>(k0)")}),
    "present in the logits": ("O2", {"logits": ADD_TO_LOGITS.format(lines="more = ReduceMean<keepdims = 0>(pv1)")}),
    # Tokens.
    "mean of tokens": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = ReduceMean(plain, one1)")}),
    "mean of rows": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = ReduceMean(plain, zero1)")}),
    "running sum of tokens": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = CumSum(plain, one)")}),
    "softmax over tokens": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = Softmax<axis = 1>(plain)")}),
    "tokens backwards": ("O1", {"logits": ADD_TO_LOGITS.format(lines=f"more = {flip('plain', 1)}")}),
    "another row's logits": ("O1", {"logits": ADD_TO_LOGITS.format(lines=f"more = {flip('plain', 0)}")}),
    "the first token's logits": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = Slice(plain, zero1, one1, one1)")}),
    "greatest of tokens": ("O1", {"logits": ADD_TO_LOGITS.format(lines="more = ReduceMax(plain, one1)")}),
    "another token embedded": ("O1", {"x0": f"turned = {flip('ids', 1)}\nmine = Gather(embed, ids)\ntheirs = Gather(embed, turned)\nx0 = Add(mine, theirs)"}),
    # Sizes.
    "P as data": ("O5", {"logits": ADD_TO_LOGITS.format(lines="more = Cast<to = 1>(past)")}),
    "S as data": ("O5", {"logits": ADD_TO_LOGITS.format(lines="more = Cast<to = 1>(count)")}),
    "B as data": ("O5", {"logits": ADD_TO_LOGITS.format(lines="rows1 = Shape<start = 0, end = 1>(ids)\nmore = Cast<to = 1>(rows1)")}),
    "logarithm of the length": ("O5", {"logits": ADD_TO_LOGITS.format(lines="length = Cast<to = 1>(total)\nmore = Log(length)")}),
}

ROTATE = """turned{s} = Neg({x}b)
other{s} = Concat<axis = 3>(turned{s}, {x}a)
wide_cos{s} = Concat<axis = -1>(cos, cos)
wide_sin{s} = Concat<axis = -1>(sin, sin)
left{s} = Mul({x}t, wide_cos{s})
right{s} = Mul(other{s}, wide_sin{s})
{x}r = Add(left{s}, right{s})"""

HARMLESS = {
    "as it is": {},
    "greater or equal": {"causal": "causal = GreaterOrEqual(column, every)"},
    "not greater": {"causal": "later = Greater(every, column)\ncausal = Not(later)"},
    "less than the next": {"causal": "next = Add(column, one)\ncausal = Less(every, next)"},
    "difference": {"causal": "behind = Sub(every, column)\ncausal = LessOrEqual(behind, zero)"},
    "difference the other way": {"causal": "ahead = Sub(column, every)\ncausal = GreaterOrEqual(ahead, zero)"},
    "less or equal": {"causal": "before = Less(every, column)\nown = Equal(every, column)\ncausal = Or(before, own)"},
    "queries of past and steps": {"query": "steps = Range(zero, count, one)\nquery = Add(steps, past)"},
    "keys counted": {"every": "ones = Expand(one, total1)\nup = CumSum(ones, zero)\nevery = Sub(up, one)",
                     "total": "total = Add(past, count)\ntotal1 = Unsqueeze(total, zero1)"},
    "keys as queries and past": {"every": "old = Range(zero, past, one)\nevery = Concat<axis = 0>(old, query)"},
    "keys below the length": {"seen0": "inside = Less(every, total)\nboth = And(causal, inside)\nseen0 = And(both, real4)"},
    "keys from 0 on": {"seen0": "inside = GreaterOrEqual(every, zero)\nboth = And(causal, inside)\nseen0 = And(both, real4)"},
    "and the other way": {"seen0": "seen0 = And(real4, causal)"},
    "or of what follows": {"seen0": "within = And(causal, recent)\nboth = Or(causal, within)\nseen0 = And(both, real4)"},
    "twice not": {"seen0": "one_way = And(causal, real4)\nhide = Not(one_way)\nseen0 = Not(hide)"},
    "not both": {"seen0": "a_not = Not(causal)\nb_not = Not(real4)\nany = Or(a_not, b_not)\nseen0 = Not(any)"},
    "where hidden": {"bias0": "hide = Not(seen0)\nbias0 = Where(hide, hidden, nothing)"},
    "-65504 hides": {"bias0": "bias0 = Where(seen0, nothing, low)"},
    "-1e9 hides": {"bias0": "bias0 = Where(seen0, nothing, lower)"},
    "the least number hides": {"bias0": "bias0 = Where(seen0, nothing, lowest)"},
    "two biases": {"bias0": "left = Where(causal, nothing, lower)\nright = Where(real4, nothing, lower)\nbias0 = Add(left, right)"},
    "least of two biases": {"bias0": "left = Where(causal, nothing, hidden)\nright = Where(real4, nothing, hidden)\nbias0 = Min(left, right)"},
    "numbers times the least": {"bias0": "seen0f = Cast<to = 1>(seen0)\nunit = Cast<to = 1>(one)\nrest = Sub(unit, seen0f)\nbias0 = Mul(rest, lower)"},
    "a mask of booleans": {"a0": "a0 = Attention(q0r, pk0, pv0, seen0)"},
    "distance in the window": {"recent": "distance = Sub(column, every)\nrecent = Less(distance, window)"},
    "reach of the window": {"recent": "distance = Sub(column, every)\nrecent = LessOrEqual(distance, reach)"},
    "window by the last key out": {"recent": "oldest = LessOrEqual(every, first)\nrecent = Not(oldest)"},
    "window in two steps": {"recent": "next = Add(first, one)\nrecent = GreaterOrEqual(every, next)"},
    "padding equal to 1": {"real": "real = Equal(mask, one)"},
    "padding not 0": {"real": "none = Equal(mask, zero)\nreal = Not(none)"},
    "padding above 0": {"real": "real = Greater(mask, zero)"},
    "padding in 32 bits": {"real": "narrow = Cast<to = 6>(mask)\nreal = Cast<to = 9>(narrow)"},
    "padding in two steps": {"real4": "row = Unsqueeze(real, head_axis)\nreal4 = Unsqueeze(row, head_axis)"},
    "length of the mask": {"total": "width = Shape<start = 1, end = 2>(mask)\ntotal = Squeeze(width)"},
    "past of the values": {"past1": "past1 = Shape<start = 2, end = 3>(v1)"},
    "count of the positions": {"count1": "count1 = Shape<start = 1, end = 2>(pos)"},
    "positions in 32 bits": {"place": "narrow = Cast<to = 6>(pos)\nplace = Cast<to = 1>(narrow)"},
    "positions plus 0": {"place": "same = Add(pos, zero)\nplace = Cast<to = 1>(same)"},
    "positions moved to and fro": {"place": "moved = Add(pos, five)\nsame = Sub(moved, five)\nplace = Cast<to = 1>(same)"},
    "positions of sizes": {"place": "row = Unsqueeze(query, zero1)\nplace = Cast<to = 1>(row)"},
    "tables of angles": {"cos3": "cos3 = Gather(cos_table, pos)", "sin3": "sin3 = Gather(sin_table, pos)"},
    "halves turned": {"q0r": ROTATE.format(x="q0", s=0), "k0r": ROTATE.format(x="k0", s=1)},
    "present of its own": {"pk0": "keys0 = Concat<axis = 2>(k0, k0r)\npk0 = Concat<axis = 2>(k0, k0r)", "a0": "a0 = Attention(q0r, keys0, pv0, bias0)"},
    "present as it is": {"pk0": "keys0 = Concat<axis = 2>(k0, k0r)\npk0 = Identity(keys0)", "a0": "a0 = Attention(q0r, keys0, pv0, bias0)"},
    "transposed to and fro": {"pv0": "vt = Transpose<perm = [0, 2, 1, 3]>(v0)\nboth = Concat<axis = 1>(vt, v0s)\npv0 = Transpose<perm = [0, 2, 1, 3]>(both)"},
    "one product for three": {"q0m": "all0 = MatMul(x0, packed0)\nq0m, k0m, v0m = Split<axis = 2>(all0, parts0)", "k0m": "", "v0m": ""},
    "rows of all tokens": {"o0": "flat = Reshape(a0j, rows_of)\nflat_o = MatMul(flat, wo0)\nshape0 = Shape(x0)\no0 = Reshape(flat_o, shape0)"},
    "weights the other way": {"o0": "flat = Reshape(a0j, rows_of)\nflat_o = Gemm<transB = 1>(flat, wo0t)\nshape0 = Shape(x0)\no0 = Reshape(flat_o, shape0)"},
    "scale ahead of scores": {"a0": "q0z = Mul(q0r, scale)\na0 = Attention<scale = 1.0>(q0z, pk0, pv0, bias0)"},
    "softmax written out": {"a0": "a0k = Shape(pk0)\nwide_k = Unsqueeze(pk0, two1)\nwide_v = Unsqueeze(pv0, two1)\nrepeat = Constant<value_ints = [1, 1, 2, 1, 1]>()\nmany_k = Expand(wide_k, repeat)\nmany_v = Expand(wide_v, repeat)\nper_head = Constant<value_ints = [0, %d, -1, %d]>()\nkeys_h = Reshape(many_k, per_head)\nvalues_h = Reshape(many_v, per_head)\nkeys_t = Transpose<perm = [0, 1, 3, 2]>(keys_h)\nraw = MatMul(q0r, keys_t)\nscores = Mul(raw, scale)\nmasked = Add(scores, bias0)\nchance = Softmax<axis = 3>(masked)\na0 = MatMul(chance, values_h)" % (HEADS, HEAD)},
}

# Masks with the first two keys beside the window.
FIRST_KEYS = {
    "or beside the window": {"near": "leading = Less(every, two)\nlate = Or(recent, leading)\nnear = And(causal, late)"},
    "each with causal": {"near": "leading = Less(every, two)\nfirst_ones = And(causal, leading)\nlast_ones = And(causal, recent)\nnear = Or(first_ones, last_ones)"},
    "up to the second": {"near": "leading = LessOrEqual(every, one)\nlate = Or(leading, recent)\nnear = And(late, causal)"},
}
