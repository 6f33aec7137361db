# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Execution providers as names of devices."""
from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from typing import Any, Union

from ._options import ignore

Providers = Sequence[Union[str, tuple[str, dict[Any, Any]]]]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
PROVIDERS = [CUDA, CPU]

# Of a device of CUDA: what the driver calls the two halves of its architecture.
_MAJOR, _MINOR = 75, 76


def get_all_providers() -> list[str]:
    return list(PROVIDERS)


def get_available_providers() -> list[str]:
    """The names of those whose device this machine has, the best first."""
    return list(PROVIDERS) if os.path.exists("/proc/driver/nvidia/version") else [CPU]


def chosen(providers: Providers | None, options: Sequence[dict[Any, Any]] | None,
           strict: bool) -> tuple[list[str], list[dict[str, Any]]]:
    """Names and options of the providers that are here, as onnxruntime lists them."""
    names: list[str] = []
    settings: list[dict[str, Any]] = []
    for at, given in enumerate(providers or [CPU]):
        name, own = (given, {}) if isinstance(given, str) else (given[0], given[1])
        if options and at < len(options):
            own = options[at]
        if name not in get_available_providers():
            message = (f"Specified provider '{name}' is not in available provider names. "
                       f"Available providers: '{', '.join(get_available_providers())}'")
            if strict:
                raise ValueError(message)
            warnings.warn(message, UserWarning, stacklevel=4)
            continue
        if name in names:
            continue
        for key in own:
            if key != "device_id":
                ignore(f"the option {key} of {name}", strict)
        names.append(name)
        settings.append({str(k): v for k, v in own.items()})
    if CPU not in names:
        names.append(CPU)
        settings.append({})
    return names, settings


def device_of(names: list[str], options: list[dict[str, Any]]) -> str:
    """The device of the first provider: there is no falling back to another."""
    return "cpu" if names[0] == CPU else f"cuda:{int(options[0].get('device_id', 0))}"


def targets_of(device: str) -> str:
    """What a model is compiled for, to run there."""
    if device == "cpu":
        return "native"
    driver = ctypes.CDLL("libcuda.so.1")
    number, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(number), int(device.partition(":")[2])) \
        or driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, number) \
        or driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, number)
    if failed:
        raise RuntimeError(f"the CUDA driver does not open {device}: error {failed}")
    return f"sm_{major.value}{minor.value}" + ("a" if major.value >= 9 else "")
