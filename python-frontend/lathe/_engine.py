# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Engines and contexts."""
import os
from collections import namedtuple
from ctypes import addressof, byref, c_int64, c_void_p, create_string_buffer, sizeof

import numpy as np

from . import _abi
from ._abi import CCounters, COptions, CTensor, text
from ._errors import Code, Error
from ._tensor import Tensor, borrowed_array, input_tensor, take_output

Port = namedtuple("Port", "name dtype dims donated_to", defaults=[-1])
"""An input or output: `dims` are formulas over named symbols, "B" or "P + S" or "768"; `donated_to`
is the number of the output that may lie in an input's memory, or -1."""
Symbol = namedtuple("Symbol", "name min max opt multiple_of")


def load(source):
    """Opens an engine: a path, or the bytes of an engine file (which are copied)."""
    library, handle = _abi.runtime(), c_void_p()
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        library.lathe_engine_open_memory(data, len(data), byref(handle))
    else:
        library.lathe_engine_open(os.fsencode(source), byref(handle))
    return Engine(handle)


def _name(entry):
    return entry.encode() if entry is not None else None


def _attribute(attribute):
    ints = tuple(attribute.ints[:attribute.int_count])
    floats = tuple(attribute.floats[:attribute.float_count])
    return text(attribute.name), ints or floats or text(attribute.text)


class Engine:
    """A compiled model: immutable, shared by any number of contexts."""

    def __init__(self, handle):
        self._library, self._handle, self._default = _abi.runtime(), handle, None
        count = self._library.lathe_engine_entry_count(handle)
        self.entries = [text(self._library.lathe_engine_entry_name(handle, i))
                        for i in range(count)]
        count = self._library.lathe_engine_target_count(handle)
        self.targets = [text(self._library.lathe_engine_target_name(handle, i))
                        for i in range(count)]
        count = self._library.lathe_engine_state_count(handle)
        self.states = [text(self._library.lathe_engine_state_name(handle, i))
                       for i in range(count)]
        self.build_id = text(self._library.lathe_engine_build_id(handle))

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.lathe_engine_close(handle)

    def __repr__(self):
        return f"lathe.Engine(entries={self.entries}, targets={self.targets})"

    def _ports(self, direction, entry):
        if entry is not None and entry not in self.entries:
            raise Error(Code.USAGE, f"there is no entry '{entry}'; there is "
                        f"{', '.join(self.entries)}")
        count = getattr(self._library, f"lathe_engine_{direction}_count")(
            self._handle, _name(entry))
        get = getattr(self._library, f"lathe_engine_{direction}")
        ports = []
        for i in range(count):
            port = get(self._handle, _name(entry), i).contents
            ports.append(Port(text(port.name), _abi.DTYPES[port.dtype],
                              tuple(text(port.dims[d]) for d in range(port.rank)),
                              port.donated_to))
        return ports

    def inputs(self, entry=None):
        """The entry's inputs as Ports; the first entry if none is named."""
        return self._ports("input", entry)

    def outputs(self, entry=None):
        return self._ports("output", entry)

    def symbols(self, entry=None):
        """The named sizes of the entry, with their bounds."""
        count = self._library.lathe_engine_symbol_count(self._handle, _name(entry))
        symbols = []
        for i in range(count):
            s = self._library.lathe_engine_symbol(self._handle, _name(entry), i).contents
            symbols.append(Symbol(text(s.name), s.min, s.max, s.opt, s.multiple_of))
        return symbols

    def context(self, device="cpu", *, threads=0, target=None, stream=None, graphs=True,
                pinning=True, overlap=True):
        """A context: `device` is "cpu" or "cuda:N"; `threads` 0 means all cores."""
        return Context(self, device, threads, target, stream, graphs, pinning, overlap)

    def run(self, inputs, entry=None):
        """Runs an entry in a context of the engine's own, on the CPU; see Context.run."""
        if self._default is None:
            self._default = self.context()
        return self._default.run(inputs, entry)


