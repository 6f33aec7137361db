# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The minutes that tools/check allots to its parts: all of them, thirty in all, and a warning beyond."""
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
with open(os.path.join(ROOT, "tools", "check")) as f:
    CHECK = f.read()
with open(os.path.join(ROOT, "tools", "minutes.tsv")) as f:
    MINUTES = {name: float(minutes) for name, minutes in
               (line.rstrip("\n").split("\t") for line in f if not line.startswith("#"))}


def bash(script):
    return subprocess.run(["bash", "-c", f"set -euo pipefail; source tools/stage.sh; {script}"], cwd=ROOT,
                          capture_output=True, text=True, check=True).stdout


def test_every_suite_has_minutes_and_they_add_up():
    always, full = (re.findall(r'^ *suite "([^"]+)"', part, re.M)
                    for part in CHECK.split('echo "tests"')[1].split("if ((full))"))
    assert len(always) >= 10 and set(always + full) == set(MINUTES) - {
        "set-up and build", "all of it", "all of it, full"}
    whole = MINUTES["set-up and build"] + sum(MINUTES[name] for name in always)
    assert round(whole, 6) <= MINUTES["all of it"] <= 30
    assert round(whole + sum(MINUTES[name] for name in full), 6) <= MINUTES["all of it, full"]


def test_what_takes_longer_gets_a_warning():
    function = re.search(r"^over_its_minutes\(\) {.*?^}", CHECK, re.M | re.S)[0]
    limit = 60 * MINUTES["lit"]
    said = bash(f"{function}\nover_its_minutes lit {limit - 1}; echo .; over_its_minutes lit {limit + 1}; echo .; "
                "over_its_minutes unknown 1").split(".\n")
    assert said[0] == "" and "WARNING: over its" in said[1] and "no minutes allotted" in said[2]


def test_stages_say_what_all_processors_took(tmp_path):
    line = bash("stage 'a test of stages' bash -c 'i=0; while ((i < 100000)); do ((++i)); done'")
    os.remove(os.path.join(ROOT, "build", "log", "a-test-of-stages.log"))
    wall, cpu = map(float, re.search(r"a test of stages +([\d.]+) s +([\d.]+) CPU s", line).groups())
    assert 0.05 < cpu < 60 and wall > 0
