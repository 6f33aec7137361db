# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of torch on a GPU: read and written in place, behind the streams that write them, by threads and tasks.

`check_torch.py` needs a GPU, torch, and python-frontend with the runtime, the compiler and NVRTC; nothing to
prepare. A line for each claim; exit code 1 when one does not hold. The check of the order is also shown to fail where
nothing orders.
"""
import asyncio
import contextlib
import importlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "python-frontend"))
import torch  # noqa: E402

import lathe  # noqa: E402
import lathe.torch  # noqa: E402
from lathe.torch._call import target_of  # noqa: E402

COPIES = ("bytes_to_device", "bytes_from_device", "bytes_staged")
SLEEP = 3_000_000  # cycles that a stream is behind
SECOND = """
import time, torch, lathe.torch
with torch.no_grad():
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2, device="cuda"))
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda().eval()
    x = torch.ones(3, 64, device="cuda")
    net(x)
    fast = torch.compile(net, backend="lathe", dynamic=True)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    fast(x)
    torch.cuda.synchronize()
    print(time.perf_counter() - begin)
"""
wrong = []


def claim(what, holds, said=""):
    print(f"{'ok   ' if holds else 'WRONG'} {what}{': ' if said else ''}{said}", flush=True)
    if not holds:
        wrong.append(what)


def near(got, want):
    return got.shape == want.shape and torch.allclose(got, want, rtol=1e-4, atol=1e-4)


def copied(counters):
    return sum(counters[name] for name in COPIES)


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda().eval()


class Unordered:
    """A tensor whose readers are told of no stream."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None, **kwargs):
        return self.tensor.__dlpack__(stream=-1, **kwargs)


def in_place(net, engine, context):
    x = torch.randn(5, 64, device="cuda")
    context.run([x], memory="device")
    context.reset_counters()
    right = True
    for rows in (5, 1, 17, 64):
        x = torch.randn(rows, 64, device="cuda")
        results = context.run([x], memory="device")
        right &= near(torch.from_dlpack(next(iter(results.values()))), net(x))
    claim("results of CUDA tensors are torch's", right)
    claim("bytes copied between host and device in 4 runs", not copied(context.counters), str(copied(context.counters)))
    x, y = torch.randn(9, 64, device="cuda"), torch.empty(9, 64, device="cuda")
    bound = context.bind([x], {engine.outputs()[0].name: y})
    bound()
    context.reset_counters()
    x.copy_(torch.randn(9, 64, device="cuda"))
    torch.cuda.synchronize()
    bound()
    claim("bound CUDA tensors are read and written in place", near(y, net(x)) and copied(context.counters) == 0)


def other_libraries(net, context):
    """Arrays of cupy and jax, where they are installed: read in place, and results become theirs without a copy."""
    x = torch.randn(7, 64, device="cuda")
    true = net(x)
    torch.cuda.synchronize()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    for name, module in (("cupy", "cupy"), ("jax", "jax.dlpack")):
        try:
            library = importlib.import_module(module)
        except ImportError:
            print(f"-     {name} is not installed", flush=True)
            continue
        try:
            given = library.from_dlpack(x)
            context.run([given], memory="device")
            context.reset_counters()
            result = next(iter(context.run([given], memory="device").values()))
            theirs = library.from_dlpack(result)
            right = type(theirs).__module__.split(".")[0].startswith(name) and near(torch.from_dlpack(theirs), true)
            claim(f"arrays of {name} in and out", right and not copied(context.counters),
                  f"{copied(context.counters)} bytes copied")
        except Exception as problem:
            claim(f"arrays of {name} in and out", False, f"{type(problem).__name__}: {problem}")


def ordered(net, context):
    """x is written by a stream that is far behind when the run is called."""
    x = torch.zeros(8, 64, device="cuda")
    fresh = [torch.randn(8, 64, device="cuda") for _ in range(10)]
    want = [net(value) for value in fresh]
    side = torch.cuda.Stream()

    def stale(call, current):
        """Of ten runs those that read what was there before. `current`: whether the writer's stream is that of the
        thread that calls."""
        count = 0
        for value, true in zip(fresh, want):
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                torch.cuda._sleep(SLEEP)
                x.copy_(value)
            with torch.cuda.stream(side) if current else contextlib.nullcontext():
                results = call()
            count += not near(torch.from_dlpack(next(iter(results.values()))), true)
        return count

    ways = {
        "run": (lambda: context.run([x], memory="device"), True),
        "submit": (lambda: context.submit([x], memory="device").wait(), True),
        "run_async": (lambda: asyncio.run(context.run_async([x], memory="device")), True),
        "run_async(stream=)": (lambda: asyncio.run(context.run_async([x], memory="device", stream=side)), False),
        "submit(stream=)": (lambda: context.submit([x], memory="device", stream=side.cuda_stream).wait(), False)}
    for name, (call, current) in ways.items():
        count = stale(call, current)
        claim(f"{name} is behind the stream that writes its input", count == 0, f"{count} of 10 stale")
    count = stale(lambda: context.run([Unordered(x)], memory="device"), True)
    claim("that is seen where nothing orders", count > 0, f"{count} of 10 stale")


