# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one exception of the package."""
import enum


class Code(enum.IntEnum):
    """Kinds of failure; the numbers are the exit codes of the command line."""

    USAGE = 2
    INVALID = 3
    UNSUPPORTED = 4
    RUNTIME_FAILURE = 5
    INTERNAL = 6


class Error(RuntimeError):
    """What went wrong (`message`), of what kind (`code`), and where (`location`, may be "")."""

    def __init__(self, code, message, location=""):
        self.code, self.message, self.location = Code(code), message, location
        super().__init__(f"{location}: {message}" if location else message)
