# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models that race_unseen.py races, at their usual sizes, with weights from a seed.

`SEEN` are the nine that an issue named as slow: lathe was mended while they were looked at. `HELD_OUT` are 24 families
that nobody looked at before the list was committed; batch and dtype of each, and the six that are raced against
max-autotune as well, are drawn by `HELD_OUT_SEED`. A case states its input by the sizes behind the batch.
"""
import random

import torch
from torch import nn

HELD_OUT_SEED = 20261123


class Case:
    """`make` gives a module; the input has `sizes` behind the batch; tokens are integers below 1000."""

    def __init__(self, make, *sizes, tokens=False, batch=None, dtype="f16"):
        self.make, self.sizes, self.tokens, self.batch, self.dtype = make, sizes, tokens, batch, dtype
        self.autotune = False

    def __str__(self):
        return f"batch {self.batch}, {self.dtype}, input {'x'.join(map(str, (self.batch, *self.sizes)))}"


class First(nn.Module):
    """The first tensor of the answer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        answer = self.model(x, return_dict=False) if hasattr(self.model, "config") else self.model(x)
        return answer[0] if isinstance(answer, (tuple, list)) else answer


def hugging(config, kind, module=None, **changes):
    """The maker of a model of transformers by the names of its configuration and class."""
    def make():
        import importlib
        import transformers
        of = importlib.import_module(f"transformers.models.{module}") if module else transformers
        return getattr(of, kind)(getattr(transformers, config)(**changes))
    return make


# ---- Diffusion: written here, as its library is not at hand ------------------------------------------

def groups(channels):
    return nn.GroupNorm(32, channels, eps=1e-6)


