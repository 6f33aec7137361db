# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated attention kernels against cuDNN, torch's flash kernel, FlexAttention and torch.compile.

    race_attention.py prepare FOLDER [NAME...]  without a GPU: makes the models, compiles them, keeps cubins and launches
    race_attention.py run FOLDER [NAME...]      on a GPU with torch: every kernel is checked against float64 over several
                                              heads first, then all are timed as CUDA-graph replays over rotating
                                              buffers, in turn; medians. Exit code 1 when a result is wrong.
    race_attention.py check FOLDER [NAME...]    the same without the timing

bf16; a name is a part of kind, batch, query heads, key heads, queries, keys, head size: "causal_2x64x8x8192x8192x128".
"""
import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import load, prepare, prepare_all, race, relative_error  # noqa: E402

BAR = 5e-3  # relative error: that of bf16 weights is 2e-3
LOG_BAR = 1e-3  # of log-sum-exp, absolute
SOFTCAP = 20.0
REPEATS = int(os.environ.get("REPEATS", "600"))  # of what is checked only: the same bits each time
PREFILL = [(1, 64, 8, 16384, 16384, 128), (2, 64, 8, 8192, 8192, 128), (4, 32, 8, 4096, 4096, 128),
           (1, 32, 32, 16384, 16384, 128), (8, 32, 8, 1024, 1024, 128), (1, 32, 8, 512, 512, 128),
           (2, 64, 8, 8192, 8192, 64), (4, 32, 8, 2048, 2048, 64), (1, 32, 8, 512, 512, 64),
           (2, 32, 8, 4096, 4096, 96), (2, 16, 16, 4096, 4096, 256), (2, 32, 8, 4096, 4096, 192),
           (2, 16, 16, 4096, 4096, 80)]
ODD = [(2, 4, 2, 333, 333, 128), (1, 2, 1, 1, 77, 64), (1, 4, 4, 130, 1000, 128), (1, 4, 2, 127, 127, 64), (3, 4, 2, 197, 197, 96),
       (1, 2, 1, 65, 65, 256), (1, 2, 2, 300, 300, 192), (1, 2, 2, 257, 257, 80), (2, 2, 1, 40, 600, 72), (1, 2, 1, 100, 100, 20)]
DECODE = [(1, 32, 8, 1, 8192, 128), (16, 32, 8, 1, 4096, 128), (64, 32, 8, 1, 2048, 128), (128, 32, 8, 1, 4096, 128),
          (1, 64, 8, 1, 8192, 128), (64, 64, 8, 1, 2048, 128)]


def cases():
    """(kind, shape, timed)"""
    out = [(kind, s, True) for s in PREFILL for kind in ("causal", "full")]
    out += [(kind, s, False) for s in ODD for kind in ("causal", "full", "masked")]
    out += [("softcap", (2, 32, 8, 4096, 4096, 128), True), ("alibi", (2, 32, 8, 4096, 4096, 128), True),
            ("document", (2, 32, 8, 4096, 4096, 128), True), ("masked", (1, 16, 16, 4096, 4096, 64), True)]
    # Masks that are the same for all queries, as of padded sequences.
    out += [(kind, s, True) for kind in ("padding", "padded") for s in ((32, 12, 12, 128, 128, 64), (16, 12, 12, 512, 512, 64), (8, 32, 8, 2048, 2048, 128))]
    out += [("padded", s, False) for s in ((2, 4, 2, 1100, 1100, 128), (2, 4, 4, 1031, 1031, 64), (2, 2, 1, 65, 333, 256), (3, 4, 4, 197, 197, 96))]
    out += [(kind, (2, 4, 2, 1100, 1100, 128), False) for kind in ("document", "padding", "window", "lengths", "alibi", "softcap")]
    out += [(kind, (2, 4, 4, 1031, 1031, 64), False) for kind in ("document", "padding", "window", "lengths")]
    out += [("full", s, True) for s in DECODE] + [("full", (2, 8, 2, 4, 1000, 128), False), ("causal", (2, 8, 2, 7, 333, 80), False)]
    # Sixteen queries, heads of all sizes, one head of keys for all.
    out += [("causal", (2, 8, 8, 16, 1000, 128), False), ("causal", (1, 16, 1, 300, 300, 64), False)]
    out += [("full", (2, 8, 2, 1, 700, d), False) for d in (80, 96, 192, 256)]
    out += [("paged", s, True) for s in DECODE[:4]] + [("paged", (3, 8, 2, 4, 208, 64), False), ("paged", (1, 16, 1, 1, 16, 192), False)]
    # Prefill against pages, and few tokens of large groups.
    out += [("paged", (8, 32, 8, 1024, 1024, 128), True), ("pagedcausal", (4, 32, 8, 4096, 4096, 128), True),
            ("pagedcausal", (2, 4, 2, 336, 336, 80), False), ("pagedcausal", (1, 2, 1, 48, 48, 192), False),
            ("paged", (2, 8, 2, 16, 1008, 64), False), ("paged", (1, 16, 4, 7, 2000, 128), False)]
    # Values of another size than queries and keys.
    out += [("value128", (2, 16, 16, 4096, 4096, 192), True), ("value128", (1, 4, 2, 333, 333, 192), False), ("value256", (1, 2, 1, 100, 257, 64), False),
            ("value64", (2, 8, 2, 1, 1000, 128), False)]
    # A sink of each head, joined to the scores as exporters write it.
    out += [("sink", (1, 64, 8, 4096, 4096, 64), True)] + [("sink", s, False) for s in (
        (2, 8, 2, 333, 333, 64), (2, 8, 8, 1, 500, 64), (1, 4, 2, 130, 1000, 128), (3, 4, 1, 5, 77, 72))]
    # The log-sum-exp as a second result: all forms; timed against the same without.
    out += [("sums", s, True) for s in ((4, 32, 8, 4096, 4096, 128), (4, 32, 8, 2048, 2048, 64), (16, 32, 8, 1, 4096, 128))]
    out += [("sums", s, False) for s in ((2, 4, 2, 333, 333, 128), (8, 16, 8, 1040, 1040, 64), (1, 2, 1, 65, 65, 256), (1, 2, 1, 100, 100, 20),
                                         (1, 8, 2, 1, 77, 64), (2, 8, 2, 4, 1000, 128), (80, 8, 2, 1, 300, 64))]
    out += [("maskedsums", (2, 4, 2, 1100, 1104, 128), False), ("maskedsums", (1, 4, 4, 333, 333, 64), False), ("maskedsums", (1, 4, 2, 3, 500, 64), False),
            ("pagedsums", (2, 8, 8, 1, 1008, 64), False), ("pagedsums", (2, 4, 4, 336, 336, 128), False)]
    return out


def value_size(kind, shape):
    """Columns of values: "value128" says so."""
    return int(kind[5:]) if kind.startswith("value") else shape[5]


def stem_of(kind, shape):
    return kind + "_" + "x".join(map(str, shape))


def graph_of(kind, shape):
    from onnx import TensorProto as T, helper
    b, h, g, s, t, d = shape
    value = lambda n, dims, kind=T.BFLOAT16: helper.make_tensor_value_info(n, kind, dims)
    node = helper.make_node
    number = lambda n, v, kind=T.BFLOAT16: node("Constant", [], [n], value=helper.make_tensor(n, kind, [], [v]))
    inputs = [value("q", [b, h, s, d]), value("k", [b, g, t, d]), value("v", [b, g, t, d])]
    nodes, mask, attributes = [], [], {}
    inputs[2] = value("v", [b, g, t, value_size(kind, shape)])
    if kind in ("causal", "softcap", "alibi", "document", "lengths", "pagedcausal") or (kind.startswith("value") and s == t):
        attributes["is_causal"] = 1
    if kind == "sink":
        return sink_graph(shape)
    if kind.endswith("sums"):
        return sums_graph(kind, shape)
    if kind.startswith("paged"):  # pages of sixteen tokens, keys and values, as a table names them
        inputs[1:] = [value("pool", [b * t // 16, 2, g, 16, d]), value("table", [b, t // 16], T.INT32)]
        nodes += [number("zero", 0, T.INT64), number("one", 1, T.INT64),
                  node("Constant", [], ["shape"], value=helper.make_tensor("shape", T.INT64, [4], [b, g, t, d]))]
        for name, half in (("k", "zero"), ("v", "one")):
            nodes += [node("Gather", ["pool", half], [name + "pool"], axis=1), node("Gather", [name + "pool", "table"], [name + "pages"], axis=0),
                      node("Transpose", [name + "pages"], [name + "heads"], perm=[0, 2, 1, 3, 4]), node("Reshape", [name + "heads", "shape"], [name])]
    if kind in ("padding", "padded"):  # some keys of each sequence count: flags, or what is added
        inputs.append(value("m", [b, 1, 1, t], T.BOOL if kind == "padding" else T.BFLOAT16))
        mask = ["m"]
    if kind == "window":  # the keys around a query
        inputs.append(value("m", [s, t], T.BOOL))
        mask = ["m"]
    if kind == "lengths":  # the first keys of each sequence count
        inputs.append(value("lengths", [b], T.INT64))
        mask = ["", "", "", "lengths"]
    if kind == "softcap":
        attributes["softcap"] = SOFTCAP
    outputs = ["y"]
    if kind == "causal" and s < t:  # the last s of t tokens: the others are in the cache
        inputs[1:] = [value("k", [b, g, s, d]), value("v", [b, g, s, d]), value("pk", [b, g, t - s, d]), value("pv", [b, g, t - s, d])]
        mask, outputs = ["", "pk", "pv"], ["y", "nk", "nv"]
    if kind == "masked":
        inputs.append(value("m", [s, t]))
        mask = ["m"]
    if kind == "alibi":  # slope of the head times the distance, made by the graph
        inputs.append(value("slopes", [h, 1, 1]))
        nodes += [number("zero", 0, T.INT64), number("one", 1, T.INT64), number("s", s, T.INT64), number("t", t, T.INT64),
                  node("Range", ["zero", "s", "one"], ["rows"]), node("Range", ["zero", "t", "one"], ["columns"]),
                  node("Unsqueeze", ["rows", "one"], ["rows1"]), node("Sub", ["columns", "rows1"], ["distance"]),
                  node("Cast", ["distance"], ["distance16"], to=T.BFLOAT16), node("Mul", ["slopes", "distance16"], ["bias"])]
        mask = ["bias"]
    if kind == "document":  # queries see keys of their own document
        inputs.append(value("ids", [b, s], T.INT32))
        nodes += [number("one", 1, T.INT64), number("two", 2, T.INT64), node("Unsqueeze", ["ids", "two"], ["mine"]),
                  node("Unsqueeze", ["ids", "one"], ["theirs"]), node("Equal", ["mine", "theirs"], ["same"]),
                  node("Unsqueeze", ["same", "one"], ["same4"])]
        mask = ["same4"]
    nodes.append(node("Attention", ["q", "k", "v"] + mask, outputs, **attributes))
    sizes = {"y": [b, h, s, value_size(kind, shape)], "nk": [b, g, t, d], "nv": [b, g, t, d]}
    return helper.make_graph(nodes, kind, inputs, [value(n, sizes[n]) for n in outputs])


def sink_graph(shape):
    """Attention of a mask and a sink of each head, from its parts."""
    from onnx import TensorProto as T, helper
    b, h, g, s, t, d = shape
    value = lambda n, dims: helper.make_tensor_value_info(n, T.BFLOAT16, dims)
    node = helper.make_node
    ints = lambda n, v: node("Constant", [], [n], value=helper.make_tensor(n, T.INT64, [len(v)], v))
    nodes = [ints("split", [b, g, 1, t, d]), ints("repeat", [b, g, h // g, t, d]), ints("merge", [b, h, t, d]), ints("each", [1, h, 1, 1]),
             ints("wide", [b, h, s, 1]), ints("zero", [0]), ints("minus", [-1]), ints("last", [3]),
             node("Constant", [], ["scale"], value=helper.make_tensor("scale", T.BFLOAT16, [], [1 / math.sqrt(d)]))]
    for x in "kv":  # heads of a group share them
        nodes += [node("Reshape", [x, "split"], [x + "s"]), node("Expand", [x + "s", "repeat"], [x + "r"]), node("Reshape", [x + "r", "merge"], [x + "h"])]
    nodes += [node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["dots"]), node("Mul", ["dots", "scale"], ["scaled"]),
              node("Add", ["scaled", "m"], ["masked"]), node("Reshape", ["sinks", "each"], ["sinks4"]), node("Expand", ["sinks4", "wide"], ["column"]),
              node("Concat", ["masked", "column"], ["joined"], axis=3), node("ReduceMax", ["joined", "last"], ["most"]), node("Sub", ["joined", "most"], ["less"]),
              node("Softmax", ["less"], ["weights"], axis=-1), node("Slice", ["weights", "zero", "minus", "last"], ["cut"]), node("MatMul", ["cut", "vh"], ["y"])]
    inputs = [value("q", [b, h, s, d]), value("k", [b, g, t, d]), value("v", [b, g, t, d]), value("m", [1, 1, s, t]), value("sinks", [h])]
    return helper.make_graph(nodes, "sink", inputs, [value("y", [b, h, s, d])])


def sums_graph(kind, shape):
    """Attention from its parts, and log(sum(e^score)) beside it."""
    from onnx import TensorProto as T, helper
    b, h, g, s, t, d = shape
    value = lambda n, dims, kind=T.BFLOAT16: helper.make_tensor_value_info(n, kind, dims)
    node = helper.make_node
    ints = lambda n, v: node("Constant", [], [n], value=helper.make_tensor(n, T.INT64, [len(v)], v))
    number = lambda n, v: node("Constant", [], [n], value=helper.make_tensor(n, T.INT64, [], [v]))
    nodes = [ints("last", [3]), node("Constant", [], ["scale"], value=helper.make_tensor("scale", T.BFLOAT16, [], [1 / math.sqrt(d)]))]
    inputs, scores = [value("q", [b, h, s, d])], "scaled"
    if kind.startswith("paged"):
        inputs += [value("pool", [b * t // 16, 2, g, 16, d]), value("table", [b, t // 16], T.INT32)]
        nodes += [number("zero", 0), number("one", 1), ints("shape", [b, g, t, d])]
        for name, half in (("k", "zero"), ("v", "one")):
            nodes += [node("Gather", ["pool", half], [name + "pool"], axis=1), node("Gather", [name + "pool", "table"], [name + "pages"], axis=0),
                      node("Transpose", [name + "pages"], [name + "heads"], perm=[0, 2, 1, 3, 4]), node("Reshape", [name + "heads", "shape"], [name + "h"])]
    else:
        inputs += [value(x, [b, g, t, d]) for x in "kv"]
        nodes += [ints("split", [b, g, 1, t, d]), ints("repeat", [b, g, h // g, t, d]), ints("merge", [b, h, t, d])]
        for x in "kv":
            nodes += [node("Reshape", [x, "split"], [x + "s"]), node("Expand", [x + "s", "repeat"], [x + "r"]), node("Reshape", [x + "r", "merge"], [x + "h"])]
    nodes += [node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["dots"]), node("Mul", ["dots", "scale"], ["scaled"])]
    if kind == "maskedsums":
        inputs.append(value("m", [s, t]))
        nodes.append(node("Add", ["scaled", "m"], ["masked"]))
        scores = "masked"
    nodes += [node("Softmax", [scores], ["weights"], axis=-1), node("MatMul", ["weights", "vh"], ["y"]),
              node("Cast", [scores], ["wide"], to=T.FLOAT), node("ReduceLogSumExp", ["wide", "last"], ["l"], keepdims=0)]
    return helper.make_graph(nodes, kind, inputs, [value("y", [b, h, s, d]), value("l", [b, h, s], T.FLOAT)])


def reference(kind, shape, q, k, v, extra, heads, sums=None):
    """float64, of the first batch entry and some heads; log(sum(e^score)) is added to the list `sums`."""
    import torch
    b, h, g, s, t, d = shape
    out, scale = [], 1 / math.sqrt(d)
    if kind == "sink" or kind.endswith("sums"):  # a number of the graph there
        scale = float(torch.tensor(scale).bfloat16())
    for head in heads:
        a = q[0, head].double() @ k[0, head // (h // g)].double().t() * scale
        if kind == "softcap":
            a = SOFTCAP * torch.tanh(a / SOFTCAP)
        rows, columns = torch.arange(s, device="cuda")[:, None], torch.arange(t, device="cuda")[None]
        if kind.startswith("masked"):
            a = a + extra.double()
        if kind == "sink":
            a = torch.cat([a + extra[0][0, 0].double(), extra[1][head].double().expand(s, 1)], 1)
        if kind == "alibi":
            a = a + extra[head].double() * (columns - rows).bfloat16().double()
        if kind == "document":
            a = a.masked_fill(extra[0][:, None] != extra[0][None], -math.inf)
        if kind == "padding":
            a = a.masked_fill(~extra[0, 0], -math.inf)
        if kind == "padded":
            a = a + extra[0, 0].double()
        if kind == "window":
            a = a.masked_fill(~extra, -math.inf)
        if kind == "lengths":  # queries are the last of those
            a = a.masked_fill(columns > rows + (extra[0] - s), -math.inf)
        if kind in ("causal", "softcap", "alibi", "document", "pagedcausal") or (kind.startswith("value") and s == t):
            a = a.masked_fill(columns > rows + (t - s), -math.inf)
        out.append(torch.nan_to_num(torch.softmax(a, -1))[:, :t] @ v[0, head // (h // g)].double())
        if sums is not None:
            sums.append(torch.logsumexp(a, -1))
        del a
    return torch.stack(out)


def rivals(kind, shape, extra):
    import torch
    if kind.startswith("paged") or kind.endswith("sums") or kind == "sink":
        return {}
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, h, g, s, t, d = shape
    out = {}
    if kind in ("causal", "full", "masked", "padding", "padded") or kind.startswith("value"):
        # One query sees all keys, whatever the mask's corner.
        causal = kind == "causal" and s > 1 or (kind.startswith("value") and s == t)
        mask = extra if kind == "masked" else extra.expand(b, h, s, t) if kind.startswith("padd") else None
        for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION),
                              ("flash", SDPBackend.FLASH_ATTENTION) if mask is None else ("efficient", SDPBackend.EFFICIENT_ATTENTION)):

            def sdpa(q, k, v, backend=backend):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != g, attn_mask=mask)
            out[name] = sdpa
        return out
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    causal = lambda b_, h_, q, k: q >= k
    if kind == "document":
        ids = extra
        visible = lambda b_, h_, q, k: (q >= k) & (ids[b_, q] == ids[b_, k])
    score = {"softcap": lambda x, b_, h_, q, k: SOFTCAP * torch.tanh(x / SOFTCAP),
             "alibi": lambda x, b_, h_, q, k: x + extra[h_, 0, 0] * (k - q), "document": None}[kind]
    blocks = create_block_mask(visible if kind == "document" else causal, b if kind == "document" else None, None, s, t)
    flex = torch.compile(flex_attention, dynamic=False)
    out["flex"] = lambda q, k, v: flex(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=h != g)
    return out


def extra_of(kind, shape):
    import torch
    b, h, g, s, t, d = shape
    if kind.startswith("masked"):
        m = torch.randn(s, t, device="cuda", dtype=torch.bfloat16)
        return m.masked_fill(torch.rand(s, t, device="cuda") < 0.3, -math.inf)
    if kind == "sink":
        seen = torch.arange(t, device="cuda")[None] <= torch.arange(s, device="cuda")[:, None] + t - s
        return [torch.where(seen, 0.0, -math.inf).bfloat16()[None, None].contiguous(), torch.randn(h, device="cuda", dtype=torch.bfloat16)]
    if kind == "alibi":
        return (2.0 ** (-8.0 * (torch.arange(h, device="cuda") + 1) / h))[:, None, None].bfloat16()
    if kind in ("padding", "padded"):  # half of the keys of the first, all of the last
        seen = torch.arange(t, device="cuda")[None, None, None] < torch.linspace(t // 2, t, b, device="cuda").long()[:, None, None, None]
        return seen if kind == "padding" else torch.where(seen, 0.0, torch.finfo(torch.bfloat16).min).bfloat16()
    if kind == "window":
        return (torch.arange(s, device="cuda")[:, None] - torch.arange(t, device="cuda")[None]).abs() < 200
    if kind == "lengths":
        return torch.tensor([t - 200, t][:b], device="cuda")
    if kind.startswith("paged"):
        return torch.randperm(b * t // 16, device="cuda").int().view(b, t // 16)
    if kind == "document":
        return (torch.arange(s, device="cuda") * 7 // s).int()[None].repeat(b, 1).contiguous()
    return None


def run(folder, names, timing=True):
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version(), flush=True)
    bad = 0
    rows = json.load(open(os.path.join(folder, "attention.json")))
    for row in rows:
        kind, shape, timed = row["kind"], tuple(row["shape"]), row["timed"] and timing
        if names and not any(n in row["stem"] for n in names):
            continue
        b, h, g, s, t, d = shape
        make = lambda *dims: torch.randn(*dims, device="cuda", dtype=torch.bfloat16)
        dv = value_size(kind, shape)
        size = 2 * b * (d + dv) * (h * s + g * t)
        sets = min(12, max(2, int(300e6 // size) + 1)) if timed else 1
        data = [(make(b, h, s, d), make(b, g, t, d), make(b, g, t, dv)) for _ in range(sets)]
        extra = extra_of(kind, shape)
        sums = [torch.full((b, h, s), float("nan"), device="cuda")] if kind.endswith("sums") else []
        outs = [torch.full((b, h, s, dv), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        bind = load(row, open(os.path.join(folder, row["stem"] + ".cubin"), "rb").read())
        # Queries, keys, values, then whatever the mask is made of, maybe seen in two ways.
        more = [p for p in row["parameters"] if re.search(r"\bin\d+$", p)][3:]
        # Lengths come as they are, and less the queries.
        given = [extra, extra - s][:len(more)] if kind == "lengths" else [extra for _ in more]
        if kind == "sink":
            given = extra
        assert kind.startswith("paged") or all(tensor is not None for tensor in given), row["parameters"]
        if kind.startswith("paged"):
            pools = [torch.empty(b * t // 16, 2, g, 16, d, device="cuda", dtype=torch.bfloat16) for _ in data]
            for pool, x in zip(pools, data):
                for half in (0, 1):
                    pool[extra.view(-1).long(), half] = x[1 + half].view(b, g, t // 16, 16, d).transpose(1, 2).reshape(-1, g, 16, d)
            launches = [bind([x[0], pool, extra, y] + sums) for x, pool, y in zip(data, pools, outs)]
        else:
            launches = [bind([*x] + given + [y] + sums) for x, y in zip(data, outs)]
        launches[0]()
        torch.cuda.synchronize()
        heads = sorted({0, h // 2, h - 1})
        logs = []
        error = relative_error(outs[0][0, heads], reference(kind, shape, *data[0], extra, heads, logs))
        off = (sums[0][0, heads].double() - torch.stack(logs)).abs().nan_to_num(nan=math.inf).max().item() if sums else 0.0
        first, differ = outs[0].clone(), torch.zeros((), device="cuda", dtype=torch.int64)
        for _ in range(2 if row["timed"] else REPEATS):
            launches[0]()
            differ += (outs[0].view(torch.int16) != first.view(torch.int16)).any()
        same = int(differ) == 0
        ok = error < BAR and off < LOG_BAR and same
        bad += not ok
        text = f"{row['stem']:34} {row['config']:28} error {error:.1e}{f' log {off:.1e}' if sums else ''}{'' if ok else '  WRONG' if same else '  NOT REPEATABLE'}"
        if timed and ok:
            candidates, keep = {"lathe": launches}, []
            if kind.startswith("paged") or sums:  # against the same keys and values one after another, or without sums
                other = next(r for r in rows if r["stem"] == stem_of("causal" if kind == "pagedcausal" else "full", shape))
                there = load(other, open(os.path.join(folder, other["stem"] + ".cubin"), "rb").read())
                candidates["without" if sums else "contiguous"] = [there([*x, y]) for x, y in zip(data, outs)]
            for name, rival in rivals(kind, shape, extra).items():
                try:
                    rival(*data[0])
                    candidates[name] = [lambda x=x, f=rival: keep.append(f(*x)) for x in data]
                except RuntimeError as e:
                    print(f"  {name}: {str(e).splitlines()[0][:90]}")
            times = race(candidates, 7 if s > 4096 else 11)
            flops = 2 * b * h * s * t * (d + dv) / (1 if kind in ("full", "masked", "paged", "sums", "padding", "padded") else 2)
            rate = f"{flops / times['lathe'] / 1e6:5.0f} TF" if s > 8 else f"{size / times['lathe'] / 1e6:5.2f} TB/s"
            text += f" {times['lathe']:9.1f} us {rate} " + " ".join(
                f" {n} {v:.1f} us x{v / times['lathe']:.3f}" for n, v in times.items() if n != "lathe")
            del candidates, keep
        print(text, flush=True)
        del data, outs, launches
        torch.cuda.empty_cache()
    return bad


def prepare_folder(folder, names):
    def one(case):
        kind, shape, timed = case
        return {**prepare(folder, stem_of(kind, shape), graph_of(kind, shape), 24), "kind": kind, "shape": shape, "timed": timed}
    wanted = [c for c in cases() if not names or any(n in stem_of(*c[:2]) for n in names)]
    rows = prepare_all(wanted, one)
    json.dump(rows, open(os.path.join(folder, "attention.json"), "w"), indent=1)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run", "check"):
        sys.exit(__doc__)
    sys.exit(prepare_folder(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "prepare" else
             int(run(sys.argv[2], sys.argv[3:], sys.argv[1] == "run") > 0))
