# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""test/conformance/check_ledger.py sees each way in which a ledger can be wrong."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conformance"))
import check_ledger  # noqa: E402

NAMES = [f"node/test_{i:04}" for i in range(700)]


def rows():
    return [[name, "passed", "generated", "0.5", ""] for name in NAMES]


class CheckLedger(unittest.TestCase):
    def problems(self, change=None, which=0):
        ledgers = [rows(), rows(), rows()]
        if change:
            change(ledgers[which])
        return "\n".join(check_ledger.compare(NAMES, *ledgers)[1])

    def test_same(self):
        self.assertEqual(self.problems(), "")

    def test_each_difference(self):
        for column, value, pattern in ((1, "failed", "this run failed"), (2, "host", "host"),
                                       (3, "0.6", "0.6"), (4, "why", "why")):
            with self.subTest(column=column):
                self.assertRegex(self.problems(lambda r: r[5].__setitem__(column, value)), pattern)

    def test_a_test_that_is_gone(self):
        for which in range(3):
            with self.subTest(ledger=which):
                self.assertRegex(self.problems(lambda r: r.pop(), which), "missing")

    def test_order(self):
        self.assertRegex(self.problems(lambda r: r.reverse(), 2), "not in the order")

    def test_no_reason(self):
        self.assertRegex(
            self.problems(lambda r: r.__setitem__(3, [NAMES[3], "failed", "-", "-", ""]), 2),
            "no reason")

    def test_wrong_values_and_crashes(self):
        for status, reason in (("failed", "mismatch"), ("error", "internal: crashed")):
            with self.subTest(status=status):
                row = [NAMES[3], status, "-", "-", reason]
                self.assertRegex(self.problems(lambda r: r.__setitem__(3, row), 1), "typed error")

    def test_disputed_rows_fail_in_one_way(self):
        name, reason = next(iter(check_ledger.DISPUTED.items()))
        row = [name, "failed", "generated", "-", reason]
        self.assertIsNone(check_ledger.malformed(row))
        row[4] = reason.replace("10 of", "11 of")
        self.assertRegex(check_ledger.malformed(row), "typed error")

    def test_bar(self):
        def fail(ledger):
            for row in ledger[:300]:
                row[1:] = ["unsupported", "-", "-", "op"]
        self.assertRegex(self.problems(fail, 2), "CUDA: 400 tests pass")


if __name__ == "__main__":
    unittest.main()
