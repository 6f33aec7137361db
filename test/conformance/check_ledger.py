# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a fresh run of the corpus with the committed ledgers.

    check_ledger.py INDEX FRESH LEDGER_CPU LEDGER_CUDA

Each CPU row must be the same, byte for byte: a better result is committed, not overlooked. The
CUDA rows were measured on a GPU; here each test must have one, well formed, in the same order. What
does not pass must end in a typed error: wrong values, crashes and internal errors are failures.
Last line: `N passed, N failed`, a test for each row and for each bar.
"""
import re
import sys

STATUSES = {"passed", "failed", "unsupported", "invalid", "error"}
KINDS = {"generated", "host", "folded", "-"}
# Expected values that are themselves off by more than the tolerance, and exactly how many. Both
# files hold 1.9e-7 in ten places, the noise of a transform in f32, where numpy's transform in f64
# gives 7e-16; the absolute tolerance is 1e-7. A row may fail so, and in no other way.
DISPUTED = {
    "node/test_dft_inverse": "mismatch: output 'y': 10 of 200 values beyond the tolerance",
    "node/test_dft_inverse_opset19": "mismatch: output 'y': 10 of 200 values beyond the tolerance",
}
# How many tests must pass with code that lathe generated.
BARS = {"CPU": 600, "CUDA": 450}


def read(path):
    """Rows without comments: lists of the five columns."""
    with open(path) as f:
        return [line.rstrip("\n").split("\t") for line in f if line.strip() and line[0] != "#"]


def malformed(row):
    """Why a row is not a ledger row, or None."""
    if len(row) != 5:
        return f"{len(row)} columns, not 5"
    name, status, kind, ulp, reason = row
    if status not in STATUSES:
        return f"unknown status {status}"
    if kind not in KINDS:
        return f"unknown kind {kind}"
    if status == "passed" and not re.fullmatch(r"\d+(\.\d+)?|-", ulp):
        return f"worst ULP is {ulp!r}"
    if status == "passed" and kind == "-":
        return "passed, but not how"
    if status != "passed" and not reason:
        return "no reason"
    if status == "failed" and DISPUTED.get(name) == reason:
        return None
    if status == "failed" or reason.startswith("internal"):
        return f"neither passes nor ends in a typed error: {reason}"
    return None


def compare(names, fresh, cpu, cuda):
    """(checks made, messages of those that failed)."""
    problems = []
    for title, rows in (("fresh run", fresh), ("CPU ledger", cpu), ("CUDA ledger", cuda)):
        have = [row[0] for row in rows]
        if have != names:
            missing = sorted(set(names) - set(have))
            extra = sorted(set(have) - set(names))
            problems.append(f"{title}: {len(have)} rows for {len(names)} tests; missing "
                            f"{missing[:3]}, unknown {extra[:3]}"
                            + ("" if missing or extra else "; not in the order of the index"))
        for row in rows:
            why = malformed(row)
            if why:
                problems.append(f"{title}: {row[0]}: {why}")
    committed = {row[0]: row for row in cpu}
    for row in fresh:
        want = committed.get(row[0])
        if want is not None and row != want:
            problems.append(f"{row[0]}: ledger has {' '.join(want[1:])}, "
                            f"this run {' '.join(row[1:])}")
    for title, rows in (("CPU", fresh), ("CUDA", cuda)):
        good = sum(row[1:3] == ["passed", "generated"] for row in rows)
        if good < BARS[title]:
            problems.append(f"{title}: {good} tests pass with generated code, "
                            f"{BARS[title]} are the bar")
    return 2 * len(names) + len(BARS), problems


def main(argv):
    names = [row[0] for row in read(argv[1])]
    fresh, cpu, cuda = (read(path) for path in argv[2:5])
    checks, problems = compare(names, fresh, cpu, cuda)
    for problem in problems[:60]:
        print(problem)
    if len(problems) > 60:
        print(f"and {len(problems) - 60} more")
    failed = min(len(problems), checks)
    print(f"{checks - failed} passed, {failed} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
