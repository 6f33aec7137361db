# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Serving a decoder of Llama-3-8B's sizes on a GPU: what requests wait for, against rooflines and an oracle.

`race_serve.py prepare FOLDER` needs a build of lathe and onnx. `race_serve.py run FOLDER [PART...]` needs a GPU,
torch, and python-frontend with the runtime library. Parts, with their bars:

batch          64 requests of 512 + 128 tokens at once: seconds for all (1.75 on an H200)
saturated      128 requests of 1,000 + 1,000 tokens at once against the serial roofline of their steps: products by
               the rate of a large one or by what they read, whichever takes longer, then attention by the same, a
               step after the other; both rates are measured here by torch (0.85)
prompts        32 sequences that generate while prompts of 8,192 tokens come: P99 between tokens over the median
               without (2)
oversubscribed requests whose keys would take 1.5 times the pool, against the same pool under an oracle that knows
               each answer's length and admits what never has to give way (0.9)
zipf           64 sequences, lengths 32,768 over their number, of four layers: what their keys add to a step against a
               copy of as many bytes (0.85)
poisson        requests that come by chance at 50, 80 and 95 % of the rate that all at once reach: percentiles, beside
               both policies of serve_policies.py on a cost model that is measured first; writes poisson.svg

Draws are at temperature 1. Exit code 1 where a bar is missed.
"""

import os
import random
import statistics
import sys
import time

import serve_policies

LAYERS, POOL = 32, 40 << 30
WEIGHTS = 7504924672 * 2  # bytes that a step reads: all but the embedding
PRODUCTS = 2 * 6979321856  # flops of a token, without the vocabulary's, as few rows of a step have logits
KEY_BYTES = 2 * 8 * 128 * 2 * LAYERS  # of a token in the pool


def prompt(draw, length):
    return [draw.randrange(500) for _ in range(length)]


def rates():
    """(bytes a second of a copy, read and written; flops a second of a large product)."""
    import torch

    def fastest(work, count):
        times = []
        for _ in range(count):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(times[2:])

    source = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    square = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    copy = 2 * source.numel() / fastest(lambda: target.copy_(source), 12)
    product = 2 * 8192**3 / fastest(lambda: square @ square, 12)
    print(f"a copy {copy / 1e12:.3f} TB/s, a product of 8192 cubed in bf16 {product / 1e12:.0f} TFLOP/s", flush=True)
    return copy, product


def attention_roofline(asked, answered, copy, product):
    """Seconds: a prompt's products over its keys, then each token reads those before it."""
    flops = 4 * 32 * 128 * LAYERS * asked * (asked + 1) / 2
    return flops / product + sum(asked + i for i in range(1, answered)) * KEY_BYTES / copy


def run_all(llm, requests):
    """(seconds, tokens of each step) of [(prompt, tokens of the answer)] at once."""
    begin = time.perf_counter()
    answers = [llm.submit(p, count, temperature=1.0, seed=i)[0] for i, (p, count) in enumerate(requests)]
    tokens, before = [], llm.counters()["computed_tokens"]
    while llm.step():
        now = llm.counters()["computed_tokens"]
        tokens.append(now - before)
        before = now
    took = time.perf_counter() - begin
    tokens.append(llm.counters()["computed_tokens"] - before)
    assert all(a.finish == "length" for a in answers)
    return took, tokens


def serial_roofline(requests, tokens, copy, product):
    return sum(max(t * PRODUCTS / product, WEIGHTS / copy) for t in tokens if t) + sum(
        attention_roofline(len(p), count, copy, product) for p, count in requests
    )


def judge(text, value, bar, at_most=False):
    bad = value > bar if at_most else value < bar
    print(f"{text}, bar {bar}{'  MISSED' if bad else ''}", flush=True)
    return bad


def batch(engine, copy, product):
    bad, best = 0, None
    for tokens in (2048, 1024):
        llm = engine.llm(
            "cuda:0",
            kv_bytes=POOL,
            max_requests=64,
            max_sequence_tokens=1024,
            max_step_tokens=tokens,
            prefix_cache=False,
        )
        took = []
        for turn in range(3):
            requests = [(prompt(random.Random(64 * turn + i), 512), 128) for i in range(64)]
            seconds, steps = run_all(llm, requests)
            took.append(seconds)
        print(
            f"64 requests of 512 + 128, steps of {tokens} tokens: {', '.join(f'{t:.3f}' for t in took)} s; roofline of "
            f"their {len(steps)} steps {serial_roofline(requests, steps, copy, product):.3f} s",
            flush=True,
        )
        best = min(best or 9, statistics.median(took[1:]))
        del llm
    return bad + judge(f"64 requests of 512 + 128: {best:.3f} s", best, 1.75, at_most=True)


