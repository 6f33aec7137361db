# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports small decoders of several families, and what transformers generates with them.

    export_decoders.py OUT

OUT/<name>/model.onnx      past and present by Concat, as the exporter writes it
OUT/<name>/expected.json   prompts, the greedy answer of each and how far its second choice was, a step

Sizes are those of export_llama.py, and weights are drawn as there, so that attention is peaked and answers
are not one token for ever. A model whose files are newer than this script is not exported again.
"""
import json
import os
import sys

import torch
from transformers import (BloomConfig, BloomForCausalLM, DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config,
                          GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

import export_llama as sizes

PROMPTS, MOST_PROMPT, ANSWER = 20, 40, 24
COMMON = dict(vocab_size=sizes.VOCAB, hidden_size=sizes.HEADS * sizes.HEAD, intermediate_size=320,
              num_hidden_layers=sizes.LAYERS, num_attention_heads=sizes.HEADS,
              num_key_value_heads=sizes.KV_HEADS, head_dim=sizes.HEAD,
              max_position_embeddings=sizes.CAPACITY)
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name: (config, class, exporter, opset, whether positions and mask are inputs)
MODELS = {
    "llama3": (lambda: LlamaConfig(**COMMON, rope_parameters=LLAMA3_ROPE), LlamaForCausalLM, "dynamo", 18, True),
    "qwen3": (lambda: Qwen3Config(**COMMON), Qwen3ForCausalLM, "ts", 17, True),
    "mistral": (lambda: MistralConfig(**COMMON, sliding_window=None), MistralForCausalLM, "dynamo", 18, False),
    # Every layer has a window: pages behind it are given back.
    "mistral_window": (lambda: MistralConfig(**COMMON, sliding_window=9), MistralForCausalLM, "dynamo", 18, False),
    "gemma3": (lambda: Gemma3TextConfig(**COMMON, sliding_window=9, query_pre_attn_scalar=sizes.HEAD,
                                        layer_types=["sliding_attention", "full_attention"],
                                        tie_word_embeddings=False),
               Gemma3ForCausalLM, "dynamo", 18, False),
    # As many positions as tokens would be two tables of one size, and nothing says which of two inputs is which.
    "gpt2": (lambda: GPT2Config(vocab_size=sizes.VOCAB, n_embd=sizes.KV_HEADS * sizes.HEAD, n_layer=sizes.LAYERS,
                                n_head=sizes.KV_HEADS, n_positions=sizes.CAPACITY // 2, bos_token_id=0, eos_token_id=0,
                                tie_word_embeddings=False),
             GPT2LMHeadModel, "dynamo", 18, False),
    # Queries, keys and values of one product.
    "phi3": (lambda: Phi3Config(**{k: v for k, v in COMMON.items() if k != "head_dim"}, pad_token_id=0, bos_token_id=0,
                                eos_token_id=0, tie_word_embeddings=False), Phi3ForCausalLM, "ts", 17, True),
    # A sink a head, and a window in every other layer; an MLP stands where the experts would.
    "gpt_oss": (lambda: GptOssConfig(**COMMON, layer_types=["sliding_attention", "full_attention"], sliding_window=9,
                                     num_local_experts=2, num_experts_per_tok=2, tie_word_embeddings=False,
                                     pad_token_id=0, bos_token_id=0, eos_token_id=0,
                                     rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
                GptOssForCausalLM, "ts", 17, True),
    # Scores fall with distance (ALiBi); products of batches have rows and heads in one dimension.
    "bloom": (lambda: BloomConfig(vocab_size=sizes.VOCAB, hidden_size=sizes.KV_HEADS * sizes.HEAD, n_layer=sizes.LAYERS,
                                  n_head=sizes.KV_HEADS, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False),
              BloomForCausalLM, "dynamo", 18, False),
}


class Dense(torch.nn.Module):
    """What stands where GPT-OSS has experts."""

    def __init__(self, config):
        super().__init__()
        self.up = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x))), None


def build(name):
    config, of, *_ = MODELS[name]
    config = config()
    config._attn_implementation = "eager" if name in ("gpt_oss", "bloom") else "sdpa"
    model = of(config).eval()
    if name == "gpt_oss":
        for layer in model.model.layers:
            layer.mlp = Dense(config)
    return sizes.draw_weights(model, len(name))


class WithWholeCache(sizes.WithCache):
    """Caches are whole, of layers with a window too."""

    def new_cache(self):
        return DynamicCache()


class Bare(torch.nn.Module):
    """Neither positions nor a mask: the model makes both of its sizes. Caches are whole, of layers with a window too."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, k0, v0, k1, v1):
        cache = DynamicCache()
        cache.update(k0, v0, 0)
        cache.update(k1, v1, 1)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return out.logits, layers[0].keys, layers[0].values, layers[1].keys, layers[1].values


def export_bare(model, opset, path):
    ids, _, _, *caches = sizes.make_case(2, 3, 5, (), 1)
    dim = torch.export.Dim
    b, s, p = dim("B", min=1, max=64), dim("S", min=1, max=512), dim("P", min=0, max=511)
    program = torch.onnx.export(
        Bare(model), (ids, *caches), dynamo=True, input_names=["ids", *sizes.INPUTS[3:]],
        output_names=sizes.OUTPUTS, dynamic_shapes=({0: b, 1: s}, *[{0: b, 2: p}] * 4),
        opset_version=opset, verbose=False)
    program.save(path)


def answers(model):
    generator = torch.Generator().manual_seed(3)
    rows = []
    for i in range(PROMPTS):
        length = 1 + int(torch.randint(0, MOST_PROMPT, (1,), generator=generator))
        prompt = torch.randint(0, sizes.VOCAB, (1, length), generator=generator)
        cache, ids = DynamicCache(config=model.config), prompt
        tokens, gaps = [], []
        for _ in range(ANSWER):
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1]
            first, second = torch.topk(logits, 2).values.tolist()
            tokens.append(int(logits.argmax()))
            gaps.append(first - second)
            ids = torch.tensor([[tokens[-1]]])
        rows.append({"prompt": prompt[0].tolist(), "tokens": tokens, "gaps": gaps})
    return rows


@torch.no_grad()
def main(argv):
    script = os.path.getmtime(__file__)
    for name, (_, _, kind, opset, full) in MODELS.items():
        folder = f"{argv[1]}/{name}"
        stamp = f"{folder}/expected.json"
        if os.path.exists(stamp) and os.path.getmtime(stamp) > script:
            continue
        os.makedirs(folder, exist_ok=True)
        model = build(name)
        if full:
            sizes.export(WithWholeCache(model), kind, opset, torch.float32, f"{folder}/model.onnx")
        else:
            export_bare(model, opset, f"{folder}/model.onnx")
        with open(stamp, "w") as f:
            json.dump(answers(model), f)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
