# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the models of race_models.py in a folder: graphs whose large weights are absent.

`export_graphs.py FOLDER [NAME...]`; NAME.ts is what the TorchScript exporter writes, NAME.dynamo
what the newer one does. Weights above 64 bytes name a file that does not exist, so that a graph is a
few MB; `lathe compile --random-weights=SEED` makes them.
"""
import os
import sys

import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import export_models as plain

KEPT = 64
ABSENT = "absent.bin"


# Transformers as their authors write them ---------------------------------------------------------


class Attention(nn.Module):
    """Full attention; `merged` keeps one product for queries, keys and values."""

    def __init__(self, width, count, merged):
        super().__init__()
        self.count, self.merged = count, merged
        if merged:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.o = nn.Linear(width, width)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1) if self.merged else (self.q(x), self.k(x), self.v(x))
        q, k, v = (plain.heads(part, self.count) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Norms stand before (ViT) or behind (BERT) the residual."""

    def __init__(self, width, count, first, eps):
        super().__init__()
        self.first, self.attention = first, Attention(width, count, first)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)

    def mlp(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        if self.first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 768, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, 768) * 0.02)
        self.place = nn.Parameter(torch.randn(1, 197, 768) * 0.02)
        self.blocks = nn.ModuleList(Block(768, 12, True, 1e-6) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768, 1e-6), nn.Linear(768, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.kind, self.norm = nn.Parameter(torch.randn(768)), nn.LayerNorm(768, 1e-12)
        self.blocks = nn.ModuleList(Block(768, 12, False, 1e-12) for _ in range(12))

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places) + self.kind)
        for block in self.blocks:
            x = block(x)
        return x


# Llama with 8 billion weights ---------------------------------------------------------------------


class LlamaSizes:
    width, inner, layers, heads, groups, words, head, capacity = 4096, 14336, 32, 32, 8, 128256, 128, 1024


class Llama70Sizes(LlamaSizes):
    """70 billion weights."""
    width, inner, layers, heads = 8192, 28672, 80, 64


def rms_norm(x, weight):
    """In float32, as the published code has it."""
    y = x.float()
    return weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        linear = lambda n, k: nn.Linear(k, n, bias=False)
        self.q, self.o = linear(s.heads * s.head, s.width), linear(s.width, s.heads * s.head)
        self.k, self.v = (linear(s.groups * s.head, s.width) for _ in range(2))
        self.gate, self.up = (linear(s.inner, s.width) for _ in range(2))
        self.down = linear(s.width, s.inner)
        self.norm1, self.norm2 = (nn.Parameter(torch.ones(s.width)) for _ in range(2))

    def forward(self, x, cos, sin, mask, past):
        s, (n, t) = self.s, x.shape[:2]
        split = lambda y, count: y.view(n, t, count, s.head).transpose(1, 2)
        y = rms_norm(x, self.norm1)
        q, k = rotate(split(self.q(y), s.heads), cos, sin), rotate(split(self.k(y), s.groups), cos, sin)
        v = split(self.v(y), s.groups)
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(n, t, s.heads * s.head))
        y = rms_norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Llama(nn.Module):
    """Logits of the last token, and each layer's keys and values, old and new."""

    def __init__(self, sizes=LlamaSizes):
        super().__init__()
        s = self.s = sizes
        self.words = nn.Embedding(s.words, s.width)
        self.layers = nn.ModuleList(LlamaLayer(s) for _ in range(s.layers))
        self.norm = nn.Parameter(torch.ones(s.width))
        self.head = nn.Linear(s.width, s.words, bias=False)

    def forward(self, ids, *past):
        s, t, begin = self.s, ids.shape[1], past[0].shape[2]
        x = self.words(ids)
        places = torch.arange(begin, begin + t, device=ids.device)
        pair = torch.arange(0, s.head, 2, device=ids.device).float()
        angle = places.float()[:, None] * (500000.0 ** (-pair / s.head))[None]
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        mask = torch.arange(begin + t, device=ids.device)[None, :] <= places[:, None]
        present = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, cos, sin, mask, past[2 * i:2 * i + 2])
            present += [k, v]
        return (self.head(rms_norm(x[:, -1], self.norm)), *present)


# Files --------------------------------------------------------------------------------------------


def drop_weights(model):
    """Weights above KEPT bytes become references to a file that is not there."""
    from onnx import TensorProto, external_data_helper, helper
    end = 0
    for tensor in model.graph.initializer:
        size = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for dim in tensor.dims:
            size *= dim
        floating = tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16,
                                        TensorProto.BFLOAT16)
        if not floating or size <= KEPT:
            continue
        for field in ("raw_data", "float_data", "int32_data"):
            tensor.ClearField(field)
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", ABSENT), ("offset", end), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        end = (end + size + 4095) // 4096 * 4096


