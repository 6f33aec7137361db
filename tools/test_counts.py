# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints `PASSED FAILED SKIPPED` from the log of a test run: ctest -V, lit, pytest with -rs among others, or
`N passed, N failed`.

    test_counts.py LOG [SKIPS]

Summaries of several runs in one log are added up. What was skipped counts as failed, unless SKIPS
(rows of a regular expression of the test's name, and the reason why it may be skipped) lists it; the
names of the skipped go to the end of LOG.
"""
import re
import sys


def skips(text):
    """The tests that did not run, by name: a test case of GoogleTest, a test of lit, a line of pytest."""
    names, list_of_lit = [], False
    for line in text.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
        # ctest -V puts the number of the program before each line; each case is said twice.
        case = re.fullmatch(r"(?:\d+: )?\[  SKIPPED \] ([\w./]+)(?:, where .*)?(?: \(\d+ ms\))?", line)
        program = re.fullmatch(r"\s*\d+ - (\S+) \((?:Skipped|Not Run|Disabled)\)", line)
        pytest = re.fullmatch(r"(?:SKIPPED|XFAIL) \[\d+\] (.*)", line)
        if re.fullmatch(r"(Unsupported|Skipped|Excluded) Tests \(\d+\):", line):
            list_of_lit = True
        elif list_of_lit and line.startswith("  "):
            names.append(line.strip())
        else:
            list_of_lit = False
        for match in (case, program, pytest):
            if match:
                names.append(match[1])
    return list(dict.fromkeys(names))


def count(text):
    """(passed, failed, skipped): what the summaries say, and how many cases were skipped by name."""
    passed = failed = unnamed = 0
    for line in text.splitlines():
        line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        # Newer versions leave the failed ones out where there are none.
        ctest = re.fullmatch(r"\d+% tests passed(?:, (\d+) tests? failed)? out of (\d+)", line)
        lit = re.fullmatch(r"(Passed|Expectedly Failed|Failed|Unresolved|Timed Out|"
                           r"Unexpectedly Passed|Unsupported|Skipped|Excluded)\s*:\s*(\d+)( \(.*\))?",
                           line)
        if ctest:
            failed += int(ctest[1] or 0)
            passed += int(ctest[2]) - int(ctest[1] or 0)
        elif lit:
            if lit[1] in ("Passed", "Expectedly Failed"):
                passed += int(lit[2])
            elif lit[1] in ("Unsupported", "Skipped", "Excluded"):
                unnamed += int(lit[2])
            else:
                failed += int(lit[2])
        elif re.fullmatch(r"\d+ passed, \d+ failed", line):
            numbers = re.findall(r"\d+", line)
            passed += int(numbers[0])
            failed += int(numbers[1])
        elif re.fullmatch(r"=*\s*(\d+ [a-z]+,? ?)+( subtests passed)?.* in [\d.]+s.*", line):
            # pytest: "1 failed, 3 passed, 2 errors in 0.12s"
            for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed|deselected)\b",
                                           line):
                if word == "passed":
                    passed += int(number)
                elif word in ("skipped", "xfailed", "deselected"):
                    unnamed += int(number)
                else:
                    failed += int(number)
    return passed, failed, max(unnamed, len(skips(text)))


def unlisted(text, patterns):
    """Skipped tests that no pattern allows, and how many are skipped without a name."""
    names = skips(text)
    bad = [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    # pytest says several skips of one line at once.
    more = sum(int(n) - 1 for n in re.findall(r"^SKIPPED \[(\d+)\]", text, re.M))
    return bad, max(0, count(text)[2] - len(names) - more)


def main(argv):
    with open(argv[1], errors="replace") as log:
        text = log.read()
    patterns = []
    if len(argv) > 2:
        with open(argv[2]) as f:
            patterns = [line.split("\t")[0] for line in f if line.strip() and line[0] != "#"]
    passed, failed, skipped = count(text)
    bad, unnamed = unlisted(text, patterns)
    if skipped:
        with open(argv[1], "a") as log:
            log.write("".join(f"skipped{', and not listed' if name in bad else ''}: {name}\n"
                              for name in skips(text)))
            if unnamed:
                log.write(f"skipped without a name: {unnamed}\n")
    print(passed, failed + len(bad) + unnamed, skipped)


if __name__ == "__main__":
    main(sys.argv)
