# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the command `lathe` prints, for functions that are one of its verbs."""
from __future__ import annotations

import os
import subprocess
import sys

from ._errors import Code, Error

# In a process of its own: it reads its command line once a process, and Ctrl-C ends it.
_PROGRAM = "import sys; from lathe._commands import lathe; sys.exit(lathe())"


def output_of(arguments: list[str], model: str) -> str:
    """What `lathe` prints, in a process of its own. `model`: a file that it is to see under the same name. An Error
    where it fails."""
    inherited = (int(model.rsplit("/", 1)[1]),) if model.startswith("/proc/self/fd/") else ()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, check=False,
                          pass_fds=inherited, env={**os.environ, "PYTHONPATH": paths})
    if done.returncode == 0:
        return done.stdout
    if done.returncode not in list(Code):
        raise Error(Code.INTERNAL, done.stderr.strip() or f"ended with {done.returncode}", f"lathe {arguments[0]}")
    # lathe: KIND: LOCATION: MESSAGE, of which the kind is the code.
    said = next((line for line in done.stderr.splitlines() if line.startswith("lathe: ")), done.stderr.strip())
    raise Error(done.returncode, said.removeprefix("lathe: ").partition(": ")[2] or said)
