# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills one of four ranks, again and again, and shows what the others learn and how they go on.

    lost_ranks.py MODEL [--rounds=100] [--stops=10]

MODEL has its inputs beside it (export_families.py) and is divided among four processes of this machine, which
run it without a pause. In each round one of them gets SIGKILL, or in the last ones SIGSTOP. A row:

    found      seconds from the signal to the error on the last of the three others
    where      the collective and node at which they were, of the first
    rebuilt    seconds from that error to the first result of a new world with a new process in the place of the lost
    same       whether its results have the bits of those before
    weights    whether the engine's file lies in the survivors' memory where it did before

Exits 1 when a rank learned nothing, the wrong thing, or too late: 2 s for SIGKILL, 5 s for SIGSTOP, 10 s to rebuild.
"""
import argparse
import glob
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python-frontend"))

RANKS, KILLED, STOPPED, REBUILT = 4, 2.0, 5.0, 10.0


def work(engine_path, folder, rank):
    """A rank: joins as it is told, and runs until it cannot. Lines of JSON say what happens."""
    import lathe

    engine = lathe.load(engine_path)
    inputs = [np.load(f) for f in sorted(glob.glob(os.path.join(folder, "input_*.npy")))]

    def say(**what):
        print(json.dumps(what), flush=True)

    def places():
        with open("/proc/self/maps") as maps:
            return [line.split()[0] for line in maps if line.rstrip().endswith(engine_path)]

    for line in sys.stdin:
        try:
            context = engine.rank(rank, RANKS, host="127.0.0.1", port=int(line), threads=1, join=30, deadline=30)
            first = None
            while True:
                result = context.run(inputs)
                if not first:
                    bits = b"".join(t.numpy().tobytes() for t in result.values())
                    first = hashlib.sha256(bits).hexdigest()
                    say(time=time.monotonic(), first=first, places=places())
        except lathe.Error as problem:
            say(time=time.monotonic(), code=problem.code.name, text=str(problem), node=problem.node)
        context = None  # before the next world


class Rank:
    def __init__(self, engine, folder, rank):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", engine, folder, str(rank)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def join(self, port):
        self.process.stdin.write(f"{port}\n")
        self.process.stdin.flush()

    def next(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"code": "ENDED", "text": "the process has ended", "time": time.monotonic()}

    def end(self):
        self.process.kill()
        self.process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rounds(engine, folder, kills, stops, show=print):
    """A list of what is wrong."""
    wrong, found_times, rebuilt_times = [], {signal.SIGKILL: [], signal.SIGSTOP: []}, []
    choice = random.Random(0)
    ranks = [Rank(engine, folder, r) for r in range(RANKS)]
    try:
        port = free_port()
        for rank in ranks:
            rank.join(port)
        firsts = [rank.next() for rank in ranks]
        if any("first" not in f for f in firsts):
            return [f"the first world does not run: {firsts}"]
        want = firsts[0]["first"]
        places = [f["places"] for f in firsts]
        show(f"{'round':>5} {'rank':>4} {'signal':7} {'found':>7} {'rebuilt':>7} same weights where")
        for number in range(kills + stops):
            victim = choice.randrange(RANKS)
            sign = signal.SIGKILL if number < kills else signal.SIGSTOP
            limit = KILLED if sign == signal.SIGKILL else STOPPED
            time.sleep(choice.uniform(0.01, 0.1))
            begin = time.monotonic()
            os.kill(ranks[victim].process.pid, sign)
            others = [r for r in range(RANKS) if r != victim]
            errors = {r: ranks[r].next() for r in others}
            found = max(e["time"] for e in errors.values()) - begin
            found_times[sign].append(found)
            for r, e in errors.items():
                if e.get("code") != "PEER_LOST" or f"rank {victim} is lost" not in e["text"]:
                    wrong.append(f"round {number}: rank {r} of a lost rank {victim} says {e}")
            if found > limit:
                wrong.append(f"round {number}: found after {found:.2f} s")
            ranks[victim].end()
            ranks[victim] = Rank(engine, folder, victim)
            port = free_port()
            for rank in ranks:
                rank.join(port)
            again = [rank.next() for rank in ranks]
            rebuilt = max(a["time"] for a in again) - begin - found
            rebuilt_times.append(rebuilt)
            same = all(a.get("first") == want for a in again)
            stays = all(again[r].get("places") == places[r] and places[r] for r in others)
            places[victim] = again[victim].get("places")
            if not same or not stays or rebuilt > REBUILT:
                wrong.append(f"round {number}: rebuilt in {rebuilt:.2f} s, {'same' if same else again}, {stays}")
            show(f"{number:5} {victim:4} {sign.name:7} {found:7.3f} {rebuilt:7.3f} {'yes' if same else 'NO':4} "
                 f"{'stay' if stays else 'MOVED':7} {errors[others[0]].get('text', '')[:90]}")
        for sign, times in found_times.items():
            if times:
                show(f"{sign.name}: {len(times)} rounds, found after {np.median(times):.3f} s in the median, "
                     f"{max(times):.3f} s at most")
        show(f"rebuilt after {np.median(rebuilt_times):.3f} s in the median, {max(rebuilt_times):.3f} s at most")
    finally:
        for rank in ranks:
            rank.end()
    return wrong


def main():
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--stops", type=int, default=10)
    options = parser.parse_args()
    import lathe_cli

    with tempfile.TemporaryDirectory() as folder:
        engine = os.path.join(folder, "mesh.lathe")
        lathe_cli.compile_model(options.model, engine, f"--mesh=tp={RANKS}")
        wrong = rounds(engine, os.path.dirname(os.path.abspath(options.model)), options.rounds, options.stops)
    for line in wrong:
        print(line)
    print("FAILED" if wrong else "PASSED")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
