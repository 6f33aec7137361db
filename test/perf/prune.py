#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What pruning to a budget of latency costs on the CPU, before and after fine-tuning by lathe.torch.distill.

    test/perf/prune.py [--model digits|language] [--budgets 80,70,60,50,40] [--ratios 0.15,0.3,0.45,0.6,0.75] [--seconds 20]
                       [--epochs 20] [--log FILE]

A network of prune_models.py is trained from a seed and pruned, by `lathe prune --budget latency=` and, for comparison, to
the same share everywhere (--ratio). A row for each: share of the dense time that was predicted, that the search measured,
and that is measured here (processor time of a run on one thread, all models in turn, medians), the change of the logits, what
is lost (points of accuracy, or the factor of the perplexity), and what is lost after distillation. Ends with 1 where the
bars are missed: at a budget of 60 % at most 1 point or 1.05 x the perplexity lost after distillation, of all budgets the
prediction within 5 % of what the search measured, and each point of the uniform front above that of the search: at no budget
does a uniform ratio that is at least as fast change the logits less.
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

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "bin", "lathe")
sys.path.insert(0, os.path.join(ROOT, "python-frontend"))
import lathe as runtime  # noqa: E402
from lathe.torch import distill  # noqa: E402
from prune_models import MODELS  # noqa: E402

BAR_BUDGET, BAR_PREDICTED = 60, 0.05


def lathe(*arguments):
    done = subprocess.run([LATHE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def logits_of(engine, x, batch):
    """In batches, the last one filled up with the first rows."""
    filled = np.concatenate([x, x[:-len(x) % batch]])
    return np.concatenate([engine.run({"x": part})["y"].numpy().copy() for part in np.split(filled, len(filled) // batch)])[:len(x)]


def shares(engines, x, seconds):
    """Processor time of a run of each engine, of the first one's, all of them in turn."""
    runs = [engine.context("cpu", threads=1).bind({"x": x}) for engine in engines]
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
    parser.add_argument("--model", choices=MODELS, default="digits")
    parser.add_argument("--budgets", default="80,70,60,50,40")
    parser.add_argument("--ratios", default="0.15,0.3,0.45,0.6,0.75")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--log")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task = MODELS[options.model]()
    x = task.x
    lines, failed = [], False

    def say(line):
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory() as folder:
        dense, data = os.path.join(folder, "dense.onnx"), os.path.join(folder, "data.npz")
        task.export(dense)
        np.savez(data, x=x[:task.batch])

        def opened(path):
            return runtime.compile(path, dims=task.dims)

        engine = opened(dense)
        want = logits_of(engine, task.unseen, task.batch)
        before = task.score(want)
        say(f"# {options.model}, dense: {task.said(before)}; one thread; load {os.getloadavg()[0]:.1f}")
        common = ["--multiple=8", "--threads=1", *(f"--dim={name}={size}" for name, size in task.dims.items())]
        forms = []
        for budget in map(int, options.budgets.split(",")):
            forms.append((f"budget {budget} %", [f"--scheme={task.schemes}", f"--budget=latency={budget}%", "--data", data,
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
            else:  # one kind after the other; whole branches are no uniform share
                schemes = [name for name in task.schemes.split(",") if name != "blocks"]
                files = [dense, *(path + "." + name for name in schemes[:-1]), path]
                for scheme, of, to in zip(schemes, files, files[1:]):
                    lathe("prune", of, "-o", to, f"--scheme={scheme}", f"--ratio={how}", "--apply=all", "--seconds=0", *common)
            tuned = os.path.join(folder, f"t{number}.onnx")
            distill(path, dense, {"x": x}, tuned, epochs=options.epochs, rate=task.rate)
            rows.append((name, budget, predicted, opened(path), opened(tuned)))
        measured = shares([engine, *(row[3] for row in rows)], x[:task.batch], options.seconds)[1:]
        say("                predicted  search  measured   change   lost  lost after distillation")
        points = []
        for (name, budget, predicted, pruned, tuned), share in zip(rows, measured):
            got = logits_of(pruned, task.unseen, task.batch)
            change = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            lost, after = (task.lost(before, task.score(v)) for v in (got, logits_of(tuned, task.unseen, task.batch)))
            told = predicted["predicted_ms"] / predicted["budget_ms"] * budget / 100 if predicted else None
            points.append((budget, share, change))
            bad = []
            if budget == BAR_BUDGET and (after > task.bar or share > BAR_BUDGET / 100):
                bad.append(f"more than {task.bar} {task.unit} lost, or too slow")
            off = abs(predicted["predicted_ms"] / predicted["measured_ms"] - 1) if predicted else 0
            if off > BAR_PREDICTED:
                bad.append(f"prediction off by {100 * off:.0f} %")
            failed |= bool(bad)
            seen = predicted["measured_ms"] / predicted["budget_ms"] * budget / 100 if predicted else None
            said = [f"{value:.3f}" if value else "-" for value in (told, seen)]
            say(f"{name:14} {said[0]:>10} {said[1]:>7} {share:9.3f} {change:8.3f} {lost:6.3f} {after:6.3f}  {'; '.join(bad)}")
        beaten = [(b, s, c) for b, s, c in points if b and any(not b2 and s2 <= s and c2 < c for b2, s2, c2 in points)]
        failed |= bool(beaten)
        say(f"# {len(beaten)} of {sum(bool(b) for b, _, _ in points)} budgets are beaten by a uniform ratio that is as fast")
    if options.log:
        with open(options.log, "w") as f:
            f.write("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
