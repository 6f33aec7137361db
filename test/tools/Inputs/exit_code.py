# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command and succeeds when it ends with the given code: exit_code.py CODE COMMAND..."""
import subprocess
import sys

code = subprocess.run(sys.argv[2:]).returncode
if code != int(sys.argv[1]):
    sys.exit(f"exit code {code}, {sys.argv[1]} expected: {' '.join(sys.argv[2:])}")
