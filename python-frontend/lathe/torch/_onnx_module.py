# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An ONNX file as a module of torch that can be trained and written back: nodes are computed one by one, initializers
of floats are its parameters."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F

Tensor: TypeAlias = Any  # of torch, whose types are not looked at
Node: TypeAlias = "Callable[[_Call], Any]"  # a tensor, or a tuple of them


class _Call:
    """A node with its operands; an absent operand is None."""

    def __init__(self, node: Any, operands: list[Tensor | None], opset: int) -> None:
        self.node, self.operands, self.opset = node, operands, opset

    def __getitem__(self, i: int) -> Any:
        return self.operands[i] if i < len(self.operands) else None

    def attribute(self, name: str, otherwise: Any = None) -> Any:
        import onnx
        for a in self.node.attribute:
            if a.name == name:
                value = onnx.helper.get_attribute_value(a)
                return value.decode() if isinstance(value, bytes) else value
        return otherwise

    def integers(self, i: int, name: str) -> list[int] | None:
        """An operand of integers, which older opsets have as an attribute."""
        if self[i] is not None:
            return [int(v) for v in self[i].reshape(-1)]
        value = self.attribute(name)
        return None if value is None else list(value)


def _pads(call: _Call, spatial: int, value: float, x: Tensor) -> Tensor:
    pads = call.attribute("pads", [0] * (2 * spatial))
    if call.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotImplementedError("auto_pad")
    flat = [p for d in reversed(range(spatial)) for p in (pads[d], pads[d + spatial])]
    return F.pad(x, flat, value=value) if any(flat) else x


def _conv(c: _Call) -> Tensor:
    spatial = c[0].dim() - 2
    apply = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    return apply(_pads(c, spatial, 0.0, c[0]), c[1], c[2], c.attribute("strides", [1] * spatial), 0,
                 c.attribute("dilations", [1] * spatial), c.attribute("group", 1))


