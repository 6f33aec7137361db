# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`distill`: what pruning took from a model is trained back, with the model as it was for a teacher."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .. import _compiler
from ._onnx_module import OnnxModule


def _checked(data: Mapping[str, Any], teacher: Any) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(value) for name, value in data.items()}
    names = [port.name for port in teacher.inputs()]
    for name in names:
        if name not in arrays:
            raise ValueError(f"data: there is no array for input '{name}'")
    for name in arrays:
        if name not in names:
            raise ValueError(f"data: the model has no input '{name}'")
    rows = {len(value) if value.ndim else 0 for value in arrays.values()}
    if len(rows) != 1 or 0 in rows:
        raise ValueError("data: wants arrays of as many rows each, one at least")
    return arrays


def _with_values(path: str, names: list[str], to: str) -> str:
    """The model with values of its graph as further results."""
    import onnx
    model = onnx.load(path)
    known = {v.name for v in model.graph.output}
    types = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    made = {name for node in model.graph.node for name in node.output}
    for name in names:
        if name not in made:
            raise ValueError(f"features: {path} has no value '{name}'")
        if name not in known:
            unknown = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            model.graph.output.append(types.get(name) or unknown)
    onnx.save(model, to)
    return to


def distill(student: str | os.PathLike[str], teacher: str | os.PathLike[str], data: Mapping[str, Any],
            output: str | os.PathLike[str], *, logits: list[str] | None = None,
            features: Mapping[str, str] | None = None, temperature: float = 2.0, feature_weight: float = 1.0,
            epochs: int = 10, batch: int = 32, rate: float = 1e-3, seed: int = 1) -> list[float]:
    """Trains the ONNX model `student` (pruned, or masked by zeros, which stay zero) to give what `teacher` gives, and
    writes it to `output`, nothing but weights changed. Returns the mean loss of each epoch.

    The loss is the Kullback-Leibler divergence of the teacher's softmax of `logits` (results, over their last axis;
    by default all results of floats), both divided by `temperature` and the divergence multiplied by its square (Hinton
    et al., 2015), plus `feature_weight` times the mean squared difference of `features` {value of the student: value of
    the teacher}, relative to the teacher's mean square (FitNets, Romero et al., 2015). `data`: arrays by input, whose
    rows are examples; the teacher runs as an engine, once. Adam with a rate that falls as a cosine. The same seed gives
    the same weights on one machine. ValueError for data and names that do not fit, NotImplementedError for an op that
    cannot train."""
    if epochs < 1 or batch < 1 or not rate > 0 or not temperature > 0:
        raise ValueError("epochs and batch want 1 or more, rate and temperature more than 0")
    features = dict(features or {})
    module = OnnxModule(os.fspath(student))
    with tempfile.TemporaryDirectory() as folder:
        path = _with_values(os.fspath(teacher), list(features.values()), os.path.join(folder, "teacher.onnx"))
        engine = _compiler.compile(path)
        arrays = _checked(data, engine)
        rows = len(next(iter(arrays.values())))
        answers: dict[str, list[np.ndarray]] = {}
        for begin in range(0, rows, batch):
            for name, value in engine.run({n: a[begin:begin + batch] for n, a in arrays.items()}).items():
                answers.setdefault(name, []).append(value.numpy().copy())
    results = [v.name for v in module.model.graph.output]
    logits = results if logits is None else list(logits)
    for name in logits:
        if name not in results or name not in answers:
            raise ValueError(f"logits: '{name}' is no result of both models")
    want = {name: torch.from_numpy(np.concatenate(parts)) for name, parts in answers.items()}
    logits = [name for name in logits if want[name].is_floating_point()]
    inputs = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
    zeros = [(p, p.detach() == 0) for p in module.parameters()]
    zeros = [(p, where) for p, where in zeros if p.dim() > 1 and bool(where.any())]

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        got = module({name: value[rows] for name, value in inputs.items()}, [*logits, *features])
        total = torch.zeros(())
        for name in logits:
            aim = torch.log_softmax(want[name][rows] / temperature, -1)
            mine = torch.log_softmax(got[name] / temperature, -1)
            total = total + temperature ** 2 * (aim.exp() * (aim - mine)).sum(-1).mean()
        for mine_, its in features.items():
            aim = want[its][rows]
            if got[mine_].shape != aim.shape:
                raise ValueError(f"features: '{mine_}' has sizes {list(got[mine_].shape)}, '{its}' of the teacher "
                                 f"{list(aim.shape)}")
            total = total + feature_weight * (got[mine_] - aim).square().mean() / aim.square().mean().clamp_min(1e-12)
        return total

    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    steps = epochs * -(-rows // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    history: list[float] = []
    for _ in range(epochs):
        sum_ = 0.0
        order = torch.randperm(rows, generator=generator)
        for part in (order[begin:begin + batch] for begin in range(0, rows, batch)):
            optimizer.zero_grad()
            loss = loss_of(part)
            if not torch.isfinite(loss):
                raise ValueError(f"the loss is {loss.item()} in epoch {len(history)}: a lower rate may help")
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for parameter, where in zeros:
                    parameter[where] = 0
            sum_ += loss.item() * len(part)
        history.append(sum_ / rows)
    module.save(os.fspath(output))
    return history
