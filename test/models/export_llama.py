# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports a two-layer Llama in every form lathe is tested with, and the data to test it on.

    export_llama.py OUT [FORM...]

OUT/<form>/model.onnx            the model (see FORMS for the names)
OUT/<form>/<case>/input_*.pb     an ONNX test data set: `lathe run --data OUT/<form>/<case>`
OUT/<form>/<case>/output_*.pb    what onnxruntime says in the model's own precision
OUT/inputs/<case>/<name>.npy     the same inputs, float32 and int64
OUT/truth/<dtype>/<case>/<name>.npy  torch in f32, on weights and caches rounded to <dtype>
OUT/torch/<dtype>/<case>/<name>.npy  torch computing in <dtype>, widened to f32 (f16 and bf16)
OUT/chain/{prefill,decode_<i>}/<name>.npy  a prompt and the steps after it; expect_<name>.npy
OUT/summary.json                 forms, cases, dimensions, and onnxruntime's error of each

The weights are drawn with deviations that make attention peaked and each norm, rotation and mask
matter: with transformers' default of 0.02 the scores are nearly equal and a wrong scale goes
unseen. A form whose files are newer than this script is not exported again.
"""
import json
import logging
import os
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)  # the exporter tells at length that torchvision is absent

VOCAB, LAYERS, HEADS, KV_HEADS, HEAD, CAPACITY = 512, 2, 8, 2, 32, 512
INPUTS = ["ids", "pos", "mask", "k0", "v0", "k1", "v1"]
OUTPUTS = ["logits", "pk0", "pv0", "pk1", "pv1"]

# name: (exporter, attention, opset, dtype)
FORMS = {
    "dynamo18_sdpa": ("dynamo", "sdpa", 18, "f32"),
    "dynamo23_sdpa": ("dynamo", "sdpa", 23, "f32"),
    "dynamo18_eager": ("dynamo", "eager", 18, "f32"),
    "ts17_sdpa": ("ts", "sdpa", 17, "f32"),
    "ts17_eager": ("ts", "eager", 17, "f32"),
    "dynamo18_sdpa_f16": ("dynamo", "sdpa", 18, "f16"),
    "dynamo23_sdpa_f16": ("dynamo", "sdpa", 23, "f16"),
    "dynamo18_eager_f16": ("dynamo", "eager", 18, "f16"),
    "dynamo18_sdpa_bf16": ("dynamo", "sdpa", 18, "bf16"),
    "dynamo23_sdpa_bf16": ("dynamo", "sdpa", 23, "bf16"),
    "dynamo18_eager_bf16": ("dynamo", "eager", 18, "bf16"),
}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

# name: (batch, new tokens, cached tokens, left padding of each batch row)
CASES = {
    "one_token": (1, 1, 0, ()),
    "decode": (1, 1, 17, ()),
    "prime": (3, 7, 13, ()),
    "prefill": (1, 128, 0, ()),
    "padded_prefill": (3, 11, 0, (0, 3, 7)),
    "padded_decode": (3, 1, 23, (5, 0, 19)),
    "padded_chunk": (2, 4, 13, (5, 0)),
    "upper_prefill": (2, CAPACITY, 0, ()),
    "upper_decode": (4, 1, CAPACITY - 1, ()),
}
CHAIN_PROMPT, CHAIN_STEPS = 5, 8


def build(attention):
    """The model in f32, the same weights for every form."""
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HEADS * HEAD, intermediate_size=512,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        max_position_embeddings=CAPACITY)
    config._attn_implementation = attention
    model = LlamaForCausalLM(config).eval()
    return draw_weights(model, 20)


@torch.no_grad()
def draw_weights(model, seed):
    """The weights anew, with the deviations that the head of this file speaks of."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1 and "bias" in name:
            parameter.copy_(0.1 * draw)
        elif "norm" in name or parameter.dim() == 1:
            parameter.copy_(1 + 0.25 * draw)
        elif "embed" in name:
            parameter.copy_(draw)
        elif "q_proj" in name or "k_proj" in name:
            parameter.copy_(0.1 * draw)
        else:
            parameter.copy_(draw / parameter.shape[1] ** 0.5)
    return model


