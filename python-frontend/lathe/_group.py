# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One engine on several devices."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_void_p, sizeof
from typing import TYPE_CHECKING, Any

from . import _lists
from ._abi import COptions, CTensor
from ._context import Inputs, Member
from ._errors import Code, Error
from ._tensor import Tensor, take_output

if TYPE_CHECKING:
    from ._engine import Engine, Port


class _Owned:
    """The group in C: it lives as long as the Group or one of its members."""

    def __init__(self, library: Any) -> None:
        self.library, self.handle = library, c_void_p()

    def __del__(self) -> None:
        handle, self.handle = self.handle, c_void_p()
        if handle:
            self.library.lathe_group_destroy(handle)


class Group:
    """An ordered list of devices, with a context each. A step is one step of every member: all have
    done it, or none's states know of it. One thread at a time may use it."""

    def __init__(self, engine: Engine, devices: list[str], threads: int, target: str | None,
                 graphs: bool, pinning: bool, overlap: bool, deadline: float | None) -> None:
        self.devices = devices
        self._library = engine._library
        self._owned = _Owned(self._library)
        options = COptions(sizeof(COptions), threads, target.encode() if target else None, None,
                           not graphs, not pinning, not overlap)
        if deadline is not None:
            options.deadline_ms = max(1, int(deadline * 1000))
        names = (c_char_p * max(len(devices), 1))(*(d.encode() for d in devices))
        self._library.lathe_group_create(engine._handle, names, len(devices), byref(options),
                                         byref(self._owned.handle))
        self.members: list[Member] = [_Part(self, engine, i) for i in range(len(devices))]

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"lathe.Group({', '.join(self.devices)})"

    def run(self, inputs: Sequence[Inputs], entry: str | None = None, *,
            memory: str = "host") -> list[dict[str, Tensor | Any]]:
        """Runs an entry on every member and waits; see submit."""
        return self.submit(inputs, entry, memory=memory).wait()

    def submit(self, inputs: Sequence[Inputs], entry: str | None = None, *,
               memory: str = "host") -> GroupStep:
        """Starts a step of every member behind those submitted before; returns a `GroupStep`.

        `inputs` has what Context.run takes for each member, in order. When a member fails, the step
        fails for all, and the states of every member are as before it.
        """
        if len(inputs) != len(self.members):
            raise Error(Code.USAGE, f"{len(inputs)} lists of inputs were given, the group has "
                        f"{len(self.members)} members")
        entry = self.members[0]._first if entry is None else entry
        parts = [member._tensors(entry, given, memory)
                 for member, given in zip(self.members, inputs)]
        given = [tensor for made, *_ in parts for tensor, _ in made]
        results = self.members[0]._ports[entry][1]
        wanted = [part[2][i] for part in parts for i in range(len(results))]
        tensors = (CTensor * max(len(given), 1))(*given)
        outputs = (CTensor * max(len(wanted), 1))(*wanted)
        number = ctypes.c_uint64()
        self._library.lathe_group_submit(self._owned.handle, entry.encode(), tensors,
                                         len(given) // len(self.members), outputs, len(results),
                                         byref(number))
        return GroupStep(self, number.value, results, outputs, parts)


class _Part(Member):
    """A member of a group, which owns it: states and counters, no steps of its own."""

    def __init__(self, group: Group, engine: Engine, index: int) -> None:
        self._describe(engine)
        self._owned, self.device = group._owned, group.devices[index]
        self._handle = self._library.lathe_group_member(group._owned.handle, index)


class GroupStep:
    """A step of every member that was submitted. `wait` for it before the next of its entry."""

    def __init__(self, group: Group, number: int, results: list[Port], outputs: Any,
                 inputs: Any) -> None:
        self.number = number
        self._group, self._results, self._outputs, self._inputs = group, results, outputs, inputs
        self._taken: list[dict[str, Tensor | Any]] = [{} for _ in group.members]
        self._gathered: list[dict[str, Tensor | Any]] | None = None

    def wait(self, timeout: float | None = None) -> list[dict[str, Tensor | Any]]:
        """A {output name: Tensor} of each member, in order, as Context.run gives, each time the same;
        `timeout` in seconds, else the group's."""
        group, count = self._group, len(self._results)
        group._library.lathe_group_wait(group._owned.handle, self.number,
                                        -1 if timeout is None else int(timeout * 1e9))
        for i, (member, taken) in enumerate(zip(group.members, self._taken)):
            for o, port in enumerate(self._results):
                if port.name not in taken:  # by a call before, of which another result failed
                    taken[port.name] = take_output(member._handle, self._outputs[i * count + o])
        if self._gathered is None:
            self._gathered = [_lists.gather(taken) for taken in self._taken]
        return self._gathered

    def cancel(self) -> None:
        """Cancels this step and those behind it; from any thread."""
        self._group._library.lathe_group_cancel(self._group._owned.handle, self.number)
