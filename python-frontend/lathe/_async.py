# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Context.run_async(): one thread a context submits the runs that tasks wait for."""
from __future__ import annotations

import asyncio
import collections
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import Code, Error
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._context import Context, Given, Step

# Runs between submission and wait: the device is never idle for want of one, and a run that fails
# costs at most as many that are submitted again.
DEPTH = 4


class Request(NamedTuple):
    context: Context
    entry: str
    given: Given
    memory: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[dict[str, Tensor | Any]]


def _settle(future: asyncio.Future[dict[str, Tensor | Any]], result: Any) -> None:
    if future.done():
        return  # its task was cancelled
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


class Worker:
    """A thread that takes requests in order; it ends with the context that owns it."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        # The thread knows the queue alone: what it waits in must not keep the context alive.
        threading.Thread(target=_serve, args=(self._requests,), name="lathe", daemon=True).start()

    async def run(self, context: Context, entry: str, given: Given, memory: str) -> dict[str, Tensor | Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Tensor | Any]] = loop.create_future()
        self._requests.put(Request(context, entry, given, memory, loop, future))
        return await future

    def stop(self) -> None:
        self._requests.put(None)


def _serve(requests: queue.SimpleQueue[Request | None]) -> None:
    waiting: collections.deque[Request] = collections.deque()
    flying: collections.deque[tuple[Request, Step]] = collections.deque()
    while True:
        try:
            # With nothing else to do it sleeps in get().
            request = requests.get(block=not waiting and not flying)
            if request is None:
                return
            waiting.append(request)
            request = None  # a local name would keep the last context alive
            continue
        except queue.Empty:
            pass
        if waiting and len(flying) < DEPTH:
            _submit(waiting.popleft(), flying)
        else:
            _finish(flying, waiting)


def _tell(request: Request, result: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        request.loop.call_soon_threadsafe(_settle, request.future, result)


def _submit(request: Request, flying: collections.deque[tuple[Request, Step]]) -> None:
    if request.future.cancelled():
        return
    try:
        flying.append((request, request.context._start(request.entry, request.given, request.memory)))
    except Exception as problem:
        _tell(request, problem)


def _finish(flying: collections.deque[tuple[Request, Step]],
            waiting: collections.deque[Request]) -> None:
    """Waits for the oldest step. When it fails, those behind it end cancelled through no fault of
    theirs, and are submitted again in their order."""
    if not flying:
        return
    request, step = flying.popleft()
    try:
        result: Any = step.wait()
    except Exception as problem:
        result = problem
        again = []
        for other, behind in flying:
            try:
                _tell(other, behind.wait())
            except Error as error:
                if error.code == Code.CANCELLED:
                    again.append(other)
                else:
                    _tell(other, error)
        flying.clear()
        waiting.extendleft(reversed(again))
    _tell(request, result)