class Context:
    """Runs an engine on a device; owns states and memory. One thread at a time may use it."""

    def __init__(self, engine, device, threads, target, stream, graphs, pinning, overlap):
        # The engine's context must not keep the engine: what it needs of it, it keeps itself.
        self._library, self._handle = engine._library, c_void_p()
        self._ports = {e: (engine.inputs(e), engine.outputs(e)) for e in engine.entries}
        self._first = engine.entries[0]
        self._calls, self._message = {}, None
        options = COptions(sizeof(COptions), threads, _name(target), stream, not graphs,
                           not pinning, not overlap)
        self._library.lathe_context_create(engine._handle, device.encode(), byref(options),
                                           byref(self._handle))
        self.device = device
        self.target = text(self._library.lathe_context_target(self._handle))

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.lathe_context_destroy(handle)

    def run(self, inputs, entry=None, *, memory="host", donate=()):
        """Runs an entry and waits; returns {output name: Tensor}, in the entry's order.

        `inputs` is a dict by name, or a sequence in the entry's order. `memory="device"` leaves
        the outputs on the context's device. `donate` names inputs whose memory the run may write
        (`Port.donated_to`): what was given is then the output too.
        """
        entry = self._first if entry is None else entry
        if entry not in self._ports:
            raise Error(Code.USAGE, f"there is no entry '{entry}'; there is "
                        f"{', '.join(self._ports)}")
        ports, results = self._ports[entry]
        given = self._in_order(inputs, ports)
        made = [input_tensor(v, p.dtype, f"input '{p.name}'") for v, p in zip(given, ports)]
        tensors = (CTensor * max(len(made), 1))(*(tensor for tensor, _ in made))
        outputs = (CTensor * max(len(results), 1))()
        place = _abi.DEVICE if memory == "device" else _abi.HOST
        for output in outputs:
            output.memory = place
        donated = self._donate(donate, ports, given, tensors, outputs)
        self._library.lathe_run(self._handle, entry.encode(), tensors, len(made), outputs,
                                len(results))
        return {p.name: donated[i] if i in donated else take_output(self._handle, o)
                for i, (p, o) in enumerate(zip(results, outputs))}

    @staticmethod
    def _donate(names, ports, given, tensors, outputs):
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
    def _in_order(inputs, ports):
        names = [p.name for p in ports]
        if not isinstance(inputs, dict):
            inputs = list(inputs)
            if len(inputs) != len(names):
                raise Error(Code.USAGE, f"{len(inputs)} inputs were given, the entry has "
                            f"{len(names)}: {', '.join(names)}")
            return inputs
        wrong = [n for n in names if n not in inputs] + [n for n in inputs if n not in names]
        if wrong:
            raise Error(Code.USAGE, f"the entry's inputs are {', '.join(names)}; "
                        f"given were {', '.join(inputs)}", f"input '{wrong[0]}'")
        return [inputs[n] for n in names]

    def register_call(self, name, function):
        """Makes `function` the custom call `name`, before an entry that uses it runs.

        `function(inputs, outputs, attributes)` gets lists of numpy arrays, which are the run's own
        memory and not to be kept, and fills the outputs; attributes are texts, or tuples of
        numbers. What it raises is the run's error.
        """
        def call(_user, at):
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

    @property
    def counters(self):
        """Launches, copies and bytes since the context was made or the counters were reset."""
        counters = CCounters()
        self._library.lathe_context_counters(self._handle, byref(counters))
        return {name: getattr(counters, name) for name in _abi.COUNTERS}

    def time_graphs(self, enable=True):
        """Adds the device time of each graph launch to the counter `graph_seconds`."""
        self._library.lathe_context_time_graphs(self._handle, enable)

    def reset_counters(self):
        self._library.lathe_context_reset_counters(self._handle)

    def state_length(self, state):
        """Current length along the growing axis; 0 before the first run."""
        length = c_int64()
        self._library.lathe_state_length(self._handle, state.encode(), byref(length))
        return length.value

    def state_capacity(self, state):
        capacity = c_int64()
        self._library.lathe_state_capacity(self._handle, state.encode(), byref(capacity))
        return capacity.value

    def truncate_state(self, state, length):
        """Forgets everything behind `length`."""
        self._library.lathe_state_truncate(self._handle, state.encode(), length)

    def reset_state(self, state=None):
        """Back to the start: one state, or all."""
        self._library.lathe_state_reset(self._handle, _name(state))
