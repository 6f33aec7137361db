# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a fresh run of the corpus with the committed ledgers.

    check_ledger.py INDEX FRESH_CPU COMPILED_CUDA
    check_ledger.py INDEX RUN --aarch64
    check_ledger.py INDEX RUN --take=cpu|cuda|aarch64|unmeasured

FRESH_CPU is a run on this machine; COMPILED_CUDA is the corpus compiled for the CUDA ledger's target
as far as kernel texts (`lathe-conformance --emit-only`), for which no GPU is needed. Against them and
against each other stand ledger-cpu.tsv, ledger-cuda.tsv, statuses.tsv and ../tolerances.tsv:

- headers: each ledger says target, device, driver and the commit that was measured, an ancestor of
  this one; a mode, if it has one, is as-given (check_modes.py checks the others);
- statuses: every row has the status that statuses.tsv says, `passed` where it says nothing, so that
  a test that no longer passes is an edit of two files that a reader sees;
- CPU rows: status, how and reason are the fresh run's; the ULP are close to the fresh run's;
- CUDA rows: status and how are those of compiling it now, and its figures are not the CPU's;
- devices: what one computes the other computes too, but for ONE_DEVICE;
- figures: none is above the table's entry for the row's op and dtypes;
- what does not pass ends in a typed error: wrong values, crashes and internal errors are failures.

--aarch64: RUN, of all tests or of some, is what ledger-aarch64.tsv says, which obeys the rules of the CPU's: the same
statuses, figures in the table.

--take=cpu, --take=cuda and --take=aarch64 make RUN the committed ledger, and statuses.tsv what both ledgers say.
--take=unmeasured marks in the CUDA ledger what compiles in RUN (of --emit-only) and did not when the
ledger was measured: a row that says so until somebody with a GPU measures it again.
Last line: `N passed, N failed`, a test for each row and for each header.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import tolerances  # noqa: E402

FORMAT = "lathe conformance ledger, format 2"
FIELDS = ("target", "device", "driver", "commit")
COMPUTED = {"passed", "frozen"}
# Computed, of values that nobody can expect: their moments are tested by test/models/test_random.py.
DRAWN, BY_SEED = "drawn", "by types, sizes and seed"
STATUSES = COMPUTED | {DRAWN, "failed", "unsupported", "invalid", "error", "unmeasured"}
UNMEASURED = "compiles since the ledger was measured"
MOST_UNMEASURED = 60
KINDS = {"generated", "library", "lists", "host", "folded", "-"}
# Expected values that are themselves off by more than the tolerance, and exactly how many. Both
# files hold 1.9e-7 in ten places, the noise of a transform in f32, where numpy's transform in f64
# gives 7e-16; the absolute tolerance is 1e-7. A row may fail so, and in no other way.
DISPUTED = {
    "node/test_dft_inverse": "mismatch: output 'y': 10 of 200 values beyond the tolerance",
    "node/test_dft_inverse_opset19": "mismatch: output 'y': 10 of 200 values beyond the tolerance",
}
# Expected values that the test's author typed with so many decimals; they are judged by those.
TYPED = {
    "node/test_averagepool_2d_ceil_last_window_starts_on_pad": 4,
    "node/test_gridsample_bicubic": 4,
    "node/test_roialign_aligned_false": 4,
    "node/test_roialign_aligned_true": 4,
    "node/test_roialign_mode_max": 7,
}
# Tests that one device computes and the other refuses, and why. A new line is a loss that a reader sees.
ONE_DEVICE = {f"node/test_{name}": "strings, which the host alone has" for name in (
    "equal_string", "equal_string_broadcast", "ai_onnx_ml_label_encoder_string_int",
    "ai_onnx_ml_label_encoder_string_int_no_default", "ai_onnx_ml_label_encoder_tensor_mapping",
    "ai_onnx_ml_label_encoder_tensor_value_only_mapping")}
# Measured before drivers and scaled figures were written down. Only the ledger of this very commit
# may lack them.
BEFORE_FORMAT_2 = "5046bea51dc9493ca0662ce7a18d286c2169dae8"
# In how many rows the figures of a GPU, or of a CPU with other vectors, differ from the CPU's at least: sums of
# another order round differently.
DIFFERENT_ROWS = 40


def read(path):
    """(header, rows): the fields of the lines `# field value`, and the columns of the others."""
    header, rows = {}, []
    with open(path) as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("# "):
                field, _, value = line[2:].partition(" ")
                header["format" if line[2:] == FORMAT else field] = value
            elif line:
                rows.append(line.split("\t"))
    return header, rows


def known_commit(commit):
    """Whether HEAD's history has the commit; what git cannot say (no clone, a shallow one, a history that
    was squashed and has no such commit at all) holds."""
    def git(*words):
        return subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True)
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow.returncode or shallow.stdout.strip() != "false":
        return True
    if git("cat-file", "-e", commit + "^{commit}").returncode:
        print(f"note: this repository does not have the ledger's commit {commit}")
        return True
    return git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


