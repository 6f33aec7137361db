# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races products by weights with blocks of 64 x 64 zeros against the same products dense (ours, torch's) and against the
Triton kernel of torch.sparse for such blocks, which is torchao's block-sparse layer, too.

    race_blocks.py prepare FOLDER [GROUP...]   without a GPU: kernels of both as cubins, with their launches
    race_blocks.py run FOLDER [GROUP...]       on a GPU with torch: checks each against float64, then times all
                                               candidates in rounds, as CUDA-graph replays over rotating buffers

bf16, weights as [N, K] like torch's Linear, random blocks of which a share is zero: "gateup_2048_75" has 75 %. Groups: odd
(correctness only), square, even (20 %), layers, shares (what is gained from 0 to 95 %), few, checked (as --sparse-weights=auto
has them, behind a launch that looks for infinities and NaN in the rows: some are put there, and the results must be those of
torch's dense product). `prepare --config=CONFIG`
takes another configuration. Ratios are taken within a round: rival's time over ours. The bars are those printed at the end:
geometric mean and least.
"""
import json
import math
import os
import sys

import numpy as np
import race_gemm
from generated import command, judge, median, race_rounds, ratio
from plans import load_kernels
from race_sparse import compile_kernel

LLAMA = race_gemm.LLAMA
#         group: rival -> (least geometric mean, least ratio)
BARS = {"square": {"dense": (2.50, 2.50), "triton": (1.50, 1.50)}, "layers": {"dense": (2.50, 2.50), "triton": (1.50, 1.50)},
        "even": {"dense": (1.00, 1.00)}}
ROUNDS = 15
SIDE = 64


def cases():
    """group -> [(name, m, n, k, epilogue, weights along k, zeros in percent[, configuration])]"""
    rows = lambda m, zeros, names=LLAMA: [(f"{name}_{m}_{zeros}", m, *LLAMA[name], "", True, zeros) for name in names]
    square = lambda zeros: (f"square_8192_{zeros}", 8192, 8192, 8192, "", True, zeros)
    out = {"square": [square(75)], "even": [square(20)] + rows(2048, 20), "layers": rows(2048, 75),
           "shares": [square(z) for z in (0, 10, 50, 90, 95)] + rows(256, 75), "few": rows(1, 75) + rows(16, 75), "checked": [square(75)] + rows(2048, 75), "odd": []}
    out["checked"] = [(f"checked_{name}", *rest) for name, *rest in out["checked"]]
    for m, n, k in [(1, 4096, 72), (7, 1000, 776), (13, 520, 1032), (33, 264, 200), (257, 512, 1032), (1021, 1024, 1016),
                    (64, 776, 200), (129, 4096, 128), (3000, 1992, 520)]:
        out["odd"] += [(f"odd_{m}x{n}x{k}{e}{t}_{z}", m, n, k, e, t, z) for e, z in (("", 60), ("bias+gelu", 97), ("residual", 30))
                       for t in (True, False)]
    out["odd"] += [(f"form_{m}x{n}x{k}{e}_{rows}", m, n, k, e, True, 60, f"gemm.bsr.cooperative.m{rows}.n128") for rows in (256, 224, 192, 160, 96, 48, 16)
                   for m, n, k, e in ((257, 520, 1032, ""), (1021, 1024, 1016, "residual"), (1, 776, 200, "bias+gelu"))]
    return out


# ---- Without a GPU ------------------------------------------------------------------------------

def save_model(path, m, n, k, epilogue, along, zeros):
    """The weight is a constant of ones and zeros, in the model where it is small."""
    import onnx
    from onnx import helper
    race_gemm.save_model(path, m, n, k, epilogue, along)
    rng, over = np.random.default_rng(1), lambda a: -(-a // SIDE)
    keep = (rng.random((over(n), over(k))) * 100 >= zeros).repeat(SIDE, 0).repeat(SIDE, 1)[:n, :k]
    words = np.ascontiguousarray(keep if along else keep.T).astype(np.uint16) * 0x3f80
    model = onnx.load(path, load_external_data=False)
    for i, value in enumerate(model.graph.input):
        if value.name == "w":
            del model.graph.input[i]
    if model.graph.initializer:
        words.tofile(path + ".bin")
    else:
        weight = helper.make_tensor("w", onnx.TensorProto.BFLOAT16, words.shape, words.tobytes(), raw=True)
        model.graph.initializer.append(weight)
    onnx.save(model, path)


def prepare(folder, groups, config):
    os.makedirs(folder, exist_ok=True)
    table = []
    for group in groups:
        for name, m, n, k, epilogue, along, zeros, *form in cases()[group]:
            stem = os.path.join(folder, name)
            save_model(stem + ".onnx", m, n, k, epilogue, along, zeros)
            row = compile_kernel(folder, stem, name, "auto" if group == "checked" else "always", config or (form[0] if form else ""))
            if zeros > 0 and ("bsr" not in row["config"] or (group == "checked") != ("checked" in row["config"])):
                sys.exit(f"{name}: {row['config']} is dense")
            row.update(name=name, group=group, m=m, n=n, k=k, epilogue=epilogue, along=along, zeros=zeros)
            if group != "odd":
                row["dense"] = {**row, **compile_kernel(folder, stem, name + "_dense", "never", "")}
            for end in (".onnx", ".onnx.bin"):
                if os.path.exists(stem + end):
                    os.remove(stem + end)
            table.append(row)
            print(f"{name:32} {row['config']:48} {row['dense']['config'] if 'dense' in row else ''}", flush=True)
    if os.path.exists(weights := os.path.join(folder, "weights.bin")):  # of the last
        os.remove(weights)
    json.dump(table, open(os.path.join(folder, "race_blocks.json"), "w"), indent=1)
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def blocks_of(row):
    """Which blocks of [N, K] are kept."""
    import torch
    over = lambda a: -(-a // SIDE)
    return torch.rand(over(row["n"]), over(row["k"]), device="cuda") * 100 >= row["zeros"]


def paired(has):
    """Which panels are multiplied together, [pairs, 2], for panels [panels, numbers] that have blocks: as
    lib/support/BlockSteps.cpp chooses them, those with the most steps first."""
    import torch
    common = has.float() @ has.float().t()
    left, pairs = common.diagonal().argsort(descending=True, stable=True).tolist(), []
    shared = common.int().cpu().numpy()
    while left:
        first = left.pop(0)
        pairs.append([first, left.pop(int(np.argmax(shared[first, left])))])
    at = np.array(pairs)
    for _ in range(8):
        gained = False
        for p in range(len(at) - 1):
            rest = at[p + 1:]
            stays = shared[at[p, 0], at[p, 1]] + shared[rest[:, 0], rest[:, 1]]
            gain = np.stack([shared[at[p, 0], rest[:, i]] + shared[at[p, 1], rest[:, 1 - i]] - stays for i in (0, 1)], 1)
            q, i = divmod(int(gain.argmax()), 2)
            if gain[q, i] > 0:
                at[p, 1], at[p + 1 + q, i] = at[p + 1 + q, i], at[p, 1]
                gained = True
        if not gained:
            break
    at.sort(1)
    each = np.diag(shared)
    steps = each[at[:, 0]] + each[at[:, 1]] - shared[at[:, 0], at[:, 1]]
    return torch.from_numpy(at[np.lexsort((at[:, 0], -steps))]).to(has.device)


def packed(w, keep, pairing=paired):
    """`bsr64` (include/lathe/support/Packing.h) of [N, K], written a second time here."""
    import torch
    (n, k), (panels, numbers) = w.shape, keep.shape
    pairs = -(-panels // 2)
    has = torch.zeros(2 * pairs, numbers, dtype=torch.bool, device=w.device)
    has[:panels] = keep
    has[~has.any(1), 0] = True
    order = pairing(has).view(-1)
    has = has[order].view(pairs, 2, numbers)
    whole = torch.zeros(pairs * 128, numbers * SIDE, device=w.device, dtype=w.dtype)
    whole[:n, :k] = w
    pair, number = has.any(1).nonzero(as_tuple=True)
    which = has[pair, 0, number].long() + 2 * has[pair, 1, number].long()
    count = (which & 1) + (which >> 1)
    steps = number | (4 * (count.cumsum(0) - count) + which) << 32
    begins = torch.cat([torch.zeros(1, device=w.device, dtype=torch.long), has.any(1).sum(1).cumsum(0)])
    at = has.transpose(1, 2).nonzero()  # pair, number, panel of the pair
    blocks = whole.view(2 * pairs, SIDE, numbers, 8, 8)[order[at[:, 0] * 2 + at[:, 2]], :, at[:, 1]]
    piece = (torch.arange(8).view(1, 8) ^ torch.arange(SIDE).view(SIDE, 1) % 8).to(w.device)
    blocks = blocks.gather(2, piece.view(1, SIDE, 8, 1).expand_as(blocks))
    words = -(-numbers // 32)  # of the bits of a panel
    bits = torch.nn.functional.pad(has.view(2 * pairs, numbers), (0, 32 * words - numbers)).view(2 * pairs, words, 32)
    bits = (bits.long() << torch.arange(32, device=w.device)).sum(2)
    bits = torch.where(bits >= 2**31, bits - 2**32, bits).int()
    at_panels = 4 * (4 + len(begins))
    at_bits = at_panels + 4 * len(order)
    first = (at_bits + 4 * bits.numel() + 15) // 16 * 16
    values = (first + 8 * len(steps) + 127) // 128 * 128
    out = torch.zeros(values + 2 * blocks.numel(), device=w.device, dtype=torch.uint8)
    header = torch.tensor([at_bits, first, values, at_panels], device=w.device).int()
    for place, part in ((0, header), (16, begins.int()), (at_panels, order.int()), (at_bits, bits), (first, steps), (values, blocks)):
        raw = part.contiguous().view(torch.uint8).view(-1)
        out[place:place + raw.numel()] = raw
    return out


dense_set = race_gemm.make_set


def make_set(row):
    t = dense_set(row)
    w = t["w"] if row["along"] else t["w"].t()
    keep = blocks_of(row)
    w = (w * keep.repeat_interleave(SIDE, 0).repeat_interleave(SIDE, 1)[:row["n"], :row["k"]]).contiguous()
    t["w"] = w if row["along"] else w.t().contiguous()
    t["packed"] = packed(w, keep)
    return t


def ordered(row, t):
    """In the order of the kernel's buffers; the weights of a sparse kernel are packed."""
    return [t["packed"] if b.split(".")[0] == "w" and "bsr" in row["config"] else t.get(b.split(".")[0], t["y"]) for b in row["buffers"]]


def triton(row, sets):
    """Launches of torch's kernel for blocks; none where torch has none or it does not take them."""
    import torch
    try:
        from torch.sparse._triton_ops import bsr_dense_addmm
        y = torch.zeros(row["n"], row["m"], device="cuda", dtype=torch.bfloat16)
        weights = [t["w"].to_sparse_bsr((SIDE, SIDE)) for t in sets]
        launches = [lambda t=t, w=w: bsr_dense_addmm(y, w, t["a"].t(), beta=0, out=y) for t, w in zip(sets, weights)]
        launches[0]()
        torch.cuda.synchronize()
        want = sets[0]["a"].double() @ sets[0]["w"].double().t() if row["m"] * row["n"] < 2**25 else None
        if want is not None and race_gemm.relative_error(y.t(), want) > 1e-2:
            print(f"{row['name']}: torch's kernel is wrong")
        return {"triton": launches}
    except (ImportError, RuntimeError, NotImplementedError, AssertionError) as e:
        print(f"{row['name']}: no kernel of torch: {str(e)[:120]}")
        return {}


def spoiled(row, bind):
    """Whether rows with infinities and NaN, in blocks that are kept and in others, give what torch's product by all weights
    gives."""
    import torch
    t = make_set(row)
    m, k = t["a"].shape
    for at, value in ((0, math.inf), (1, -math.inf), (2, math.nan), (m // 2, math.inf), (m - 1, math.nan)):
        t["a"][at, (at * 977 + k - 1) % k] = value
    t["a"][m // 3] = math.inf
    bind(t)()
    torch.cuda.synchronize()
    want = torch.mm(t["a"], t["w"].t())
    return torch.equal(want.isnan(), t["y"].isnan()) and torch.equal(want.isinf(), t["y"].isinf()) and int(want.isnan().sum()) > 0


def run(folder, groups):
    import torch
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda, flush=True)
    race_gemm.make_set = make_set  # of its check, too
    bad, ratios, results = 0, {}, []
    for row in json.load(open(os.path.join(folder, "race_blocks.json"))):
        if groups and row["group"] not in groups:
            continue
        name, m, n, k = row["name"], row["m"], row["n"], row["k"]
        bind = load_kernels(folder, row, ordered)
        error = race_gemm.check(row, bind)
        if "checked" in row["config"] and not spoiled(row, bind):
            error = math.inf
        if error == math.inf:
            print(f"{name:32} {row['config']} WRONG", flush=True)
            bad += 1
            continue
        if row["group"] == "odd":
            print(f"{name:40} {row['config']:48} error {error:.1e}", flush=True)
            continue
        sets = [make_set(row) for _ in range(max(1, min(8, math.ceil(300e6 / (2 * (m * k + m * n + n * k))))))]
        dense = load_kernels(folder, row["dense"], ordered)
        candidates = {"lathe": [bind(t) for t in sets], "dense": [dense(t) for t in sets],
                      "torch": [lambda t=t: torch.mm(t["a"], t["w"].t(), out=t["y"]) for t in sets]}
        if "triton" in BARS.get(row["group"], {}):
            candidates.update(triton(row, sets))
        rounds = race_rounds(candidates, ROUNDS)
        times = {c: median(v) for c, v in rounds.items()}
        best = {c: ratio(rounds, c) for c in times if c != "lathe"}
        for rival, r in best.items():
            ratios.setdefault(row["group"], {}).setdefault(rival, {})[name] = r
        results.append({**{c: row[c] for c in ("name", "group", "m", "n", "k", "zeros", "config")}, "us": times, "error": error})
        print(f"{name:24} {row['config']:48} {times['lathe']:8.2f} us  " + "  ".join(f"{r:.3f} x {rival}" for rival, r in best.items()) +
              f"  error {error:.1e}", flush=True)
        del sets, candidates
    bad += judge(ratios, BARS)
    json.dump(results, open(os.path.join(folder, "results_blocks.json"), "w"), indent=1)
    return bad


if __name__ == "__main__":
    command(__doc__, cases(), prepare, run, with_config=True)
