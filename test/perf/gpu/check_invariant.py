# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines of --batch-invariant on a GPU: the same bits in random schedules, and what that costs.

`check_invariant.py prepare FOLDER` needs a build of lathe and onnx.
`check_invariant.py run FOLDER [COUNT [SECONDS [FIRST]]]` needs a GPU, torch, python-frontend with the runtime library, and for the costs
llama8b.lathe.gz of `check_paged.py prepare`, in the same folder.

A decoder of two small layers in bf16 gives tokens and logprobs of requests in so many random schedules (test/models/schedules.py), or
as many as fit into the seconds, from number FIRST on, with graphs and without; all are bit for bit those of the request alone. The costs are those of a
step of Llama-3-8B's sizes with 1 and 64 sequences of 1,024 tokens, and of a prompt of 2,048; bars are 20 % and 35 %.
"""
import os
import random
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.environ.get("LATHE_ROOT", os.path.join(HERE, "..", "..", "..")), "test", "models")]

DECODE, PREFILL = 1.20, 1.35


def prepare(folder):
    import check_paged
    os.makedirs(folder, exist_ok=True)
    for name, sizes in (("halves", check_paged.HALVES), ("llama8b", check_paged.LLAMA_8B)):
        model = os.path.join(folder, "model.onnx")
        check_paged.save_decoder(model, sizes)
        check_paged.keep(check_paged.compile_paged(model, os.path.join(folder, f"{name}-invariant.lathe"), "--target=sm_90a",
                                                   "--batch-invariant", f"--random-weights={check_paged.SEED}"))
        os.remove(model)


def schedules(folder, count, seconds, first):
    from profile_steps import load
    from schedules import alone_of, draw_requests, run_schedule
    block_bytes = 2 * 2 * 16 * 2 * 32 * 2  # layers, keys and values, tokens, heads, numbers of a head, bf16
    engine, rows, totals, wrong, begin, done = load(folder, "halves-invariant"), draw_requests(), {}, 0, time.monotonic(), 0
    alone = alone_of(engine, rows, "cuda:0", batch_invariant=True)
    for seed in range(first, first + count):
        if time.monotonic() - begin > seconds:
            break
        try:
            run_schedule(engine, rows, alone, random.Random(seed), totals, block_bytes, "cuda:0", batch_invariant=True,
                         graphs=seed % 2 == 0)
        except AssertionError as problem:
            wrong += 1
            print(f"schedule {seed}: {problem}  WRONG", flush=True)
        done += 1
    print(f"{done} schedules in {time.monotonic() - begin:.1f} s, {wrong} wrong; " +
          ", ".join(f"{name} {totals.get(name, 0)}" for name in ("finished", "steps", "prompt_hits", "preemptions", "swaps")), flush=True)
    return wrong


def costs(folder):
    from profile_steps import load, wall, warm
    engines = {name: load(folder, name) for name in ("llama8b", "llama8b-invariant")}
    bad = 0

    def judge(what, times, bar):
        t = {name: statistics.median(v) * 1e3 for name, v in times.items()}
        ratio = t["llama8b-invariant"] / t["llama8b"]
        print(f"{what:34} {t['llama8b']:8.3f} ms, batch-invariant {t['llama8b-invariant']:8.3f} ms: {ratio:.3f}, bar {bar:.2f}"
              f"{'  ABOVE' if ratio > bar else ''}", flush=True)
        return ratio > bar
    for sequences in (1, 64):
        sides = {name: warm(engine, sequences, 1024, 60 + 4 * sequences, kv_bytes=(1 + sequences // 4) << 30,
                            max_sequence_tokens=2048, max_step_tokens=512) for name, engine in engines.items()}
        times = {name: [] for name in sides}
        for _ in range(6):
            for name, (llm, _) in sides.items():
                times[name] += wall(llm, 5)
        bad += judge(f"{sequences} sequences of 1,024 tokens", {name: v[5:] for name, v in times.items()}, DECODE)
        del sides, llm
    sides = {name: engine.llm("cuda:0", max_requests=2, kv_bytes=2 << 30, max_sequence_tokens=4096, max_step_tokens=2048,
                              prefix_cache=False, overlap=False) for name, engine in engines.items()}
    times = {name: [] for name in sides}
    for i in range(8):
        for name, llm in sides.items():
            answer = llm.submit([(n * 17 + i * 7 + 3) % 500 for n in range(2048)], 1)[0]
            times[name] += wall(llm, 1)
            assert answer.finish == "length"
    return bad + judge("a prompt of 2,048", {name: v[2:] for name, v in times.items()}, PREFILL)


def run(folder, count="1000", seconds="60", first="0"):
    import torch
    torch.cuda.init()
    print(torch.cuda.get_device_name(), flush=True)
    wrong = schedules(folder, int(count), float(seconds), int(first))
    return (wrong + costs(folder)) > 0


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run}[sys.argv[1]](*sys.argv[2:]) or 0)