def _pool(kind: str) -> Node:
    def apply(c: _Call) -> Tensor:
        spatial, kernel = c[0].dim() - 2, c.attribute("kernel_shape")
        strides = c.attribute("strides", [1] * spatial)
        if c.attribute("ceil_mode", 0) or any(d != 1 for d in c.attribute("dilations", [1])):
            raise NotImplementedError("ceil_mode or dilations")
        if kind == "max":
            x = _pads(c, spatial, float("-inf"), c[0])
            return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[spatial - 1](x, kernel, strides)
        if any(c.attribute("pads", [0])) and not c.attribute("count_include_pad", 0):
            raise NotImplementedError("pads that do not count")
        return (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[spatial - 1](_pads(c, spatial, 0.0, c[0]), kernel, strides)
    return apply


def _reduce(of: Callable[..., Tensor]) -> Node:
    def apply(c: _Call) -> Tensor:
        axes = c.integers(1, "axes")
        if not axes and c.attribute("noop_with_empty_axes", 0):
            return c[0]
        return of(c[0], dim=axes or list(range(c[0].dim())), keepdim=bool(c.attribute("keepdims", 1)))
    return apply


def _gemm(c: _Call) -> Tensor:
    a = c[0].T if c.attribute("transA", 0) else c[0]
    b = c[1].T if c.attribute("transB", 0) else c[1]
    y = c.attribute("alpha", 1.0) * (a @ b)
    return y if c[2] is None else y + c.attribute("beta", 1.0) * c[2]


def _reshape(c: _Call) -> Tensor:
    sizes = [int(v) for v in c[1]]
    if not c.attribute("allowzero", 0):
        sizes = [c[0].shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return c[0].reshape(sizes)


def _unsqueeze(c: _Call) -> Tensor:
    axes = c.integers(1, "axes") or []
    rank = c[0].dim() + len(axes)
    x = c[0]
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def _squeeze(c: _Call) -> Tensor:
    axes = c.integers(1, "axes")
    return c[0].squeeze() if axes is None else c[0].squeeze(tuple(a % c[0].dim() for a in axes))


def _slice(c: _Call) -> Tensor:
    starts, ends = c.integers(1, "starts") or [], c.integers(2, "ends") or []
    axes, steps = c.integers(3, "axes") or list(range(len(starts))), c.integers(4, "steps") or [1] * len(starts)
    where = [slice(None)] * c[0].dim()
    for start, end, axis, step in zip(starts, ends, axes, steps):
        if step < 0:
            raise NotImplementedError("steps backwards")
        where[axis] = slice(start, end, step)
    return c[0][tuple(where)]


def _gather(c: _Call) -> Tensor:
    axis = c.attribute("axis", 0) % c[0].dim()
    index = c[1].long()
    index = torch.where(index < 0, index + c[0].shape[axis], index)
    flat = c[0].index_select(axis, index.reshape(-1))
    return flat.reshape(c[0].shape[:axis] + index.shape + c[0].shape[axis + 1:])


def _gather_nd(c: _Call) -> Tensor:
    batch = c.attribute("batch_dims", 0)
    sizes = c[0].shape[:batch]
    at = [torch.arange(n).reshape([-1 if i == j else 1 for j in range(c[1].dim() - 1)]) for i, n in enumerate(sizes)]
    return c[0][tuple(at) + c[1].long().unbind(-1)]


def _split(c: _Call) -> tuple[Tensor, ...]:
    axis = c.attribute("axis", 0)
    sizes = c.integers(1, "split")
    if sizes is None:
        size = -(-c[0].shape[axis] // len(c.node.output))
        return tuple(c[0].split(size, axis))
    return tuple(c[0].split(sizes, axis))


def _layer_norm(c: _Call) -> Tensor:
    axis = c.attribute("axis", -1) % c[0].dim()
    return F.layer_norm(c[0], c[0].shape[axis:], c[1], c[2], c.attribute("epsilon", 1e-5))


def _batch_norm(c: _Call) -> Tensor:
    shape = [1, -1] + [1] * (c[0].dim() - 2)
    scale = (c[1] / torch.sqrt(c[4] + c.attribute("epsilon", 1e-5))).reshape(shape)
    return (c[0] - c[3].reshape(shape)) * scale + c[2].reshape(shape)


def _cast(c: _Call) -> Tensor:
    import onnx
    return c[0].to(torch.from_numpy(np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(c.attribute("to")))).dtype)


def _constant(c: _Call) -> Tensor:
    import onnx
    for a in c.node.attribute:
        if a.name == "value":
            return torch.from_numpy(onnx.numpy_helper.to_array(a.t).copy())
        return torch.as_tensor(onnx.helper.get_attribute_value(a))
    raise NotImplementedError("no value")


def _filled(c: _Call) -> Tensor:
    import onnx
    value = c.attribute("value")
    what = torch.zeros(1) if value is None else torch.from_numpy(onnx.numpy_helper.to_array(value).copy())
    return what.reshape(()).expand([int(v) for v in c[0]]).clone()


def _expand(c: _Call) -> Tensor:
    common: Any = torch.broadcast_shapes  # untyped in torch
    return c[0].expand(common(c[0].shape, tuple(int(v) for v in c[1])))


def _div(c: _Call) -> Tensor:
    return c[0] / c[1] if c[0].is_floating_point() else torch.div(c[0], c[1], rounding_mode="trunc")


def _clip(c: _Call) -> Tensor:
    least, most = (c[i] if c[i] is not None else c.attribute(name) for i, name in ((1, "min"), (2, "max")))
    return c[0] if least is None and most is None else c[0].clamp(least, most)


def _range(c: _Call) -> Tensor:
    return torch.arange(c[0].item(), c[1].item(), c[2].item(), dtype=c[0].dtype)


def _transpose(c: _Call) -> Tensor:
    return c[0].permute(c.attribute("perm", list(reversed(range(c[0].dim())))))


def _trilu(c: _Call) -> Tensor:
    return (torch.triu if c.attribute("upper", 1) else torch.tril)(c[0], int(c[1]) if c[1] is not None else 0)


def _fold(of: Callable[[Tensor, Tensor], Tensor]) -> Node:
    def apply(c: _Call) -> Tensor:
        y = c[0]
        for other in c.operands[1:]:
            y = of(y, other)
        return y
    return apply


def _softmax(of: Callable[[Tensor, int], Tensor]) -> Node:
    return lambda c: of(c[0], c.attribute("axis", -1 if c.opset >= 13 else 1))


OPS: dict[str, Node] = {
    "Abs": lambda c: c[0].abs(), "Add": lambda c: c[0] + c[1], "And": lambda c: c[0] & c[1],
    "AveragePool": _pool("mean"), "BatchNormalization": _batch_norm, "Cast": _cast, "Clip": _clip,
    "Constant": _constant, "ConstantOfShape": _filled,
    "Concat": lambda c: torch.cat([c[i] for i in range(len(c.operands))], c.attribute("axis")), "Conv": _conv,
    "Cos": lambda c: c[0].cos(),
    "Div": _div, "Dropout": lambda c: c[0], "Equal": lambda c: c[0] == c[1], "Erf": lambda c: c[0].erf(),
    "Exp": lambda c: c[0].exp(), "Expand": _expand,
    "Flatten": lambda c: c[0].reshape(int(np.prod(c[0].shape[:c.attribute("axis", 1)])), -1), "Gather": _gather,
    "GatherElements": lambda c: c[0].gather(c.attribute("axis", 0), c[1].long()), "GatherND": _gather_nd,
    "Gelu": lambda c: F.gelu(c[0], approximate=c.attribute("approximate", "none")), "Gemm": _gemm,
    "GlobalAveragePool": lambda c: c[0].mean(dim=list(range(2, c[0].dim())), keepdim=True),
    "Greater": lambda c: c[0] > c[1], "GreaterOrEqual": lambda c: c[0] >= c[1],
    "HardSigmoid": lambda c: (c.attribute("alpha", 0.2) * c[0] + c.attribute("beta", 0.5)).clamp(0, 1),
    "HardSwish": lambda c: F.hardswish(c[0]), "Identity": lambda c: c[0], "IsNaN": lambda c: c[0].isnan(),
    "LayerNormalization": _layer_norm, "LeakyRelu": lambda c: F.leaky_relu(c[0], c.attribute("alpha", 0.01)),
    "Less": lambda c: c[0] < c[1], "LessOrEqual": lambda c: c[0] <= c[1], "Log": lambda c: c[0].log(),
    "LogSoftmax": _softmax(torch.log_softmax), "MatMul": lambda c: c[0] @ c[1], "Max": _fold(torch.maximum),
    "MaxPool": _pool("max"), "Min": _fold(torch.minimum), "Mul": lambda c: c[0] * c[1], "Neg": lambda c: -c[0],
    "Not": lambda c: ~c[0], "Or": lambda c: c[0] | c[1], "Pow": lambda c: c[0] ** c[1], "Range": _range,
    "Reciprocal": lambda c: 1 / c[0], "ReduceMean": _reduce(torch.mean), "ReduceSum": _reduce(torch.sum),
    "Relu": lambda c: c[0].relu(), "Reshape": _reshape,
    "Shape": lambda c: torch.tensor(c[0].shape[c.attribute("start", 0):c.attribute("end", None)]),
    "Sigmoid": lambda c: c[0].sigmoid(), "Sin": lambda c: c[0].sin(), "Slice": _slice,
    "Softmax": _softmax(torch.softmax),
    "Softplus": lambda c: F.softplus(c[0]), "Split": _split, "Sqrt": lambda c: c[0].sqrt(), "Squeeze": _squeeze,
    "Sub": lambda c: c[0] - c[1], "Sum": _fold(torch.add), "Tanh": lambda c: c[0].tanh(), "Transpose": _transpose,
    "Trilu": _trilu, "Unsqueeze": _unsqueeze, "Where": lambda c: torch.where(c[0].bool(), c[1], c[2]),
}


class OnnxModule(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Computes what an ONNX file computes. Its parameters are the file's f32 initializers, by their names with dots
    as underscores; `forward` takes inputs by name and gives values by name. NotImplementedError, with the node, for an
    op that is not among OPS."""

    def __init__(self, path: str) -> None:
        import onnx
        super().__init__()
        self.model = onnx.load(path)
        graph = self.model.graph
        self.opset = next(o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx"))
        for node in graph.node:
            if node.domain not in ("", "ai.onnx") or node.op_type not in OPS:
                where = f"{path}: node '{node.name or node.output[0]}'"
                raise NotImplementedError(f"{where}: {node.op_type} has no form that trains")
        self.constants: dict[str, Tensor] = {}
        self.names: dict[str, str] = {}  # parameter by initializer
        statistics = {name for node in graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}
        for tensor in graph.initializer:
            value = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
            if tensor.data_type == onnx.TensorProto.FLOAT and value.dim() > 0 and tensor.name not in statistics:
                self.names[tensor.name] = f"p{len(self.names)}"
                self.register_parameter(self.names[tensor.name], torch.nn.Parameter(value))
            else:
                self.constants[tensor.name] = value

    def initializer(self, name: str) -> Any:
        return getattr(self, self.names[name])

    def forward(self, inputs: dict[str, Tensor], wanted: list[str] | None = None) -> dict[str, Tensor]:
        wanted = wanted or [value.name for value in self.model.graph.output]
        values: dict[str, Any] = {**self.constants, **{n: getattr(self, p) for n, p in self.names.items()}, **inputs}
        for node in self.model.graph.node:
            call = _Call(node, [values[name] if name else None for name in node.input], self.opset)
            try:
                results = OPS[node.op_type](call)
            except NotImplementedError as problem:
                where = f"node '{node.name or node.output[0]}'"
                raise NotImplementedError(f"{where}: {node.op_type} with {problem} has no form that trains") from None
            for name, value in zip(node.output, results if isinstance(results, tuple) else (results,)):
                values[name] = value
        missing = [name for name in wanted if name not in values]
        if missing:
            raise KeyError(f"the model has no value '{missing[0]}'")
        return {name: values[name] for name in wanted}

    def save(self, path: str) -> None:
        """The file with the parameters as they are now; all else as it was."""
        import onnx
        for tensor in self.model.graph.initializer:
            if tensor.name in self.names:
                values = self.initializer(tensor.name).detach().numpy()
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        onnx.save(self.model, path)
