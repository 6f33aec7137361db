# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""test/conformance/check_ledger.py sees each way in which a ledger can be wrong."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conformance"))
import check_ledger  # noqa: E402

NAMES = [f"node/test_{i:04}" for i in range(700)]
INDEX = [[name, "1e-3", "1e-7", "Exp", "float"] for name in NAMES]
TABLE = {("Exp", "float"): ("elements", 5.0)}
COMMIT = "0123456789" * 4
FREEZE = "given when compiling: axes"
FRESH, COMPILED, CPU, CUDA = range(4)


def header(cuda):
    return {"format": "", "target": "sm_90a" if cuda else "x86-64-v3",
            "device": "NVIDIA H200" if cuda else "cpu", "driver": "13000" if cuda else "-",
            "commit": COMMIT}


def rows(ulp):
    return [[name, "passed", "generated", ulp, f"{float(ulp):.2f}", ""] for name in NAMES]


def ledgers():
    compiled = [[name, "compiled", "generated", "-", "-", ""] for name in NAMES]
    return [(header(False), rows("3")), (header(True), compiled), (header(False), rows("3")),
            (header(True), rows("2"))]


def arm_ledgers():
    """A run of each seventh test, the ledger of ARM, that of the CPU."""
    about = header(False) | {"target": "armv8-a", "device": "qemu-aarch64"}
    return [(dict(about), rows("2")[::7]), (dict(about), rows("2")), (header(False), rows("3"))]


class CheckAArch64(unittest.TestCase):
    def problems(self, change=lambda given: None, statuses=None):
        given = arm_ledgers()
        change(given)
        judge = check_ledger.Judge(INDEX, statuses or {}, TABLE, lambda commit: commit == COMMIT)
        judge.judge_aarch64(*given)
        return "\n".join(judge.problems)

    def put(self, which, number, *columns):
        return lambda given: given[which][1][number].__setitem__(slice(1, None), columns)

    def test_same(self):
        self.assertEqual(self.problems(), "")

    def test_each_difference(self):
        for which, number, columns, pattern in (
                (0, 3, ("passed", "generated", "5", "5.00", ""), "0021: ledger has 2 ULP"),
                (0, 3, ("passed", "library", "2", "2.00", ""), "0021: ledger has passed generated"),
                (0, 3, ("passed", "generated", "9", "9.00", ""), "5 are the most"),
                (0, 3, ("unsupported", "-", "-", "-", "unsupported: why"), "statuses.tsv says passed"),
                (0, 3, ("error", "-", "-", "-", "internal error: the runner"), "ends in a typed error"),
                (1, 3, ("passed", "generated", "9", "9.00", ""), "AArch64 ledger: .*0003: 9 ULP"),
                (1, 3, ("unsupported", "-", "-", "-", "unsupported: why"), "AArch64 ledger: .*says passed"),
                (1, 3, ("passed", "generated", "2", "?", ""), "scaled figure is missing")):
            with self.subTest(which=which, columns=columns):
                self.assertRegex(self.problems(self.put(which, number, *columns)), pattern)

    def test_rows(self):
        self.assertRegex(self.problems(lambda given: given[1][1].pop()), "699 rows for 700 tests")
        self.assertRegex(self.problems(lambda given: given[0][1].clear()), "fresh run: 0 rows")

        def rename(given):
            given[0][1][0][0] = "node/test_unknown"
        self.assertRegex(self.problems(rename), "unknown ..node/test_unknown")

    def test_headers(self):
        for which, field, value in ((0, "target", "x86-64-v3"), (1, "target", "x86-64-v3"), (1, "device", "cuda:0"),
                                    (1, "driver", "13000"), (1, "commit", "0" * 40)):
            with self.subTest(which=which, field=field):
                self.assertRegex(self.problems(lambda given: given[which][0].update({field: value})), field)

    def test_the_cpus_figures(self):
        def copy(given):
            given[1][1][:] = rows("3")
            given[0][1][:] = rows("3")[::7]
        self.assertRegex(self.problems(copy), "AArch64 ledger: its figures are the CPU's")


