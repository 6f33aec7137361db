# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of sessions and runs. What lathe has no use for is kept, and said once."""
from __future__ import annotations

import enum
import warnings
from typing import Any


class IgnoredOption(UserWarning):
    """An option of onnxruntime that changes nothing in lathe; with strict=True it is an error."""


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_said: set[str] = set()


def ignore(what: str, strict: bool) -> None:
    """Warns that an option is ignored, once a process; raises where the session is strict."""
    message = f"lathe ignores {what}"
    if strict:
        raise ValueError(f"{message}, and the session is strict")
    if what not in _said:
        _said.add(what)
        warnings.warn(message, IgnoredOption, stacklevel=4)


class _Options:
    """Attributes with defaults; remembers which were set."""

    DEFAULTS: dict[str, Any] = {}
    # What lathe honours, or does anyway whatever the value is.
    HONOURED: frozenset[str] = frozenset()

    def __init__(self) -> None:
        object.__setattr__(self, "_values", dict(self.DEFAULTS))
        object.__setattr__(self, "_config", {})
        object.__setattr__(self, "_set", {})

    def __getattr__(self, name: str) -> Any:
        values = object.__getattribute__(self, "_values")
        if name not in values:
            raise AttributeError(f"{type(self).__name__} has no option '{name}'")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"{type(self).__name__} has no option '{name}'")
        self._values[name] = value
        if name not in self.HONOURED and value != self.DEFAULTS[name]:
            self._set[f"{type(self).__name__}.{name}"] = None

    def _entry(self, key: str, value: str) -> None:
        self._config[key] = value
        self._set[f"the configuration entry {key}"] = None

    def _tell(self, strict: bool) -> None:
        for what in self._set:
            ignore(what, strict)


class SessionOptions(_Options):
    DEFAULTS = {
        "enable_cpu_mem_arena": True, "enable_mem_pattern": True, "enable_mem_reuse": True,
        "enable_profiling": False, "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL, "inter_op_num_threads": 0,
        "intra_op_num_threads": 0, "log_severity_level": -1, "log_verbosity_level": 0, "logid": "",
        "optimized_model_filepath": "", "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False, "use_per_session_threads": True}
    HONOURED = frozenset({"intra_op_num_threads", "use_deterministic_compute"})

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_sizes", {})

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._config:
            raise RuntimeError(f"there is no configuration entry '{key}'")
        return str(self._config[key])

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fixes the axis that the model calls `name`."""
        self._sizes[name] = value

    def add_free_dimension_override_by_denotation(self, name: str, value: int) -> None:
        raise NotImplementedError("lathe knows axes by name: add_free_dimension_override_by_name")

    def add_initializer(self, name: str, value: Any) -> None:
        raise NotImplementedError("lathe compiles the weights that are in the model or beside it")

    def add_external_initializers(self, names: Any, values: Any) -> None:
        raise NotImplementedError("lathe compiles the weights that are in the model or beside it")

    def register_custom_ops_library(self, path: str) -> None:
        raise NotImplementedError("ops of such libraries do not run in lathe; its own custom calls do "
                                  "(lathe.Context.register_call)")

    def add_provider(self, name: str, options: dict[str, str]) -> None:
        self._set[f"SessionOptions.add_provider({name})"] = None

    def has_providers(self) -> bool:
        return False


class RunOptions(_Options):
    DEFAULTS = {"log_severity_level": -1, "log_verbosity_level": 0, "logid": "",
                "only_execute_path_to_fetches": False, "terminate": False}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        if key not in self._config:
            raise RuntimeError(f"there is no configuration entry '{key}'")
        return str(self._config[key])
