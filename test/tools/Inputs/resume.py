# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles each phase of a dump and compares with an engine: resume.py LATHE DUMP ENGINE"""
import glob
import os
import subprocess
import sys

lathe, dump, engine = sys.argv[1:]
with open(engine, "rb") as f:
    expected = f.read()
for text in sorted(glob.glob(f"{dump}/*.mlir")):
    subprocess.run([lathe, "compile", text, "-o", f"{dump}/again"], check=True)
    with open(f"{dump}/again", "rb") as f:
        same = f.read() == expected
    os.remove(f"{dump}/again")
    print(os.path.basename(text)[3:-5], "same" if same else "DIFFERENT")
