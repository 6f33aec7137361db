# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the CPU's ledgers of other modes, and a run against one.

    check_modes.py INDEX RUN [RUN...] [--take]

The header of RUN, of `lathe-conformance --mode=NAME`, says its mode:

- all-symbolic: no size of any input is known when a test is compiled. Vectors of integers, as axes, shapes and pads are,
  keep their lengths where they have to, and the row says so: `lengths given: NAMES`;
- all-constant: every input is a constant, so that the compiler computes the test.

RUN may be a sample (`--every=N`). Its rows must be those of ledger-cpu-MODE.tsv: status, how and reason are equal,
figures close. Of the ledger, which is of all tests, or of those that tools/check runs (each SAMPLE-th) until somebody
takes a whole run over:

- a row has the status that ledger-cpu.tsv has, or passed; other statuses, and in mode all-constant rows that were not
  folded, stand in exempt.tsv (mode, test, the status or how, or `figure` for one above the table, why), in which nothing stands that need not;
- of mode all-symbolic at most MOST_EXEMPT tests are exempt;
- figures, headers and errors are as check_ledger.py wants them.

A RUN may also be one for a GPU that only compiles (`--target=sm_90a --emit-only`), for which no GPU is needed: it refuses
what the ledger of its mode says, and what statuses.tsv says of CUDA as given (strings, images), and nothing else.

--take makes the run the ledger of its mode. Last line: `N passed, N failed`, a test for each row.
"""
import os
import re
import shutil
import sys

import check_ledger
from check_ledger import COMPUTED, DRAWN, HERE, read

MODES = ("all-symbolic", "all-constant")
MOST_EXEMPT = 40
SAMPLE = 24
LENGTHS = "lengths given: "


def ledger_path(mode):
    return os.path.join(HERE, f"ledger-cpu-{mode}.tsv")


def read_exempt(path=os.path.join(HERE, "exempt.tsv")):
    """{mode: {test: (what, why)}}"""
    exempt = {mode: {} for mode in MODES}
    for mode, test, what, why in read(path)[1]:
        exempt[mode][test] = (what, why)
    return exempt


def malformed(row):
    """check_ledger.malformed() of a row without what only these modes have."""
    if len(row) == 6 and row[1] == "passed" and row[5].startswith(LENGTHS):
        row = row[:5] + [""]
    if len(row) == 6 and row[1] == "failed":
        return None if re.match(r"mismatch: ", row[5]) else f"failed, with the note {row[5]!r}"
    return check_ledger.malformed(row)


class ModeJudge:
    """index: rows of index.tsv; given: {test: row} of ledger-cpu.tsv."""

    def __init__(self, index, given, exempt, table, history=check_ledger.known_commit):
        self.about = {row[0]: (row[3], row[4].split(",")) for row in index}
        self.names = [row[0] for row in index]
        self.given, self.exempt, self.table, self.history = given, exempt, table, history
        self.problems = []

    def say(self, *words):
        self.problems.append(": ".join(words))

    def header(self, title, header):
        if header.get("mode") not in MODES:
            self.say(title, f"mode {header.get('mode')}")
            return False
        why = check_ledger.header_problem(header | {"mode": "as-given"}, check_ledger.CPU, self.history)
        if why:
            self.say(title, why)
        return True

    def excuse(self, mode, row):
        """What of a row needs an exemption, or None."""
        name, status, how = row[:3]
        if status not in ("passed", self.given[name][1]):
            return status
        if mode == "all-constant" and how != "folded":
            return how
        return None

    def rows(self, title, mode, rows):
        for row in rows:
            why = malformed(row)
            if why:
                self.say(title, row[0], why)
                continue
            if row[5].startswith(LENGTHS) and mode != "all-symbolic":
                self.say(title, row[0], f"{row[5]!r} in mode {mode}")
            if row[0] not in self.about:
                self.say(title, row[0], "no test of the index")
                continue
            far = row[1] in COMPUTED and check_ledger.above_table(row, *self.about[row[0]], self.table)
            needs = self.excuse(mode, row) or ("figure" if far else None)
            listed = self.exempt[mode].get(row[0], (None, ""))[0]
            if needs != listed:
                self.say(title, row[0], f"is {needs or row[1]}; exempt.tsv says {listed or 'nothing'}"
                         + (f"; {far or row[5]}" if far or row[5] else ""))

    def ledger(self, header, rows):
        """A ledger by itself; its mode, or None."""
        if not self.header("ledger", header):
            return None
        mode = header["mode"]
        have = [row[0] for row in rows]
        if have not in (self.names, self.names[SAMPLE - 1::SAMPLE]):
            self.say(mode, f"{len(rows)} rows are not the {len(self.names)} of the index in its order, nor each "
                     f"{SAMPLE}th")
        self.rows(mode, mode, rows)
        stale = set(self.exempt[mode]) - set(self.names)
        if stale:
            self.say("exempt.tsv", mode, f"no tests of the index: {sorted(stale)[:3]}")
        if mode == "all-symbolic" and len(self.exempt[mode]) > MOST_EXEMPT:
            self.say("exempt.tsv", f"{len(self.exempt[mode])} tests of {mode}, {MOST_EXEMPT} are the most")
        return mode

    def run(self, header, rows, ledger):
        """A run, maybe of a sample, against the (header, rows) of its mode's ledger."""
        if not self.header("run", header):
            return
        if ledger[0].get("mode") != header["mode"] or ledger[0].get("target") != header.get("target"):
            self.say("run", f"is of {header['mode']} for {header.get('target')}, the ledger of "
                     f"{ledger[0].get('mode')} for {ledger[0].get('target')}")
        want = {row[0]: row for row in ledger[1]}
        if not rows:
            self.say("run", "has no row")
        for row in rows:
            if row[0] not in want:
                self.say(row[0], "stands in no row of the ledger")
            elif len(row) != 6 or [row[i] for i in (1, 2, 5)] != [want[row[0]][i] for i in (1, 2, 5)]:
                self.say(row[0], f"ledger has {' '.join(want[row[0]][1:])}, this run {' '.join(row[1:])}")
            elif row[1] in COMPUTED and row[1] != DRAWN:
                for column in (3, 4):
                    if not check_ledger.close(float(row[column]), float(want[row[0]][column])):
                        self.say(row[0], f"ledger has {want[row[0]][column]} ULP, this run {row[column]}")


    def compiled(self, header, rows, ledger, refused):
        """A run that compiles for a GPU; `refused`: the tests that CUDA lacks as given."""
        title = "compiled for CUDA"
        if not re.fullmatch(check_ledger.CUDA.target, header.get("target", "")) or header.get("mode") != ledger[0].get("mode"):
            self.say(title, f"is of {header.get('mode')} for {header.get('target')}")
        want = {row[0]: row for row in ledger[1]}
        if not rows:
            self.say(title, "has no row")
        for row in rows:
            name = row[0]
            if name not in want:
                self.say(title, name, "stands in no row of the ledger")
                continue
            short = row[:5] + [""] if row[5:] and row[5].startswith(LENGTHS) else row
            why = check_ledger.malformed(short, figures=False)
            lacks = name in refused or want[name][1] == "unsupported"
            if why:
                self.say(title, name, why)
            elif lacks != (row[1] == "unsupported"):
                self.say(title, name, f"is {row[1]}; the CPU's ledger says {want[name][1]}"
                         + (", and CUDA lacks it as given" if name in refused else "") + (f"; {row[5]}" if row[5] else ""))
            elif row[2] == "host":
                self.say(title, name, "a host op computes it")


