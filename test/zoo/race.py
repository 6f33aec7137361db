# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe") against torch's inductor and against torch without a compiler, family by family.

Each side of a family is a process of its own, pinned to the cores of the family, with caches of its own that hold
nothing of it: what a backend does once (inductor's precompiled headers) is done by another function first. The sides
give their first results one after the other, then take turns: a round is some calls of each side, and a ratio is the
median of the rounds' ratios. A row is a family, form and side; the rounds stand in it as they were measured. Forms: `any` is dynamic=True
of both compilers, `static` dynamic=False.
"""
import contextlib
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time

import zoo

COLUMNS = ["family", "device", "form", "side", "first_s", "error", "copied", "rounds_ms", "said"]
SIDES = ["eager", "inductor", "lathe"]
ROUNDS = 7


class Side:
    """One side of a family, in its own process: `first`, `round`."""

    def __init__(self, family, side, device, form, threads, folder):
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"),
                          LATHE_CACHE_DIR=os.path.join(folder, "lathe"))
        import torch

        import families
        torch.set_num_threads(threads)
        torch.backends.cudnn.allow_tf32 = False  # all sides compute in f32
        self.torch, self.device, self.side = torch, device, side
        self.compiled, dynamic = [], form == "any"
        if side != "eager":
            small = torch.compile(lambda x: torch.relu(x @ x) + 1, backend=self.backend(), dynamic=dynamic)
            small(torch.ones(3, 3, device=device))
            torch._dynamo.reset()
            self.compiled.clear()
        if family is None:
            return
        self.module, inputs, _ = families.FAMILIES[family]()
        self.module.to(device)
        self.inputs = [x.to(device) for x in inputs.values()]
        self.true = self.module(*self.inputs)  # also loads what eager torch loads once
        self.call = self.module if side == "eager" else torch.compile(self.module, backend=self.backend(),
                                                                      dynamic=dynamic)

    def backend(self):
        if self.side == "inductor":
            return "inductor"
        import lathe.torch

        def counted(graph, examples):
            self.compiled.append(lathe.torch.backend(graph, examples))
            return self.compiled[-1]

        return counted

    def finish(self):
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def once(self):
        begin = time.perf_counter()
        got = self.call(*self.inputs)
        self.finish()
        return time.perf_counter() - begin, got

    def first(self):
        seconds, got = self.once()
        error = max((zoo.error_of(e.cpu().numpy(), y.cpu().numpy()) for e, y in zip(self.true, got)), default=math.inf)
        return {"first_s": round(seconds, 3), "error": f"{error:.1e}",
                "said": f"differs from torch by {error:.1e}" if error > zoo.BAR else ""}

    def round(self, seconds):
        """The median of a round's calls in ms, and bytes that were copied to or from a device in one call."""
        self.once()
        times, end = [], time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            times.append(self.once()[0])
        contexts = [c for made in self.compiled for c in made.contexts]
        for context in contexts:
            context.reset_counters()
        self.once()
        copied = sum(c.counters[n] for c in contexts for n in ("bytes_to_device", "bytes_from_device", "bytes_staged"))
        return {"ms": round(1e3 * statistics.median(times), 4), "copied": copied if self.side == "lathe" else ""}


def serve(pipe, cores, *arguments):
    """What the process of a side does: answers each request with a dict; `said` is what went wrong."""
    import torch_zoo
    if cores:
        os.sched_setaffinity(0, cores)
    with torch_zoo.quiet():
        try:
            import torch
            with torch.no_grad():
                side = Side(*arguments)
                pipe.send({})
                while request := pipe.recv():
                    verb, *arguments = request
                    pipe.send(getattr(side, verb)(*arguments))
        except EOFError:
            pass
        except Exception as problem:
            pipe.send({"said": torch_zoo.said(torch_zoo.cause(problem))})


class Child:
    """A side as the parent sees it."""

    def __init__(self, cores, *arguments):
        self.pipe, other = zoo.FORKS.Pipe()
        self.process = zoo.FORKS.Process(target=serve, args=(other, cores, *arguments))
        self.process.start()
        other.close()

    def answer(self, seconds):
        try:
            if self.pipe.poll(max(seconds, 0)):
                return self.pipe.recv()
            return {"said": f"more than {seconds:.0f} s"}
        except (EOFError, OSError):
            return {"said": "the process ended"}

    def ask(self, seconds, verb, *arguments):
        with contextlib.suppress(OSError):
            self.pipe.send((verb, *arguments))
        return self.answer(seconds)

    def end(self):
        with contextlib.suppress(OSError):
            self.pipe.send(())
        self.process.join(2)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def race_one(family, device, form, cores, threads, seconds, round_seconds, warm, alone):
    """The rows of a family. `warm`: a folder with the caches of what backends do once; `alone`: a lock that is held
    while latencies are measured, because families share the device."""
    named = {"family": family, "device": device, "form": form}
    rows = {side: dict.fromkeys(COLUMNS, "") | named | {"side": side} for side in SIDES}
    children = {}
    with tempfile.TemporaryDirectory(prefix="lathe-race") as folder:
        try:
            for side in SIDES:
                own = os.path.join(folder, side)
                shutil.copytree(warm, own)
                children[side] = Child(cores, family, side, device, form, threads, own)
                for answer in (children[side].answer(seconds), children[side].ask(seconds, "first")):
                    rows[side].update(answer)
                    if answer.get("said"):
                        break
            racing = [side for side in SIDES if not rows[side]["said"]]
            rounds = {side: [] for side in racing}
            with alone:
                for _ in range(ROUNDS):
                    for side in racing:
                        answer = children[side].ask(seconds, "round", round_seconds)
                        rows[side]["said"] = rows[side]["said"] or answer.get("said", "")
                        rounds[side].append(answer.get("ms", math.nan))
                        rows[side]["copied"] = answer.get("copied", "")
            for side in racing:
                rows[side]["rounds_ms"] = ",".join(map(str, rounds[side]))
        finally:
            for child in children.values():
                child.end()
    return list(rows.values())


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [dict(zip(COLUMNS, line.rstrip("\n").split("\t"))) for line in f if not line.startswith("#")]


def race(names, log, device, forms, jobs, cores_each, seconds, round_seconds, budget):
    """`jobs` families at a time, each on `cores_each` cores; no family is begun when `budget` seconds are over."""
    done = {(r["family"], r["device"], r["form"]) for r in rows_of(log) if r["side"] == SIDES[-1]}
    tasks = [(name, form) for form in forms for name in names if (name, device, form) not in done]
    every = sorted(os.sched_getaffinity(0))
    jobs = min(jobs, max(len(every) // cores_each, 1), max(len(tasks), 1))
    zoo.FORKS.set_forkserver_preload(["torch", "transformers", "numpy", "families"])
    begin, total, lock = time.perf_counter(), len(tasks), threading.Lock()
    alone = threading.Lock() if device != "cpu" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="lathe-race") as warm, open(log, "a") as out:
        # Their caches hold afterwards what is done once, whatever the form.
        children = {side: Child(set(every[at * cores_each:(at + 1) * cores_each] or every), None, side, device, forms[0],
                                cores_each, warm) for at, side in enumerate(SIDES[1:])}
        for side, child in children.items():
            said = child.answer(seconds).get("said")
            child.end()
            print(f"{side} on {device}: {said or 'ready'} after {time.perf_counter() - begin:.0f} s", flush=True)

        def work(at):
            cores = set(every[at * cores_each:(at + 1) * cores_each])
            while True:
                with lock:
                    if not tasks or time.perf_counter() - begin > budget:
                        return
                    family, form = tasks.pop(0)
                try:
                    rows = race_one(family, device, form, cores, cores_each, seconds, round_seconds, warm, alone)
                except Exception as problem:
                    print(f"{family}, {form}: {problem!r}", flush=True)
                    continue
                with lock:
                    for row in rows:
                        out.write("\t".join(str(row[c]) for c in COLUMNS) + "\n")
                    out.flush()
                    print(f"{total - len(tasks)}/{total}", f"{family}, {form}", json.dumps(compared(rows) or
                          {r["side"]: r["said"] for r in rows}), flush=True)

        threads = [threading.Thread(target=work, args=(at,)) for at in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def compared(rows):
    """Of the rows of a family: seconds to the first result, latencies in ms and ratios; None where a side failed."""
    sides = {r["side"]: r for r in rows}
    if len(sides) < len(SIDES) or any(r["said"] or not r["rounds_ms"] for r in sides.values()):
        return None
    rounds = {side: [float(x) for x in r["rounds_ms"].split(",")] for side, r in sides.items()}
    first = {side: float(r["first_s"]) for side, r in sides.items()}
    ratios = [a / b for a, b in zip(rounds["lathe"], rounds["inductor"])]
    return {"first_ratio": round(first["lathe"] / first["inductor"], 3), "first_s": first["lathe"],
            "latency_ratio": round(statistics.median(ratios), 3), "ms": statistics.median(rounds["lathe"]),
            "inductor_ms": statistics.median(rounds["inductor"]), "eager_ms": statistics.median(rounds["eager"])}


def latencies(rows):
    """Of the rows of a family: the median of each side that raced, in ms."""
    return {r["side"]: statistics.median(map(float, r["rounds_ms"].split(","))) for r in rows
            if r["rounds_ms"] and not r["said"]}


def table(path, names):
    """Prints what was measured, what went wrong, and which of `names` have not been raced."""
    every = rows_of(path)
    for device, form in sorted({(r["device"], r["form"]) for r in every}):
        rows = [r for r in every if (r["device"], r["form"]) == (device, form)]
        families = list(dict.fromkeys(r["family"] for r in rows))
        found = {f: compared([r for r in rows if r["family"] == f]) for f in families}
        raced = {f: c for f, c in found.items() if c}
        print(f"{device}, {form}: {len(raced)} of {len(families)} families raced")
        for row in (r for r in rows if r["said"]):
            print(f"  {row['family']}, {row['side']}: {row['said']}")
        for family in (f for f in families if f not in raced):
            ms = latencies([r for r in rows if r["family"] == family])
            if {"lathe", "eager"} <= ms.keys():
                print(f"  {family} without inductor: {ms['lathe']:.3f} ms, / eager {ms['lathe'] / ms['eager']:.3f}")
        if left := [name for name in names if name not in families]:
            print(f"  not raced yet: {', '.join(left)}")
        if not raced:
            continue
        width = max(map(len, raced)) + 2
        print(f"  {'':{width}}first s   / inductor   latency ms   / inductor   / eager")
        for family, c in raced.items():
            print(f"  {family:{width}}{c['first_s']:7.2f}   {c['first_ratio']:10.3f}   {c['ms']:10.3f}   "
                  f"{c['latency_ratio']:10.3f}   {c['ms'] / c['eager_ms']:7.3f}")
        for key, what, bar in (("first_ratio", "seconds to the first result", 0.5), ("latency_ratio", "latency", 1)):
            ratios = [c[key] for c in raced.values()]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"  {what}, lathe / inductor: geometric mean {mean:.3f}, worst {max(ratios):.3f}, "
                  f"above {bar}: {sum(r > bar for r in ratios)}")
    return 0 if every else sys.exit(f"{path} has no rows")
