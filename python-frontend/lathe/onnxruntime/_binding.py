# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""IOBinding: inputs and outputs that a session runs on again and again."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InvalidArgument
from ._options import RunOptions
from ._values import Array, OrtValue, array_at, as_array, host_only

if TYPE_CHECKING:
    from ._session import InferenceSession


class IOBinding:
    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._places: dict[str, Array | None] = {}  # by output; None: the run's own
        self._values: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._inputs[name] = arr_on_cpu

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any,
                   shape: Sequence[int], buffer_ptr: int) -> None:
        """Memory by its address, which is read by each run."""
        host_only(device_type)
        self._inputs[name] = array_at(buffer_ptr, shape, element_type)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._inputs[name] = ortvalue.numpy()

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """Memory by its address, which each run writes; without one, each run makes its own."""
        host_only(device_type)
        self._output(name)
        if buffer_ptr is None:
            self._places[name] = None
        elif element_type is None or shape is None:
            raise InvalidArgument(f"memory of output '{name}' needs a type and a shape")
        else:
            self._places[name] = array_at(buffer_ptr, shape, element_type)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._output(name)
        self._places[name] = ortvalue.numpy()

    def _output(self, name: str) -> None:
        known = [argument.name for argument in self._session.get_outputs()]
        if name not in known:
            raise InvalidArgument(f"Invalid output name: {name}; the model's are {', '.join(known)}")

    def _run(self, options: RunOptions | None) -> None:
        feed = {name: as_array(value, name) for name, value in self._inputs.items()}
        results = self._session.run(list(self._places), feed, options) if self._places else []
        self._values = []
        for (name, place), result in zip(self._places.items(), results):
            if place is None:
                self._values.append(OrtValue(result))
                continue
            if place.shape != result.shape or place.dtype != result.dtype:
                raise InvalidArgument(f"output '{name}' is {result.dtype} {list(result.shape)}, the memory is "
                                      f"for {place.dtype} {list(place.shape)}")
            np.copyto(place, result)
            self._values.append(OrtValue(place))

    def get_outputs(self) -> list[OrtValue]:
        return list(self._values)

    def copy_outputs_to_cpu(self) -> list[Array]:
        return [value.numpy().copy() for value in self._values]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._places.clear()
        self._values = []

    def synchronize_inputs(self) -> None:
        """Inputs are on the host: there is nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """A run waits for its outputs itself."""


SessionIOBinding = IOBinding