class WithCache(torch.nn.Module):
    """Past and present as plain tensors: what a file of the model has as inputs and outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def new_cache(self):
        return DynamicCache(config=self.model.config)

    def forward(self, ids, pos, mask, k0, v0, k1, v1):
        cache = self.new_cache()
        cache.update(k0, v0, 0)
        cache.update(k1, v1, 1)
        out = self.model(input_ids=ids, position_ids=pos, attention_mask=mask,
                         past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return out.logits, layers[0].keys, layers[0].values, layers[1].keys, layers[1].values


def make_case(batch, new, past, padding, seed):
    """Inputs in f32: left padding as a tokenizer makes it, positions counted from the text."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(batch, past + new, dtype=torch.long)
    for row, count in enumerate(padding):
        mask[row, :count] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, past:].contiguous()
    ids = torch.randint(0, VOCAB, (batch, new), generator=generator)
    cache = [torch.randn(batch, KV_HEADS, past, HEAD, generator=generator)
             for _ in range(2 * LAYERS)]
    return [ids, positions, mask, *cache]


def cast(args, dtype):
    return [a.to(dtype) if a.is_floating_point() else a for a in args]


def export(wrapper, kind, opset, dtype, path):
    # Sizes that no code path treats specially, so that the exporter keeps them symbolic.
    args = tuple(cast(make_case(2, 3, 5, (), 1), dtype))
    if kind == "dynamo":
        dim = torch.export.Dim
        b, s, p = dim("B", min=1, max=64), dim("S", min=1, max=512), dim("P", min=0, max=511)
        shapes = ({0: b, 1: s}, {0: b, 1: s}, {0: b, 1: dim.AUTO}, *[{0: b, 2: p}] * 4)
        program = torch.onnx.export(
            wrapper, args, dynamo=True, input_names=INPUTS, output_names=OUTPUTS,
            dynamic_shapes=shapes, opset_version=opset, verbose=False)
        program.save(path)
        return
    axes = {"ids": {0: "B", 1: "S"}, "pos": {0: "B", 1: "S"}, "mask": {0: "B", 1: "T"},
            "logits": {0: "B", 1: "S"}}
    axes.update({k: {0: "B", 2: "P"} for k in INPUTS[3:]})
    axes.update({k: {0: "B", 2: "T"} for k in OUTPUTS[1:]})
    torch.onnx.export(wrapper, args, path, dynamo=False, input_names=INPUTS,
                      output_names=OUTPUTS, opset_version=opset, dynamic_axes=axes)


def tensor_proto(tensor, name):
    """numpy has no bfloat16, so that one is written through its bits."""
    tensor = tensor.contiguous()
    if tensor.dtype != torch.bfloat16:
        return numpy_helper.from_array(tensor.numpy(), name)
    proto = onnx.TensorProto(name=name, data_type=onnx.TensorProto.BFLOAT16,
                             dims=list(tensor.shape))
    proto.raw_data = tensor.view(torch.int16).numpy().tobytes()
    return proto


def run_ort(session, args):
    """onnxruntime's outputs as torch tensors in the model's precision."""
    bf16 = onnx.TensorProto.BFLOAT16
    feed = {}
    for name, arg in zip(INPUTS, args):
        arg = arg.contiguous()
        feed[name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                arg.view(torch.int16).numpy(), bf16)
            if arg.dtype == torch.bfloat16
            else onnxruntime.OrtValue.ortvalue_from_numpy(arg.numpy()))
    outs = session.run_with_ort_values(None, feed)
    result = []
    for out in outs:
        if out.data_type() == "tensor(bfloat16)":
            result.append(torch.utils.dlpack.from_dlpack(out._ortvalue.to_dlpack()).clone())
        else:
            result.append(torch.from_numpy(out.numpy()))
    return result


def save_npy(folder, names, tensors):
    os.makedirs(folder, exist_ok=True)
    for name, tensor in zip(names, tensors):
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        np.save(os.path.join(folder, name + ".npy"), tensor.contiguous().numpy())


def save_data_set(folder, args, outs):
    os.makedirs(folder, exist_ok=True)
    for prefix, names, tensors in (("input", INPUTS, args), ("output", OUTPUTS, outs)):
        for i, (name, tensor) in enumerate(zip(names, tensors)):
            with open(os.path.join(folder, f"{prefix}_{i}.pb"), "wb") as f:
                f.write(tensor_proto(tensor, name).SerializeToString())


def worst(got, want, mask):
    """max |got - want| / max |want| over the outputs; NaN must meet NaN.

    Positions of the padding are left out: a query there attends to nothing, and the exporters'
    forms define that differently (zeros, or the mean of all values).
    """
    error = 0.0
    live = mask.bool()
    for g, w in zip(got, want):
        if g.shape == w.shape:
            # Logits are [batch, new, ...], caches [batch, heads, past + new, ...].
            where = live[:, -w.shape[1]:] if w.dim() == 3 else live
            g, w = [(t if t.dim() == 3 else t.transpose(1, 2))[where].double() for t in (g, w)]
        if g.shape != w.shape or not torch.equal(g.isnan(), w.isnan()):
            return float("inf")
        if w.numel():
            scale = w.nan_to_num().abs().max().clamp(min=1e-30)
            error = max(error, float((g - w).nan_to_num().abs().max() / scale))
    return error


