# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torch. `lathe.compile(module, args=(x,))` comes here; torch is imported with it. Importing
this makes "lathe" a backend of torch.compile."""
from ._backend import Compiled, FixedSizes, LeftToTorch, backend, refresh
from ._distill import distill
from ._explain import Explanation, explain
from ._export import to_graph, to_onnx, with_source
from ._graph import Graph
from ._passes import bfloat16_products, merge_linears, tanh_gelu
from ._pretrained import export

__all__ = ["Compiled", "Explanation", "FixedSizes", "Graph", "LeftToTorch", "backend", "bfloat16_products",
           "distill", "explain", "export", "merge_linears", "refresh", "tanh_gelu", "to_graph", "to_onnx",
           "with_source"]
