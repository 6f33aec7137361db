# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts, which run engines, and the steps that are submitted to them."""
from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import addressof, byref, c_int64, c_size_t, c_void_p, create_string_buffer, sizeof
from typing import TYPE_CHECKING, Any, Callable, Union

import numpy as np

from . import _abi, _lists
from ._abi import CCounters, COptions, CTensor, CWorld, text
from ._errors import Code, Error
from ._report import Memory, Profile, ProfileEvent, ProfileRow
from ._tensor import HOST, LEGACY_STREAM, Array, Place, Tensor, borrowed_array, input_tensor, numpy_dtype, take_output

if TYPE_CHECKING:
    from ._async import Worker
    from ._bind import Bound
    from ._engine import Engine, Port

Inputs = Union[Mapping[str, Any], Sequence[Any]]
"""By name, or in the order of the entry: numpy arrays, numbers, or what speaks DLPack. By name, a sequence or an
optional whose length only the run knows is a list of numpy arrays, or None."""
Call = Callable[[list[Array], list[Array], dict[str, Any]], None]
Given = list[tuple[CTensor, Any]]
"""Inputs as C takes them, with what keeps them alive."""


def _attribute(attribute: Any) -> tuple[str, Any]:
    ints = tuple(attribute.ints[:attribute.int_count])
    floats = tuple(attribute.floats[:attribute.float_count])
    return text(attribute.name), ints or floats or text(attribute.text)


def stream_number(stream: Any) -> int:
    """The CUstream of a torch.cuda.Stream, of a cupy.cuda.Stream, or that is a number already."""
    number = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
    if not isinstance(number, int):
        raise Error(Code.USAGE, f"a stream is torch's, cupy's or a number, not {type(stream).__name__}")
    return number