class Kind:
    """Of a ledger: what its header may say, and where its statuses stand in statuses.tsv."""

    def __init__(self, title, target, device, driver, column):
        self.title, self.target, self.device, self.driver, self.column = title, target, device, driver, column


CPU = Kind("CPU ledger", r"x86-64-v\d", "cpu", "-", 0)
AARCH64 = Kind("AArch64 ledger", r"armv8-a", "cpu|qemu-aarch64", "-", 0)
CUDA = Kind("CUDA ledger", r"sm_\d+a?", r"(?!cpu$|none$|cuda).+", r"\d{5}", 1)


def header_problem(header, kind, history=known_commit):
    """Why a header does not say what was measured on what, or None."""
    missing = [field for field in ("format", *FIELDS) if field not in header]
    if missing:
        return f"the header lacks {', '.join(missing)}"
    if header.get("mode", "as-given") != "as-given": # check_modes.py has the others
        return f"mode {header['mode']}"
    target, device, driver, commit = (header[field] for field in FIELDS)
    if not re.fullmatch(kind.target, target):
        return f"target {target}"
    if not re.fullmatch(kind.device, device):
        return f"device {device}" + (" names no GPU" if kind is CUDA else "")
    if commit != BEFORE_FORMAT_2 and not re.fullmatch(kind.driver, driver):
        return f"driver {driver}"
    if not re.fullmatch(r"[0-9a-f]{40}", commit) or not history(commit):
        return f"commit {commit} is none of this history"
    return None


def malformed(row, figures=True):
    """Why a row is not a ledger row, or None. Without `figures`: of a run that only compiled."""
    if len(row) != 6:
        return f"{len(row)} columns, not 6"
    name, status, kind, ulp, scaled, reason = row
    if status not in (STATUSES if figures else STATUSES - {"passed", "failed", DRAWN} | {"compiled"}):
        return f"unknown status {status}"
    if kind not in KINDS:
        return f"unknown kind {kind}"
    computed = status in COMPUTED | {"compiled"}
    if (computed or status == DRAWN) and kind == "-":
        return f"{status}, but not how"
    if (status == "frozen") != (computed and reason.startswith("given when compiling: ")):
        return f"{status}, with the note {reason!r}"
    if status == "passed" and reason:
        return f"passed, with the note {reason!r}"
    if figures and computed:
        if not re.fullmatch(r"\d+", ulp) or not re.fullmatch(r"\d+\.\d\d|\?", scaled):
            return f"worst ULP are {ulp!r} and {scaled!r}"
        if ulp == "0" and scaled not in ("0.00", "?"):
            return f"no element is off, and yet {scaled} ULP of the largest"
    elif (ulp, scaled) != ("-", "-"):
        return f"figures {ulp} and {scaled} of what was not compared"
    if computed:
        return None
    if (status == "unmeasured") != (reason == UNMEASURED):
        return f"{status}, with the note {reason!r}"
    if (status == DRAWN) != (reason == BY_SEED):
        return f"{status}, with the note {reason!r}"
    if not reason:
        return "no reason"
    if status == "failed" and DISPUTED.get(name) == reason:
        return None
    if status == "failed" or reason.startswith("internal"):
        return f"neither passes nor ends in a typed error: {reason}"
    return None


def figure(row, measure):
    text = row[3] if measure == "elements" else row[4]
    return None if text == "?" else float(text)


def above_table(row, op, dtypes, table):
    """Why a row is further off than the table allows, or None."""
    if row[0] in TYPED:
        return None
    measure, most = tolerances.bound(table, op, dtypes)
    off = figure(row, measure)
    if off is not None and off > most:
        return f"{off:g} ULP ({measure}), {most:g} are the most for {op} of {','.join(dtypes)}"
    return None


def close(a, b):
    """Whether two figures are the same but for a unit or two in what was expected."""
    return max(a, b) <= max(2 * min(a, b), min(a, b) + 2)


