#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a short table of the medians out of what `lathe-kv-bench --benchmark_format=json` writes.

    table.py FILE.json > speed.tsv
"""
import json
import sys

COLUMNS = ("ns/block", "us", "us/step")


def main(path):
    with open(path, encoding="utf-8") as f:
        measured = json.load(f)
    print(f"# load {measured['context']['load_avg'][0]:.1f}")
    print("case", "unit", "median", sep="\t")
    for row in measured["benchmarks"]:
        name = row["name"].replace("/manual_time", "")
        for column in COLUMNS:
            if column in row:
                print(name, column, f"{row[column]:.4g}", sep="\t")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