class Member:
    """What runs an engine on one device: a context, or the part of a group on one of its devices.
    Its states and counters."""

    device: str
    _handle: c_void_p
    _placed: Place | None = None

    def _describe(self, engine: Engine) -> None:
        # This must not keep the engine: what it needs of it, it keeps itself.
        self._library = engine._library
        self._ports = {e: (engine.inputs(e), engine.outputs(e)) for e in engine.entries}
        self._first = engine.entries[0]

    @property
    def rank(self) -> int:
        """Its place among the ranks of a mesh; 0 where there are no others."""
        return int(self._library.lathe_context_rank(self._handle))

    @property
    def ranks(self) -> int:
        """How many ranks the mesh has that it is one of; 1 for none."""
        return int(self._library.lathe_context_ranks(self._handle))

    @property
    def counters(self) -> dict[str, Any]:
        """Launches, copies and bytes since the context was made or the counters were reset."""
        counters = CCounters()
        self._library.lathe_context_counters(self._handle, byref(counters))
        return {name: getattr(counters, name) for name in _abi.COUNTERS}

    @property
    def memory(self) -> Memory:
        """The memory that the context holds now."""
        now = self.counters
        return Memory(now["weight_bytes"], now["state_bytes"], now["arena_bytes"],
                      now["graph_bytes"])

    def time_graphs(self, enable: bool = True) -> None:
        """Adds the device time of each graph launch to the counter `graph_seconds`."""
        self._library.lathe_context_time_graphs(self._handle, enable)

    def reset_counters(self) -> None:
        self._library.lathe_context_reset_counters(self._handle)

    def state_length(self, state: str) -> int:
        """Current length along the growing axis; 0 before the first run."""
        length = c_int64()
        self._library.lathe_state_length(self._handle, state.encode(), byref(length))
        return length.value

    def state_capacity(self, state: str) -> int:
        capacity = c_int64()
        self._library.lathe_state_capacity(self._handle, state.encode(), byref(capacity))
        return capacity.value

    def truncate_state(self, state: str, length: int) -> None:
        """Forgets everything behind `length`."""
        self._library.lathe_state_truncate(self._handle, state.encode(), length)

    def read_state(self, state: str) -> Array:
        """The value of a state that does not grow, a buffer that the model writes into, as a new array."""
        tensor = CTensor()
        self._library.lathe_state_read(self._handle, state.encode(), byref(tensor))
        array = np.empty(tensor.bytes, np.uint8)
        tensor.data = array.ctypes.data
        self._library.lathe_state_read(self._handle, state.encode(), byref(tensor))
        dtype = numpy_dtype(_abi.DTYPES[tensor.dtype])
        return array.view(dtype).reshape([tensor.dims[i] for i in range(tensor.rank)])

    def write_state(self, state: str, value: Any) -> None:
        """Gives such a state a value, of its dtype and sizes."""
        known = CTensor()
        self._library.lathe_state_read(self._handle, state.encode(), byref(known))
        value = np.array(value, order="C") if isinstance(value, np.ndarray) else value
        tensor, kept = input_tensor(value, _abi.DTYPES[known.dtype], f"state '{state}'")
        self._library.lathe_state_write(self._handle, state.encode(), byref(tensor))
        del kept

    def reset_state(self, state: str | None = None) -> None:
        """Back to the start: one state, or all."""
        self._library.lathe_state_reset(self._handle, state.encode() if state is not None else None)

    def seed(self, value: int) -> None:
        """Seeds the ops that draw and have no seed of their own, and begins to count runs again.

        What is drawn is a function of seed, run, node and place: the same on each device and for any
        number of threads. A context begins with seed 0.
        """
        self._library.lathe_context_seed(self._handle, value % 2**64)

    @property
    def _place(self) -> Place:
        """Where inputs are read."""
        if self._placed is None:
            if self.device.partition(":")[0] == "cpu":
                self._placed = HOST
            else:
                stream = c_void_p()
                self._library.lathe_context_input_stream(self._handle, byref(stream))
                wait_for = functools.partial(self._library.lathe_context_wait_for, self._handle)
                self._placed = Place(self.device, stream.value or 0, wait_for)
        return self._placed

    def _given(self, entry: str, inputs: Inputs) -> Given:
        """On a GPU the runs that start from here on begin behind what the current streams of those who made the
        inputs (torch.cuda.current_stream() of this thread) have to do by now."""
        ports, place = self._entry(entry)[0], self._place
        return [input_tensor(v, p.dtype, f"input '{p.name}'", place)
                for v, p in zip(self._in_order(inputs, ports), ports)]

    def _tensors(self, entry: str, inputs: Inputs, memory: str) -> tuple[Given, Any, Any]:
        """The inputs with what keeps them alive, and both lists in C."""
        made = self._given(entry, inputs)
        return made, *self._lists(entry, made, memory)

    def _lists(self, entry: str, made: Given, memory: str) -> tuple[Any, Any]:
        if memory not in ("host", "device"):
            raise Error(Code.USAGE, f"memory is 'host' or 'device', not {memory!r}")
        tensors = (CTensor * max(len(made), 1))(*(tensor for tensor, _ in made))
        outputs = (CTensor * max(len(self._ports[entry][1]), 1))()
        for output in outputs:
            output.memory = _abi.DEVICE if memory == "device" else _abi.HOST
        return tensors, outputs

    def _entry(self, entry: str) -> tuple[list[Port], list[Port]]:
        if entry not in self._ports:
            raise Error(Code.USAGE, f"there is no entry '{entry}'; there is "
                        f"{', '.join(self._ports)}")
        return self._ports[entry]

    @staticmethod
    def _donate(names: Iterable[str], ports: list[Port], given: list[Any], tensors: Any,
                outputs: Any) -> dict[int, Any]:
        donated = {}
        for name in names:
            at = next((i for i, p in enumerate(ports) if p.name == name), None)
            if at is None or ports[at].donated_to < 0:
                raise Error(Code.USAGE, "no output lies in its memory; compile with donate",
                            f"input '{name}'")
            value, tensor = given[at], tensors[at]
            if isinstance(value, np.ndarray):
                own = value.flags.writeable and value.ctypes.data == tensor.data
            else:
                own = hasattr(value, "__dlpack__") and not isinstance(value, Tensor)
            if not own:
                raise Error(Code.USAGE, "its memory cannot be written", f"input '{name}'")
            outputs[ports[at].donated_to] = tensor
            donated[ports[at].donated_to] = value
        return donated

    @staticmethod
    def _in_order(inputs: Inputs, ports: list[Port]) -> list[Any]:
        names = [p.name for p in ports]
        if not isinstance(inputs, Mapping):
            inputs = list(inputs)
            if len(inputs) != len(names):
                raise Error(Code.USAGE, f"{len(inputs)} inputs were given, the entry has "
                            f"{len(names)}: {', '.join(names)}")
            return inputs
        inputs = _lists.expand(inputs, {p.name: p.dtype for p in ports})
        wrong = [n for n in names if n not in inputs] + [n for n in inputs if n not in names]
        if wrong:
            raise Error(Code.USAGE, f"the entry's inputs are {', '.join(names)}; "
                        f"given were {', '.join(inputs)}", f"input '{wrong[0]}'")
        return [inputs[n] for n in names]


