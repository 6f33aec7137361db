# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that draw tokens (codegen/device/sample.cuh): draws against a twin in numpy and against their
probabilities, and their times against the formulas that serving engines write in torch.

`race_sampler.py prepare FOLDER ENGINE` needs a build and an engine of a paged decoder for sm_90a, whose kernels it takes.
`race_sampler.py run FOLDER [check|race]` needs a GPU, torch and the prepared folder.

check  tokens of 64 rows and each setting are bit for bit the twin's; a million draws of a row and setting: none outside of
       what the setting keeps, and Pearson's chi-squared p times the number of settings is at least 1e-3
race   1, 64 and 256 rows of Llama-3's vocabulary in bf16 in graphs; the bar is the time of three reads of the logits at
       the rate of a copy, and 8 us. Rivals: softmax, topk or sort, and exponential numbers, whose greatest quotient is the draw
Exit code 1 when a draw is wrong or a bar is not met.
"""
import json
import math
import os
import re
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from generated import LATHE, TARGET, compile_cubin, load, race  # noqa: E402

VOCABULARY = 128256
BLOCKS, THREADS, FIXED_BYTES = 8, 512, 16384  # of include/lathe/engine/SampleAbi.h
UNIT = 2**40
DRAW = np.dtype([("row", "u8"), ("seed", "u8"), ("index", "u8"), ("sample", "u8"), ("scale", "f8"), ("topP", "f8"),
                 ("topK", "u8"), ("leastWeight", "u8"), ("repetition", "f4"), ("presence", "f4"), ("frequency", "f4"),
                 ("bias", "u4"), ("biasCount", "u4"), ("counts", "u4"), ("countsCount", "u4"), ("out", "u4"),
                 ("outCount", "u4"), ("mask", "u4"), ("maskWords", "u4"), ("masked", "u4")])
SETTINGS = {"T = 1": {}, "T = 0.7": {"temperature": 0.7}, "top-k 50": {"top_k": 50}, "top-p 0.9": {"top_p": 0.9},
            "top-k 1000, top-p 0.9": {"top_k": 1000, "top_p": 0.9}, "min-p 0.05": {"min_p": 0.05}, "greatest": {"temperature": 0}}


def prepare(folder, engine):
    os.makedirs(folder, exist_ok=True)
    name = "lathe.sample.clusters"
    text = subprocess.run([LATHE, "inspect", engine, f"--source={name}", f"--target={TARGET}"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    cubin, log = compile_cubin(text, "sample.cu")
    print(*re.findall(r"Used \d+ registers|\d+ bytes spill stores", log))
    with open(os.path.join(folder, "sample.cubin"), "wb") as f:
        f.write(cubin)
    with open(os.path.join(folder, "sample.json"), "w") as f:
        json.dump({"logits": re.search(r"sampleRows\(const (\w+)", text)[1]}, f)


# ---- What is asked, and the twin ----------------------------------------------------------------

def draws_of(rows, setting, first_index=0):
    """One of each row."""
    made = np.zeros(len(rows), DRAW)
    temperature = np.float32(setting.get("temperature", 1))
    made["row"], made["seed"], made["index"] = rows, 1234567, first_index + np.arange(len(rows))
    made["scale"] = math.log2(math.e) / float(temperature) if temperature else 0
    made["topP"], made["topK"] = float(np.float32(setting.get("top_p", 1))), setting.get("top_k", 0)
    made["leastWeight"] = math.ceil(float(np.float32(setting.get("min_p", 0))) * UNIT)
    made["repetition"] = 1
    return made


def powers_of_two():
    """2^(i/128) by the Taylor series of Sampler.cpp, operation by operation."""
    made = np.ones(128)
    for k in range(20, 0, -1):
        made = 1 + made * (np.arange(128) * (LN2 / 128)) / k
    return made


LN2 = 0.69314718055994530942
POWERS = powers_of_two()


def weights_of(logits, scale):
    """2^((logit - greatest) * scale) in units of 2^-40, rounded down, as runtime/serve/Sampler.cpp has them."""
    y = (logits.astype(np.float64) - np.float64(logits.max())) * scale
    none = ~(y > -41)
    steps = np.where(none, -41.0, y) * 128
    shifted = steps + 6755399441055744.0
    n = shifted.view(np.uint64).astype(np.uint32).view(np.int32).astype(np.int64)
    t = (steps - (shifted - 6755399441055744.0)) * (LN2 / 128)
    total = np.full_like(t, 1 / 24)
    for c in (1 / 6, 0.5, 1.0, 1.0):
        total = total * t + c
    scaled = (total * POWERS[n & 127] * 4503599627370496.0).astype(np.int64)
    weights = np.minimum(scaled >> (12 - (n >> 7)), UNIT)
    return np.where(logits == logits.max(), UNIT, np.where(none, 0, weights))


def philox(index, sample, seed):
    low = 2**32 - 1
    c, k = [index & low, index >> 32, sample & low, sample >> 32], [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & low, (a >> 32) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c[1] << 32 | c[0]


def kept_weights(logits, draw):
    """The weight of each token, 0 where the setting leaves it out."""
    weights = weights_of(logits, draw["scale"])
    order = np.argsort(-logits, kind="stable")
    if draw["topK"]:
        order = order[:draw["topK"]]
    if draw["topP"] < 1:
        sums = np.cumsum(weights[order])
        share = min(max(math.ceil(draw["topP"] * float(sums[-1])), 1), int(sums[-1]))
        order = order[:np.searchsorted(sums, share) + 1]
    kept = np.zeros_like(weights)
    kept[order] = weights[order]
    return np.where(kept < draw["leastWeight"], 0, kept)


def token_of(logits, draw):
    if draw["scale"] == 0:
        return int(logits.argmax())
    sums = np.cumsum(kept_weights(logits, draw))
    at = philox(int(draw["index"]), int(draw["sample"]), int(draw["seed"])) * int(sums[-1]) >> 64
    return int(np.searchsorted(sums, at, side="right"))


def p_value(counts, probabilities):
    """Of Pearson's chi-squared, by the cube root of Wilson and Hilferty; tokens expected less than five times together."""
    expected = probabilities * counts.sum()
    few = expected < 5
    seen, wanted = [*counts[~few]], [*expected[~few]]
    if expected[few].sum() >= 5:
        seen.append(counts[few].sum())
        wanted.append(expected[few].sum())
    free = len(seen) - 1
    if free < 1:
        return 1.0
    squares = sum((s - w) ** 2 / w for s, w in zip(seen, wanted))
    z = ((squares / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return 0.5 * math.erfc(z / math.sqrt(2))


# ---- On a GPU -----------------------------------------------------------------------------------

class Kernel:
    def __init__(self, folder):
        with open(os.path.join(folder, "sample.cubin"), "rb") as f:
            self.cubin = f.read()
        with open(os.path.join(folder, "sample.json")) as f:
            assert json.load(f)["logits"] == "bf16"

    def bind(self, logits, draws):
        """(launch, tokens); a draw a row of `draws`."""
        import torch
        part = (VOCABULARY + BLOCKS * 32 - 1) // (BLOCKS * 32) * 32
        row = {"function": "sampleRows", "grid": [BLOCKS * len(draws), 1, 1], "block": [THREADS, 1, 1],
               "cluster": [BLOCKS, 1, 1], "shared": FIXED_BYTES + 4 * part, "pdl": False, "maps": []}
        tokens = torch.full((len(draws),), -7, dtype=torch.int64, device="cuda")
        given = torch.from_numpy(draws.view(np.uint8)).cuda()
        powers, spare = torch.from_numpy(POWERS).cuda(), torch.zeros(4, dtype=torch.int32, device="cuda")
        words = torch.zeros(4, dtype=torch.int32, device="cuda")
        buffers = [logits, given, words, powers, spare, tokens]
        return load(row, self.cubin)([*buffers, Number(VOCABULARY), Number(1)]), tokens


class Number:
    """A parameter of 64 bits that is no buffer."""

    def __init__(self, value):
        self.value = value

    def data_ptr(self):
        return self.value


def logits_of(rows, generator, spread=2.0):
    """As a model's: few likely tokens, a long tail."""
    import torch
    return (torch.randn(rows, VOCABULARY, generator=generator, device="cuda") * spread).bfloat16()


def check(kernel):
    import torch
    generator, bad = torch.Generator("cuda").manual_seed(1), 0
    for spread in (0.5, 2.0, 6.0):
        logits = logits_of(64, generator, spread)
        host = logits.float().cpu().numpy()
        for name, setting in SETTINGS.items():
            draws = draws_of(np.arange(64), setting)
            launch, tokens = kernel.bind(logits, draws)
            launch()
            found = tokens.cpu().tolist()
            same = sum(found[r] == token_of(host[r], draws[r]) for r in range(0, 64, 4))
            bad += same != 16
            print(f"spread {spread}  {name:22} {same} of 16 draws are the twin's{'' if same == 16 else '  WRONG'}", flush=True)
    logits = logits_of(1, generator, 3.0)
    host = logits.float().cpu().numpy()[0]
    drawn = {name: setting for name, setting in SETTINGS.items() if setting.get("temperature", 1)}
    for name, setting in drawn.items():
        counts = torch.zeros(VOCABULARY, dtype=torch.int64, device="cuda")
        for part in range(10):
            launch, tokens = kernel.bind(logits, draws_of(np.zeros(100_000, int), setting, 100_000 * part))
            launch()
            counts += torch.bincount(tokens, minlength=VOCABULARY)
        counts = counts.cpu().numpy()
        kept = kept_weights(host, draws_of(np.zeros(1, int), setting)[0])
        outside = int(counts[kept == 0].sum())
        p = p_value(counts[kept > 0], kept[kept > 0] / kept.sum()) * len(drawn)
        wrong = outside > 0 or p < 1e-3 or counts.sum() != 1_000_000
        bad += wrong
        print(f"{name:22} {counts.sum()} draws, {int((kept > 0).sum())} tokens may come, {outside} outside, p {min(p, 1):.3f}"
              f"{'  WRONG' if wrong else ''}", flush=True)
    return bad


def in_torch(logits, setting):
    """As serving engines draw without a kernel of their own."""
    import torch
    x = logits.float()
    if not setting.get("temperature", 1):
        return x.argmax(-1)
    x = x / setting.get("temperature", 1)
    places = None
    if setting.get("top_k"):
        x, places = x.topk(setting["top_k"], -1)
    elif setting.get("top_p", 1) < 1:
        x, places = x.sort(-1, descending=True)
    p = x.softmax(-1)
    if setting.get("top_p", 1) < 1:
        p = p.masked_fill(p.cumsum(-1) - p >= setting["top_p"], 0)
    if setting.get("min_p"):
        p = p.masked_fill(p < setting["min_p"] * p.amax(-1, keepdim=True), 0)
    best = (p / torch.empty_like(p).exponential_(1)).argmax(-1, keepdim=True)
    return (best if places is None else places.gather(-1, best)).squeeze(-1)


def race_all(kernel):
    import torch
    generator, bad = torch.Generator("cuda").manual_seed(2), 0
    big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(big)
    rate = 2 * big.numel() / race({"copy": [lambda: other.copy_(big)]})["copy"]  # bytes a microsecond
    del big, other
    for rows in (1, 64, 256):
        copies = max(2, (200 << 20) // (rows * VOCABULARY * 2)) if rows > 1 else 8
        many = [logits_of(rows, generator, 3.0) for _ in range(min(copies, 8))]
        for name, setting in SETTINGS.items():
            ours = [kernel.bind(logits, draws_of(np.arange(rows), setting))[0] for logits in many]
            theirs = [lambda logits=logits: in_torch(logits, setting) for logits in many]
            times = race({"lathe": ours, "torch": theirs}, repeats=9)
            bar = 3 * rows * VOCABULARY * 2 / rate + 8
            below = times["lathe"] > bar
            bad += below
            print(f"{rows:4} rows  {name:22} lathe {times['lathe']:8.2f} us  torch {times['torch']:9.2f} us "
                  f"({times['torch'] / times['lathe']:6.1f} x)  bar {bar:7.2f}{'  ABOVE' if below else ''}", flush=True)
    return bad


def run(folder, *parts):
    import torch
    print(torch.cuda.get_device_name(), flush=True)
    kernel = Kernel(folder)
    programs = {"check": check, "race": race_all}
    return sum(programs[part](kernel) for part in parts or programs) > 0


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
