# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one table of tolerances of the tests: tolerances.tsv says what its columns are."""
import os

MEASURES = ("elements", "scaled")
EXACT = ("elements", 0.0)


def read(path=os.path.join(os.path.dirname(__file__), "tolerances.tsv")):
    """{(op, dtype): (measure, bound)}; raises ValueError for a row that is none."""
    table = {}
    with open(path) as f:
        for line in f:
            if not line.strip() or line[0] == "#":
                continue
            columns = line.rstrip("\n").split("\t")
            if len(columns) != 4 or columns[2] not in MEASURES or tuple(columns[:2]) in table:
                raise ValueError(f"{path}: no row, or a second one: {line!r}")
            table[columns[0], columns[1]] = (columns[2], float(columns[3]))
    return table


def bound(table, op, dtypes):
    """(measure, ULP) of an output, or of several of different dtypes: the widest of theirs."""
    entries = [table.get((op, dtype), EXACT) for dtype in dtypes]
    return max(entries, key=lambda entry: entry[1], default=EXACT)