class CheckLedger(unittest.TestCase):
    def problems(self, change=None, which=FRESH, statuses=None, header_change=None):
        """The messages after `change` to the rows, and `header_change` to the header, of one."""
        given = ledgers()
        if change:
            change(given[which][1])
        if header_change:
            given[which][0].update(header_change)
        judge = check_ledger.Judge(INDEX, statuses or {}, TABLE, lambda commit: commit == COMMIT)
        judge.judge(*given)
        return "\n".join(judge.problems)

    def put(self, number, *columns):
        return lambda given: given[number].__setitem__(slice(1, None), columns)

    def test_same(self):
        self.assertEqual(self.problems(), "")

    def test_cuda_passes_turned_into_unsupported(self):
        def fail(given):
            for row in given[:300]:
                row[1:] = ["unsupported", "-", "-", "-", "unsupported: no lowering"]
        found = self.problems(fail, CUDA)
        self.assertEqual(found.count("statuses.tsv says passed"), 300)
        self.assertEqual(found.count("compiling it now compiled"), 300)
        # With the statuses falsified as well, what compiling says now still tells.
        statuses = {name: ("passed", "unsupported") for name in NAMES[:300]}
        self.assertEqual(self.problems(fail, CUDA, statuses).count("compiling it now compiled"), 300)

    def test_what_one_device_has_and_the_other_lacks(self):
        refused = ["unsupported", "-", "-", "-", "unsupported: no lowering"]
        given = ledgers()
        statuses = {NAMES[5]: ("passed", "unsupported"), NAMES[6]: ("unsupported", "passed")}
        for which, number in ((COMPILED, 5), (CUDA, 5), (FRESH, 6), (CPU, 6)):
            given[which][1][number][1:] = refused
        judge = check_ledger.Judge(INDEX, statuses, TABLE, lambda commit: True)
        judge.judge(*given)
        self.assertEqual(len(judge.problems), 2)
        for line, number in zip(judge.problems, (5, 6)):
            self.assertRegex(line, f"devices: {NAMES[number]}: .*no lowering")

    def test_passes_that_statuses_do_not_know(self):
        statuses = {NAMES[7]: ("unsupported", "passed")}
        self.assertRegex(self.problems(statuses=statuses), "0007: is passed; .* says unsupported")

    def test_invented_figures(self):
        for which in (CPU, CUDA):
            with self.subTest(ledger=which):
                self.assertRegex(self.problems(self.put(5, "passed", "generated", "6", "6.00", ""),
                                               which), "6 ULP .elements., 5 are the most")
        self.assertRegex(self.problems(self.put(5, "passed", "generated", "0", "0.00", ""), CPU),
                         "ledger has 0 ULP")
        self.assertRegex(self.problems(self.put(5, "passed", "generated", "3", "9.00", ""), CPU),
                         "ledger has 9 ULP")
        self.assertRegex(self.problems(self.put(5, "passed", "generated", "0", "2.00", ""), CUDA),
                         "no element is off")

    def test_a_unit_of_another_machine_is_no_difference(self):
        for ulp in ("2", "4", "5"):
            change = self.put(5, "passed", "generated", ulp, f"{float(ulp):.2f}", "")
            self.assertEqual(self.problems(change, FRESH), "")

    def test_the_cpus_ledger_given_as_cudas(self):
        def copy(given):
            given[:] = rows("3")
        self.assertRegex(self.problems(copy, CUDA), "its figures are the CPU's")
        self.assertRegex(self.problems(which=CUDA, header_change=header(False)), "target x86-64-v3")

    def test_headers(self):
        for field, value, pattern in (("target", "sm_90b", "target"), ("device", "cuda:0", "no GPU"),
                                      ("device", "cpu", "no GPU"), ("driver", "-", "driver"),
                                      ("commit", "0" * 40, "none of this history"),
                                      ("commit", "-", "none of this history"), ("mode", "all-symbolic", "mode")):
            with self.subTest(field=field, value=value):
                self.assertRegex(self.problems(which=CUDA, header_change={field: value}), pattern)
        given = header(True)
        del given["driver"]
        self.assertRegex(check_ledger.header_problem(given, check_ledger.CUDA), "lacks driver")
        self.assertRegex(self.problems(which=COMPILED, header_change={"target": "sm_80"}), "sm_80")

    def test_missing_figures(self):
        change = self.put(5, "passed", "generated", "3", "?", "")
        self.assertRegex(self.problems(change, CUDA), "scaled figure is missing")
        for ulp, scaled in (("-", "-"), ("x", "1.00"), ("1", "")):
            with self.subTest(ulp=ulp):
                change = self.put(5, "passed", "generated", ulp, scaled, "")
                self.assertRegex(self.problems(change, CUDA), "worst ULP")

    def test_each_difference(self):
        for columns, pattern in ((("failed", "generated", "-", "-", "mismatch"), "neither passes nor"),
                                 (("passed", "host", "3", "3.00", ""), "this run passed host"),
                                 (("passed", "library", "3", "3.00", ""), "this run passed library"),
                                 (("frozen", "generated", "3", "3.00", FREEZE), "this run frozen")):
            with self.subTest(columns=columns):
                status = {NAMES[5]: (columns[0], "passed")}
                committed = self.put(5, *columns)
                self.assertRegex(self.problems(committed, FRESH, status), pattern)

    def test_what_compiles_and_was_not_measured_says_so(self):
        row = ("unmeasured", "generated", "-", "-", check_ledger.UNMEASURED)
        statuses = {NAMES[5]: ("passed", "unmeasured")}
        self.assertEqual(self.problems(self.put(5, *row), CUDA, statuses), "")
        self.assertRegex(self.problems(self.put(5, *row), CUDA), "statuses.tsv says passed")
        self.assertRegex(self.problems(self.put(5, *row[:4], "why"), CUDA, statuses), "note 'why'")

        def all_of_them(given):
            for line in given:
                line[1:] = row
        many = {name: ("passed", "unmeasured") for name in NAMES}
        self.assertRegex(self.problems(all_of_them, CUDA, many), "700 rows are unmeasured")

    def test_mark_unmeasured(self):
        names = ("a", "b", "c", "d", "e")
        was = [("passed", "generated"), ("unsupported", "-"), ("frozen", "generated"),
               ("frozen", "generated"), ("unsupported", "-")]
        now = ("compiled", "compiled", "compiled", "frozen", "unsupported")
        rows = [[name, *status, "1", "1.00", ""] for name, status in zip(names, was)]
        compiled = [[name, status, "generated", "-", "-", ""] for name, status in zip(names, now)]
        marked = list(check_ledger.mark_unmeasured(rows, compiled))
        self.assertEqual([row[1] for row in marked],
                         ["passed", "unmeasured", "unmeasured", "frozen", "unsupported"])

    def test_library_calls_of_cuda(self):
        change = self.put(5, "passed", "library", "2", "2.00", "")
        self.assertRegex(self.problems(change, CUDA), "is library, and compiling it now generated")

    def test_frozen_inputs_are_said(self):
        change = self.put(5, "passed", "generated", "3", "3.00", FREEZE)
        self.assertRegex(self.problems(change, CUDA), "passed, with the note")
        change = self.put(5, "frozen", "generated", "3", "3.00", "")
        self.assertRegex(self.problems(change, CUDA), "frozen, with the note")

    def test_a_test_that_is_gone(self):
        for which in range(4):
            with self.subTest(ledger=which):
                self.assertRegex(self.problems(lambda r: r.pop(), which), "missing")

    def test_order(self):
        self.assertRegex(self.problems(lambda r: r.reverse(), CUDA), "not in the order")

    def test_no_reason(self):
        self.assertRegex(self.problems(self.put(3, "unsupported", "-", "-", "-", ""), CUDA), "no reason")

    def test_wrong_values_and_crashes(self):
        for status, reason in (("failed", "mismatch"), ("error", "internal: crashed")):
            with self.subTest(status=status):
                change = self.put(3, status, "-", "-", "-", reason)
                self.assertRegex(self.problems(change, CPU), "typed error")

    def test_disputed_rows_fail_in_one_way(self):
        name, reason = next(iter(check_ledger.DISPUTED.items()))
        row = [name, "failed", "generated", "-", "-", reason]
        self.assertIsNone(check_ledger.malformed(row))
        row[5] = reason.replace("10 of", "11 of")
        self.assertRegex(check_ledger.malformed(row), "typed error")

    def test_drawn_rows_say_by_what(self):
        row = [NAMES[0], check_ledger.DRAWN, "generated", "-", "-", check_ledger.BY_SEED]
        self.assertIsNone(check_ledger.malformed(row))
        self.assertRegex(check_ledger.malformed([*row[:5], "by looking at it"]), "with the note")
        self.assertRegex(check_ledger.malformed([*row[:3], "0", "0.00", row[5]]), "not compared")
        self.assertRegex(check_ledger.malformed([row[0], row[1], "-", *row[3:]]), "not how")

    def test_no_data_set_is_no_pass(self):
        row = [NAMES[3], "passed", "generated", "-", "-", ""]
        self.assertRegex(check_ledger.malformed(row), "worst ULP")


if __name__ == "__main__":
    unittest.main()