class Context(Member):
    """Runs an engine on a device; owns states and memory. One thread at a time may use it."""

    def __init__(self, engine: Engine, device: str, threads: int, target: str | None,
                 stream: Any, graphs: bool, pinning: bool, overlap: bool,
                 deadline: float | None = None, world: CWorld | None = None) -> None:
        self._handle = c_void_p()
        self._describe(engine)
        self._calls: dict[str, Any] = {}
        self._message: Any = None
        self._worker: Worker | None = None
        if stream is not None and (stream := stream_number(stream)) == 0:
            if graphs:
                raise Error(Code.USAGE, "the default stream can be in no CUDA graph: give a stream of its own, or "
                            "graphs=False", "stream")
            stream = LEGACY_STREAM
        options = COptions(sizeof(COptions), threads, target.encode() if target else None, stream,
                           not graphs, not pinning, not overlap)
        if deadline is not None:
            options.deadline_ms = max(1, int(deadline * 1000))
        if world is None:
            self._library.lathe_context_create(engine._handle, device.encode(), byref(options),
                                               byref(self._handle))
        else:
            self._library.lathe_context_create_rank(engine._handle, device.encode(), byref(options),
                                                    byref(world), byref(self._handle))
        self.device = device
        self.target = text(self._library.lathe_context_target(self._handle))

    def __del__(self) -> None:
        worker, handle = getattr(self, "_worker", None), getattr(self, "_handle", None)
        self._worker, self._handle = None, c_void_p()
        if worker:
            worker.stop()
        if handle:
            self._library.lathe_context_destroy(handle)

    def __repr__(self) -> str:
        return f"lathe.Context({self.device}, {self.target})"

    def run(self, inputs: Inputs, entry: str | None = None, *, memory: str = "host",
            donate: Iterable[str] = ()) -> dict[str, Tensor | Any]:
        """Runs an entry and waits; returns {output name: Tensor}, in the entry's order; a
        StringTensor for strings, a list of numpy arrays (or None) for a sequence or an optional
        sequence whose length only the run knows, and for an optional tensor a list of one array,
        or `[]` where it has no value.

        `inputs` is a dict by name, or a sequence in the entry's order. `memory="device"` leaves
        the outputs on the context's device. `donate` names inputs whose memory the run may write
        (`Port.donated_to`): what was given is then the output too.

        >>> context = engine.context(threads=1)
        >>> context.run({"x": np.arange(3, dtype=np.float32)})["y"].numpy().tolist()
        [0.0, 2.0, 4.0]
        >>> context.run([np.arange(3)])
        Traceback (most recent call last):
        lathe._errors.Error: input 'x': element type is i64, expected f32
        """
        entry = self._first if entry is None else entry
        made, tensors, outputs = self._tensors(entry, inputs, memory)
        ports, results = self._ports[entry]
        donated = self._donate(donate, ports, self._in_order(inputs, ports), tensors, outputs) if donate else {}
        self._library.lathe_run(self._handle, entry.encode(), tensors, len(made), outputs,
                                len(results))
        return _lists.gather({p.name: donated[i] if i in donated else take_output(self._handle, o)
                              for i, (p, o) in enumerate(zip(results, outputs))})

    def submit(self, inputs: Inputs, entry: str | None = None, *, memory: str = "host",
               stream: Any = None) -> Step:
        """Starts a run behind those submitted before and returns it as a `Step`, without waiting.

        Inputs in host memory are copied; those in device memory must not change before the step
        has ended. `stream` as of run_async.
        """
        entry = self._first if entry is None else entry
        if stream is not None:
            self.wait_for(stream)
        return self._start(entry, self._given(entry, inputs), memory)

    def _start(self, entry: str, made: Given, memory: str) -> Step:
        tensors, outputs = self._lists(entry, made, memory)
        number, results = ctypes.c_uint64(), self._ports[entry][1]
        self._library.lathe_submit(self._handle, entry.encode(), tensors, len(made), outputs,
                                   len(results), None, byref(number))
        return Step(self, number.value, results, outputs, made)

    def wait_for(self, stream: Any) -> None:
        """On a GPU: runs that start from now on begin behind what this stream has to do by now, a
        torch.cuda.Stream, a cupy.cuda.Stream or the number of a CUstream."""
        self._library.lathe_context_wait_for(self._handle, stream_number(stream))

    async def run_async(self, inputs: Inputs, entry: str | None = None, *, memory: str = "host",
                        stream: Any = None) -> dict[str, Tensor | Any]:
        """`run` that other tasks need not wait for.

        Any number of tasks may call it at once: the runs are submitted in the order of the calls,
        several at a time, by a thread that the context keeps for it. Until it returns, the inputs
        must not change, and other methods of the context must not be called. On a GPU the run
        begins behind what the stream that is current here has to do by now, and behind `stream`
        (`wait_for`); it has ended when this returns.
        """
        entry = self._first if entry is None else entry
        if stream is not None:
            self.wait_for(stream)
        given = self._given(entry, inputs)
        if self._worker is None:
            from ._async import Worker
            self._worker = Worker()
        return await self._worker.run(self, entry, given, memory)

    def bind(self, inputs: Inputs, outputs: Mapping[str, Any] | None = None,
             entry: str | None = None) -> Bound:
        """The entry with these arrays as inputs and outputs, to be called many times.

        Each call reads what the inputs hold then and writes into the outputs, in place; shapes stay
        as they are. Outputs that are not given are made by the first call.

        >>> x, y = np.ones(2, np.float32), np.empty(2, np.float32)
        >>> step = engine.context().bind({"x": x}, {"y": y})
        >>> x[0] = 5
        >>> _ = step()
        >>> y.tolist()
        [10.0, 2.0]
        """
        from ._bind import Bound
        return Bound(self, self._first if entry is None else entry, inputs, outputs or {})

    def register_call(self, name: str, function: Call) -> None:
        """Makes `function` the custom call `name`, before an entry that uses it runs.

        `function(inputs, outputs, attributes)` gets lists of numpy arrays, which are the run's own
        memory and not to be kept, and fills the outputs; attributes are texts, or tuples of
        numbers. What it raises is the run's error.
        """
        def call(_user: Any, at: Any) -> Any:
            try:
                made = at.contents
                inputs = [borrowed_array(made.inputs[i], False) for i in range(made.input_count)]
                outputs = [borrowed_array(made.outputs[i], True)
                           for i in range(made.output_count)]
                function(inputs, outputs, dict(map(_attribute,
                                                   made.attributes[:made.attribute_count])))
                return None
            except BaseException as problem:  # nothing may pass through C
                self._message = create_string_buffer(
                    f"{type(problem).__name__}: {problem}".encode())
                return addressof(self._message)

        self._calls[name] = _abi.CALL(call)  # must live as long as the context
        self._library.lathe_context_register_call(self._handle, name.encode(),
                                                  self._calls[name], None)

    @contextlib.contextmanager
    def profile(self) -> Iterator[Profile]:
        """Times every kernel of the runs inside `with context.profile() as profile:`.

        CUDA graphs are off meanwhile. The profile is complete behind the block.
        """
        profile, count = Profile(), c_size_t()
        self._library.lathe_context_profile(self._handle, 1)
        try:
            yield profile
        finally:
            rows = self._library.lathe_context_profile_rows(self._handle, byref(count))
            profile.rows = [ProfileRow(text(r.entry), text(r.kernel), text(r.config), text(r.nodes),
                                       r.calls, r.seconds, r.flops, r.bytes)
                            for r in rows[:count.value]]
            events = self._library.lathe_context_profile_events(self._handle, byref(count))
            profile.events = [ProfileEvent(e.row, e.begin, e.seconds) for e in events[:count.value]]
            self._library.lathe_context_profile(self._handle, 0)


