# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of networks that the zoo exports: transformers' own models at small sizes with seeded weights.

`FAMILIES[name]` makes (module, inputs, dynamic): a module in eval mode whose forward takes the inputs by
position and returns a tuple of tensors, `inputs` {name: tensor}, and `dynamic` {name: {axis: symbol}}.
"""
import functools

import torch

FAMILIES = {}
VOCABULARY = 200

# What configurations call their sizes; a family sets what else it needs.
SMALL = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embedding_size": 64, "embed_dim": 64,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "hidden_dim": 128,
    "intermediate_size": 128, "ffn_dim": 128, "d_ff": 128, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "n_inner": 128, "vocab_size": VOCABULARY, "max_position_embeddings": 128, "n_positions": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}


class Outputs(torch.nn.Module):
    """Tensors by position in, the tensors of the answer out: caches and loss are left out."""

    def __init__(self, model, names, fixed=None):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed or {}
        self.eval()  # an exporter that gives up leaves the mode that the whole had, dropout included

    def forward(self, *inputs):
        answer = self.model(**dict(zip(self.names, inputs)), **self.fixed)
        found = []

        def collect(value):
            if isinstance(value, torch.Tensor):
                if value.is_floating_point():
                    found.append(value)
            elif isinstance(value, (tuple, list)):
                for part in value:
                    collect(part)

        if isinstance(answer, dict):
            for key, value in answer.items():
                if key not in ("past_key_values", "cache_params", "hidden_states", "state", "loss"):
                    collect(value)
        else:
            collect(answer)
        return tuple(found)


def seeded(make):
    torch.manual_seed(11)
    model = make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms of ones and biases of zeros would hide what is done with them.
            if parameter.is_floating_point() and parameter.dim() == 1:
                parameter.add_(0.05 * torch.randn_like(parameter))
            # Queries are the best scores: weights of 0.01 make ties of them.
            if "score_head" in name:
                parameter.mul_(20)
    return model.requires_grad_(False)


def small_config(kind, changes, like=SMALL):
    import transformers
    config = transformers.AutoConfig.for_model(kind)
    known = {**config.to_dict(), **{name: None for name in getattr(config, "attribute_map", {})}}
    for key, value in like.items():
        if key in known and not isinstance(getattr(config, key, None), (list, tuple, dict)):
            setattr(config, key, value)
    for key, value in changes.items():
        setattr(config, key, value)
    # Lists a layer follow the number of layers.
    layers = getattr(config, "num_hidden_layers", None)
    for key in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        kept = getattr(config, key, None)
        if isinstance(kept, list) and key not in changes and isinstance(layers, int) and len(kept) > layers:
            setattr(config, key, kept[:layers])
    return config


def tokens(*shape):
    torch.manual_seed(5)
    return torch.randint(3, VOCABULARY - 1, shape)


def real(*shape):
    torch.manual_seed(5)
    return torch.randn(*shape)


def hugging(kind, model="AutoModel", inputs=None, dynamic=None, fixed=None, changes=None, plain=False):
    """The maker of a model of transformers; `plain` keeps the configuration's own sizes."""
    import transformers
    config = small_config(kind, changes or {}, {} if plain else SMALL)
    module = seeded(lambda: getattr(transformers, model).from_config(config) if model.startswith("Auto")
                    else getattr(transformers, model)(config))
    given = {name: value() if callable(value) else value for name, value in inputs.items()}
    return Outputs(module, list(given), fixed), given, dynamic


def add(name, *args, **kwargs):
    FAMILIES[name] = functools.partial(hugging, *args, **kwargs)


def text(name, kind=None, model="AutoModel", mask=True, length=12, **changes):
    fixed = changes.pop("fixed", None)
    inputs = {"input_ids": functools.partial(tokens, 2, length)}
    dynamic = {"input_ids": {0: "batch", 1: "length"}}
    if mask:
        inputs["attention_mask"] = lambda: torch.tensor([[1] * length, [1] * (length - 3) + [0] * 3])
        dynamic["attention_mask"] = {0: "batch", 1: "length"}
    add(name, kind or name, model, inputs, dynamic, fixed, changes)


