# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one exception of the package."""
from __future__ import annotations

import enum
import re


class Code(enum.IntEnum):
    """Kinds of failure; the numbers are the exit codes of the command line."""

    USAGE = 2
    INVALID = 3
    UNSUPPORTED = 4
    RUNTIME_FAILURE = 5
    INTERNAL = 6
    DEADLINE = 7
    CANCELLED = 8
    PEER_LOST = 9


class Error(RuntimeError):
    """What went wrong (`message`), of what kind (`code`), and where (`location`, may be "").

    `node` is the ONNX node, where there is one; `source` the lines of Python that made it, where the
    model comes from torch.
    """

    def __init__(self, code: int, message: str, location: str = "", source: str = "") -> None:
        self.code, self.message, self.location, self.source = Code(code), message, location, source
        text = f"{location}: {message}" if location else message
        super().__init__(f"{text}\n{source}" if source else text)

    @property
    def node(self) -> str | None:
        """Name of the ONNX node that the error is about."""
        match = re.match(r"node (\S+)", self.location) or re.search(r"\bnode '?([\w./:]+)", self.message)
        return match[1] if match else None