class Step:
    """A run that was submitted. `wait` for it before the next submission of its entry."""

    def __init__(self, context: Context, number: int, results: list[Port], outputs: Any,
                 inputs: Any) -> None:
        self.number = number
        self._context, self._results, self._outputs, self._inputs = context, results, outputs, inputs
        self._taken: dict[str, Tensor | Any] = {}
        self._gathered: dict[str, Tensor | Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or not; never waits."""
        value = ctypes.c_int()
        self._context._library.lathe_poll(self._context._handle, self.number, byref(value))
        return bool(value.value)

    def wait(self, timeout: float | None = None) -> dict[str, Tensor | Any]:
        """{output name: Tensor}, as Context.run gives, each time the same; `timeout` in seconds, else the context's."""
        context = self._context
        context._library.lathe_wait(context._handle, self.number,
                                    -1 if timeout is None else int(timeout * 1e9))
        for port, output in zip(self._results, self._outputs):
            if port.name not in self._taken:  # by a call before, of which another result failed
                self._taken[port.name] = take_output(context._handle, output)
        if self._gathered is None:
            self._gathered = _lists.gather(self._taken)
        return self._gathered

    def cancel(self) -> None:
        """Cancels this step and those behind it; from any thread."""
        self._context._library.lathe_cancel(self._context._handle, self.number)
