# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is done with the arguments of a graph of dynamo around its run: those that it writes into (buffers of modules,
whose memory is torch's) get their new values, and those that torch has only noted to be negative are made so."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._errors import Code, Error


def _extent(tensor: Any) -> tuple[int, int]:
    """The first byte, and that behind the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.itemsize if tensor.numel() else begin


def _check_apart(tensors: Sequence[Any], changed: set[int]) -> None:
    """An error where the memory of a changed argument is that of another too, of which the graph knows nothing."""
    extents = sorted((*_extent(tensor), at) for at, tensor in enumerate(tensors) if tensor.numel())
    reach: list[tuple[int, int]] = []  # (end, place) of those before: the furthest, and the furthest that is changed
    for begin, end, at in extents:
        for limit, other in reach:
            if begin < limit and (at in changed or other in changed):
                raise Error(Code.UNSUPPORTED, f"arguments {other} and {at} share memory, and the graph writes into it",
                            "torch.compile(backend='lathe')")
        furthest = max([*reach, (end, at)])
        written = max([r for r in [*reach, (end, at)] if r[1] in changed], default=furthest)
        reach = [furthest, written]


Run = Callable[[Sequence[Any]], tuple[Any, ...]]


def negated(run: Run, places: Sequence[int]) -> Run:
    """`run` where the arguments at these places have the bit of torch that says to change their sign."""
    def resolved(tensors: Sequence[Any]) -> tuple[Any, ...]:
        return run([t.resolve_neg() if at in places else t for at, t in enumerate(tensors)])
    return resolved if places else run


class Changing:
    """`run` of a graph whose first results are new values of the arguments at `places`: they are stored there."""

    def __init__(self, run: Run, places: Sequence[int]) -> None:
        self.run, self._places = run, list(places)
        self._known: tuple[Any, ...] = ()

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        lies = tuple((t.data_ptr(), t.shape, t.stride()) for t in tensors)
        if lies != self._known:
            _check_apart(tensors, set(self._places))
            self._known = lies
        results = self.run(tensors)
        for at, value in zip(self._places, results):
            tensors[at].copy_(value)
        return results[len(self._places):]