class Judge:
    """index: rows of index.tsv; statuses: {name: (CPU's, CUDA's)}."""

    def __init__(self, index, statuses, table, history=known_commit):
        self.names = [row[0] for row in index]
        self.about = {row[0]: (row[3], row[4].split(",")) for row in index}
        self.statuses, self.table, self.history = statuses, table, history
        self.problems = []

    def say(self, *words):
        self.problems.append(": ".join(words))

    def complete(self, title, rows):
        have = [row[0] for row in rows]
        if have == self.names:
            return True
        missing = sorted(set(self.names) - set(have))
        extra = sorted(set(have) - set(self.names))
        self.say(title, f"{len(have)} rows for {len(self.names)} tests; missing {missing[:3]}, "
                 f"unknown {extra[:3]}" + ("" if missing or extra else "; not in the order of the index"))
        return False

    def well_formed(self, title, rows, figures=True):
        whys = [(row[0], malformed(row, figures)) for row in rows]
        for name, why in whys:
            if why:
                self.say(title, name, why)
        return not any(why for _, why in whys)

    def frozen_statuses(self, title, rows, column):
        for row in rows:
            want = self.statuses.get(row[0], ("passed", "passed"))[column]
            if row[1] != want:
                self.say(title, row[0], f"is {row[1]}; statuses.tsv says {want}")

    def within_table(self, title, header, rows):
        for row in rows:
            if row[1] not in COMPUTED:
                continue
            if row[4] == "?" and header.get("commit") != BEFORE_FORMAT_2:
                self.say(title, row[0], "the scaled figure is missing")
            why = above_table(row, *self.about[row[0]], self.table)
            if why:
                self.say(title, row[0], why)

    def ledger(self, kind, header, rows, title=None):
        """What must hold for a ledger by itself; True when its rows can be compared."""
        title = title or kind.title
        why = header_problem(header, kind, self.history)
        if why:
            self.say(title, why)
        if not self.complete(title, rows) or not self.well_formed(title, rows):
            return False
        self.frozen_statuses(title, rows, kind.column)
        self.within_table(title, header, rows)
        return True

    def against_run(self, fresh, rows):
        """A CPU's ledger is what this machine computes."""
        for got, want in zip(fresh, rows):
            if [got[i] for i in (1, 2, 5)] != [want[i] for i in (1, 2, 5)]:
                self.say(got[0], f"ledger has {' '.join(want[1:])}, this run {' '.join(got[1:])}")
                continue
            if got[1] not in COMPUTED:
                continue
            for measure in tolerances.MEASURES:
                if not close(figure(got, measure), figure(want, measure)):
                    self.say(got[0], f"ledger has {figure(want, measure):g} ULP ({measure}), this run "
                             f"{figure(got, measure):g}")

    def against_compiling(self, compiled, rows):
        """The CUDA ledger says of each test what compiling it now says."""
        for got, want in zip(compiled, rows):
            now = {"compiled": {"passed", DRAWN, "failed", "unmeasured"},
                   "frozen": {"frozen", "failed", "unmeasured"}}
            if want[1] not in now.get(got[1], {got[1]}):
                self.say("CUDA ledger", got[0], f"is {want[1]}, and compiling it now {got[1]}")
            elif got[2] != want[2]:
                self.say("CUDA ledger", got[0], f"is {want[2]}, and compiling it now {got[2]}")

        waiting = sum(row[1] == "unmeasured" for row in rows)
        if waiting > MOST_UNMEASURED:
            self.say("CUDA ledger", f"{waiting} rows are unmeasured: run the corpus on a GPU")

    def on_both_devices(self, fresh, compiled):
        """Compiling for CUDA refuses nothing that a CPU's kernels compute, and the other way round."""
        for cpu, cuda in zip(fresh, compiled):
            by_cpu = cpu[1] in COMPUTED | {DRAWN} and cpu[2] in ("generated", "library", "lists")
            by_cuda = cuda[1] in ("compiled", "frozen") and cuda[2] in ("generated", "lists")
            if by_cpu and cuda[1] == "unsupported" or by_cuda and cpu[1] == "unsupported":
                if cpu[0] not in ONE_DEVICE:
                    self.say("devices", cpu[0], f"the CPU's row is {cpu[1]}, CUDA's {cuda[1]}; the "
                             f"reason: {cuda[5] if by_cpu else cpu[5]}")
            elif cpu[0] in ONE_DEVICE:
                self.say("devices", cpu[0], "is listed in ONE_DEVICE, but runs on both")

    def two_machines(self, cpu, other, title=CUDA.title):
        """A CPU's figures under the name of another machine would be equal in every row."""
        both = [(a, b) for a, b in zip(cpu, other) if a[1] in COMPUTED and b[1] in COMPUTED]
        different = sum(a[3] != b[3] for a, b in both)
        if different < DIFFERENT_ROWS:
            self.say(title, f"its figures are the CPU's but in {different} rows, {DIFFERENT_ROWS} are the least")

    def judge(self, fresh, compiled, cpu, cuda):
        """Each a (header, rows). Returns how many checks were made."""
        ready = self.ledger(CPU, *cpu)
        if self.ledger(CPU, *fresh, "fresh run") and ready:
            self.against_run(fresh[1], cpu[1])
            if fresh[0].get("target") != cpu[0].get("target"):
                self.say("fresh run", f"target {fresh[0].get('target')}")
        whole = self.ledger(CUDA, *cuda)
        if whole and ready:
            self.two_machines(cpu[1], cuda[1])
        if compiled[0].get("target") != cuda[0].get("target"):
            self.say("compiled for CUDA", f"target {compiled[0].get('target')}")
        title = "compiled for CUDA"
        if (self.complete(title, compiled[1]) and self.well_formed(title, compiled[1], False)
                and whole):
            self.against_compiling(compiled[1], cuda[1])
            if ready and len(fresh[1]) == len(compiled[1]):
                self.on_both_devices(fresh[1], compiled[1])
        return 3 * len(self.names) + 4

    def judge_aarch64(self, fresh, ledger, cpu):
        """Each a (header, rows), the first of all tests or of some. Returns how many checks were made."""
        title = "fresh run"
        whole = self.ledger(AARCH64, *ledger)
        if whole and self.complete(CPU.title, cpu[1]):
            self.two_machines(cpu[1], ledger[1], AARCH64.title)
        why = header_problem(fresh[0], AARCH64, self.history)
        if why:
            self.say(title, why)
        want = {row[0]: row for row in ledger[1]}
        rows = fresh[1]
        unknown = [row[0] for row in rows if row[0] not in self.about]
        if unknown or not rows:
            self.say(title, f"{len(rows)} rows; unknown {unknown[:3]}")
        elif self.well_formed(title, rows) and whole:
            self.frozen_statuses(title, rows, AARCH64.column)
            self.within_table(title, fresh[0], rows)
            self.against_run(rows, [want[row[0]] for row in rows])
        return len(self.names) + len(rows) + 2


