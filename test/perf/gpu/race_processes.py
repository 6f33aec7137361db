# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks on GPUs that are processes: the bits of ranks of one process, times of a step beside theirs, and ranks that are killed.

`race_processes.py FOLDER [check] [race] [kill]` needs the engines of race_tp.py's `prepare FOLDER`, as many GPUs as ranks,
numpy, python-frontend and the runtime library (LATHE_RUNTIME_LIBRARY, liblathe_tcp.so beside it). Exit code 1 when something is wrong.

kill: decoders run prompts and steps without a pause, in every other round without graphs, and one process gets SIGKILL, or in the last rounds SIGSTOP, wherever it is. A
row: which, seconds until the last of the others has its error, seconds until a new world with another process in the place of the lost
gave its first logits, whether they have the bits of those before, what it took the others to join it, and the error. Wrong is an error that names no rank or another one, more than 5 s to find it, more than 10 s to go on.
"""
import argparse
import ctypes
import hashlib
import json
import lzma
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import race_tp as tp

FOUND, REBUILT = 5.0, 10.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# A rank ------------------------------------------------------------------------------------------


class One:
    """A context that is a rank, as race_tp.py has engines."""

    def __init__(self, engine, rank, ranks, port, deadline, graphs):
        self.states = engine.states
        self.context = engine.rank(rank, ranks, host="127.0.0.1", port=port, device=DEVICE, join=60, deadline=deadline,
                                   graphs=graphs)

    def run(self, inputs, entry):
        return [np.array(self.context.run(inputs, entry)["logits"])]

    def submit(self, inputs, entry, memory="host"):
        return self.context.submit(inputs, entry, memory=memory)

    def finish(self, step):
        self.context._library.lathe_wait(self.context._handle, step.number, -1)

    def truncate(self, length):
        for state in self.states:
            self.context.truncate_state(state, length)

    def reset(self):
        self.context.reset_state()


DEVICE = os.environ.get("LATHE_DEVICE", "cuda")


def prompt_of(batch, count):
    return np.random.default_rng(3).integers(0, 1000, (batch, count))


def forever(one, say):
    """Prompt and steps, again and again, until a rank is gone."""
    first = None
    while True:
        one.reset()
        digest = hashlib.sha256(one.run([prompt_of(1, 1000)], "prefill")[0].tobytes())
        for _ in range(2):
            digest.update(one.run([prompt_of(1, 1)], "step")[0].tobytes())
        if first is None:
            first = digest.hexdigest()
            say(time=time.monotonic(), first=first)


def times(one, batch, rounds):
    token = [prompt_of(batch, 1)]
    one.reset()
    one.finish(one.submit([prompt_of(batch, 256)], "prefill"))

    def rewind():
        one.truncate(256)
    tp.median_step(one, token, "step", rewind, 16, 2)
    return (tp.median_step(one, token, "step", rewind, 16, rounds), tp.median_step(one, token, "step", rewind, 1, rounds))


def work(path, rank, ranks):
    import lathe
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nobody is left on a GPU
    engine = lathe.load(path)

    def say(**what):
        print(json.dumps(what), flush=True)
    say(ready=True)
    one = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "join":
                begin = time.monotonic()
                one = One(engine, rank, ranks, order["port"], order.get("deadline", 30), order.get("graphs", True))
                say(seconds=time.monotonic() - begin)
            elif order["do"] == "chain":
                out, _ = tp.chain(one, np.load(order["ids"]))
                one.reset()
                np.save(order["to"], out)
                say(digest=hashlib.sha256(out.tobytes()).hexdigest())
            elif order["do"] == "times":
                say(times=times(one, order["batch"], order["rounds"]))
            elif order["do"] == "forever":
                forever(one, say)
        except lathe.Error as problem:
            say(time=time.monotonic(), code=problem.code.name, text=str(problem))
            one = None  # before the next world


class Process:
    def __init__(self, path, rank, ranks, hides=False):
        env = dict(os.environ)
        if hides:  # it sees its own GPU alone, as srun --gpus-per-task=1 has it
            env["CUDA_VISIBLE_DEVICES"] = (env.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(ranks)))).split(",")[rank]
        self.process = subprocess.Popen([sys.executable, __file__, "--work", path, str(rank), str(ranks)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)

    def order(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"code": "ENDED", "text": "the process has ended", "time": time.monotonic()}

    def end(self):
        self.process.kill()
        self.process.communicate()


class World:
    def __init__(self, path, ranks, hides=False):
        self.ranks = [Process(path, r, ranks, hides) for r in range(ranks)]
        for rank in self.ranks:
            rank.answer()

    def join(self, graphs=True):
        return self.all(do="join", port=free_port(), graphs=graphs)

    def all(self, **what):
        for rank in self.ranks:
            rank.order(**what)
        answers = [rank.answer() for rank in self.ranks]
        bad = [a for a in answers if "code" in a]
        if bad:
            raise RuntimeError(f"{what['do']}: {bad}")
        return answers

    def end(self):
        for rank in self.ranks:
            rank.end()


def unpacked(folder, name, ranks, into):
    path = os.path.join(into, f"{name}-{ranks}.lathe")
    if not os.path.exists(path):
        with lzma.open(os.path.join(folder, f"{name}-{ranks}.lathe.xz")) as packed, open(path, "wb") as plain:
            plain.write(packed.read())
    return path


# What is asked -----------------------------------------------------------------------------------


def check(folder, scratch, cards):
    bad = 0
    ids = os.path.join(folder, "ids.npy")
    for dtype, hides in (("f32", False), ("bf16", False), ("bf16", True)):
        for ranks in [n for n in tp.MESHES[1:] if n <= cards]:
            name = f"small decoder, {dtype}, {ranks} processes{', each sees its own GPU alone' if hides else ''}"
            group = tp.Ranks(folder, dtype, ranks)
            want, _ = tp.chain(group, np.load(ids))
            del group
            world = World(unpacked(folder, dtype, ranks, scratch), ranks, hides)
            try:
                joined = world.join()
                results = [os.path.join(scratch, f"{r}.npy") for r in range(ranks)]
                same = True
                for _ in range(2):
                    for rank, to in zip(world.ranks, results):
                        rank.order(do="chain", ids=os.path.abspath(ids), to=to)
                    answers = [rank.answer() for rank in world.ranks]
                    same &= all("digest" in a for a in answers) and all(np.load(to).tobytes() == want.tobytes() for to in results)
                bad += not same
                print(f"{name}: joined in {max(j['seconds'] for j in joined):.2f} s, the bits of one process: "
                      f"{'yes' if same else f'NO {answers}'}", flush=True)
            except Exception as problem:
                bad += 1
                print(f"{name}: FAILED {str(problem)[:900]}", flush=True)
            finally:
                world.end()
    return bad


def race(folder, scratch, cards):
    bad = 0
    for name, batch in (("bf16", 1), ("llama1", 1)):
        for ranks in [n for n in tp.MESHES[1:] if n <= cards]:
            try:
                group = tp.Ranks(folder, name, ranks)
                alone = times(group, batch, 9)
                del group
                world = World(unpacked(folder, name, ranks, scratch), ranks)
                try:
                    world.join()
                    apart = [a["times"] for a in world.all(do="times", batch=batch, rounds=9)]
                finally:
                    world.end()
                behind, waited = (max(t[i] for t in apart) for i in range(2))
                print(f"{name}, {ranks} ranks, one token: processes {behind:.3f} ms behind each other, {waited:.3f} waited for; threads "
                      f"{alone[0]:.3f}, {alone[1]:.3f}; {alone[0] / behind:.3f} x, {alone[1] / waited:.3f} x", flush=True)
            except Exception as problem:
                bad += 1
                print(f"{name}, {ranks} ranks: FAILED {str(problem)[:900]}", flush=True)
    return bad


def kill(folder, scratch, cards, name, rounds, stops):
    wrong = []
    for size in [n for n in reversed(tp.MESHES[1:]) if n <= cards]:
        choice, found_times, rebuilt_times, waited = random.Random(size), {signal.SIGKILL: [], signal.SIGSTOP: []}, [], 0
        path, spares = unpacked(folder, name, size, scratch), []
        world = World(path, size)
        try:
            world.join()
            want = {a["first"] for a in world.all(do="forever")}
            if len(want) != 1:
                return [f"{size} ranks: ranks differ before anything happened"]
            print(f"{name}, {size} ranks\nround rank signal    found rebuilt same where", flush=True)
            victims = [choice.randrange(size) for _ in range(rounds + stops)]
            spares = [Process(path, victims[0], size)]
            for number, victim in enumerate(victims):
                spare = spares.pop()
                spare.answer()
                if number + 1 < len(victims):
                    spares.append(Process(path, victims[number + 1], size))
                sign = signal.SIGKILL if number < rounds else signal.SIGSTOP
                time.sleep(choice.uniform(0.05, 0.15))
                begin = time.monotonic()
                os.kill(world.ranks[victim].process.pid, sign)
                others = [r for r in range(size) if r != victim]
                errors = [world.ranks[r].answer() for r in others]
                found = max(e["time"] for e in errors) - begin
                found_times[sign].append(found)
                waited += any("node " in e.get("text", "") for e in errors)
                for r, e in zip(others, errors):
                    if e.get("code") != "PEER_LOST" or f"rank {victim} is lost" not in e["text"]:
                        wrong.append(f"{size} ranks, round {number}: rank {r} of a lost rank {victim} says {e}")
                if found > FOUND:
                    wrong.append(f"{size} ranks, round {number}: found after {found:.2f} s")
                world.ranks[victim].end()
                world.ranks[victim] = spare
                begin = time.monotonic()
                joined = world.join(graphs=number % 2 == 0)
                again = world.all(do="forever")
                rebuilt = max(a["time"] for a in again) - begin
                rebuilt_times.append(rebuilt)
                same = {a["first"] for a in again} == want
                if not same or rebuilt > REBUILT:
                    wrong.append(f"{size} ranks, round {number}: rebuilt in {rebuilt:.2f} s, bits {'same' if same else 'DIFFER'}")
                stayed = max(joined[r]["seconds"] for r in others)
                print(f"{number:5} {victim:4} {sign.name:7} {found:7.3f} {rebuilt:7.3f} {'yes' if same else 'NO':4} joined {stayed:.2f} s; "
                      f"{errors[0].get('text', '')[:160]}", flush=True)
            for sign, found in found_times.items():
                if found:
                    print(f"{sign.name}: {len(found)} rounds, found after {statistics.median(found):.3f} s in the median, {max(found):.3f} s at "
                          "most", flush=True)
            print(f"{waited} times kernels of the others waited for it in a collective, else it was gone between steps", flush=True)
            print(f"went on after {statistics.median(rebuilt_times):.3f} s in the median, {max(rebuilt_times):.3f} s at most", flush=True)
        except Exception as problem:
            wrong.append(f"{size} ranks: {str(problem)[:900]}")
        finally:
            world.end()
            for spare in spares:
                spare.end()
    for line in wrong:
        print("WRONG", line, flush=True)
    return wrong


def main():
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("what", nargs="*", help="check, race, kill; all without it")
    parser.add_argument("--engine", default="llama1", help="of the ranks that are killed")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--cards", type=int, default=0, help="use no more than these")
    options = parser.parse_args()
    parts = ["check", "race", "kill"]
    what, bad = options.what or parts, 0
    if unknown := set(what) - set(parts):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(parts)}")
    cards = min(options.cards or 8, tp.gpus())
    if cards < 2:
        parser.error("wants two GPUs or more")
    for card in range(cards):
        print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()[card].split(" (")[0])
    with tempfile.TemporaryDirectory() as scratch:
        if "check" in what:
            bad += check(options.folder, scratch, cards)
        if "race" in what:
            bad += race(options.folder, scratch, cards)
        if "kill" in what:
            bad += len(kill(options.folder, scratch, cards, options.engine, options.rounds, options.stops))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