def requests(context, net):
    inputs = [torch.randn(1 + i % 7, 64, device="cuda") for i in range(1000)]
    turns = 0

    async def main():
        nonlocal turns
        done = asyncio.Event()

        async def turn():
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(turn())
        results = await asyncio.gather(*(context.run_async([x], memory="device") for x in inputs))
        done.set()
        await other
        return results

    context.run([inputs[6]], memory="device")
    context.reset_counters()
    begin = time.perf_counter()
    results = asyncio.run(main())
    seconds = time.perf_counter() - begin
    right = all(near(torch.from_dlpack(next(iter(r.values()))), net(x)) for r, x in zip(results, inputs))
    claim("1,000 asyncio requests", right and copied(context.counters) == 0,
          f"{seconds:.2f} s, {turns} turns of the loop beside them, {copied(context.counters)} bytes copied")


def lock_is_free(target):
    """Another thread of Python works on while a long run computes."""
    program = torch.export.export(torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda().eval(),
                                  (torch.ones(4096, 4096, device="cuda"),))
    context = lathe.compile(program, target=target).context("cuda:0")
    x = torch.ones(4096, 4096, device="cuda")
    context.run([x], memory="device")
    running, gaps = threading.Event(), []

    def work():
        running.set()
        for _ in range(3):
            context.run([x], memory="device")
        running.clear()

    thread = threading.Thread(target=work)
    begin = time.perf_counter()
    thread.start()
    running.wait()
    last = time.perf_counter()
    while running.is_set():
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    thread.join()
    each = (time.perf_counter() - begin) / 3
    claim("the interpreter's lock is free while a run computes", max(gaps) < each / 2,
          f"longest gap {1e3 * max(gaps):.1f} ms beside runs of {1e3 * each:.0f} ms")


def threads(net):
    fast, wrong_of = torch.compile(net, backend=counted, dynamic=True), []
    with torch.no_grad():
        fast(torch.randn(4, 64, device="cuda"))
        fast(torch.randn(5, 64, device="cuda"))

    def work(seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                x = torch.randn(2 + seed % 9, 64, device="cuda", generator=generator)
                if not near(fast(x), net(x)):
                    wrong_of.append(seed)

    for context in (c for made in MADE for c in made.contexts):
        context.reset_counters()
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    contexts = [c for made in MADE for c in made.contexts]
    claim("32 threads with streams of their own share a compiled module", not wrong_of,
          f"640 calls, {len(contexts)} engine, {sum(copied(c.counters) for c in contexts)} bytes copied")
    claim("one engine, nothing copied", len(contexts) == 1 and not sum(copied(c.counters) for c in contexts))
    with torch.no_grad():
        x = torch.randn(6, 64, device="cuda")
        net[0].weight.mul_(1.5)
        claim("a parameter changed in place is seen", near(fast(x), net(x)))
        net.load_state_dict({name: value * 0.5 for name, value in net.state_dict().items()})
        claim("load_state_dict is seen", near(fast(x), net(x)))
        x = torch.randn(64, 6, device="cuda").t()
        claim("a compiled module takes tensors that are not row-major", near(fast(x), net(x)))
        conv = torch.nn.Conv2d(8, 16, 3).cuda().eval().to(memory_format=torch.channels_last)
        images = torch.randn(2, 8, 9, 9, device="cuda").to(memory_format=torch.channels_last)
        claim("filters and images with channels last", near(torch.compile(conv, backend="lathe")(images), conv(images)))


MADE = []


def counted(graph, examples):
    MADE.append(lathe.torch.backend(graph, examples))
    return MADE[-1]


def mistakes(context, on_cpu):
    def emptied():
        tensor = torch.ones(2, 64, device="cuda")
        tensor.untyped_storage().resize_(0)
        return tensor

    cases = {"of the GPU, for a context of the CPU": (on_cpu, lambda: torch.ones(2, 64, device="cuda")),
             "freed": (context, emptied), "of float64": (context, lambda: torch.ones(2, 64, device="cuda").double()),
             "of another rank": (context, lambda: torch.ones(64, device="cuda")),
             "that is not row-major": (context, lambda: torch.ones(64, 2, device="cuda").t())}
    if torch.cuda.device_count() > 1:
        cases["of another GPU"] = (context, lambda: torch.ones(2, 64, device="cuda:1"))
    for name, (of, make) in cases.items():
        try:
            of.run([make()])
            claim(f"a tensor {name} is an error", False)
        except lathe.Error as error:
            claim(f"a tensor {name} is an error", error.location.startswith("input '"), str(error).splitlines()[0])


def second_process():
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LATHE_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        seconds = [float(subprocess.run([sys.executable, "-c", SECOND], env=environment, check=True,
                                        capture_output=True, text=True).stdout.split()[-1]) for _ in range(3)]
    later = statistics.median(seconds[1:])
    claim("a second process starts from the cache within 1 s", later <= 1, f"{seconds[0]:.2f} s, then {later:.2f} s")


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    target = target_of(torch.device("cuda", 0))
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    with torch.no_grad():
        net = network()
        program = torch.export.export(net, (torch.ones(4, 64, device="cuda"),),
                                      dynamic_shapes=({0: torch.export.Dim("N", min=1, max=64)},))
        engine = lathe.compile(program, target=f"native,{target}")
        context = engine.context("cuda:0")
        in_place(net, engine, context)
        ordered(net, context)
        requests(context, net)
        mistakes(context, engine.context("cpu"))
        lock_is_free(target)
        other_libraries(net, context)
    threads(net)
    second_process()
    print(f"{len(wrong)} wrong", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
