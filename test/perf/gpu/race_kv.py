# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races decode steps over pages whose keys and values are codes of 8 and 4 bits, with a scale for a head of a token, against
the same step over pages of 16 bits: one new token of each sequence is appended, then its queries (32 heads, 8 of keys) read all.

    race_kv.py prepare FOLDER [FORM...]     with a build of lathe
    race_kv.py run FOLDER [FORM...]         on a GPU with torch and lathe's runtime

Forms: few, odd and halves are checks (100 times the same bits), long is 64 sequences of 8,192 tokens and is timed, with its
bars. Codes are compared with those of float64, at most one apart; results with attention in float64 over the codes as
they lie in the pool. Exit code 1 when something is wrong.
"""
import math
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [HERE, os.path.join(ROOT, "python-frontend")]
LATHE = os.environ.get("LATHE", os.path.join(ROOT, "build", "bin", "lathe"))
#        element, heads, key heads, size of a head, bits, tokens of the sequences (the new one the last)
FORMS = {"few": ("bf16", 32, 8, 128, (16, 8, 4), [1, 17, 300]),
         "odd": ("bf16", 6, 2, 256, (16, 8, 4), [5, 16, 33, 1000, 64, 129, 2]),
         "halves": ("f16", 8, 8, 64, (16, 8, 4), [40, 7, 4096, 15, 31]),
         "long": ("bf16", 32, 8, 128, (16, 8, 4), [8192] * 64)}
BARS = {8: 1.7, 4: 2.6}
PAGE = 16


def text(element, heads, groups, size, bits):
    """A step as page-states makes it (passes/simplify/PageStates.cpp), of one layer."""
    coded = bits < 16
    stored, kind = (size, {16: element, 8: "i8"}[bits]) if bits > 4 else (size // 2, "ui8")
    tensor = lambda dims, kind: f"tensor<{'x'.join('?' if isinstance(d, str) else str(d) for d in dims)}x{kind}, #lathe.t<[{', '.join(map(str, dims))}]>>"
    pool, scales = tensor(["N", 1, 2, PAGE, groups, stored], kind), tensor(["N", 1, 2, groups, PAGE], "f32")
    new, q, count, tables = tensor(["T", groups, size], element), tensor(["T", heads, size], element), tensor(["T"], "i64"), tensor(["R", "M"], "i64")
    inputs = [("pool", pool, "next")] + [("scales", scales, "next_scales")] * coded
    inputs += [(n, t, "") for n, t in (("slots", count), ("k", new), ("v", new), ("q", q), ("tables", tables), ("requests", count), ("positions", count))]
    results = [("y", q), ("next", pool)] + [("next_scales", scales)] * coded
    argument = lambda n, t, to: f'%{n}: {t} {{lathe.name = "{n}"' + (f', lathe.donated_to = "{to}"' if to else "") + "}"
    symbols = "".join(f'lathe.symbol @{s} {{max = -1 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = {opt} : i64, origin = "{origin}"}}\n'
                      for s, opt, origin in (("N", 64, "pool[0]"), ("T", 64, "slots[0]"), ("R", 64, "tables[0]"), ("M", 512, "tables[1]")))
    next_pool, next_scales = ("%p#0", "%p#1") if coded else ("%p", "")
    return f"""module {{
{symbols}func.func @step({', '.join(argument(*i) for i in inputs)}) -> ({', '.join(f'{t} {{lathe.name = "{n}"}}' for n, t in results)}) attributes {{lathe.entry}} {{
  %p{':2' if coded else ''} = lathe.kv_append %pool, %slots, %k, %v{', %scales' if coded else ''} {{layer = 0 : i64}} : ({pool}, {count}, {new}, {new}{', ' + scales if coded else ''}) -> ({', '.join(t for _, t in results[1:])})
  %y = lathe.paged_attention %q, {next_pool}, %tables, %requests, %positions {f'scales {next_scales} ' if coded else ''}{{layer = 0 : i64, scale = {size ** -0.5:.17g} : f64}} : ({q}, {pool}, {tables}, {count}, {count}{', ' + scales if coded else ''}) -> {q}
  return %y, {next_pool}{', ' + next_scales if coded else ''} : {', '.join(t for _, t in results)}
}}
}}
"""


def stem_of(folder, form, bits):
    """Forms of the same sizes share their engine."""
    return os.path.join(folder, ".".join(map(str, (*FORMS[form][:4], bits))))


def prepare(folder, forms):
    os.makedirs(folder, exist_ok=True)
    for form in forms:
        *sizes, widths, _ = FORMS[form]
        for bits in widths:
            stem = stem_of(folder, form, bits)
            if os.path.exists(stem + ".lathe"):
                continue
            with open(stem + ".mlir", "w") as f:
                f.write(text(*sizes, bits))
            subprocess.run([LATHE, "compile", stem + ".mlir", "-o", stem + ".lathe", "--target=sm_90a"], check=True)
            os.remove(stem + ".mlir")
    return 0


# ---- On a GPU -----------------------------------------------------------------------------------

def quantized(x, bits):
    """(codes, scales) of the rows of x in float64, as lathe.kv_append says."""
    import torch
    most = 127 if bits == 8 else 7
    scales = (x.double().abs().amax(-1) / most).float()
    codes = (x.double() / scales.double().clamp_min(1e-300)[..., None]).round().clamp(-most, most)
    return codes, scales


def unpacked(pool, bits):
    """Codes [.., size] as they lie in the elements of the pool."""
    import torch
    if bits == 8:
        return pool
    return torch.cat([pool & 15, pool >> 4], -1).to(torch.int8) - 8


def packed(codes, bits):
    import torch
    if bits == 8:
        return codes.to(torch.int8)
    low, high = (codes + 8).to(torch.uint8).chunk(2, -1)
    return low | high << 4


class Side:
    """One engine with its pool, which holds `k` and `v` [tokens, heads, size] of each sequence but the last of them."""

    def __init__(self, folder, form, bits, given, history):
        import torch
        import lathe
        self.bits, self.given = bits, given
        self.context = lathe.load(stem_of(folder, form, bits) + ".lathe").context("cuda:0")
        self.context.time_graphs()
        pages, groups, size = given["pages"], *history.shape[3:]
        # Pages of all sequences in the order of their numbers: [pages, 1, 2, 16, groups, size].
        if bits == 16:
            self.state = {"pool": history[:, None].clone()}
        else:
            self.state = {"pool": torch.empty(pages, 1, 2, PAGE, groups, size * bits // 8, device="cuda", dtype=torch.int8 if bits == 8 else torch.uint8),
                          "scales": torch.empty(pages, 1, 2, groups, PAGE, device="cuda")}
            for i in range(0, pages, 512):
                codes, scales = quantized(history[i:i + 512], bits)
                self.state["pool"][i:i + 512, 0] = packed(codes, bits)
                self.state["scales"][i:i + 512, 0] = scales.transpose(-1, -2)
        self.spent = 0.0

    def run(self):
        names = ("slots", "k", "v", "q", "tables", "requests", "positions")
        out = self.context.run({**self.state, **{n: self.given[n] for n in names}}, memory="device", donate=list(self.state))
        total = self.context.counters["graph_seconds"]
        spent, self.spent = total - self.spent, total
        return out, spent * 1e6

    def rows(self, part, page, dtype):
        """Keys (0) or values (1) of pages, [pages * 16, heads, size] in float64."""
        rows = self.state["pool"][page, 0, part]
        if self.bits < 16:
            rows = unpacked(rows, self.bits).double() * self.state["scales"][page, 0, part].double().transpose(-1, -2)[..., None]
        return rows.double().flatten(0, 1)


def check(side, given, y, sequences):
    """(error of results in the norm, codes that differ, greatest difference of a code, wrong) over some sequences."""
    import torch
    found = truth = 0.0
    differ = apart = 0
    total = 1
    group = given["q"].shape[1] // given["k"].shape[1]
    for s in sequences:
        length = int(given["positions"][s]) + 1
        page = given["tables"][s, :-(-length // PAGE)]
        k, v = (side.rows(part, page, y.dtype)[:length] for part in (0, 1))
        q = given["q"][s].double().view(-1, group, k.shape[-1])
        p = torch.softmax(torch.einsum("hgd,khd->hgk", q, k) * k.shape[-1] ** -0.5, -1)
        want = torch.einsum("hgk,khd->hgd", p, v).flatten(0, 1)
        found += float((y[s].double() - want).norm() ** 2)
        truth += float(want.norm() ** 2)
    if side.bits < 16:
        slots = given["slots"]
        for part, new in ((0, given["k"]), (1, given["v"])):
            codes, scales = quantized(new, side.bits)
            got = unpacked(side.state["pool"][slots // PAGE, 0, part, slots % PAGE], side.bits).double()
            differ += int((got != codes).sum())
            apart = max(apart, int((got - codes).abs().max()))
            total += codes.numel()
            stored = side.state["scales"][slots // PAGE, 0, part, :, slots % PAGE]
            if not torch.allclose(stored, scales, rtol=3e-7, atol=0):
                apart = 255
    else:
        slots = given["slots"]
        for part, new in ((0, given["k"]), (1, given["v"])):
            differ += int((side.state["pool"][slots // PAGE, 0, part, slots % PAGE] != new).sum())
        apart = 2 if differ else 0
    error = math.sqrt(found / truth)
    return error, differ / total, apart, not error < 6e-3 or apart > 1


def run(folder, forms):
    import torch
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    bad, missed = 0, 0
    for form in forms:
        element, heads, groups, size, widths, lengths = FORMS[form]
        torch.manual_seed(3)
        dtype = torch.bfloat16 if element == "bf16" else torch.float16
        make = lambda *dims: torch.randn(*dims, device="cuda", dtype=torch.float32).to(dtype)
        counts = [-(-n // PAGE) for n in lengths]
        pages = sum(counts) + 1  # one that nobody has
        order = torch.randperm(pages - 1, device="cuda")
        tables = torch.zeros(len(lengths), max(counts), dtype=torch.int64, device="cuda")
        at = 0
        for s, count in enumerate(counts):
            tables[s, :count] = order[at:at + count]
            at += count
        history = torch.cat([make(min(512, pages - i), 2, PAGE, groups, size) for i in range(0, pages, 512)])
        positions = torch.tensor(lengths, device="cuda") - 1
        slots = tables.gather(1, (positions // PAGE)[:, None])[:, 0] * PAGE + positions % PAGE
        given = {"pages": pages, "tables": tables, "positions": positions, "slots": slots, "requests": torch.arange(len(lengths), device="cuda"),
                 "k": make(len(lengths), groups, size), "v": make(len(lengths), groups, size), "q": make(len(lengths), heads, size) * 3}
        sides = {bits: Side(folder, form, bits, given, history) for bits in widths}
        del history
        for bits, side in sides.items():
            out, _ = side.run()
            y = torch.from_dlpack(out["y"]).clone()
            some = range(0, len(lengths), max(1, len(lengths) // 8))
            error, differ, apart, wrong = check(side, given, y, some)
            for _ in range(100 if form != "long" else 5):
                wrong |= not torch.equal(torch.from_dlpack(side.run()[0]["y"]).view(torch.int16), y.view(torch.int16))
            bad += wrong
            print(f"{form:8} {bits:2} bits: result {error:.1e}, codes that differ {differ:.1e}, by {apart} at most{'  WRONG' if wrong else ''}", flush=True)
        if form != "long":
            continue
        times = {bits: [] for bits in sides}
        for _ in range(25):
            for bits, side in sides.items():
                times[bits].append(side.run()[1])
        medians = {bits: statistics.median(t) for bits, t in times.items()}
        for bits, side in sides.items():
            moved = sum(lengths) * groups * 2 * (size * bits // 8 + (4 if bits < 16 else 0))
            print(f"{form:8} {bits:2} bits: {medians[bits]:8.2f} us, {moved / medians[bits] / 1e3:.0f} GB/s", flush=True)
        for bits, bar in BARS.items():
            gain = statistics.median(a / b for a, b in zip(times[16], times[bits]))
            missed += gain < bar
            print(f"{bits} bits against 16 (bar {bar}): {gain:.3f}{'' if gain >= bar else '  MISSED'}", flush=True)
    return bad


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run") or any(f not in FORMS for f in sys.argv[3:]):
        sys.exit(__doc__)
    sys.exit(int({"prepare": prepare, "run": run}[sys.argv[1]](sys.argv[2], sys.argv[3:] or list(FORMS)) > 0))
