# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lathe: compile ONNX models to engines, and run engines.

    import lathe
    engine = lathe.compile("model.onnx", "model.lathe", dims={"N": (1, 8, 64)})
    engine = lathe.load("model.lathe")
    outputs = engine.context("cpu", threads=4).run({"x": x})   # name -> Tensor
    outputs["y"].numpy()

Inputs are numpy arrays, numbers, or anything that speaks DLPack (torch, cupy, jax); outputs are
Tensors, which speak DLPack too. Every failure is a lathe.Error with a code and a location.
"""
from ._compiler import compile  # noqa: A004 (the verb of the command line)
from ._engine import Context, Engine, Port, Symbol, load
from ._errors import Code, Error
from ._tensor import Tensor

__all__ = ["Code", "Context", "Engine", "Error", "Port", "Symbol", "Tensor", "compile", "load"]
