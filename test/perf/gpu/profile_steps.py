# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the time of a step of a paged decoder goes: the kernels, and the host.

`profile_steps.py FOLDER [host] [kernels[:SEQUENCES,...]] [prompt]` needs a GPU, torch, python-frontend with the runtime library,
and the folder that `check_paged.py prepare` wrote.

host     the decoder of two small layers with 1, 64, 256 and 1,024 sequences that generate: the median step, and of it what is
         the host's - schedule, blocks, upload, launch, stops - and no wait for the GPU (12, 25, 50 and 180 us); then, by a
         profile of the same steps, what the GPU works
kernels  Llama-3-8B's sizes with 1 and 64 sequences of 1,024 tokens: the same, and what each kernel takes
prompt   the same for the first step of one prompt of 512 and of 2,048 tokens
"""
import collections
import gzip
import json
import os
import re
import statistics
import sys
import tempfile
import time

ROOT = os.environ.get("LATHE_ROOT", os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe  # noqa: E402


def load(folder, name):
    with gzip.open(os.path.join(folder, name + ".lathe.gz")) as f, tempfile.NamedTemporaryFile(suffix=".lathe") as out:
        out.write(f.read())
        out.flush()
        return lathe.load(out.name)


def wall(llm, count):
    """Seconds of each of so many steps."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        llm.step()
        times.append(time.perf_counter() - begin)
    return times


def activity(llm, count):
    """[(name, begin, end)] in us of what a GPU did in so many steps, by CUPTI, in order."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        wall(llm, count)
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "trace.json")
        found.export_chrome_trace(path)
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    return sorted(((e["name"], e["ts"], e["ts"] + e["dur"]) for e in events
                   if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e[1])


def summary(events, steps):
    """(us of work in a step, median us of rest between steps, {kernel: (launches, us) in a step})."""
    work = sum(end - begin for _, begin, end in events) / steps
    rests = sorted((b[1] - a[2] for a, b in zip(events, events[1:])), reverse=True)[:max(steps - 1, 1)]
    by = collections.defaultdict(lambda: [0, 0.0])
    for name, begin, end in events:
        by[name][0] += 1 / steps
        by[name][1] += (end - begin) / steps
    return work, statistics.median(rests), by


def show(title, times, events, steps, names):
    work, rest, by = summary(events, steps)
    took = statistics.median(times) * 1e6
    print(f"{title}: {took:9.1f} us a step, the fastest {min(times) * 1e6:9.1f}; the GPU works {work:9.1f}, the rest is {took - work:7.1f}; "
          f"{rest:.1f} between steps under the profiler", flush=True)
    for name, (count, us) in sorted(by.items(), key=lambda e: -e[1][1])[:names]:
        print(f"    {us:9.1f} us  {count:6.1f} x  {re.sub(r'[(<].*', '', name)[:90]}", flush=True)


def warm(engine, sequences, prompt, answer, **options):
    """An llm whose sequences all generate."""
    llm = engine.llm("cuda:0", max_requests=sequences, **options)
    vocabulary = 500
    answers = [llm.submit([(i * 31 + n * 17 + 3) % vocabulary for n in range(prompt)], answer)[0]
               for i in range(sequences)]
    while any(not a._result().token_count for a in answers):
        llm.step()
    return llm, answers


def working(llm, count):
    """Seconds of each of so many steps in which the host does not wait for the GPU."""
    times, waited = [], llm.counters()["waited_ns"]
    for _ in range(count):
        begin = time.perf_counter()
        llm.step()
        took, before = time.perf_counter() - begin, waited
        waited = llm.counters()["waited_ns"]
        times.append(took - (waited - before) / 1e9)
    return times


def host(folder):
    engine = load(folder, "halves")
    for sequences, bar in ((1, 12), (64, 25), (256, 50), (1024, 180)):
        llm, answers = warm(engine, sequences, 8, 200, kv_bytes=512 << 20, max_sequence_tokens=256,
                            max_step_tokens=max(1024, sequences))
        wall(llm, 20)
        own = statistics.median(working(llm, 60)) * 1e6
        print(f"host     {sequences:5} sequences: {own:9.1f} us of a step are the host's, bar {bar}{'  ABOVE' if own > bar else ''}", flush=True)
        times = wall(llm, 60)
        show(f"host     {sequences:5} sequences", times, activity(llm, 20), 20, 4)
        del answers


def kernels(folder, counts="1,64"):
    engine = load(folder, "llama8b")
    for sequences in map(int, counts.split(",")):
        llm, answers = warm(engine, sequences, 1024, 80 + 4 * sequences, kv_bytes=(1 + sequences // 4) << 30,
                            max_sequence_tokens=2048, max_step_tokens=512)
        wall(llm, 5)
        times = wall(llm, 30)
        show(f"llama8b  {sequences:5} sequences", times, activity(llm, 5), 5, 30)
        del answers, llm


def prompt(folder):
    engine = load(folder, "llama8b")
    llm = engine.llm("cuda:0", max_requests=2, kv_bytes=2 << 30, max_sequence_tokens=4096, max_step_tokens=2048,
                     prefix_cache=False, overlap=False)
    for length in (512, 2048):
        def ask(salt):
            return llm.submit([(n * 17 + salt * 7 + 3) % 500 for n in range(length)], 1)[0]
        times = []
        for i in range(6):
            answer = ask(i)
            times += wall(llm, 1)
            assert answer.finish == "length"
        answer = ask(9)
        show(f"llama8b  a prompt of {length}", times[1:], activity(llm, 1), 1, 30)


if __name__ == "__main__":
    import torch
    torch.cuda.init()
    print(torch.cuda.get_device_name(), flush=True)
    for part in sys.argv[2:] or ["host", "kernels", "prompt"]:
        name, _, how = part.partition(":")
        {"host": host, "kernels": kernels, "prompt": prompt}[name](sys.argv[1], *([how] if how else []))
