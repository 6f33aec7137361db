#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What pruning to a budget of latency costs on the CPU, before and after fine-tuning by lathe.torch.distill.

    test/perf/prune.py [--budgets 80,70,60,50,40] [--ratios 0.15,0.3,0.45,0.6,0.75] [--seconds 20] [--log FILE]

A convolutional network for scikit-learn's digits (1,797 images of 8 x 8, 500 of which it is tested on) is trained from a
seed and pruned, by `lathe prune --budget latency=` and, for comparison, to the same share everywhere (--ratio). A row for
each: share of the dense time that was predicted, that the search measured, and that is measured here (processor time of
a run of 64 images on one thread, all models in turn, medians), the change of the logits and points of accuracy that are lost, and what is lost after
distillation. Ends with 1 where the bars are missed: at a budget of 60 % at most 1 point lost after distillation, of all
budgets the prediction within 5 % of what the search measured, and each point of the uniform front above that of the search:
at no budget does a uniform ratio that is at least as fast change the logits less.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "bin", "lathe")
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe as runtime  # noqa: E402
from lathe.torch import distill  # noqa: E402

BATCH, TESTED = 64, 500
BAR_BUDGET, BAR_POINTS, BAR_PREDICTED = 60, 1.0, 0.05


def digits():
    """(images, labels) to train on and to test, of [-1, 1]."""
    data = load_digits()
    order = np.random.default_rng(1).permutation(len(data.target))
    x = (data.images[order] / 8 - 1).astype(np.float32)[:, None]
    y = data.target[order]
    return (x[TESTED:], y[TESTED:]), (x[:TESTED], y[:TESTED])


def trained(x, y, epochs=15):
    torch.manual_seed(1)
    conv = [torch.nn.Conv2d(a, b, 3, padding=1) for a, b in ((1, 64), (64, 64), (64, 128), (128, 128))]
    relu, pool = torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    model = torch.nn.Sequential(conv[0], relu, conv[1], relu, pool, conv[2], relu, conv[3], relu, pool, torch.nn.Flatten(),
                                torch.nn.Linear(512, 256), relu, torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def lathe(*arguments):
    done = subprocess.run([LATHE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def opened(path):
    return runtime.compile(path, dims={"N": BATCH})


def logits_of(engine, x):
    """In batches, the last one filled up with the first images."""
    filled = np.concatenate([x, x[:-len(x) % BATCH]])
    return np.concatenate([engine.run({"x": part})["y"].numpy().copy() for part in np.split(filled, len(filled) // BATCH)])[:len(x)]


def shares(engines, x, seconds):
    """Processor time of a run of each engine, of the first one's, all of them in turn."""
    runs = [engine.context("cpu", threads=1).bind({"x": x[:BATCH]}) for engine in engines]
    times = [[] for _ in runs]
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(times[0]) < 30:
        for run, mine in zip(runs, times):
            before = time.thread_time()
            run()
            mine.append(time.thread_time() - before)
    medians = [statistics.median(mine) for mine in times]
    return [value / medians[0] for value in medians]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="80,70,60,50,40")
    parser.add_argument("--ratios", default="0.15,0.3,0.45,0.6,0.75")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--log")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    (x, y), (tested, truth) = digits()
    lines, failed = [], False

    def say(line):
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory() as folder:
        dense, data = os.path.join(folder, "dense.onnx"), os.path.join(folder, "data.npz")
        torch.onnx.export(trained(x, y), (torch.zeros(2, 1, 8, 8),), dense, dynamo=False, input_names=["x"], output_names=["y"],
                          dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})
        np.savez(data, x=x[:BATCH])
        engine = opened(dense)
        want = logits_of(engine, tested)
        right = 100 * np.mean(want.argmax(1) == truth)
        say(f"# dense: {right:.1f} % of {TESTED} digits; {len(x)} to train on; one thread")
        common = ["--multiple=8", "--threads=1", f"--dim=N={BATCH}"]
        forms = []
        for budget in map(int, options.budgets.split(",")):
            forms.append((f"budget {budget} %", ["--scheme=channels,ffn", f"--budget=latency={budget}%", "--data", data,
                                                 f"--seconds={options.seconds}"], budget))
        for ratio in options.ratios.split(","):
            forms += [(f"ratio {ratio}", ratio, None)]
        rows = []
        for number, (name, how, budget) in enumerate(forms):
            path, report = os.path.join(folder, f"p{number}.onnx"), os.path.join(folder, "r.json")
            predicted = None
            if budget:
                lathe("prune", dense, "-o", path, *how, *common, "--json", report)
                with open(report) as f:
                    predicted = json.load(f)["search"]
            else:  # one kind after the other: channels, then columns
                for scheme, before, to in (("channels", dense, path + ".c"), ("ffn", path + ".c", path)):
                    lathe("prune", before, "-o", to, f"--scheme={scheme}", f"--ratio={how}", "--apply=all", "--seconds=0", *common)
            tuned = os.path.join(folder, f"t{number}.onnx")
            distill(path, dense, {"x": x}, tuned, epochs=options.epochs)
            rows.append((name, budget, predicted, opened(path), opened(tuned)))
        measured = shares([engine, *(row[3] for row in rows)], x, options.seconds)[1:]
        say("                predicted  search  measured   change   lost  lost after distillation")
        points = []
        for (name, budget, predicted, pruned, tuned), share in zip(rows, measured):
            got = logits_of(pruned, tested)
            change = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            lost, after = (right - 100 * np.mean(v.argmax(1) == truth) for v in (got, logits_of(tuned, tested)))
            told = predicted["predicted_ms"] / predicted["budget_ms"] * budget / 100 if predicted else None
            points.append((budget, share, change))
            bad = []
            if budget == BAR_BUDGET and (after > BAR_POINTS or share > BAR_BUDGET / 100):
                bad.append("more than a point lost, or too slow")
            off = abs(predicted["predicted_ms"] / predicted["measured_ms"] - 1) if predicted else 0
            if off > BAR_PREDICTED:
                bad.append(f"prediction off by {100 * off:.0f} %")
            failed |= bool(bad)
            seen = predicted["measured_ms"] / predicted["budget_ms"] * budget / 100 if predicted else None
            say(f"{name:14} {f'{told:.3f}' if told else '-':>10} {f'{seen:.3f}' if told else '-':>7} {share:9.3f} {change:8.3f} {lost:6.1f} {after:6.1f}  {'; '.join(bad)}")
        beaten = [(b, s, c) for b, s, c in points if b and any(not b2 and s2 <= s and c2 < c for b2, s2, c2 in points)]
        failed |= bool(beaten)
        say(f"# {len(beaten)} of {sum(bool(b) for b, _, _ in points)} budgets are beaten by a uniform ratio that is as fast")
    if options.log:
        with open(options.log, "w") as f:
            f.write("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