class Attention(nn.Module):
    def __init__(self, width, heads, context=None):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(context or width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, context=None):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.key_value(x if context is None else context).chunk(2, -1)
        y = nn.functional.scaled_dot_product_attention(split(self.query(x)), split(key), split(value))
        return self.out(y.transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """Two 3x3 convolutions behind group norms; a vector of the time step may be added between."""

    def __init__(self, inner, outer, time=None):
        super().__init__()
        self.first, self.second = groups(inner), groups(outer)
        self.conv1, self.conv2 = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time, outer) if time else None
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, time=None):
        y = self.conv1(nn.functional.silu(self.first(x)))
        if self.time is not None:
            y = y + self.time(nn.functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(nn.functional.silu(self.second(y)))


class Transformer2d(nn.Module):
    """Attention among places, to a context of 77 x 768, and a gated feed-forward layer."""

    def __init__(self, width, heads=8):
        super().__init__()
        self.norm, self.enter, self.leave = groups(width), nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.self_attention, self.cross = Attention(width, heads), Attention(width, heads, 768)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, context):
        height = x.shape[2]
        y = self.enter(self.norm(x).flatten(2).transpose(1, 2))
        y = y + self.self_attention(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        value, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(value * nn.functional.gelu(gate))
        return x + self.leave(y).transpose(1, 2).unflatten(2, (height, -1))


class UNet(nn.Module):
    """Two levels of a latent diffusion UNet with cross attention, 320 and 640 channels."""

    def __init__(self):
        super().__init__()
        self.context = nn.Parameter(torch.randn(1, 77, 768))
        self.time = nn.Parameter(torch.randn(1, 1280))
        self.enter, self.leave = nn.Conv2d(4, 320, 3, padding=1), nn.Conv2d(320, 4, 3, padding=1)
        self.down1, self.attend1 = Residual(320, 320, 1280), Transformer2d(320)
        self.shrink = nn.Conv2d(320, 320, 3, stride=2, padding=1)
        self.down2, self.attend2 = Residual(320, 640, 1280), Transformer2d(640)
        self.middle = Residual(640, 640, 1280)
        self.up2, self.attend3 = Residual(1280, 640, 1280), Transformer2d(640)
        self.grow = nn.Conv2d(640, 640, 3, padding=1)
        self.up1, self.attend4 = Residual(960, 320, 1280), Transformer2d(320)
        self.norm = groups(320)

    def forward(self, x):
        context, time = self.context.expand(x.shape[0], -1, -1), self.time.expand(x.shape[0], -1)
        fine = self.attend1(self.down1(self.enter(x), time), context)
        coarse = self.attend2(self.down2(self.shrink(fine), time), context)
        y = self.middle(coarse, time)
        y = self.attend3(self.up2(torch.cat([y, coarse], 1), time), context)
        y = self.grow(nn.functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        y = self.attend4(self.up1(torch.cat([y, fine], 1), time), context)
        return self.leave(nn.functional.silu(self.norm(y)))


class Decoder(nn.Module):
    """The decoder of an image autoencoder: 4 x 32 x 32 to 3 x 256 x 256."""

    def __init__(self):
        super().__init__()
        self.enter, self.middle = nn.Conv2d(4, 512, 3, padding=1), nn.ModuleList([Residual(512, 512), Residual(512, 512)])
        self.norm, self.attend = groups(512), Attention(512, 1)
        widths = [(512, 512), (512, 256), (256, 128)]
        self.blocks = nn.ModuleList(nn.Sequential(Residual(a, b), Residual(b, b)) for a, b in widths)
        self.grow = nn.ModuleList(nn.Conv2d(b, b, 3, padding=1) for _, b in widths)
        self.last, self.leave = groups(128), nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, x):
        x = self.middle[0](self.enter(x))
        y = self.attend(self.norm(x).flatten(2).transpose(1, 2))
        x = self.middle[1](x + y.transpose(1, 2).unflatten(2, (x.shape[2], -1)))
        for block, grow in zip(self.blocks, self.grow):
            x = grow(nn.functional.interpolate(block(x), scale_factor=2.0, mode="nearest"))
        return self.leave(nn.functional.silu(self.last(x)))


class DiT(nn.Module):
    """A diffusion transformer: patches of 2 x 2 of a latent 4 x 32 x 32, layer norms scaled by the time step."""

    def __init__(self, width=1152, heads=16, layers=6):
        super().__init__()
        self.time = nn.Parameter(torch.randn(1, width))
        self.enter, self.places = nn.Conv2d(4, width, 2, stride=2), nn.Parameter(0.02 * torch.randn(1, 256, width))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.scales = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(layers))
        self.attend = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.leave = nn.Linear(width, 16)

    def forward(self, x):
        y = self.enter(x).flatten(2).transpose(1, 2) + self.places
        time = nn.functional.silu(self.time.expand(x.shape[0], -1))
        for scales, attend, up, down in zip(self.scales, self.attend, self.up, self.down):
            a, b, c, d, e, f = scales(time)[:, None].chunk(6, -1)
            y = y + c * attend(self.norm(y) * (1 + a) + b)
            y = y + f * down(nn.functional.gelu(up(self.norm(y) * (1 + d) + e), approximate="tanh"))
        return self.leave(self.norm(y))


IMAGE = (3, 224, 224)

SEEN = {
    "t5_encoder": Case(hugging("T5Config", "T5EncoderModel", d_model=768, d_ff=3072, num_heads=12, num_layers=12), 512,
                       tokens=True, batch=4),
    "wav2vec2": Case(hugging("Wav2Vec2Config", "Wav2Vec2Model", mask_time_prob=0.0), 48000, batch=4),
    "mobilenet_v2": Case(hugging("MobileNetV2Config", "MobileNetV2Model"), *IMAGE, batch=32),
    "swin": Case(hugging("SwinConfig", "SwinModel"), *IMAGE, batch=32),
    "convnext": Case(hugging("ConvNextConfig", "ConvNextModel"), *IMAGE, batch=32),
    "efficientnet": Case(hugging("EfficientNetConfig", "EfficientNetModel", width_coefficient=1.0, depth_coefficient=1.0,
                                 hidden_dim=1280), *IMAGE, batch=32),
    "deberta_v2": Case(hugging("DebertaV2Config", "DebertaV2Model", hidden_size=768, num_hidden_layers=6,
                               num_attention_heads=12, intermediate_size=3072), 128, tokens=True, batch=8),
    "whisper_encoder": Case(hugging("WhisperConfig", "WhisperEncoder", "whisper.modeling_whisper", d_model=512,
                                    encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, num_mel_bins=80),
                            80, 3000, batch=4),
    "segformer": Case(hugging("SegformerConfig", "SegformerModel"), 3, 512, 512, batch=8),
}

