# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators that write into their operand: which of them are the same as a new value."""
from __future__ import annotations

import operator
from typing import Any

import torch


def writes(target: Any) -> bool:
    """Whether an operator writes into an argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def written(node: Any) -> list[Any]:
    """The nodes that the node writes into."""
    arguments = node.target._schema.arguments
    values = dict(zip((a.name for a in arguments), node.args)) | dict(node.kwargs)
    return [values[a.name] for a in arguments
            if a.alias_info is not None and a.alias_info.is_write and isinstance(values.get(a.name), torch.fx.Node)]


def trains(node: Any) -> bool:
    """Whether it is a norm that takes the batch's statistics and, if it has running ones, writes them there, which its
    schema does not say."""
    name = node.target._schema.name if isinstance(node.target, torch._ops.OpOverload) else ""
    if name not in ("aten::batch_norm", "aten::instance_norm") or len(node.args) < 6:
        return False
    running, of_batch = node.args[3] is not None, bool(node.args[5])
    return of_batch and (running or name == "aten::batch_norm")


# Operators that torch composes of others, and whose results are new all the same. Others may give back their
# operand, as dropout does in inference, and their schema does not say so.
_FRESH = {"linear", "matmul", "einsum", "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm",
          "softmax", "log_softmax", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
          "max_pool1d", "conv_transpose2d", "conv_transpose3d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d",
          "adaptive_avg_pool2d", "adaptive_avg_pool3d", "upsample_nearest2d", "upsample_bilinear2d", "embedding",
          "silu", "relu6", "where", "square"}


def _views(node: Any) -> bool:
    """Whether the result may share memory with an operand."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    if writes(target):
        return False
    return any(r.alias_info is not None for r in target._schema.returns) or hides(target)


def hides(target: Any) -> bool:
    """Whether an operator may give back its operand without saying so."""
    if not isinstance(target, torch._ops.OpOverload) or writes(target):
        return False
    overload: Any = target  # name() has no type
    composed = torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")
    return composed and target._schema.name.rpartition("::")[2] not in _FRESH


def _stored(node: Any, root: dict[Any, Any]) -> Any:
    while node in root:
        node = root[node]
    return node


def plain(graph: Any) -> bool:
    """Whether each write is into a value that nothing else shares memory with, so that the result can be taken
    for a new value. A write into a placeholder, through a view or under one is not."""
    root: dict[Any, Any] = {}   # result of a write -> what it wrote into
    viewed: set[Any] = set()    # values that a view has been made of
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
            continue  # of sizes
        if node.target is operator.getitem:
            if node.args[0] in viewed:
                viewed.add(node)
            continue
        if _views(node):
            viewed.add(node)
            viewed.update(_stored(n, root) for n in node.all_input_nodes)
        if not writes(node.target):
            continue
        targets = written(node)
        if len(targets) != 1:
            return False
        stored = _stored(targets[0], root)
        if stored in viewed or stored.op != "call_function":
            return False
        root[node] = stored
    return True


def functional_name(target: Any) -> str:
    """`relu` of `aten.relu_.default`: the operator that makes a new value."""
    name: str = target._schema.name.rpartition("::")[2]
    return name[:-1] if writes(target) and name.endswith("_") and not name.startswith("__") else name


_IDENTITIES = ("dropout", "feature_dropout", "alpha_dropout")  # in inference


def without_identities(program: Any) -> Any:
    """The program without dropout that drops nothing. Torch takes its result for a new value where it makes a graph
    functional, and a write into that would be lost."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and len(node.args) > 2 and not node.args[2] and \
                node.target._schema.name.rpartition("::")[2] in _IDENTITIES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return program._update(torch.fx.GraphModule(program.graph_module, graph), program.graph_signature)


def lost_write(graph: Any) -> str | None:
    """The name of an operator that hides that it shares memory, where that memory is written into; None for none."""
    root: dict[Any, Any] = {}  # results that share memory with their operand
    hidden: dict[Any, str] = {}
    changed: set[Any] = set()
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if writes(node.target):
            targets = written(node)
            changed.update(_stored(t, root) for t in targets)
        else:
            targets = node.all_input_nodes[:1] if _views(node) else []
        if targets:
            root[node] = _stored(targets[0], root)
            if hides(node.target):
                hidden[root[node]] = node.target._schema.name
    return next((name for stored, name in hidden.items() if stored in changed), None)
