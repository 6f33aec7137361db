# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that are launched before the tokens of the ones before have come, against steps that wait.

`race_overlap.py prepare FOLDER` needs a build and onnx.
`race_overlap.py run FOLDER [llama8b]` needs a GPU, torch, and python-frontend with the runtime library. Exit code 1 when an
answer differs.

Of a decoder of two small layers: the answers of 100 requests both ways, bit for bit (--batch-invariant) - greedy and drawn,
with penalties, logprobs, stop tokens, samples, and with a pool that is too small for all - and the median time of a step
with 1, 64, 256 and 1,024 sequences that generate, which is the host's nearly alone. With `llama8b`, of Llama-3-8B's sizes,
the time with 1, 16 and 64 sequences of 1,024 tokens. Both ways in turn, three times.
"""
import os
import random
import statistics
import sys

WAYS = {"waits": False, "overlaps": True}


def requests():
    draw = random.Random(3)
    rows = []
    for i in range(100):
        row = dict(tokens=[draw.randrange(500) for _ in range(draw.randrange(1, 60))], max_tokens=draw.randrange(1, 60), seed=i)
        if i % 3:
            row.update(temperature=1.5, top_k=draw.choice([0, 20]), frequency_penalty=draw.choice([0.0, 0.4]))
        if i % 4 == 0:
            row.update(logprobs=2)
        if i % 5 == 0:
            row.update(stop_tokens=[draw.randrange(500) for _ in range(40)])
        if i % 25 == 7:
            row.update(samples=3, temperature=1.0)
        rows.append(row)
    return rows


def answers(engine, overlap, **options):
    llm = engine.llm("cuda:0", overlap=overlap, **options)
    asked = [(row, answer) for row in requests() for answer in llm.submit(**row)]
    llm.run()
    return [(a.tokens, a.finish, a.logprobs() if "logprobs" in row else None) for row, a in asked], llm.counters()


def check(engine):
    right = True
    for name, options in (("room for all", dict(kv_bytes=256 << 20, max_step_tokens=128, max_requests=64)),
                          ("few pages", dict(kv_bytes=600 << 10, max_step_tokens=40, max_requests=16,
                                             max_sequence_tokens=128)),
                          ("swapped", dict(kv_bytes=600 << 10, max_step_tokens=40, max_requests=16,
                                           max_sequence_tokens=128, swap_bytes=4 << 20))):
        found = {way: answers(engine, overlap, **options) for way, overlap in WAYS.items()}
        same = sum(a == b for a, b in zip(found["waits"][0], found["overlaps"][0]))
        count = len(found["waits"][0])
        right &= same == count
        steps = {way: counters["steps"] for way, (_, counters) in found.items()}
        print(f"{name:14} {same} of {count} answers are the same; steps {steps}, preemptions "
              f"{found['overlaps'][1]['preemptions']}{'' if same == count else '  WRONG'}", flush=True)
    return right


def time_of(engine, overlap, sequences, prompt, count, **options):
    import torch
    from profile_steps import wall, warm
    llm, kept = warm(engine, sequences, prompt, count + 80 + 4 * (prompt > 100) * sequences, overlap=overlap, **options)
    for _ in range(20):
        llm.step()
    torch.cuda.synchronize()
    times = wall(llm, count)
    del kept
    return statistics.median(times) * 1e6


def race(title, engine, sequences, prompt, count, **options):
    found = {way: [] for way in WAYS}
    for _ in range(3):
        for way, overlap in WAYS.items():
            found[way].append(time_of(engine, overlap, sequences, prompt, count, **options))
    best = {way: statistics.median(times) for way, times in found.items()}
    print(f"{title} {sequences:5} sequences: {best['waits']:9.1f} us a step that waits, {best['overlaps']:9.1f} overlapping: "
          f"{best['waits'] / best['overlaps']:.3f} x", flush=True)


def prepare(folder):
    import check_paged as made
    os.makedirs(folder, exist_ok=True)
    model, seed = os.path.join(folder, "model.onnx"), f"--random-weights={made.SEED}"
    made.save_decoder(model, made.HALVES)
    for name, more in (("halves", []), ("invariant", ["--batch-invariant"])):
        made.keep(made.compile_paged(model, os.path.join(folder, f"{name}.lathe"), "--target=sm_90a", seed, *more))
    made.save_decoder(model, made.LLAMA_8B)
    made.keep(made.compile_paged(model, os.path.join(folder, "llama8b.lathe"), "--target=sm_90a", seed))
    os.remove(model)


def run(folder, *parts):
    import torch
    from profile_steps import load
    torch.cuda.init()
    print(torch.cuda.get_device_name(), flush=True)
    right = check(load(folder, "invariant"))
    halves = load(folder, "halves")
    for sequences in (1, 64, 256, 1024):
        race("small  ", halves, sequences, 8, 100, kv_bytes=512 << 20, max_sequence_tokens=256,
             max_step_tokens=max(1024, sequences))
    if "llama8b" in parts:
        llama = load(folder, "llama8b")
        for sequences in (64, 1, 16):
            race("llama8b", llama, sequences, 1024, 30, kv_bytes=(1 + sequences // 4) << 30, max_sequence_tokens=2048,
                 max_step_tokens=512)
    return not right


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