def name_weights(proto, model, args):
    """Exporters rename what they fold: gives weights of layers their parameters' names again.

    NAME.weight.T is transposed; a convolution's bias that came out of the batch norm behind it is
    NORM.norm_bias.
    """
    calls, hooks = [], []
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            hooks.append(module.register_forward_hook(
                lambda m, i, o, name=name: calls.append((name, m))))
    model(*args)
    for hook in hooks:
        hook.remove()
    initializers = {t.name: t for t in proto.graph.initializer}
    turned = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Transpose"}
    new = {}
    for node in proto.graph.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        source = turned.get(node.input[1], node.input[1])
        if source not in initializers:
            continue
        name, module = calls.pop(0)
        same = list(initializers[source].dims) == list(module.weight.shape)
        if node.op_type == "MatMul" and len(set(module.weight.shape)) == 1:
            same = source != node.input[1]
        new[source] = f"{name}.weight" + ("" if same else ".T")
        if len(node.input) > 2:
            norm = name.rpartition(".")[0] + ".1.norm_bias"
            new[node.input[2]] = f"{name}.bias" if module.bias is not None else norm
    if calls:
        raise SystemExit(f"the graph lacks a layer: {calls[0][0]}")
    for tensor in proto.graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = new.get(name, name)


def refer_to_absent(model):
    """Weights of a model that was made without memory for them have no bytes to write."""
    import onnx_ir
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if isinstance(getattr(tensor, "raw", None), torch._subclasses.fake_tensor.FakeTensor):
            value.const_value = onnx_ir.ExternalTensor(ABSENT, 0, tensor.nbytes, tensor.dtype,
                                                       shape=tensor.shape, name=name)


def export(folder, name, model, args, inputs, outputs, axes, dynamo, **more):
    path = os.path.join(folder, f"{name}.{'dynamo' if dynamo else 'ts'}.onnx")
    if os.path.exists(path):
        return
    print(path, flush=True)
    with torch.no_grad():
        if dynamo:
            shape = lambda i: {d: torch.export.Dim(n, min=0 if n == "P" else 1)
                               for d, n in axes[i].items()}
            shapes = (shape(inputs[0]), tuple(shape(i) for i in inputs[1:]))[:min(2, len(inputs))]
            program = torch.onnx.export(model.eval(), args, dynamo=True, opset_version=18,
                                        input_names=inputs, output_names=outputs,
                                        dynamic_shapes=shapes, external_data=False, **more)
            refer_to_absent(program.model)
            proto = program.model_proto
        else:
            torch.onnx.export(model.eval(), args, path, dynamo=False, opset_version=18,
                              input_names=inputs, output_names=outputs, dynamic_axes=axes)
            proto = onnx.load(path)
    if not name.startswith("llama"):
        with torch.no_grad():
            name_weights(proto, model, args)
    drop_weights(proto)
    onnx.save(proto, path)


def network(name):
    """With values that differ, so that no exporter takes two weights for one."""
    torch.manual_seed(0)
    model = {"resnet50": plain.resnet50, "vit_b16": Vit, "bert_base": Bert}[name]()
    for value in model.state_dict().values():
        if value.dim() == 1:
            value.uniform_(0.5, 1.5)
    return model.half()


def example(name, batch=1, device="cpu"):
    torch.manual_seed(1)
    if name == "bert_base":
        return torch.randint(0, 30000, (batch, 128), device=device)
    return torch.randn(batch, 3, 224, 224, device=device).half()


NAMES = [f"{name}.{kind}" for name in ("resnet50", "vit_b16", "bert_base")
         for kind in ("ts", "dynamo")] + ["llama.dynamo"]


def llama(folder):
    from torch._subclasses.fake_tensor import FakeTensorMode
    s = LlamaSizes
    torch.set_default_dtype(torch.bfloat16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = Llama()
        past = [torch.zeros(1, s.groups, 5, s.head, dtype=torch.bfloat16)
                for _ in range(2 * s.layers)]
        ids = torch.zeros(1, 3, dtype=torch.int64)
    names = [f"{part}{i}" for i in range(s.layers) for part in "kv"]
    axes = {"ids": {1: "S"}, **{n: {2: "P"} for n in names}}
    export(folder, "llama", model, (ids, *past), ["ids", *names],
           ["logits", *(f"{n}_out" for n in names)], axes, True, optimize=False)


def main(folder, names):
    os.makedirs(folder, exist_ok=True)
    for name in names or NAMES:
        if name.startswith("llama"):
            llama(folder)
            continue
        base, kind = name.rsplit(".", 1)
        first = "ids" if base == "bert_base" else "x"
        export(folder, base, network(base), (example(base, 2),), [first], ["y"],
               {first: {0: "N"}, "y": {0: "N"}}, kind == "dynamo")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
