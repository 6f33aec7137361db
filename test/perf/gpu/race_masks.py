# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races attention whose mask the graph makes, of which most tiles are empty, against the same attention without a mask and
against FlexAttention with the same blocks.

    race_masks.py prepare FOLDER [NAME...]   without a GPU: makes the models, compiles them, keeps cubins and launches
    race_masks.py run FOLDER [NAME...]       on a GPU with torch: every kernel is checked against float64 on some rows of
                                             three heads first, then all of a size are timed as CUDA-graph replays in rounds

bf16. `local` is Longformer's mask: keys at most a window away, and global tokens that see all and that all see, by positions.
`blocks` is BigBird's: a table of blocks of so many tokens, looked up by position: the first block for all, three neighbours,
three at random. `chosen` is a table [1, heads, blocks, blocks] that a run gives, eight blocks for each block of queries of
each head, as the top-k of pooled scores are. `dilated` is every fourth block at most 16 blocks away, by positions. A density
is that of tiles of 128 x 128. Bars: at most (density + 0.05) of the time without a mask, and 1.4 times as fast as
FlexAttention.
"""
import json
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import load, median, prepare, prepare_all, race_rounds, ratio, relative_error  # noqa: E402

BAR, ROUNDS, TILE = 5e-3, 9, 128
GLOBAL = 64
CHOSEN, STEP, REACH = 8, 4, 16  # blocks


def cases():
    """(mask, its window or the tokens of its blocks, heads, tokens, head size, timed)"""
    # Of blocks of few tokens the compiler computes rows of the table: those cases would need them instead of the table.
    raced = (("none", 0), ("local", 512), ("blocks", 128), ("blocks", 64), ("chosen", 128), ("dilated", 128))
    out = [(mask, size, 16, 16384, d, True) for d in (128, 64) for mask, size in raced]
    return out + [(mask, size, 3, s, d, False) for mask, size, s, d in (
        ("local", 100, 1100, 64), ("local", 512, 2048, 128), ("blocks", 64, 2112, 64), ("blocks", 32, 1504, 96), ("blocks", 128, 4096, 128),
        ("chosen", 64, 2112, 64), ("chosen", 128, 4096, 128), ("dilated", 64, 2112, 64), ("dilated", 100, 4100, 128))]


def name_of(case):
    mask, size, h, s, d, _ = case
    return f"{mask}{size or ''}_{h}x{s}x{d}"


def table_of(s, size):
    n, rng = s // size, np.random.default_rng(2)
    table = np.zeros((n, n), bool)
    for i in range(n):
        table[i, max(0, i - 1):i + 2] = table[i, rng.choice(n, 3, replace=False)] = True
    table[0] = table[:, 0] = True
    return table


def chosen_of(h, s, size):
    n, rng = s // size, np.random.default_rng(3)
    table = np.zeros((1, h, n, n), bool)
    np.put_along_axis(table, np.argsort(rng.random(table.shape), -1)[..., :CHOSEN], True, -1)
    return table


def graph_of(case):
    from onnx import TensorProto as T, helper
    mask, size, h, s, d, _ = case
    node, value = helper.make_node, lambda n: helper.make_tensor_value_info(n, T.BFLOAT16, [1, h, s, d])
    number = lambda n, v: node("Constant", [], [n], value=helper.make_tensor(n, T.INT64, [], [v]))
    nodes = [number("zero", 0), number("one", 1), number("s", s), node("Range", ["zero", "s", "one"], ["keys"]),
             node("Unsqueeze", ["keys", "one"], ["queries"])]
    if mask == "local":
        nodes += [number("window", size), number("global", GLOBAL), node("Sub", ["queries", "keys"], ["difference"]),
                  node("Abs", ["difference"], ["distance"]), node("LessOrEqual", ["distance", "window"], ["near"]),
                  node("Less", ["keys", "global"], ["globalkey"]), node("Less", ["queries", "global"], ["globalquery"]),
                  node("Or", ["near", "globalkey"], ["some"]), node("Or", ["some", "globalquery"], ["mask"])]
    if mask == "blocks":
        table = table_of(s, size)
        nodes += [number("size", size),
                  node("Constant", [], ["table"], value=helper.make_tensor("table", T.BOOL, table.shape, table.flatten().tolist())),
                  node("Div", ["keys", "size"], ["block"]), node("Gather", ["table", "block"], ["rows"], axis=0),
                  node("Gather", ["rows", "block"], ["mask"], axis=1)]
    inputs = [value(n) for n in "qkv"]
    if mask == "chosen":
        n = s // size
        inputs.append(helper.make_tensor_value_info("table", T.BOOL, [1, h, n, n]))
        shape = lambda name, dims: node("Constant", [], [name], value=helper.make_tensor(name, T.INT64, [len(dims)], dims))
        nodes += [shape("apart", [1, h, n, 1, n, 1]), shape("full", [1, h, n, size, n, size]), shape("whole", [1, h, s, s]),
                  node("Reshape", ["table", "apart"], ["t"]), node("Expand", ["t", "full"], ["u"]),
                  node("Reshape", ["u", "whole"], ["mask"])]
    if mask == "dilated":
        nodes += [number("size", size), number("step", STEP), number("reach", REACH), node("Div", ["queries", "size"], ["block"]),
                  node("Div", ["keys", "size"], ["other"]), node("Sub", ["block", "other"], ["difference"]),
                  node("Abs", ["difference"], ["distance"]),
                  node("LessOrEqual", ["distance", "reach"], ["near"]), node("Mod", ["difference", "step"], ["rest"]),
                  node("Equal", ["rest", "zero"], ["onstep"]), node("And", ["near", "onstep"], ["mask"])]
    nodes.append(node("Attention", ["q", "k", "v"] + (["mask"] if mask != "none" else []), ["y"]))
    return helper.make_graph(nodes, mask, inputs, [value("y")])


def prepare_folder(folder, names):
    def one(case):
        row = {**prepare(folder, name_of(case), graph_of(case), 24), "case": case}
        if row["kernels"] > 1:
            sys.exit(f"{name_of(case)}: the mask is a tensor of its own")
        return row
    rows = prepare_all([c for c in cases() if not names or any(n in name_of(c) for n in names)], one)
    json.dump(rows, open(os.path.join(folder, "masks.json"), "w"), indent=1)


# ---- On a GPU -----------------------------------------------------------------------------------

def mask_of(case):
    """[heads or 1, S, S], whether a query sees a key; what the kernel reads of the mask in memory; the same for FlexAttention."""
    import torch
    mask, size, h, s, d, _ = case
    at = torch.arange(s, device="cuda")
    if mask == "local":
        seen = lambda q, k: ((q - k).abs() <= size) | (k < GLOBAL) | (q < GLOBAL)
        inside = (at < GLOBAL).to(torch.int8)
        return seen(at[:, None], at)[None], [inside, inside], lambda b, h_, q, k: seen(q, k)
    if mask == "blocks":
        table = torch.from_numpy(table_of(s, size)).cuda()
        seen = table.repeat_interleave(size, 0).repeat_interleave(size, 1)
        return seen[None], [table.to(torch.int8)], lambda b, h_, q, k: table[q // size, k // size]
    if mask == "chosen":
        table = torch.from_numpy(chosen_of(h, s, size)).cuda()
        seen = table[0].repeat_interleave(size, 1).repeat_interleave(size, 2)
        return seen, [table.to(torch.int8)], lambda b, h_, q, k: table[b, h_, q // size, k // size]
    if mask == "dilated":
        seen = lambda q, k: ((q // size - k // size).abs() <= REACH) & ((q // size - k // size) % STEP == 0)
        blocks = at // size
        return seen(at[:, None], at)[None], [blocks, blocks], lambda b, h_, q, k: seen(q, k)
    return torch.ones(1, s, s, dtype=torch.bool, device="cuda"), [], None


def density_of(seen):
    import torch
    s = seen.shape[1]
    n = -(-s // TILE)
    densities = []
    for head in seen:
        whole = torch.zeros(n * TILE, n * TILE, dtype=torch.bool, device="cuda")
        whole[:s, :s] = head
        densities.append(whole.view(n, TILE, n, TILE).any(3).any(1).float().mean().item())
    return sum(densities) / len(densities)


def error_of(q, k, v, y, seen):
    import torch
    h, s, d = q.shape[1:]
    some = torch.cat([torch.tensor([0, s - 1], device="cuda"), torch.randperm(s, device="cuda")[:256]])
    worst = 0.0
    for head in {0, h // 2, h - 1}:
        a = (q[0, head, some].double() @ k[0, head].double().t() / math.sqrt(d)).masked_fill(~seen[head if len(seen) > 1 else 0][some], -math.inf)
        worst = max(worst, relative_error(y[0, head, some], torch.softmax(a, -1) @ v[0, head].double()))
    return worst


def run(folder, names):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    bad, sizes = 0, {}
    for row in json.load(open(os.path.join(folder, "masks.json"))):
        case = row["case"]
        if names and not any(n in row["stem"] for n in names):
            continue
        mask, size, h, s, d, timed = case
        q, k, v = (torch.randn(1, h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        y = torch.full_like(q, float("nan"))
        seen, given, visible = mask_of(case)
        launch = load(row, open(os.path.join(folder, row["stem"] + ".cubin"), "rb").read())([q, k, v, *given, y])
        launch()
        torch.cuda.synchronize()
        error, first = error_of(q, k, v, y, seen), y.clone()
        for _ in range(20):
            launch()
        torch.cuda.synchronize()
        ok = error < BAR and torch.equal(first.view(torch.int16), y.view(torch.int16))
        bad += not ok
        print(f"{row['stem']:24} {row['config']:32} error {error:.1e}{'' if ok else '  WRONG'}", flush=True)
        if timed and ok:
            sizes.setdefault((h, s, d), []).append((row["stem"], density_of(seen), launch, visible, (q, k, v)))
    flex = torch.compile(flex_attention, dynamic=False)
    for (h, s, d), entries in sizes.items():
        torch._dynamo.reset()  # it takes few masks, and then makes all scores
        candidates = {name: [launch] for name, _, launch, *_ in entries}
        for name, _, _, visible, qkv in entries:
            if visible:
                blocks = create_block_mask(visible, None, h if name.startswith("chosen") else None, s, s, device="cuda", BLOCK_SIZE=TILE)
                flex(*qkv, block_mask=blocks)
                candidates["flex " + name] = [lambda x=qkv, b=blocks: flex(*x, block_mask=b)]
        rounds = race_rounds(candidates, ROUNDS)
        dense = next(name for name, *_ in entries if name.startswith("none"))
        for name, density, *_ in entries:
            text = f"{name:24} {median(rounds[name]):9.1f} us"
            if name != dense:
                share, faster = 1 / ratio(rounds, dense, name), ratio(rounds, "flex " + name, name)
                below = share > density + 0.05 or faster < 1.4
                bad += below
                text += (f"  density {density:.3f}: {share:.3f} of the time without a mask (bar {density + 0.05:.3f}), "
                         f"{faster:.3f} x flex (bar 1.4){'  BELOW' if below else ''}")
            print(text, flush=True)
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run"):
        sys.exit(__doc__)
    sys.exit(prepare_folder(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "prepare" else int(run(sys.argv[2], sys.argv[3:]) > 0))
