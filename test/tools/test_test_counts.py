# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/test_counts.py reads the summaries of every test program that tools/check runs."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
from test_counts import count, skips, unlisted  # noqa: E402

LOGS = {
    "ctest, all passed": ("100% tests passed, 0 tests failed out of 12\n", (12, 0, 0)),
    "ctest 4, all passed": ("100% tests passed out of 11\n", (11, 0, 0)),
    "ctest, one failed": ("92% tests passed, 1 tests failed out of 12\n", (11, 1, 0)),
    "ctest, skipped cases": ("7: [  SKIPPED ] Cuda.Runs (0 ms)\n7: [  SKIPPED ] 1 test, listed below:\n"
                             "7: [  SKIPPED ] Cuda.Runs\n100% tests passed out of 11\n", (11, 0, 1)),
    "ctest, skipped program": ("100% tests passed out of 11\n\nThe following tests did not run:\n"
                               "\t  5 - unit.NvrtcTest (Skipped)\n", (11, 0, 1)),
    "lit": ("Unsupported Tests (1):\n  lathe :: a.test\n\nTesting Time: 1.02s\n\n"
            "Total Discovered Tests: 9\n  Unsupported : 1 (11.11%)\n"
            "  Passed      : 5 (55.56%)\n  Failed      : 2 (22.22%)\n  Unresolved  : 1 (1%)\n",
            (5, 3, 1)),
    "pytest": ("....F\n1 failed, 4 passed, 2 errors in 0.12s\n", (4, 3, 0)),
    "pytest, framed": ("===== 4 passed, 1 warning in 65.01s (0:01:05) =====\n", (4, 0, 0)),
    "pytest, subtests": ("20 passed, 7 subtests passed in 1.06s\n", (20, 0, 0)),
    "pytest, skipped": ("SKIPPED [2] test_a.py:7: no torch\n3 passed, 2 skipped in 1.06s\n", (3, 0, 2)),
    "pytest, skipped without names": ("3 passed, 2 skipped in 1.06s\n", (3, 0, 2)),
    "own": ("something\n50 passed, 2 failed\n", (50, 2, 0)),
    "two runs": ("3 passed, 0 failed\n100% tests passed, 0 tests failed out of 4\n", (7, 0, 0)),
    "nothing ran": ("Segmentation fault\n", (0, 0, 0)),
}
# What is skipped, by name, and how many without one.
SKIPS = {
    "ctest, skipped cases": (["Cuda.Runs"], 0),
    "ctest, skipped program": (["unit.NvrtcTest"], 0),
    "lit": (["lathe :: a.test"], 0),
    "pytest, skipped": (["test_a.py:7: no torch"], 0),
    "pytest, skipped without names": ([], 2),
}


class Counts(unittest.TestCase):
    def test_logs(self):
        for name, (log, expected) in LOGS.items():
            with self.subTest(log=name):
                self.assertEqual(count(log), expected)

    def test_skips_are_failures_unless_listed(self):
        for name, (log, _) in LOGS.items():
            with self.subTest(log=name):
                names, unnamed = SKIPS.get(name, ([], 0))
                self.assertEqual(skips(log), names)
                self.assertEqual(unlisted(log, []), (names, unnamed))
                # What a pattern must fit is the whole name.
                self.assertEqual(unlisted(log, ["Cuda", "unit", "lathe :: a.test"]),
                                 ([n for n in names if n != "lathe :: a.test"], unnamed))
                self.assertEqual(unlisted(log, [".*"]), ([], unnamed))


if __name__ == "__main__":
    unittest.main()
