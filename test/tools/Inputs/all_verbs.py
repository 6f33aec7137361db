# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Succeeds when the help of every verb has these words: all_verbs.py LATHE WORD..."""
import re
import subprocess
import sys

lathe, *words = sys.argv[1:]
text = subprocess.run([lathe, "--help"], capture_output=True, text=True, check=True).stdout
verbs = re.findall(r"^  lathe ([a-z]+)  ", text, re.M)
if len(verbs) < 7:
    sys.exit(f"only {verbs}")
for verb in verbs:
    own = subprocess.run([lathe, verb, "--help"], capture_output=True, text=True, check=True).stdout
    for word in words:
        if word not in own:
            sys.exit(f"lathe {verb} --help lacks {word}")
