# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The console scripts `lathe` and `lathe-opt`: functions of the compiler library."""
from __future__ import annotations

import ctypes
import os
import signal
import sys

from ._compiler import library
from ._errors import Error


def _run(function: str, name: str) -> int:
    # Ctrl-C ends a program of C; Python would wait until the call returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = [name.encode(), *map(os.fsencode, sys.argv[1:])]
    try:
        return int(getattr(library(), function)(len(arguments),
                                                (ctypes.c_char_p * (len(arguments) + 1))(*arguments)))
    except Error as error:
        print(f"{name}: {error}", file=sys.stderr)
        return int(error.code)


def lathe() -> int:
    return _run("lathe_command", "lathe")


def lathe_opt() -> int:
    return _run("lathe_opt_command", "lathe-opt")