HELD_OUT = {
    # vision
    "regnet": Case(hugging("RegNetConfig", "RegNetModel"), *IMAGE),
    "bit": Case(hugging("BitConfig", "BitModel"), *IMAGE),
    "convnext_v2": Case(hugging("ConvNextV2Config", "ConvNextV2Model"), *IMAGE),
    "mobilevit": Case(hugging("MobileViTConfig", "MobileViTModel"), 3, 256, 256),
    "poolformer": Case(hugging("PoolFormerConfig", "PoolFormerModel"), *IMAGE),
    "pvt_v2": Case(hugging("PvtV2Config", "PvtV2Model"), *IMAGE),
    "dinov2": Case(hugging("Dinov2Config", "Dinov2Model", image_size=224), *IMAGE),
    "focalnet": Case(hugging("FocalNetConfig", "FocalNetModel"), *IMAGE),
    "levit": Case(hugging("LevitConfig", "LevitModel"), *IMAGE),
    "mobilenet_v1": Case(hugging("MobileNetV1Config", "MobileNetV1Model"), *IMAGE),
    "yolos": Case(hugging("YolosConfig", "YolosModel", hidden_size=384, num_attention_heads=6, intermediate_size=1536,
                          image_size=[512, 512]), 3, 512, 512),
    "dpt": Case(hugging("DPTConfig", "DPTForDepthEstimation", image_size=224, is_hybrid=False), *IMAGE),
    # speech and sound
    "hubert": Case(hugging("HubertConfig", "HubertModel", mask_time_prob=0.0), 32000),
    "wavlm": Case(hugging("WavLMConfig", "WavLMModel", mask_time_prob=0.0), 32000),
    "spectrogram_transformer": Case(hugging("ASTConfig", "ASTModel"), 1024, 128),
    "hifi_gan": Case(hugging("SpeechT5HifiGanConfig", "SpeechT5HifiGan"), 200, 80),
    # text
    "modernbert": Case(hugging("ModernBertConfig", "ModernBertModel", num_hidden_layers=12, reference_compile=False), 256,
                       tokens=True),
    "electra": Case(hugging("ElectraConfig", "ElectraModel", embedding_size=768, hidden_size=768, num_attention_heads=12,
                            intermediate_size=3072), 128, tokens=True),
    "mpnet": Case(hugging("MPNetConfig", "MPNetModel"), 128, tokens=True),
    "bart_encoder": Case(hugging("BartConfig", "BartEncoder", "bart.modeling_bart", d_model=768, encoder_layers=6,
                                 encoder_attention_heads=12, encoder_ffn_dim=3072), 512, tokens=True),
    "opt": Case(hugging("OPTConfig", "OPTModel", use_cache=False), 256, tokens=True),
    # diffusion
    "unet": Case(UNet, 4, 64, 64),
    "vae_decoder": Case(Decoder, 4, 32, 32),
    "dit": Case(DiT, 4, 32, 32),
}


def draw():
    """Batch and dtype of the held-out models, and which six are raced against max-autotune, too."""
    by = random.Random(HELD_OUT_SEED)
    for case in HELD_OUT.values():
        case.batch, case.dtype = by.choice((1, 8, 32)), by.choice(("f16", "bf16"))
    for name in by.sample(sorted(HELD_OUT), 6):
        HELD_OUT[name].autotune = True


draw()
CASES = {**SEEN, **HELD_OUT}


def network(name):
    """The module in float32 on the CPU, in eval mode."""
    torch.manual_seed(3)
    module = First(CASES[name].make()).eval().requires_grad_(False)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module


def example(name, device):
    case = CASES[name]
    torch.manual_seed(4)
    if case.tokens:
        return torch.randint(1, 1000, (case.batch, *case.sizes), device=device)
    return torch.randn(case.batch, *case.sizes, device=device)