def saturated(engine, copy, product):
    llm = engine.llm(
        "cuda:0", kv_bytes=POOL, max_requests=128, max_sequence_tokens=2048, max_step_tokens=2048, prefix_cache=False
    )
    run_all(llm, [(prompt(random.Random(i), 1000), 12) for i in range(128)])
    requests = [(prompt(random.Random(1000 + i), 1000), 1000) for i in range(128)]
    took, tokens = run_all(llm, requests)
    roofline = serial_roofline(requests, tokens, copy, product)
    return judge(
        f"128 requests of 1,000 + 1,000: {took:.3f} s, {128e3 / took:.0f} tokens a second, roofline of {len(tokens)} steps "
        f"{roofline:.3f} s: {roofline / took:.3f}",
        roofline / took,
        0.85,
    )


def timed(llm, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        llm.step()
        times.append(time.perf_counter() - begin)
    return times


def prompts(engine, *_):
    found = []
    for tokens in (128, 256):
        llm = engine.llm(
            "cuda:0",
            kv_bytes=POOL,
            max_requests=40,
            max_sequence_tokens=9000,
            max_step_tokens=tokens,
            prefix_cache=False,
        )
        draw = random.Random(tokens)
        kept = [llm.submit(prompt(draw, 1024), 1500, temperature=1.0, seed=i)[0] for i in range(32)]
        while any(not a._result().token_count for a in kept):
            llm.step()
        timed(llm, 10)
        alone = statistics.median(timed(llm, 100))
        first = llm.submit(prompt(draw, 8192), 4)[0]  # graphs of these sizes are made
        while not first.finish:
            llm.step()
        times, coming = [], []
        for _ in range(3):
            coming.append(llm.submit(prompt(draw, 8192), 4)[0])
            begin = time.perf_counter()
            while not coming[-1].finish:
                times += timed(llm, 1)
            print(f"  8,192 tokens in steps of {tokens}: read in {time.perf_counter() - begin:.2f} s", flush=True)
            times += timed(llm, 10)
        _, p95, p99 = serve_policies.percentiles(times)
        found.append(p99 / alone)
        print(
            f"steps of {tokens} tokens: {alone * 1e3:.3f} ms between tokens without prompts, {statistics.median(times) * 1e3:.3f} with, "
            f"P95 {p95 * 1e3:.3f}, P99 {p99 * 1e3:.3f}: {p99 / alone:.2f} x",
            flush=True,
        )
        del kept, first, coming, llm
    return judge(f"P99 between tokens while prompts of 8,192 come: {min(found):.2f} x", min(found), 2, at_most=True)


def never_short(running, asked, answered, capacity):
    """Whether a request more never makes those that run need more than the pool has: [(tokens held, tokens to come)]."""
    all_of = sorted([*running, (asked, answered)], key=lambda r: r[1])
    for i, (_, left) in enumerate(all_of):  # just before one ends the rest have got as many tokens
        if sum(-(-(held + left) // 16) for held, _ in all_of[i:]) > capacity:
            return False
    return True


def oversubscribed(engine, *_):
    draw = random.Random(5)
    requests = [(prompt(draw, draw.randrange(200, 800)), draw.randrange(100, 500)) for _ in range(192)]
    mean = statistics.mean(len(p) + count for p, count in requests)
    pool = int(64 * mean / 1.5) * KEY_BYTES
    llm = engine.llm(
        "cuda:0", kv_bytes=pool, max_requests=64, max_sequence_tokens=1536, max_step_tokens=1024, prefix_cache=False
    )
    capacity, rates_of = llm.counters()["kv_blocks"], {}
    for name in ("warm", "lathe", "oracle"):  # the first makes the graphs of all sizes
        oracle = name == "oracle"
        before = llm.counters()
        waiting, running, begin, unfinished = list(enumerate(requests)), [], time.perf_counter(), 1
        while waiting or unfinished:
            held = (
                [(len(p) + a._result().token_count, count - a._result().token_count) for p, count, a in running]
                if oracle and waiting
                else []
            )
            while waiting:
                i, (p, count) = waiting[0]
                if oracle and (len(running) == 64 or not never_short(held, len(p), count, capacity)):
                    break
                running.append((p, count, llm.submit(p, count, temperature=1.0, seed=i)[0]))
                held.append((len(p), count))
                waiting.pop(0)
            unfinished = llm.step()
            if unfinished < len(running):
                running = [r for r in running if not r[2].finish]
        took = time.perf_counter() - begin
        counters = {key: value - before[key] for key, value in llm.counters().items()}
        rates_of[name] = sum(count for _, count in requests) / took
        print(
            f"{name:6} {took:.3f} s, {rates_of[name]:.0f} tokens a second, {counters['steps']} steps, preemptions {counters['preemptions']}, "
            f"computed {counters['computed_tokens']} tokens",
            flush=True,
        )
    ratio = rates_of["lathe"] / rates_of["oracle"]
    return judge(f"keys of 1.5 times the pool: {ratio:.3f} of the oracle's", ratio, 0.9)


def zipf(engine, copy, _):
    lengths = [max(32768 // n - 60, 100) for n in range(1, 65)]
    sides = {"lengths by Zipf": lengths, "as many, all alike": [sum(lengths) // 64] * 64, "16 each": [16] * 64}
    times = {}
    for name, wanted in sides.items():
        llm = engine.llm(
            "cuda:0",
            kv_bytes=6 << 30,
            max_requests=64,
            max_sequence_tokens=33024,
            max_step_tokens=2048,
            prefix_cache=False,
        )
        kept = [
            llm.submit(prompt(random.Random(i), length), 250, temperature=1.0, seed=i)[0]
            for i, length in enumerate(wanted)
        ]
        while any(not a._result().token_count for a in kept):
            llm.step()
        grown = sum(a._result().token_count for a in kept) if name != "16 each" else 0
        timed(llm, 10)
        times[name] = statistics.median(timed(llm, 40)), sum(wanted) + grown + 64 * 30 if name != "16 each" else 64 * 50
        del kept, llm
    bad = 0
    base, few = times.pop("16 each")
    for name, (seconds, keys) in times.items():
        bytes_ = (keys - few) * KEY_BYTES * 4 // LAYERS
        share = bytes_ / copy / (seconds - base)
        text = (
            f"64 sequences of {keys} tokens, {name}: {seconds * 1e6:.1f} us a step of four layers, {base * 1e6:.1f} with {few} "
            f"tokens; {bytes_ / 1e6:.0f} MB of keys at {share:.3f} of a copy"
        )
        bad += judge(text, share, 0.85) if "Zipf" in name else print(text, flush=True) or 0
    return bad


# ---- Requests that come by chance ---------------------------------------------------------------


def draw_requests(draw, count):
    def size(mean, low, high):
        return min(max(int(draw.lognormvariate(0, 0.7) * mean), low), high)

    return [(prompt(draw, size(400, 16, 2000)), size(100, 8, 500)) for _ in range(count)]


BUDGET, MOST, VLLM_BUDGET = 512, 64, 2048


def measured_costs(engine):
    llm = engine.llm(
        "cuda:0",
        kv_bytes=POOL,
        max_requests=MOST,
        max_sequence_tokens=4096,
        max_step_tokens=VLLM_BUDGET,
        prefix_cache=False,
    )
    counts, seconds = [16, 32, 64, 128, 256, 512, 1024, 2048], []
    for count in counts:
        for turn in range(5):
            answer = llm.submit(prompt(random.Random(count * 8 + turn), count), 1)[0]
            times = []
            while not answer.finish:
                times += timed(llm, 1)
            if turn == 1:
                seconds.append([])
            if turn:
                seconds[-1].append(sum(times))
    seconds = [statistics.median(s) for s in seconds]
    found = {}
    for length in (16, 1024):
        kept = [llm.submit(prompt(random.Random(i), length), 200, temperature=1.0, seed=i)[0] for i in range(64)]
        while any(not a._result().token_count for a in kept):
            llm.step()
        timed(llm, 5)
        found[length] = statistics.median(timed(llm, 40))
        del kept
    costs = serve_policies.Costs(counts, seconds, (found[1024] - found[16]) / (64 * 1008))
    print(
        "seconds of a step: "
        + ", ".join(f"{n} tokens {s * 1e3:.2f} ms" for n, s in zip(counts, seconds))
        + f"; a key {costs.of_key * 1e9:.1f} ns",
        flush=True,
    )
    return costs


def poisson(engine, *_):
    costs = measured_costs(engine)
    options = {
        "kv_bytes": POOL,
        "max_requests": MOST,
        "max_sequence_tokens": 4096,
        "max_step_tokens": BUDGET,
        "prefix_cache": False,
    }
    llm = engine.llm("cuda:0", **options)
    run_all(llm, draw_requests(random.Random(1), 100))
    took, _ = run_all(llm, draw_requests(random.Random(2), 200))
    capacity, blocks = 200 / took, llm.counters()["kv_blocks"]
    print(f"200 at once: {capacity:.1f} requests a second", flush=True)
    rows = []
    for load in (50, 80, 95):
        draw, at, arrivals = random.Random(load), 0.0, []
        for request in draw_requests(draw, int(9 * capacity * load / 100)):
            at += draw.expovariate(capacity * load / 100)
            arrivals.append((at, request))
        answers, begin, unfinished = [], time.perf_counter(), 0
        while len(answers) < len(arrivals) or unfinished:
            now = time.perf_counter() - begin
            while len(answers) < len(arrivals) and arrivals[len(answers)][0] <= now:
                p, count = arrivals[len(answers)][1]
                late = now - arrivals[len(answers)][0]
                answers.append((llm.submit(p, count, temperature=1.0, seed=len(answers))[0], late, count))
            unfinished = llm.step()
        found = [
            (
                a._result().first_token_ns / 1e9 + late,
                (a._result().last_token_ns - a._result().first_token_ns) / 1e9 / max(count - 1, 1),
            )
            for a, late, count in answers
        ]
        sizes = [(at, len(p), count) for at, (p, count) in arrivals]
        sides = {
            "lathe, measured": found,
            "lathe, simulated": serve_policies.simulate(
                serve_policies.lathe_policy(BUDGET, MOST, blocks), costs, sizes
            ),
            "vllm, simulated": serve_policies.simulate(
                serve_policies.vllm_policy(VLLM_BUDGET, MOST, blocks), costs, sizes
            ),
        }
        for side, values in sides.items():
            first, later = (serve_policies.percentiles(column) for column in zip(*values))
            rows.append((load, side, first, later))
            print(
                f"{load} % load, {len(values)} requests, {side:17} P50/95/99: to the first token "
                + "/".join(f"{v * 1e3:.1f}" for v in first)
                + " ms, each later one "
                + "/".join(f"{v * 1e3:.2f}" for v in later)
                + " ms",
                flush=True,
            )
        del answers
    with open(os.path.join(os.environ.get("OUT", "."), "poisson.svg"), "w", encoding="utf-8") as f:
        f.write(serve_policies.draw(rows))
    return 0


PARTS = {
    "batch": batch,
    "saturated": saturated,
    "prompts": prompts,
    "oversubscribed": oversubscribed,
    "zipf": zipf,
    "poisson": poisson,
}


def prepare(folder):
    import check_paged as made

    os.makedirs(folder, exist_ok=True)
    model = os.path.join(folder, "model.onnx")
    for name, layers in (("llama8b", LAYERS), ("llama8b-four", 4)):
        made.save_decoder(model, {**made.LLAMA_8B, "layers": layers})
        made.keep(
            made.compile_paged(
                model, os.path.join(folder, f"{name}.lathe"), "--target=sm_90a", f"--random-weights={made.SEED}"
            )
        )
    os.remove(model)


def run(folder, *parts):
    import torch
    from profile_steps import load

    torch.cuda.init()
    print(torch.cuda.get_device_name(), flush=True)
    copy, product = rates()
    torch.cuda.empty_cache()
    bad = 0
    for name in parts or PARTS:
        begin = time.perf_counter()
        bad += PARTS[name](load(folder, "llama8b-four" if name == "zipf" else "llama8b"), copy, product)
        print(f"  {name}: {time.perf_counter() - begin:.1f} s", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
