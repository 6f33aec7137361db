#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What quantizing costs where the truth is known: a table of tasks and schemes.

    .venv/bin/python test/accuracy/run.py [TASK...] [--scheme NAME] [--limit N] [--llmcompressor PYTHON] [--report FILE.md]

Of each task the float model and its quantized forms answer the same examples on the CPU; ranges and codes follow from others. A
row says which share of the multiplications is quantized and what is lost: points of percent, or a factor of a perplexity. Ends
with 1 where more is lost than the bar, less than 95 % is quantized, or a task has fewer than 2,000 examples.
"""
import argparse
import dataclasses
import importlib
import itertools
import json
import os
import subprocess
import sys
import time

import frame
import packages

TASKS = ("digits", "file_types", "text_lines", "docstrings", "silences", "language")
RIVAL = 1.002
LEAST_SHARE, LEAST_EXAMPLES = 0.95, 2000
HEAD = ("| task | measure | examples | scheme | quantized | float | quantized model | lost | bar | |\n"
        "|---|---|---|---|---|---|---|---|---|---|")


def wrongs(row):
    """What a row misses."""
    return (["loses too much"] * (not row.is_kept) + ["too little is quantized"] * (row.share < LEAST_SHARE) +
            ["too few examples"] * (row.examples < LEAST_EXAMPLES))


def line(row, wrong):
    lost, bar = (f"{row.lost:.4f} x", f"{row.bar:.4g} x") if row.measure == "perplexity" else (f"{row.lost:.2f} points", f"{row.bar:.4g}")
    return (f"| {row.task} | {row.measure} | {row.examples} | {row.scheme} | {100 * row.share:.1f} % | {row.float_score:.2f} | {row.score:.2f} | "
            f"{lost} | {bar if row.bar < float('inf') else '–'} | {', '.join(wrong)} |")


def against_llmcompressor(rows, python, limit):
    """With a row of its GPTQ behind ours, which may lose RIVAL times as much."""
    for row in rows:
        yield row
        if not row.scheme.endswith("GPTQ"):
            continue
        done = subprocess.run([python, os.path.join(os.path.dirname(__file__), "llmcompressor_gptq.py"), str(limit)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        found = json.loads(done.stdout.strip().split("\n")[-1])
        yield dataclasses.replace(row, scheme="the same, over llmcompressor's GPTQ", float_score=found["gptq"], lost=row.score / found["gptq"],
                                  bar=RIVAL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--scheme", default="", help="those alone whose names begin so, as int8")
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="examples of a task at most: a try, which fails")
    parser.add_argument("--llmcompressor", metavar="PYTHON", help="of language: a Python that has llmcompressor, whose GPTQ ours is held against")
    parser.add_argument("--report", help="write the table here, too")
    options = parser.parse_args()
    unknown = set(options.tasks) - set(TASKS)
    if unknown or options.limit < 1:
        parser.error(f"no task is called {', '.join(sorted(unknown))}" if unknown else "--limit wants a number above 0")
    os.makedirs(packages.OUT, exist_ok=True)
    lines, failed = [HEAD], False
    print(HEAD, flush=True)
    for name in options.tasks or TASKS:
        begin = time.monotonic()
        task = importlib.import_module(name).task(options.limit)
        task.schemes = [scheme for scheme in task.schemes if scheme.name.startswith(options.scheme)]
        rows = frame.measure(task)
        if name == "language":
            if options.llmcompressor:
                rows = against_llmcompressor(rows, options.llmcompressor, options.limit)
            rows = itertools.chain(rows, importlib.import_module("key_values").measure(options.limit, options.scheme))
        for row in rows:
            wrong = wrongs(row)
            failed |= bool(wrong)
            lines.append(line(row, wrong))
            print(lines[-1], flush=True)
        print(f"  {name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    if options.report:
        with open(options.report, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