def main(argv):
    words = [word for word in argv[1:] if not word.startswith("--")]
    if "--help" in argv or len(words) < 2:
        print(__doc__)
        return 0 if "--help" in argv else 2
    index = read(words[0])[1]
    given = {row[0]: row for row in read(os.path.join(HERE, "ledger-cpu.tsv"))[1]}
    judge = ModeJudge(index, given, read_exempt(), check_ledger.tolerances.read())
    checks = 0
    for path in words[1:]:
        header, rows = read(path)
        mode = header.get("mode")
        if mode not in MODES:
            judge.say(path, f"mode {mode}")
            checks += 1
            continue
        if "--take" in argv and header.get("device") != "none":
            shutil.copyfile(path, ledger_path(mode))
        ledger = read(ledger_path(mode))
        if header.get("device") == "none":
            statuses = check_ledger.read_statuses(os.path.join(HERE, "statuses.tsv"))
            judge.compiled(header, rows, ledger, {name for name, (_, cuda) in statuses.items() if cuda == "unsupported"})
            checks += len(rows) + 1
            print(f"{mode}, compiled for {header.get('target')}: {sum(row[1] != 'unsupported' for row in rows)} of {len(rows)}")
            continue
        judge.ledger(*ledger)
        judge.run(header, rows, ledger)
        checks += len(ledger[1]) + len(rows) + 2
        counts = {}
        for row in ledger[1]:
            what = row[1] if row[1] != "passed" else f"passed, {row[2]}"
            counts[what] = counts.get(what, 0) + 1
        print(f"{mode}: " + "; ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    for problem in judge.problems[:60]:
        print(problem)
    if len(judge.problems) > 60:
        print(f"and {len(judge.problems) - 60} more")
    failed = min(len(judge.problems), checks)
    print(f"{checks - failed} passed, {failed} failed")
    return 1 if judge.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