def decoder(name, kind=None, model="AutoModelForCausalLM", **changes):
    text(name, kind, model, **changes)


def seq2seq(name, kind=None, model="AutoModelForSeq2SeqLM", **changes):
    inputs = {"input_ids": functools.partial(tokens, 2, 12), "decoder_input_ids": functools.partial(tokens, 2, 7)}
    dynamic = {"input_ids": {0: "batch", 1: "length"}, "decoder_input_ids": {0: "batch", 1: "written"}}
    add(name, kind or name, model, inputs, dynamic, None, {"decoder_start_token_id": 1, **changes})


def image(name, kind=None, model="AutoModel", size=64, plain=False, channels=3, fixed=None, **changes):
    inputs = {"pixel_values": functools.partial(real, 2, channels, size, size)}
    add(name, kind or name, model, inputs, {"pixel_values": {0: "batch"}}, fixed, changes, plain)


def audio(name, kind=None, model="AutoModel", key="input_values", shape=(2, 4000), plain=False, axes=None, **changes):
    add(name, kind or name, model, {key: functools.partial(real, *shape)}, {key: axes or {0: "batch"}}, None, changes,
        plain)


# ---- Encoders of text ---------------------------------------------------------------------------

for _name in ("albert", "bert", "roberta", "electra", "mpnet", "deberta", "deberta-v2", "squeezebert", "roformer",
              "mobilebert", "distilbert", "camembert", "xlm-roberta", "ernie", "megatron-bert", "rembert", "splinter",
              "nystromformer", "fnet", "data2vec-text", "roberta-prelayernorm", "layoutlm", "esm", "modernbert",
              "convbert", "ibert", "yoso", "mra", "luke", "markuplm", "xmod", "flaubert", "xlm", "nomic_bert",
              "eurobert", "longformer", "big_bird", "canine", "xlnet", "tapas", "roc_bert"):
    _changes = {
        "mobilebert": dict(intra_bottleneck_size=32, true_hidden_size=32, embedding_size=32),
        "esm": dict(mask_token_id=4, position_embedding_type="rotary"),
        "modernbert": dict(cls_token_id=1, sep_token_id=2),
        "squeezebert": dict(embedding_size=64), "rembert": dict(input_embedding_size=32, output_embedding_size=64),
        "longformer": dict(attention_window=[4, 4]), "big_bird": dict(attention_type="original_full"),
        "xmod": dict(languages=["en_XX"], default_language="en_XX"),
        "luke": dict(entity_vocab_size=50, entity_emb_size=16),
        "roc_bert": dict(pronunciation_vocab_size=50, shape_vocab_size=50, pronunciation_embed_dim=16, shape_embed_dim=16),
        "canine": dict(num_hash_buckets=64, max_position_embeddings=256),
        "xlnet": dict(d_inner=128, d_head=16),
        "nystromformer": dict(num_landmarks=12, segment_means_seq_len=12),
    }.get(_name, {})
    text(_name, mask=_name not in ("fnet",), length=16 if _name in ("canine", "longformer") else 12, **_changes)
text("bert classifier", "bert", "AutoModelForSequenceClassification")
text("bert answers", "bert", "AutoModelForQuestionAnswering")
text("bert tags", "bert", "AutoModelForTokenClassification")
text("distilbert words", "distilbert", "AutoModelForMaskedLM")

# ---- Decoders -----------------------------------------------------------------------------------

