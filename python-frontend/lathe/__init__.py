# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lathe: compile ONNX models to engines, and run engines.

    import lathe
    engine = lathe.compile("model.onnx", "model.lathe", dims={"N": (1, 8, 64)})
    engine = lathe.load("model.lathe")
    outputs = engine.context("cpu", threads=4).run({"x": x})   # name -> Tensor
    outputs["y"].numpy()

Inputs are numpy arrays, numbers, or anything that speaks DLPack (torch, cupy, jax); outputs are
Tensors, which speak DLPack too. Every failure is a lathe.Error with a code and a location.

Programs written for onnxruntime import `lathe.onnxruntime` in its place; models of torch are compiled
by `lathe.compile(module, args=(x,))` or `torch.compile(module, backend="lathe")`.
"""
from ._bind import Bound
from ._compiler import compile  # noqa: A004 (the verb of the command line)
from ._context import Context, Step
from ._engine import Engine, Port, Symbol, load
from ._errors import Code, Error
from ._group import Group, GroupStep
from ._llm import Answer, Llm, TokenLogprobs
from ._plan import Plan, PlanStep, plan
from ._quantize import Quantized, quantize
from ._report import Memory, Profile, ProfileEvent, ProfileRow, Remark, Remarks
from ._tensor import StringTensor, Tensor

__version__ = "0.1.0"
__all__ = ["Answer", "Bound", "Code", "Context", "Engine", "Error", "Group", "GroupStep", "Llm", "Memory", "Plan",
           "PlanStep", "Port", "Profile", "ProfileEvent", "ProfileRow", "Quantized", "Remark", "Remarks", "Step",
           "StringTensor", "Symbol", "Tensor", "TokenLogprobs", "__version__", "compile", "load", "plan", "quantize"]
