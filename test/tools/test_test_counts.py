# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/test_counts.py reads the summaries of every test program that tools/check runs."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
from test_counts import count  # noqa: E402

LOGS = {
    "ctest, all passed": ("100% tests passed, 0 tests failed out of 12\n", (12, 0)),
    "ctest 4, all passed": ("100% tests passed out of 11\n", (11, 0)),
    "ctest, one failed": ("92% tests passed, 1 tests failed out of 12\n", (11, 1)),
    "lit": ("Testing Time: 1.02s\n\nTotal Discovered Tests: 9\n  Unsupported : 1 (11.11%)\n"
            "  Passed      : 5 (55.56%)\n  Failed      : 2 (22.22%)\n  Unresolved  : 1 (1%)\n",
            (5, 3)),
    "pytest": ("....F\n1 failed, 4 passed, 2 errors in 0.12s\n", (4, 3)),
    "pytest, framed": ("===== 4 passed, 1 warning in 65.01s (0:01:05) =====\n", (4, 0)),
    "pytest, subtests": ("20 passed, 7 subtests passed in 1.06s\n", (20, 0)),
    "pytest, skipped": ("3 passed, 2 skipped in 1.06s\n", (3, 0)),
    "own": ("something\n50 passed, 2 failed\n", (50, 2)),
    "two runs": ("3 passed, 0 failed\n100% tests passed, 0 tests failed out of 4\n", (7, 0)),
    "nothing ran": ("Segmentation fault\n", (0, 0)),
}


class Counts(unittest.TestCase):
    def test_logs(self):
        for name, (log, expected) in LOGS.items():
            with self.subTest(log=name):
                self.assertEqual(count(log), expected)


if __name__ == "__main__":
    unittest.main()