for _name in ("gpt2", "gpt_neo", "gptj", "gpt_neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
              "phi", "phi3", "olmo", "olmo2", "olmo3", "cohere", "cohere2", "stablelm", "starcoder2", "falcon", "granite",
              "helium", "glm", "glm4", "smollm3", "exaone4", "nemotron", "persimmon", "biogpt", "xglm", "codegen",
              "gpt_bigcode", "mpt", "ctrl", "openai-gpt", "diffllama", "apertus", "arcee", "seed_oss", "minicpm3", "lfm2",
              "modernbert-decoder", "ernie4_5", "hunyuan_v1_dense", "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss",
              "olmoe", "phimoe", "granitemoe", "deepseek_v2", "deepseek_v3", "mamba", "mamba2", "rwkv", "recurrent_gemma",
              "falcon_mamba", "gemma3_text", "doge", "bitnet", "nanochat", "vaultgemma", "jais2", "youtu"):
    _changes = {
        "gpt_neo": dict(attention_types=[[["global", "local"], 1]], attention_layers=["global", "local"], window_size=4,
                        max_position_embeddings=64),
        "gptj": dict(rotary_dim=8), "codegen": dict(rotary_dim=8), "opt": dict(word_embed_proj_dim=64),
        "mpt": dict(max_seq_len=64), "ctrl": dict(dff=128), "phi3": dict(original_max_position_embeddings=128),
        "mixtral": dict(num_local_experts=4), "qwen2_moe": dict(num_experts=4, moe_intermediate_size=32,
                                                                shared_expert_intermediate_size=32),
        "qwen3_moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32), "gpt_oss": dict(num_local_experts=4),
        "olmoe": dict(num_experts=4, num_experts_per_tok=2), "phimoe": dict(num_local_experts=4),
        "granitemoe": dict(num_local_experts=4, num_experts_per_tok=2),
        "deepseek_v2": dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, q_lora_rank=32, kv_lora_rank=16,
                            qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, n_group=1, topk_group=1,
                            num_key_value_heads=4, head_dim=8),
        "deepseek_v3": dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, q_lora_rank=32, kv_lora_rank=16,
                            qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, n_group=1, topk_group=1,
                            num_key_value_heads=4, head_dim=8, first_k_dense_replace=1),
        "youtu": dict(q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
                      num_key_value_heads=4, head_dim=8),
        "minicpm3": dict(q_lora_rank=32, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
                         num_key_value_heads=4, head_dim=8),
        "mamba": dict(state_size=8, time_step_rank=4), "falcon_mamba": dict(state_size=8, time_step_rank=4),
        "mamba2": dict(state_size=8, num_heads=8, head_dim=16, n_groups=1, chunk_size=4),
        "rwkv": dict(attention_hidden_size=64), "recurrent_gemma": dict(lru_width=64, attention_window_size=8),
        "olmo3": dict(num_key_value_heads=4), "persimmon": dict(num_key_value_heads=4), "stablelm": dict(num_key_value_heads=4),
        "modernbert-decoder": dict(num_hidden_layers=3),
        "falcon": dict(num_kv_heads=4, new_decoder_architecture=False),
        "lfm2": dict(layer_types=["conv", "full_attention"], block_ff_dim=128),
    }.get(_name, {})
    decoder(_name, **_changes)

# ---- Encoder and decoder ------------------------------------------------------------------------

for _name in ("bart", "pegasus", "marian", "t5", "mt5", "umt5", "mbart", "m2m_100", "blenderbot", "blenderbot-small", "plbart",
              "bigbird_pegasus", "led", "longt5", "switch_transformers", "prophetnet", "fsmt", "pegasus_x"):
    _changes = {
        "bigbird_pegasus": dict(attention_type="original_full"), "led": dict(attention_window=[4, 4], max_encoder_position_embeddings=128,
                                                                              max_decoder_position_embeddings=128),
        "prophetnet": dict(num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
                           num_decoder_attention_heads=4, ngram=2),
        "switch_transformers": dict(num_experts=4), "fsmt": dict(src_vocab_size=VOCABULARY, tgt_vocab_size=VOCABULARY,
                                                                 langs=["en", "de"]),
    }.get(_name, {})
    seq2seq(_name, **_changes)

# ---- Images -------------------------------------------------------------------------------------

for _name in ("vit", "deit", "beit", "dinov2", "dinov3_vit", "vit_msn", "data2vec-vision", "dinov2_with_registers", "ijepa",
              "siglip_vision_model", "clip_vision_model"):
    image(_name, image_size=64, patch_size=16)
