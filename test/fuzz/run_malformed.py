# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the malformed models and compiles each: exit code 3 or 4, and the place in the message.

    run_malformed.py OUT [NAME...]

LATHE_BUILD names another build tree. Last line: `N passed, N failed`.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

from malformed import CASES

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
LATHE = os.path.join(os.environ.get("LATHE_BUILD", os.path.join(ROOT, "build")), "bin", "lathe")
LEAST = 50


def check(out, name):
    """Why the command did wrong on this model, or None."""
    file, write, place = CASES[name]
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    path, engine = os.path.join(folder, file), os.path.join(folder, "out.lathe")
    write(path)
    if os.path.exists(engine):
        os.remove(engine)
    try:
        done = subprocess.run([LATHE, "compile", path, "-o", engine, "--target=x86-64-v3"],
                              capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "did not end"
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode not in (3, 4):
        return f"exit code {done.returncode}, 3 or 4 expected:\n{text[-1500:]}"
    # The path of the file holds the case's name; it is no place inside the model.
    message = text.replace(folder, "")
    if not re.search(place, message):
        return f"the message names no {place}:\n{text[-1500:]}"
    if os.path.exists(engine):
        return "an engine was written"
    return None


def main(argv):
    out, names = argv[1], argv[2:] or list(CASES)
    if len(CASES) < LEAST:
        print(f"only {len(CASES)} malformed models, {LEAST} expected")
        return 1
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, why in zip(names, pool.map(lambda n: check(out, n), names)):
            if why:
                failed += 1
                print(f"{name}: {why}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
