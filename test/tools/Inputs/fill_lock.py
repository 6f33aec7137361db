# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fill_lock.py LOCK LATHE MODEL: puts the model's own key, which the refusal names, into a lockfile."""
import re
import subprocess
import sys

lock, lathe, model = sys.argv[1:]
said = subprocess.run([lathe, "compile", model, "--target=sm_90a", "--lock", lock, "-o", lock + ".none"],
                      capture_output=True, text=True)
text = open(lock).read()
key = re.search(r"this is ([0-9a-f]{64})", said.stderr)[1]
open(lock, "w").write(re.sub("(?m)^model .*$", "model " + key, text))