for _name, _changes in {
        "swin": dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, patch_size=4, image_size=64),
        "swinv2": dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, patch_size=4, image_size=64),
        "swin2sr": dict(embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4, image_size=64),
        "hiera": dict(embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8], image_size=[64, 64]),
        "convnext": dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        "convnextv2": dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        "resnet": dict(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], layer_type="basic"),
        "regnet": dict(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], groups_width=8),
        "bit": dict(embedding_size=16, hidden_sizes=[32, 32, 64, 64], depths=[1, 1, 1, 1], num_groups=8),
        "mobilenet_v1": dict(depth_multiplier=0.25), "mobilenet_v2": dict(depth_multiplier=0.25),
        "mobilevit": dict(hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], num_attention_heads=4),
        "mobilevitv2": dict(), "efficientnet": dict(width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320),
        "segformer": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
        "poolformer": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
        "pvt": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], image_size=64),
        "pvt_v2": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4]),
        "levit": dict(image_size=64, hidden_sizes=[16, 32, 48], num_attention_heads=[2, 2, 4], depths=[1, 1, 1],
                      key_dim=[8, 8, 8]),
        "focalnet": dict(embed_dim=16, depths=[1, 1], hidden_sizes=[16, 32], image_size=64, focal_levels=[2, 2],
                         focal_windows=[3, 3]),
        "swiftformer": dict(embed_dims=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
        "vitdet": dict(image_size=64, hidden_size=64, num_attention_heads=4, num_hidden_layers=2, window_size=0),
        "hgnet_v2": dict(), "textnet": dict(), "glpn": dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                                            num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
        "dinov3_convnext": dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1]),
        "yolos": dict(image_size=[64, 64], hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=128),
}.items():
    image(_name, plain=True, **_changes)
image("segformer maps", "segformer", "SegformerForSemanticSegmentation", plain=True, hidden_sizes=[8, 16, 24, 32],
      depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=32)
image("beit maps", "beit", "BeitForSemanticSegmentation", image_size=64, patch_size=16, num_hidden_layers=4, out_indices=[1, 2, 3, 4])
image("upernet", "upernet", "UperNetForSemanticSegmentation", plain=True, hidden_size=32)
image("mobilenet_v2 maps", "mobilenet_v2", "MobileNetV2ForSemanticSegmentation", plain=True, depth_multiplier=0.25)
image("dpt", "dpt", "DPTForDepthEstimation", image_size=64, patch_size=16, num_hidden_layers=4, backbone_out_indices=[0, 1, 2, 3],
      neck_hidden_sizes=[8, 16, 24, 32], fusion_hidden_size=16, is_hybrid=False)
image("vit classes", "vit", "AutoModelForImageClassification", image_size=64, patch_size=16)
def _small_resnet():
    from transformers import RTDetrResNetConfig
    return RTDetrResNetConfig(embedding_size=16, hidden_sizes=[16, 64, 64, 64], depths=[1, 1, 1, 1], layer_type="basic",
                              out_features=["stage2", "stage3", "stage4"])


for _name, _class in (("rt_detr", "RTDetrForObjectDetection"), ("rt_detr_v2", "RTDetrV2ForObjectDetection")):
    image(_name, _name, _class, 128, True, num_queries=20, decoder_layers=2, encoder_in_channels=[64, 64, 64],
          backbone_config=_small_resnet())
image("superpoint", "superpoint", "AutoModelForKeypointDetection", plain=True, channels=3)

# ---- Sound --------------------------------------------------------------------------------------

