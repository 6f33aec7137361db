# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torch. `lathe.compile(module, args=(x,))` comes here; torch is imported with it. Importing
this makes "lathe" a backend of torch.compile."""
from ._backend import Compiled, LeftToTorch, backend
from ._export import to_onnx, with_source

__all__ = ["Compiled", "LeftToTorch", "backend", "to_onnx", "with_source"]
