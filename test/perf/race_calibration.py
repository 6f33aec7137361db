# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `lathe quantize` takes to observe ranges, against inference on the same batches: a table, on one CPU thread.

    .venv/bin/python test/perf/race_calibration.py [MODEL...] [--rounds N]

Models and examples are those of race_quantize.py. Time is that of the runs of all batches, without compiling, which
happens once however many there are: the command says it, and an engine of the float model for the same sizes is timed
beside it, round by round; medians. Memory is that of weights and arena together; `mse` keeps a histogram of 32 kB for
each value beside it, which is counted. Ends with 1 where observing takes more than 1.3 times the memory or 3 times the
time.
"""
import argparse
import glob
import os
import re
import statistics
import sys
import tempfile
import time

import numpy as np
import race_quantize
from race_quantize import lathe_cli

sys.path.insert(0, os.path.join(lathe_cli.ROOT, "python-frontend"))
import lathe  # noqa: E402

MEMORY, TIME = 1.3, 3.0
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
HISTOGRAM = 8 * (2 * 2048 + 4)
SAID = re.compile(r"ranges observed at (\d+) places over (\d+) batches: ([0-9.e+-]+) s, ([0-9.]+) (\w+) "
                  "beside the weights")


def parsed(text):
    """Places, batches, seconds and bytes that the command says."""
    places, batches, seconds, number, unit = SAID.search(text).groups()
    return int(places), int(batches), float(seconds), float(number) * UNITS[unit]


def wrongs(memory, seconds):
    """What a row misses, of both as factors of inference's."""
    return ["memory"] * (memory > MEMORY) + ["time"] * (seconds > TIME)


def measure(model, folder, examples, method, rounds):
    """(places, bytes of inference, bytes of observing, median seconds of inference, of observing), of all examples,
    which are of one size."""
    data = os.path.join(folder, "data")
    os.makedirs(data, exist_ok=True)
    for i, example in enumerate(examples):
        np.savez(os.path.join(data, f"{i:03}.npz"), **example)
    # The command compiles for the sizes of the examples, too.
    context = lathe.compile(model, shapes={name: array.shape for name, array in examples[0].items()}).context(threads=1)
    inference, observing = [], []
    for _ in range(rounds):
        text = lathe_cli.lathe("quantize", model, "-o", os.path.join(folder, "q.onnx"), "--scheme=w8a8-int8",
                               f"--range={method}", "--data", data, "--threads=1")
        places, batches, seconds, beside = parsed(text)
        assert batches == len(examples), text
        observing.append(seconds)
        begin = time.perf_counter()
        for example in examples:
            context.run(example)
        inference.append(time.perf_counter() - begin)
    held = context.memory
    histograms = places * HISTOGRAM if method != "minmax" else 0
    return (places, held.weights + held.arena, held.weights + beside + histograms, statistics.median(inference),
            statistics.median(observing))


def race(name, method, rounds):
    with tempfile.TemporaryDirectory() as folder:
        race_quantize.examples(name, folder, count=32)
        examples = [dict(np.load(path)) for path in sorted(glob.glob(os.path.join(folder, "*.npz")))]
        model = os.path.join(lathe_cli.MODELS, race_quantize.MODELS[name])
        places, base, more, inference, observing = measure(model, folder, examples, method, rounds)
    factors = more / base, observing / inference
    print(f"| {name} | {method} | {places} | {base / 1e6:.2f} | {more / 1e6:.2f} | {factors[0]:.2f} | "
          f"{1e3 * inference:.1f} | {1e3 * observing:.1f} | {factors[1]:.2f} | {', '.join(wrongs(*factors))} |",
          flush=True)
    return not wrongs(*factors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL",
                        help=f"of {', '.join(race_quantize.MODELS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if unknown := set(options.models) - set(race_quantize.MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    print("| model | ranges | places | inference, MB | observing, MB | memory | inference, ms | observing, ms | time | "
          "misses |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = [race(name, method, options.rounds) for name in options.models or race_quantize.MODELS
            for method in ("minmax", "mse")]
    return 0 if all(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