_FEATURES = dict(conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_feat_extract_layers=3,
                 num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
for _name in ("wav2vec2", "hubert", "wavlm", "unispeech", "unispeech-sat", "sew", "sew-d", "data2vec-audio", "wav2vec2-conformer"):
    _changes = dict(_FEATURES)
    if _name in ("sew", "sew-d"):
        _changes.update(squeeze_factor=2, feature_layer_norm_eps=1e-5)
    if _name == "data2vec-audio":
        _changes.update(conv_pos_kernel_size=5)
    audio(_name, **_changes)
audio("wav2vec2 letters", "wav2vec2", "AutoModelForCTC", **_FEATURES)
audio("wav2vec2-bert", key="input_features", shape=(2, 40, 160))
audio("whisper encoder", "whisper", "WhisperForAudioClassification", "input_features", (2, 80, 100), max_source_positions=50,
      num_mel_bins=80)
audio("audio-spectrogram-transformer", shape=(2, 64, 32), max_length=64, num_mel_bins=32)
audio("univnet", key="input_features", shape=(2, 30, 100), plain=True, model_hidden_channels=16)
audio("encodec", shape=(2, 1, 1600), plain=True, num_filters=8, hidden_size=32, codebook_size=32, codebook_dim=32,
      num_lstm_layers=1, upsampling_ratios=[4, 2])
audio("dac", shape=(2, 1, 1600), plain=True, encoder_hidden_size=8, decoder_hidden_size=64, downsampling_ratios=[2, 4],
      upsampling_ratios=[4, 2], codebook_size=32, n_codebooks=2, hidden_size=32)
add("whisper", "whisper", "WhisperForConditionalGeneration",
    {"input_features": functools.partial(real, 2, 80, 100), "decoder_input_ids": functools.partial(tokens, 2, 6)},
    {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "written"}}, None,
    dict(max_source_positions=50, max_target_positions=32, num_mel_bins=80, decoder_start_token_id=1))
add("moonshine", "moonshine", "MoonshineForConditionalGeneration",
    {"input_values": functools.partial(real, 2, 4000), "decoder_input_ids": functools.partial(tokens, 2, 6)},
    {"input_values": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "written"}}, None,
    dict(encoder_num_hidden_layers=2, decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
         encoder_num_key_value_heads=4, decoder_num_key_value_heads=4, decoder_start_token_id=1))

# ---- Images and text, time series, video ---------------------------------------------------------

add("clip", "clip", "AutoModel",
    {"input_ids": functools.partial(tokens, 2, 8), "pixel_values": functools.partial(real, 2, 3, 224, 224)},
    {"input_ids": {0: "texts", 1: "length"}, "pixel_values": {0: "images"}}, None, None, True)
add("siglip text", "siglip_text_model", "SiglipTextModel", {"input_ids": functools.partial(tokens, 2, 8)},
    {"input_ids": {0: "batch"}}, None, dict(projection_size=64))
add("patchtst", "patchtst", "PatchTSTForPrediction", {"past_values": functools.partial(real, 2, 32, 3)}, {"past_values": {0: "batch"}}, None,
    dict(num_input_channels=3, context_length=32, patch_length=4, patch_stride=4, prediction_length=8))
add("patchtsmixer", "patchtsmixer", "PatchTSMixerForPrediction", {"past_values": functools.partial(real, 2, 32, 3)},
    {"past_values": {0: "batch"}}, None, dict(num_input_channels=3, context_length=32, patch_length=4, patch_stride=4, prediction_length=8, num_patches=8), True)
add("videomae", "videomae", "VideoMAEModel", {"pixel_values": functools.partial(real, 2, 4, 3, 32, 32)}, {"pixel_values": {0: "batch"}}, None,
    dict(image_size=32, num_frames=4))
add("timesformer", "timesformer", "TimesformerModel", {"pixel_values": functools.partial(real, 2, 4, 3, 32, 32)},
    {"pixel_values": {0: "batch"}}, None, dict(image_size=32, num_frames=4))
add("vivit", "vivit", "VivitModel", {"pixel_values": functools.partial(real, 2, 4, 3, 32, 32)}, {"pixel_values": {0: "batch"}}, None,
    dict(image_size=32, num_frames=4, tubelet_size=[2, 16, 16]))
add("decision_transformer", "decision_transformer", "DecisionTransformerModel",
    {"states": functools.partial(real, 2, 5, 17), "actions": functools.partial(real, 2, 5, 4), "rewards": functools.partial(real, 2, 5, 1),
     "returns_to_go": functools.partial(real, 2, 5, 1), "timesteps": lambda: torch.arange(5).repeat(2, 1),
     "attention_mask": lambda: torch.ones(2, 5)}, {}, None, dict(hidden_size=64))
