# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decode steps that store their keys and values into a pool of pages and attend over the pages: the pool donated, in place,
against the same graph whose pool is an input and an output apart. One product of 6144 columns makes queries, keys and values
(32 heads and 8 of 128), the pool has pages of 16 tokens.

`race_pages.py prepare FOLDER` with a build of lathe, `race_pages.py run FOLDER [small [ROUNDS]]` on a GPU with torch and lathe's runtime.
Pools and results are compared with torch's. Exit code 1 when they differ.
"""
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
SIZES = {"big": dict(heads=32, keys=8, size=128, width=4096, pages=4096, columns=64, batches=(1, 8, 64)),
         "small": dict(heads=4, keys=2, size=64, width=128, pages=40, columns=3, batches=(1, 3, 7))}
SIDES = ("donated", "apart")


def save_model(path, s, batch):
    from onnx import TensorProto, helper
    from sanitize import save_graph, value
    node, total = helper.make_node, s["heads"] + 2 * s["keys"]
    numbers = {"zero": ([], [0]), "one": ([], [1]), "page": ([], [16]), "second": ([1], [1]), "third": ([1], [2]),
               "behind": ([2], [1, 2]), "split": ([3], [batch, total, s["size"]]), "parts": ([3], [s["heads"], s["keys"], s["keys"]]),
               "queries": ([4], [batch, s["heads"], 1, s["size"]]), "flat": ([4], [batch, s["keys"], 16 * s["columns"], s["size"]]),
               "first": ([4], [1, 0, 0, 0]), "fourth": ([4], [0, 0, 0, 1])}
    for part, name in enumerate(("kgrid", "vgrid")):
        numbers[name] = ([1, s["keys"], 4], [n for h in range(s["keys"]) for n in (0, part, h, 0)])
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Reshape", ["m", "split"], ["heads"]),
             node("Split", ["heads", "parts"], ["q3", "k", "v"], axis=1), node("Reshape", ["q3", "queries"], ["q"]),
             node("Div", ["positions", "page"], ["ordinal"]), node("Mod", ["positions", "page"], ["slot"]),
             node("Unsqueeze", ["ordinal", "second"], ["column"]), node("GatherElements", ["table", "column"], ["block"], axis=1),
             node("Unsqueeze", ["block", "third"], ["block3"]), node("Unsqueeze", ["slot", "behind"], ["slot3"]),
             node("Mul", ["block3", "first"], ["b"]), node("Mul", ["slot3", "fourth"], ["s"]), node("Add", ["b", "s"], ["place"]),
             node("Add", ["place", "kgrid"], ["kplace"]), node("Add", ["place", "vgrid"], ["vplace"]),
             node("ScatterND", ["pool", "kplace", "k"], ["keys"]), node("ScatterND", ["keys", "vplace", "v"], ["next"])]
    for part, name in (("zero", "k"), ("one", "v")):
        nodes += [node("Gather", ["next", part], [name + "p"], axis=1), node("Gather", [name + "p", "table"], [name + "g"], axis=0),
                  node("Transpose", [name + "g"], [name + "t"], perm=[0, 2, 1, 3, 4]), node("Reshape", [name + "t", "flat"], [name + "a"])]
    nodes += [node("Add", ["positions", "one"], ["lengths"]), node("Attention", ["q", "ka", "va", "", "", "", "lengths"], ["y"])]
    pool = [s["pages"], 2, s["keys"], 16, s["size"]]
    save_graph(path, nodes,
               [value("x", [batch, s["width"]]), value("w", [s["width"], total * s["size"]]), value("pool", pool),
                value("table", [batch, s["columns"]], "INT64"), value("positions", [batch], "INT64")],
               [value("y", [batch, s["heads"], 1, s["size"]]), value("next", pool)],
               [helper.make_tensor(n, TensorProto.INT64, dims, v) for n, (dims, v) in numbers.items()], opset=24)


def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    for kind, s in SIZES.items():
        for batch in s["batches"]:
            stem = os.path.join(folder, f"{kind}.{batch}")
            save_model(stem + ".onnx", s, batch)
            for side in SIDES:
                subprocess.run([LATHE, "compile", stem + ".onnx", "-o", f"{stem}.{side}.lathe", "--target=sm_90a"]
                               + ["--donate=pool=next"] * (side == "donated"), check=True)
            os.remove(stem + ".onnx")


def expected(s, x, w, pool, table, positions):
    """The pool that a step leaves, and the step's result."""
    import torch
    q, k, v = (x.float() @ w.float()).to(x.dtype).view(len(x), -1, s["size"]).split([s["heads"], s["keys"], s["keys"]], 1)
    pool = pool.clone()
    block, slot = table.gather(1, (positions // 16)[:, None])[:, 0], positions % 16
    pool[block, 0, :, slot], pool[block, 1, :, slot] = k, v
    read = pool[table].permute(0, 3, 2, 1, 4, 5).reshape(len(x), s["keys"], 2, -1, s["size"])
    keys, values = read[:, :, 0], read[:, :, 1]
    mask = torch.arange(keys.shape[2], device=x.device)[None, None, None] <= positions[:, None, None, None]
    group = s["heads"] // s["keys"]
    y = torch.nn.functional.scaled_dot_product_attention(q[:, :, None].float(), keys.repeat_interleave(group, 1).float(),
                                                         values.repeat_interleave(group, 1).float(), attn_mask=mask)
    return pool, y


def run(folder, kind="big", rounds=20):
    rounds = int(rounds)
    import torch
    import lathe
    s, bad = SIZES[kind], False
    print(torch.cuda.get_device_name())
    torch.manual_seed(1)
    cold = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    for batch in s["batches"]:
        start = make(s["pages"], 2, s["keys"], 16, s["size"])
        table = torch.randperm(s["pages"], device="cuda")[:batch * s["columns"]].view(batch, -1)
        positions = torch.randint(0, 16 * s["columns"], (batch,), device="cuda")
        given = {"x": make(batch, s["width"]), "w": make(s["width"], (s["heads"] + 2 * s["keys"]) * s["size"]) * s["width"] ** -0.5,
                 "table": table, "positions": positions}
        want = expected(s, given["x"], given["w"], start, table, positions)
        times = {side: [] for side in SIDES}
        for side in SIDES:
            context = lathe.load(os.path.join(folder, f"{kind}.{batch}.{side}.lathe")).context("cuda:0")
            context.time_graphs()
            pool, spent = start.clone(), 0.0
            for turn in range(rounds + 3):
                cold.zero_()
                torch.cuda.synchronize()
                out = context.run({**given, "pool": pool}, memory="device", donate=["pool"] if side == "donated" else [])
                total = context.counters["graph_seconds"]
                if turn >= 3:
                    times[side].append((total - spent) * 1e6)
                spent = total
            got = pool if side == "donated" else torch.from_dlpack(out["next"])
            y = torch.from_dlpack(out["y"]).float()
            touched = (want[0] != start).any(-1)
            kept = torch.equal(got[~touched], want[0][~touched])
            stored = (got[touched].float() - want[0][touched].float()).norm() / want[0][touched].float().norm()
            error = ((y - want[1]).norm() / want[1].norm()).item()
            wrong = not (kept and stored < 5e-3 and error < 2e-2) or (side == "apart" and not torch.equal(pool, start))
            bad |= wrong
            print(f"{kind} {batch:3} sequences, {side:8}: {statistics.median(times[side]):9.2f} us  staged "
                  f"{context.counters['bytes_staged']:.2e} B  stored {stored:.1e}  result {error:.1e}{'  WRONG' if wrong else ''}",
                  flush=True)
            del context, out, got, y
    return bad


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
