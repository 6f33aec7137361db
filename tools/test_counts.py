# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints `PASSED FAILED` from the log of a test run: ctest, lit, pytest or `N passed, N failed`.

Summaries of several runs in one log are added up.
"""
import re
import sys


def count(text):
    passed = failed = 0
    for line in text.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        # Newer versions leave the failed ones out where there are none.
        ctest = re.fullmatch(r"\d+% tests passed(?:, (\d+) tests? failed)? out of (\d+)", line)
        lit = re.fullmatch(r"(Passed|Expectedly Failed|Failed|Unresolved|Timed Out|"
                           r"Unexpectedly Passed)\s*:\s*(\d+)( \(.*\))?", line)
        if ctest:
            failed += int(ctest[1] or 0)
            passed += int(ctest[2]) - int(ctest[1] or 0)
        elif lit:
            if lit[1] in ("Passed", "Expectedly Failed"):
                passed += int(lit[2])
            else:
                failed += int(lit[2])
        elif re.fullmatch(r"\d+ passed, \d+ failed", line):
            numbers = re.findall(r"\d+", line)
            passed += int(numbers[0])
            failed += int(numbers[1])
        elif re.fullmatch(r"=*\s*(\d+ [a-z]+,? ?)+( subtests passed)?.* in [\d.]+s.*", line):
            # pytest: "1 failed, 3 passed, 2 errors in 0.12s"
            for number, word in re.findall(r"(\d+) (passed|failed|errors?)\b", line):
                if word == "passed":
                    passed += int(number)
                else:
                    failed += int(number)
    return passed, failed


if __name__ == "__main__":
    with open(sys.argv[1], errors="replace") as log:
        print(*count(log.read()))