def write_truth(out):
    """torch's own results: f32 on rounded weights and caches, and the computation in each type."""
    truth = {}
    for dtype, torch_dtype in DTYPES.items():
        native = WithCache(build("sdpa").to(torch_dtype))
        wide = WithCache(build("sdpa").to(torch_dtype).float())
        for i, (case, spec) in enumerate(CASES.items()):
            args = make_case(*spec, seed=100 + i)
            rounded = cast(args, torch_dtype)
            want = wide(*cast(rounded, torch.float32))
            truth[dtype, case] = want
            save_npy(f"{out}/truth/{dtype}/{case}", OUTPUTS, want)
            if dtype == "f32":
                save_npy(f"{out}/inputs/{case}", INPUTS, args)
            else:
                save_npy(f"{out}/torch/{dtype}/{case}", OUTPUTS, native(*rounded))
    return truth


def write_chain(out):
    """A prompt of two rows, one of them padded, then steps whose cache is the last one's present."""
    model = WithCache(build("sdpa"))
    generator = torch.Generator().manual_seed(7)
    mask = torch.ones(2, CHAIN_PROMPT, dtype=torch.long)
    mask[1, :2] = 0
    cache = [torch.zeros(2, KV_HEADS, 0, HEAD) for _ in range(2 * LAYERS)]
    count = CHAIN_PROMPT
    for step in range(CHAIN_STEPS + 1):
        ids = torch.randint(0, VOCAB, (2, count), generator=generator)
        pos = (mask.cumsum(1) - 1).clamp(min=0)[:, -count:].contiguous()
        outs = model(ids, pos, mask, *cache)
        folder = f"{out}/chain/" + (f"decode_{step - 1}" if step else "prefill")
        save_npy(folder, INPUTS[:3], (ids, pos, mask))
        save_npy(folder, ["expect_" + n for n in OUTPUTS], outs)
        cache, count = list(outs[1:]), 1
        mask = torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1)


@torch.no_grad()
def main(argv):
    out = argv[1]
    forms = argv[2:] or list(FORMS)
    os.makedirs(out, exist_ok=True)
    stamp, script = f"{out}/summary.json", os.path.getmtime(__file__)
    summary = {}
    if os.path.exists(stamp) and os.path.getmtime(stamp) > script:
        summary = json.load(open(stamp))
    forms = [f for f in forms if f not in summary.get("forms", {})]
    if not forms:
        return 0
    truth = write_truth(out)
    write_chain(out)
    summary.setdefault("forms", {})
    summary.update(inputs=INPUTS, outputs=OUTPUTS, capacity=CAPACITY,
                   chain={"prompt": CHAIN_PROMPT, "steps": CHAIN_STEPS},
                   cases={n: {"batch": c[0], "new": c[1], "past": c[2], "padding": list(c[3])}
                          for n, c in CASES.items()})
    for form in forms:
        kind, attention, opset, dtype = FORMS[form]
        folder = f"{out}/{form}"
        os.makedirs(folder, exist_ok=True)
        path = f"{folder}/model.onnx"
        export(WithCache(build(attention).to(DTYPES[dtype])), kind, opset, DTYPES[dtype], path)
        graph = onnx.load(path).graph
        dims = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
                for v in [*graph.input, *graph.output]}
        row = {"dtype": dtype, "opset": opset, "nodes": len(graph.node), "dims": dims, "error": {}}
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as problem:  # onnxruntime lacks some 16-bit kernels on the CPU
            session = None
            row["onnxruntime"] = str(problem).splitlines()[0][:200]
        for i, (case, spec) in enumerate(CASES.items()):
            args = cast(make_case(*spec, seed=100 + i), DTYPES[dtype])
            if session:
                outs = run_ort(session, args)
                row["error"][case] = worst(outs, truth[dtype, case], args[2])
            else:
                outs = [t.to(DTYPES[dtype]) for t in truth[dtype, case]]
            save_data_set(f"{folder}/{case}", args, outs)
        summary["forms"][form] = row
        print(form, len(graph.node), "nodes", row["error"] or row.get("onnxruntime"), flush=True)
        with open(stamp, "w") as f:
            json.dump(summary, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