def read_statuses(path):
    return {row[0]: tuple(row[1:]) for row in read(path)[1]}


def mark_unmeasured(rows, compiled):
    """The rows of a CUDA ledger, with those that compile now and were not measured so."""
    for row, now in zip(rows, compiled):
        better = now[1] == "compiled" and row[1] not in ("passed", DRAWN, "failed") or \
            now[1] == "frozen" and row[1] not in COMPUTED | {"failed"}
        yield [row[0], "unmeasured", now[2], "-", "-", UNMEASURED] if better else row


def take(which, run, statuses_path):
    """Makes a run the ledger of `which`, or marks what it compiles; then writes the statuses."""
    paths = {device: os.path.join(HERE, f"ledger-{device}.tsv") for device in ("cpu", "cuda")}
    if which == "aarch64" or which in paths:
        with open(run) as f, open(os.path.join(HERE, f"ledger-{which}.tsv"), "w") as ledger:
            ledger.write(f.read())
    else:
        with open(paths["cuda"]) as f:
            header = [line for line in f if line[0] == "#"]
        rows = list(mark_unmeasured(read(paths["cuda"])[1], read(run)[1]))
        with open(paths["cuda"], "w") as f:
            f.writelines(header)
            f.writelines("\t".join(row) + "\n" for row in rows)
    with open(statuses_path) as f:
        comments = [line for line in f if line[0] == "#"]
    with open(statuses_path, "w") as f:
        f.writelines(comments)
        for cpu, cuda in zip(*(read(path)[1] for path in paths.values())):
            if (cpu[1], cuda[1]) != ("passed", "passed"):
                f.write(f"{cpu[0]}\t{cpu[1]}\t{cuda[1]}\n")


def main(argv):
    if "--help" in argv or len(argv) < 4:
        print(__doc__)
        return 0 if "--help" in argv else 2
    index = read(argv[1])[1]
    statuses_path = os.path.join(HERE, "statuses.tsv")
    if argv[3].startswith("--take="):
        which = argv[3].partition("=")[2]
        if which not in ("cpu", "cuda", "aarch64", "unmeasured"):
            print(__doc__)
            return 2
        take(which, argv[2], statuses_path)
        return 0
    fresh = read(argv[2])
    judge = Judge(index, read_statuses(statuses_path), tolerances.read())
    if argv[3] == "--aarch64":
        ledgers = {"AArch64": read(os.path.join(HERE, "ledger-aarch64.tsv"))}
        checks = judge.judge_aarch64(fresh, ledgers["AArch64"], read(os.path.join(HERE, "ledger-cpu.tsv")))
    else:
        ledgers = {title: read(os.path.join(HERE, f"ledger-{title.lower()}.tsv")) for title in ("CPU", "CUDA")}
        checks = judge.judge(fresh, read(argv[3]), ledgers["CPU"], ledgers["CUDA"])
    for problem in judge.problems[:60]:
        print(problem)
    if len(judge.problems) > 60:
        print(f"and {len(judge.problems) - 60} more")
    for title, (_, rows) in ledgers.items():
        counts = {}
        for row in rows:
            what = row[1] if row[1] != "passed" else f"passed, {row[2]}"
            counts[what] = counts.get(what, 0) + 1
        print(f"{title}: " + "; ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    failed = min(len(judge.problems), checks)
    print(f"{checks - failed} passed, {failed} failed")
    return 1 if judge.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
