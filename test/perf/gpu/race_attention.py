# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races generated attention kernels against cuDNN, torch's flash kernel, FlexAttention and torch.compile.

    race_attention.py prepare FOLDER [NAME...]  without a GPU: makes the models, compiles them, keeps cubins and launches
    race_attention.py run FOLDER [NAME...]      on a GPU with torch: every kernel is checked against float64 over several
                                              heads first, then all are timed as CUDA-graph replays over rotating
                                              buffers, in turn; medians. Exit code 1 when a result is wrong.

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
    out += [(kind, (2, 4, 2, 1100, 1100, 128), False) for kind in ("document", "padding", "window", "lengths", "alibi", "softcap")]
    out += [(kind, (2, 4, 4, 1031, 1031, 64), False) for kind in ("document", "padding", "window", "lengths")]
    out += [("full", s, True) for s in DECODE] + [("full", (2, 8, 2, 4, 1000, 128), False), ("causal", (2, 8, 2, 7, 333, 80), False)]
    out += [("paged", s, True) for s in DECODE[:4]] + [("paged", (3, 8, 2, 4, 208, 64), False), ("paged", (1, 16, 1, 1, 16, 192), False)]
    return out


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
    if kind in ("causal", "softcap", "alibi", "document", "lengths"):
        attributes["is_causal"] = 1
    if kind == "paged":  # pages of sixteen tokens, keys and values, as a table names them
        inputs[1:] = [value("pool", [b * t // 16, 2, g, 16, d]), value("table", [b, t // 16], T.INT32)]
        nodes += [number("zero", 0, T.INT64), number("one", 1, T.INT64),
                  node("Constant", [], ["shape"], value=helper.make_tensor("shape", T.INT64, [4], [b, g, t, d]))]
        for name, half in (("k", "zero"), ("v", "one")):
            nodes += [node("Gather", ["pool", half], [name + "pool"], axis=1), node("Gather", [name + "pool", "table"], [name + "pages"], axis=0),
                      node("Transpose", [name + "pages"], [name + "heads"], perm=[0, 2, 1, 3, 4]), node("Reshape", [name + "heads", "shape"], [name])]
    if kind == "padding":  # some keys of each sequence count
        inputs.append(value("m", [b, 1, 1, t], T.BOOL))
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
    sizes = {"y": [b, h, s, d], "nk": [b, g, t, d], "nv": [b, g, t, d]}
    return helper.make_graph(nodes, kind, inputs, [value(n, sizes[n]) for n in outputs])


def reference(kind, shape, q, k, v, extra, heads):
    """float64, of the first batch entry and some heads."""
    import torch
    b, h, g, s, t, d = shape
    out = []
    for head in heads:
        a = q[0, head].double() @ k[0, head // (h // g)].double().t() / math.sqrt(d)
        if kind == "softcap":
            a = SOFTCAP * torch.tanh(a / SOFTCAP)
        rows, columns = torch.arange(s, device="cuda")[:, None], torch.arange(t, device="cuda")[None]
        if kind == "masked":
            a = a + extra.double()
        if kind == "alibi":
            a = a + extra[head].double() * (columns - rows).bfloat16().double()
        if kind == "document":
            a = a.masked_fill(extra[0][:, None] != extra[0][None], -math.inf)
        if kind == "padding":
            a = a.masked_fill(~extra[0, 0], -math.inf)
        if kind == "window":
            a = a.masked_fill(~extra, -math.inf)
        if kind == "lengths":  # queries are the last of those
            a = a.masked_fill(columns > rows + (extra[0] - s), -math.inf)
        if kind in ("causal", "softcap", "alibi", "document"):
            a = a.masked_fill(columns > rows + (t - s), -math.inf)
        out.append(torch.nan_to_num(torch.softmax(a, -1)) @ v[0, head // (h // g)].double())
        del a
    return torch.stack(out)


def rivals(kind, shape, extra):
    import torch
    if kind == "paged":
        return {}
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, h, g, s, t, d = shape
    out = {}
    if kind in ("causal", "full", "masked"):
        # One query sees all keys, whatever the mask's corner.
        causal = kind == "causal" and s > 1
        for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            if kind == "masked" and name == "flash":
                continue

            def sdpa(q, k, v, backend=backend):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != g,
                                                          attn_mask=extra if kind == "masked" else None)
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
    if kind == "masked":
        m = torch.randn(s, t, device="cuda", dtype=torch.bfloat16)
        return m.masked_fill(torch.rand(s, t, device="cuda") < 0.3, -math.inf)
    if kind == "alibi":
        return (2.0 ** (-8.0 * (torch.arange(h, device="cuda") + 1) / h))[:, None, None].bfloat16()
    if kind == "padding":
        return torch.arange(t, device="cuda")[None, None, None] < torch.tensor([t - 555, t], device="cuda")[:, None, None, None]
    if kind == "window":
        return (torch.arange(s, device="cuda")[:, None] - torch.arange(t, device="cuda")[None]).abs() < 200
    if kind == "lengths":
        return torch.tensor([t - 200, t][:b], device="cuda")
    if kind == "paged":
        return torch.randperm(b * t // 16, device="cuda").int().view(b, t // 16)
    if kind == "document":
        return (torch.arange(s, device="cuda") * 7 // s).int()[None].repeat(b, 1).contiguous()
    return None


def run(folder, names):
    import torch
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version(), flush=True)
    bad = 0
    rows = json.load(open(os.path.join(folder, "attention.json")))
    for row in rows:
        kind, shape, timed = row["kind"], tuple(row["shape"]), row["timed"]
        if names and not any(n in row["stem"] for n in names):
            continue
        b, h, g, s, t, d = shape
        make = lambda *dims: torch.randn(*dims, device="cuda", dtype=torch.bfloat16)
        size = 2 * b * d * (2 * h * s + 2 * g * t)
        sets = min(12, max(2, int(300e6 // size) + 1)) if timed else 1
        data = [(make(b, h, s, d), make(b, g, t, d), make(b, g, t, d)) for _ in range(sets)]
        extra = extra_of(kind, shape)
        outs = [torch.full((b, h, s, d), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        bind = load(row, open(os.path.join(folder, row["stem"] + ".cubin"), "rb").read())
        # Queries, keys, values, then whatever the mask is made of, maybe seen in two ways.
        more = [p for p in row["parameters"] if re.search(r"\bin\d+$", p)][3:]
        # Lengths come as they are, and less the queries.
        given = [extra, extra - s][:len(more)] if kind == "lengths" else [extra for _ in more]
        assert kind == "paged" or all(tensor is not None for tensor in given), row["parameters"]
        if kind == "paged":
            pools = [torch.empty(b * t // 16, 2, g, 16, d, device="cuda", dtype=torch.bfloat16) for _ in data]
            for pool, x in zip(pools, data):
                for half in (0, 1):
                    pool[extra.view(-1).long(), half] = x[1 + half].view(b, g, t // 16, 16, d).transpose(1, 2).reshape(-1, g, 16, d)
            launches = [bind([x[0], pool, extra, y]) for x, pool, y in zip(data, pools, outs)]
        else:
            launches = [bind([*x] + given + [y]) for x, y in zip(data, outs)]
        launches[0]()
        torch.cuda.synchronize()
        heads = sorted({0, h // 2, h - 1})
        error = relative_error(outs[0][0, heads], reference(kind, shape, *data[0], extra, heads))
        first, differ = outs[0].clone(), torch.zeros((), device="cuda", dtype=torch.int64)
        for _ in range(2 if timed else REPEATS):
            launches[0]()
            differ += (outs[0].view(torch.int16) != first.view(torch.int16)).any()
        same = int(differ) == 0
        ok = error < BAR and same
        bad += not ok
        text = f"{row['stem']:34} {row['config']:28} error {error:.1e}{'' if ok else '  WRONG' if same else '  NOT REPEATABLE'}"
        if timed and ok:
            candidates, keep = {"lathe": launches}, []
            if kind == "paged":  # against the same keys and values one after another
                other = next(r for r in rows if r["stem"] == stem_of("full", shape))
                there = load(other, open(os.path.join(folder, other["stem"] + ".cubin"), "rb").read())
                candidates["contiguous"] = [there([*x, y]) for x, y in zip(data, outs)]
            for name, rival in rivals(kind, shape, extra).items():
                try:
                    rival(*data[0])
                    candidates[name] = [lambda x=x, f=rival: keep.append(f(*x)) for x in data]
                except RuntimeError as e:
                    print(f"  {name}: {str(e).splitlines()[0][:90]}")
            times = race(candidates, 7 if s > 4096 else 11)
            flops = 4 * b * h * s * t * d / (1 if kind in ("full", "masked") else 2)
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
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    sys.exit(prepare_folder(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "prepare" else int(run(sys.argv[2], sys.argv[3:]) > 0))
