# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports small models of the families whose layers are divided among ranks in ways of their own.

    export_families.py OUT [NAME...]

OUT/<name>/model.onnx            two layers, weights drawn as export_llama.py does
OUT/<name>/input_<i>.npy         in the order of the graph's inputs
OUT/<name>/done                  when all of it is there

Sizes are those of export_llama.py; Falcon has the 71 heads of its 7B model, narrower, Whisper and T5 have
two layers on either side. A model whose files are newer than this script is not exported again.
"""
import logging
import os
import sys
import warnings

import numpy as np
import torch
from transformers import (BertConfig, BertForMaskedLM, FalconConfig, FalconForCausalLM, GemmaConfig,
                          GemmaForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, T5Config,
                          T5ForConditionalGeneration, ViTConfig, ViTForImageClassification, WhisperConfig,
                          WhisperForConditionalGeneration)

import export_llama as sizes

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

BATCH, LENGTH, TARGET = 2, 7, 5
WIDTH = sizes.HEADS * sizes.HEAD
DECODER = dict(vocab_size=sizes.VOCAB, hidden_size=WIDTH, intermediate_size=320, num_hidden_layers=sizes.LAYERS,
               num_attention_heads=sizes.HEADS, num_key_value_heads=sizes.KV_HEADS, pad_token_id=0,
               max_position_embeddings=sizes.CAPACITY, tie_word_embeddings=False)


def ids(count):
    return torch.randint(2, sizes.VOCAB, (BATCH, count), generator=torch.Generator().manual_seed(count))


def text(count):
    return {"input_ids": ids(count), "attention_mask": torch.ones(BATCH, count).long()}


def floats(*dims):
    return torch.randn(dims, generator=torch.Generator().manual_seed(1))


# name: (configuration, class, inputs by name with the names of their free dimensions)
MODELS = {
    "bert": (lambda: BertConfig(vocab_size=sizes.VOCAB, hidden_size=WIDTH, num_hidden_layers=sizes.LAYERS,
                                num_attention_heads=sizes.HEADS, intermediate_size=512,
                                max_position_embeddings=sizes.CAPACITY, tie_word_embeddings=False),
             BertForMaskedLM, lambda: text(LENGTH)),
    "vit": (lambda: ViTConfig(hidden_size=WIDTH, num_hidden_layers=sizes.LAYERS, num_attention_heads=sizes.HEADS,
                              intermediate_size=512, image_size=48, patch_size=16, num_labels=64),
            ViTForImageClassification, lambda: {"pixel_values": floats(BATCH, 3, 48, 48)}),
    "falcon": (lambda: FalconConfig(vocab_size=sizes.VOCAB, hidden_size=71 * 4, num_hidden_layers=sizes.LAYERS,
                                    num_attention_heads=71, multi_query=True, parallel_attn=True, alibi=False,
                                    bias=False, tie_word_embeddings=False),
               FalconForCausalLM, lambda: text(LENGTH)),
    "phi3": (lambda: Phi3Config(**DECODER), Phi3ForCausalLM, lambda: text(LENGTH)),
    "qwen2": (lambda: Qwen2Config(**DECODER), Qwen2ForCausalLM, lambda: text(LENGTH)),
    "gemma": (lambda: GemmaConfig(**DECODER, head_dim=sizes.HEAD), GemmaForCausalLM, lambda: text(LENGTH)),
    "whisper": (lambda: WhisperConfig(vocab_size=sizes.VOCAB, num_mel_bins=16, d_model=WIDTH,
                                      encoder_layers=sizes.LAYERS, decoder_layers=sizes.LAYERS,
                                      encoder_attention_heads=sizes.HEADS, decoder_attention_heads=sizes.HEADS,
                                      encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=20,
                                      max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=1,
                                      decoder_start_token_id=1, tie_word_embeddings=False),
                WhisperForConditionalGeneration,
                lambda: {"input_features": floats(BATCH, 16, 40), "decoder_input_ids": ids(TARGET)}),
    "t5": (lambda: T5Config(vocab_size=sizes.VOCAB, d_model=WIDTH, d_kv=sizes.HEAD, d_ff=512,
                            num_layers=sizes.LAYERS, num_decoder_layers=sizes.LAYERS, num_heads=sizes.HEADS,
                            feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0),
           T5ForConditionalGeneration, lambda: {**text(LENGTH), "decoder_input_ids": ids(TARGET)}),
}
DYNAMO = {"phi3", "qwen2", "gemma", "whisper"}  # the other exporter is faster, but lacks an op of theirs


class Logits(torch.nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names
        self.extra = {} if isinstance(model, ViTForImageClassification) else {"use_cache": False}
        if isinstance(model, BertForMaskedLM):
            self.extra = {}

    def forward(self, *tensors):
        return self.model(**dict(zip(self.names, tensors)), **self.extra).logits


@torch.no_grad()
def main(argv):
    script = os.path.getmtime(__file__)
    for name in argv[2:] or MODELS:
        folder = f"{argv[1]}/{name}"
        stamp = f"{folder}/done"
        if os.path.exists(stamp) and os.path.getmtime(stamp) > script:
            continue
        os.makedirs(folder, exist_ok=True)
        config, of, inputs = MODELS[name]
        config, inputs = config(), inputs()
        config._attn_implementation = "sdpa" if name != "t5" else "eager"
        model = sizes.draw_weights(of(config).eval(), len(name))
        wrapper, tensors = Logits(model, list(inputs)), tuple(inputs.values())
        names = dict(input_names=list(inputs), output_names=["logits"])
        if name in DYNAMO:
            torch.onnx.export(wrapper, tensors, dynamo=True, opset_version=18, verbose=False, **names).save(
                f"{folder}/model.onnx")
        else:
            torch.onnx.export(wrapper, tensors, f"{folder}/model.onnx", dynamo=False, opset_version=17, **names)
        for i, tensor in enumerate(tensors):
            np.save(f"{folder}/input_{i}.npy", tensor.numpy())
        open(stamp, "w").close()
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
