# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Networks of breadth_models.py that no installed package defines, written out with seeded random weights.

Each class is a shape that its field uses, not a copy of one network: what runs matters, not what it says.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(cin, cout, kernel, stride=1, act=nn.ReLU, groups=1, norm=True, dims=2, dilation=1):
    """Convolution, batch norm, activation; in one, two or three dimensions."""
    kind, batch = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d))[dims - 1]
    parts = [kind(cin, cout, kernel, stride, dilation * (kernel // 2), dilation, groups, bias=not norm)]
    return nn.Sequential(*parts, *([batch(cout)] if norm else []), *([act()] if act else []))


# ---- Sound --------------------------------------------------------------------------------------


class SoundEvents(nn.Module):
    """A CRNN: convolutions over a mel spectrogram, then a bidirectional GRU (sound events, keywords)."""

    def __init__(self, mels=64, width=64, classes=10):
        super().__init__()
        self.body = nn.Sequential(conv(1, width, 3), nn.MaxPool2d((1, 4)), conv(width, width, 3), nn.MaxPool2d((1, 4)),
                                  conv(width, 2 * width, 3), nn.MaxPool2d((1, 2)))
        self.gru = nn.GRU(2 * width * (mels // 32), 128, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, classes)

    def forward(self, x):  # [N, 1, time, mels]
        y = self.body(x).permute(0, 2, 1, 3).flatten(2)
        return torch.sigmoid(self.head(self.gru(y)[0]))


class Denoiser(nn.Module):
    """A U-net over the waveform with gated strided convolutions and an LSTM in the middle."""

    def __init__(self, width=48, depth=4):
        super().__init__()
        down, up, cin = [], [], 1
        for i in range(depth):
            c = width * 2 ** i
            down.append(nn.Sequential(nn.Conv1d(cin, c, 8, 4), nn.ReLU(), nn.Conv1d(c, 2 * c, 1), nn.GLU(1)))
            up.insert(0, nn.Sequential(nn.Conv1d(c, 2 * c, 1), nn.GLU(1), nn.ConvTranspose1d(c, cin, 8, 4),
                                       nn.ReLU() if i else nn.Identity()))
            cin = c
        self.down, self.up = nn.ModuleList(down), nn.ModuleList(up)
        self.lstm = nn.LSTM(cin, cin, 2, batch_first=True)

    def forward(self, x):  # [N, 1, samples], samples a length that strides divide
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        x = self.lstm(x.transpose(1, 2))[0].transpose(1, 2)
        for layer in self.up:
            skip = kept.pop()
            x = layer(x + skip[..., :x.shape[-1]])
        return x


class Pitch(nn.Module):
    """Wide 1-d convolutions over a frame of samples, as CREPE has them: 512 and 64 taps."""

    def __init__(self, width=16):
        super().__init__()
        layers, cin = [], 1
        for i, c in enumerate((32, 4, 4, 4, 8, 16)):
            taps, stride = (512, 4) if i == 0 else (64, 1)
            pad = (254, 254) if i == 0 else (31, 32)
            layers += [nn.ConstantPad1d(pad, 0), nn.Conv1d(cin, c * width, taps, stride), nn.ReLU(),
                       nn.BatchNorm1d(c * width), nn.MaxPool1d(2)]
            cin = c * width
        self.body, self.head = nn.Sequential(*layers), nn.Linear(4 * cin, 360)

    def forward(self, x):  # [frames, 1, 1024]
        return torch.sigmoid(self.head(self.body(x).transpose(1, 2).flatten(1)))


class VoiceActivity(nn.Module):
    """Separable 1-d convolutions over mel features with residuals, as MarbleNet has them."""

    def __init__(self, width=128):
        super().__init__()
        def separable(cin, cout, taps, dilation=1, act=nn.ReLU):
            return nn.Sequential(conv(cin, cin, taps, groups=cin, act=None, norm=False, dims=1, dilation=dilation),
                                 conv(cin, cout, 1, act=act, dims=1))
        self.first = separable(80, width, 11)
        self.blocks = nn.ModuleList(nn.ModuleList([nn.Sequential(separable(width, width, t), separable(width, width, t, act=None)),
                                                   conv(width, width, 1, act=None, dims=1)]) for t in (13, 15, 17, 19, 21, 25))
        self.last = nn.Sequential(separable(width, width, 29, 2), conv(width, width, 1, dims=1), nn.Conv1d(width, 2, 1))

    def forward(self, x):  # [N, 80, time]
        y = self.first(x)
        for body, short in self.blocks:
            y = F.relu(body(y) + short(y))
        return torch.softmax(self.last(y), 1)


class Vocoder(nn.Module):
    """Mel features to samples: transposed 1-d convolutions and dilated residual blocks, as HiFi-GAN has them."""

    def __init__(self, width=128, rates=((16, 8), (16, 8), (4, 2), (4, 2))):
        super().__init__()
        self.first, c = nn.Conv1d(80, width, 7, padding=3), width
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for taps, rate in rates:
            self.ups.append(nn.ConvTranspose1d(c, c // 2, taps, rate, (taps - rate) // 2))
            c //= 2
            self.blocks.append(nn.ModuleList(nn.ModuleList(
                nn.Sequential(nn.LeakyReLU(0.1), nn.Conv1d(c, c, k, padding=d * (k // 2), dilation=d), nn.LeakyReLU(0.1),
                              nn.Conv1d(c, c, k, padding=k // 2)) for d in (1, 3, 5)) for k in (3, 7, 11)))
        self.last = nn.Conv1d(c, 1, 7, padding=3)

    def forward(self, x):  # [N, 80, frames]
        x = self.first(x)
        for up, kernels in zip(self.ups, self.blocks):
            x, total = up(F.leaky_relu(x, 0.1)), 0
            for dilations in kernels:
                y = x
                for layer in dilations:
                    y = y + layer(y)
                total = total + y
            x = total / len(kernels)
        return torch.tanh(self.last(F.leaky_relu(x)))


class WaveNet(nn.Module):
    """Gated dilated 1-d convolutions with residual and skip sums."""

    def __init__(self, width=64, layers=16):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=2 ** (i % 8), dilation=2 ** (i % 8)) for i in range(layers))
        self.outs = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, x):  # [N, 1, samples]
        x, skips = self.first(x), 0
        for gate, out in zip(self.gates, self.outs):
            a, b = gate(x).chunk(2, 1)
            more, skip = out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + more, skips + skip
        return self.last(skips)


# ---- Images -------------------------------------------------------------------------------------


class Split(nn.Module):
    """Half of the channels pass through bottlenecks, each of whose results is kept."""

    def __init__(self, cin, cout, count, add):
        super().__init__()
        half = cout // 2
        self.first, self.last, self.add = conv(cin, cout, 1, act=nn.SiLU), conv(half * (2 + count), cout, 1, act=nn.SiLU), add
        self.body = nn.ModuleList(nn.Sequential(conv(half, half, 3, act=nn.SiLU), conv(half, half, 3, act=nn.SiLU)) for _ in range(count))

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for layer in self.body:
            y = layer(parts[-1])
            parts.append(parts[-1] + y if self.add else y)
        return self.last(torch.cat(parts, 1))


class YoloSplit(nn.Module):
    """A detector without anchors: split stages, spatial pyramid, two-way pyramid, boxes from distributions."""

    def __init__(self, w=16, classes=80, bins=16):
        super().__init__()
        s = lambda a, b: conv(a, b, 3, 2, nn.SiLU)  # noqa: E731
        self.low = nn.Sequential(s(3, w), s(w, 2 * w), Split(2 * w, 2 * w, 1, True), s(2 * w, 4 * w), Split(4 * w, 4 * w, 2, True))
        self.mid = nn.Sequential(s(4 * w, 8 * w), Split(8 * w, 8 * w, 2, True))
        self.high = nn.Sequential(s(8 * w, 16 * w), Split(16 * w, 16 * w, 1, True))
        self.squeeze, self.spread = conv(16 * w, 8 * w, 1, act=nn.SiLU), conv(32 * w, 16 * w, 1, act=nn.SiLU)
        self.up1, self.up2 = Split(24 * w, 8 * w, 1, False), Split(12 * w, 4 * w, 1, False)
        self.step1, self.down1 = s(4 * w, 4 * w), Split(12 * w, 8 * w, 1, False)
        self.step2, self.down2 = s(8 * w, 8 * w), Split(24 * w, 16 * w, 1, False)
        def head(c, hidden, out):
            return nn.Sequential(conv(c, hidden, 3, act=nn.SiLU), conv(hidden, hidden, 3, act=nn.SiLU), nn.Conv2d(hidden, out, 1))
        self.boxes = nn.ModuleList(head(c * w, 64, 4 * bins) for c in (4, 8, 16))
        self.classes = nn.ModuleList(head(c * w, 80, classes) for c in (4, 8, 16))
        self.register_buffer("steps", torch.arange(bins).float().view(1, 1, bins, 1))
        self.bins = bins

    def forward(self, x):
        low = self.low(x)
        mid = self.mid(low)
        y = self.squeeze(self.high(mid))
        pools = [y]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        high = self.spread(torch.cat(pools, 1))
        a = self.up1(torch.cat([F.interpolate(high, scale_factor=2.0), mid], 1))
        b = self.up2(torch.cat([F.interpolate(a, scale_factor=2.0), low], 1))
        c = self.down1(torch.cat([self.step1(b), a], 1))
        d = self.down2(torch.cat([self.step2(c), high], 1))
        found = []
        for boxes, classes, y in zip(self.boxes, self.classes, (b, c, d)):
            distances = boxes(y).flatten(2).unflatten(1, (4, self.bins)).softmax(2)
            found.append(torch.cat([(distances * self.steps).sum(2), torch.sigmoid(classes(y).flatten(2))], 1))
        return torch.cat(found, 2)


class YoloTiny(nn.Module):
    """A detector with anchors over plain 3x3 convolutions, leaky ReLU and max pooling."""

    def __init__(self, width=16, outputs=255):
        super().__init__()
        act = lambda: nn.LeakyReLU(0.1)  # noqa: E731
        w = width
        body = []
        for i in range(4):
            body += [conv(3 if i == 0 else w * 2 ** (i - 1), w * 2 ** i, 3, act=act), nn.MaxPool2d(2)]
        self.low = nn.Sequential(*body, conv(8 * w, 16 * w, 3, act=act))
        self.high = nn.Sequential(nn.MaxPool2d(2), conv(16 * w, 32 * w, 3, act=act), conv(32 * w, 16 * w, 1, act=act))
        self.coarse = nn.Sequential(conv(16 * w, 32 * w, 3, act=act), nn.Conv2d(32 * w, outputs, 1))
        self.squeeze = conv(16 * w, 8 * w, 1, act=act)
        self.fine = nn.Sequential(conv(24 * w, 16 * w, 3, act=act), nn.Conv2d(16 * w, outputs, 1))

    def forward(self, x):
        low = self.low(x)
        high = self.high(low)
        return self.coarse(high), self.fine(torch.cat([F.interpolate(self.squeeze(high), scale_factor=2.0), low], 1))


class UNet(nn.Module):
    """Double convolutions, max pooling, transposed convolutions and skips; in two or three dimensions."""

    def __init__(self, width=32, depth=4, dims=2, cin=3, classes=2):
        super().__init__()
        up = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        double = lambda a, b: nn.Sequential(conv(a, b, 3, dims=dims), conv(b, b, 3, dims=dims))  # noqa: E731
        sizes = [width * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([cin, *sizes], sizes))
        self.ups = nn.ModuleList(up(b, a, 2, 2) for a, b in zip(sizes[:-1], sizes[1:]))
        self.merge = nn.ModuleList(double(2 * a, a) for a in sizes[:-1])
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        self.last = (nn.Conv2d if dims == 2 else nn.Conv3d)(width, classes, 1)

    def forward(self, x):
        kept = []
        for i, layer in enumerate(self.down):
            x = layer(self.pool(x) if i else x)
            kept.append(x)
        kept.pop()
        for up, merge in zip(reversed(self.ups), reversed(self.merge)):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class TextLine(nn.Module):
    """A CRNN: convolutions over a line of text, then bidirectional LSTMs over its columns."""

    def __init__(self, width=48, letters=97):
        super().__init__()
        w = width
        self.body = nn.Sequential(conv(1, w, 3), nn.MaxPool2d(2), conv(w, 2 * w, 3), nn.MaxPool2d(2), conv(2 * w, 4 * w, 3),
                                  conv(4 * w, 4 * w, 3), nn.MaxPool2d((2, 1)), conv(4 * w, 4 * w, 3), nn.MaxPool2d((2, 1)),
                                  nn.Conv2d(4 * w, 4 * w, (2, 1)), nn.ReLU())
        self.lstm = nn.LSTM(4 * w, 128, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, letters)

    def forward(self, x):  # [N, 1, 32, columns]
        return F.log_softmax(self.head(self.lstm(self.body(x).squeeze(2).transpose(1, 2))[0]), 2)


class Dense(nn.Module):
    """Each layer reads all before it (DenseNet)."""

    def __init__(self, growth=32, blocks=(6, 12, 24, 16)):
        super().__init__()
        layers, c = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        self.first, self.stages = nn.Sequential(*layers), nn.ModuleList()
        for i, count in enumerate(blocks):
            stage = nn.ModuleList()
            for _ in range(count):
                stage.append(nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 4 * growth, 1, bias=False),
                                           nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)))
                c += growth
            last = [nn.BatchNorm2d(c), nn.ReLU()]
            if i + 1 < len(blocks):
                last += [nn.Conv2d(c, c // 2, 1, bias=False), nn.AvgPool2d(2)]
                c //= 2
            self.stages.append(nn.ModuleList([stage, nn.Sequential(*last)]))
        self.head = nn.Linear(c, 1000)

    def forward(self, x):
        x = self.first(x)
        for stage, last in self.stages:
            for layer in stage:
                x = torch.cat([x, layer(x)], 1)
            x = last(x)
        return self.head(x.mean((2, 3)))


class Shuffle(nn.Module):
    """Halves of the channels, of which one is computed, then shuffled (ShuffleNet v2)."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        half, self.stride = cout // 2, stride
        c = cin if stride == 2 else half
        self.body = nn.Sequential(conv(c, half, 1), conv(half, half, 3, stride, None, half), conv(half, half, 1))
        self.short = nn.Sequential(conv(cin, cin, 3, 2, None, cin), conv(cin, half, 1)) if stride == 2 else None

    def forward(self, x):
        a, b = (x, x) if self.stride == 2 else x.chunk(2, 1)
        y = torch.stack([self.short(a) if self.stride == 2 else a, self.body(b)], 2)
        return y.flatten(1, 2)


def shuffle_net(sizes=(24, 176, 352, 704, 1024)):
    layers, cin = [conv(3, sizes[0], 3, 2), nn.MaxPool2d(3, 2, 1)], sizes[0]
    for cout, count in zip(sizes[1:4], (4, 8, 4)):
        for i in range(count):
            layers.append(Shuffle(cin, cout, 1 if i else 2))
            cin = cout
    return nn.Sequential(*layers, conv(cin, sizes[4], 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[4], 1000))


class MobileV3(nn.Module):
    """Inverted residuals with hard swish and squeeze and excitation of hard sigmoids (MobileNetV3 large)."""

    ROWS = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
            (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
            (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)]

    def __init__(self):
        super().__init__()
        self.first, self.rows, cin = conv(3, 16, 3, 2, nn.Hardswish), nn.ModuleList(), 16
        for kernel, inner, cout, squeeze, swish, stride in self.ROWS:
            act = nn.Hardswish if swish else nn.ReLU
            self.rows.append(nn.ModuleList([
                nn.Sequential(*([conv(cin, inner, 1, act=act)] if inner != cin else []), conv(inner, inner, kernel, stride, act, inner)),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner // 4, 1), nn.ReLU(), nn.Conv2d(inner // 4, inner, 1),
                              nn.Hardsigmoid()) if squeeze else nn.Identity(),
                conv(inner, cout, 1, act=None)]))
            cin = cout
        self.last = nn.Sequential(conv(cin, 960, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(960, 1280),
                                  nn.Hardswish(), nn.Linear(1280, 1000))

    def forward(self, x):
        x = self.first(x)
        for (_, _, _, squeeze, _, stride), (expand, gate, project) in zip(self.ROWS, self.rows):
            y = expand(x)
            y = project(y * gate(y) if squeeze else y)
            x = x + y if stride == 1 and x.shape == y.shape else y
        return self.last(x)


# ---- Diffusion ----------------------------------------------------------------------------------


class Residual(nn.Module):
    """Group norm, SiLU, convolution, twice; an embedding of the time in between where there is one."""

    def __init__(self, cin, cout, time=0):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.last = nn.Sequential(nn.GroupNorm(32, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1))
        self.time = nn.Linear(time, cout) if time else None
        self.short = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, time=None):
        y = self.first(x)
        if self.time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.short(x) + self.last(y)


def attend(q, k, v, heads):
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    scores = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, -1)
    return (scores @ v).transpose(1, 2).flatten(2)


class CrossBlock(nn.Module):
    """Self-attention, attention to a text, and a gated MLP over the pixels of a map."""

    def __init__(self, width, text, heads=8):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(32, width)
        self.into, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = nn.ModuleList(nn.Linear(width, width, bias=i == 3) for i in range(4))
        self.cross = nn.ModuleList(nn.Linear(text if i in (1, 2) else width, width, bias=i == 3) for i in range(4))
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, text):
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        for norm, layers, other in ((self.norms[0], self.own, None), (self.norms[1], self.cross, text)):
            n = norm(y)
            source = n if other is None else other
            y = y + layers[3](attend(layers[0](n), layers[1](source), layers[2](source), self.heads))
        a, b = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(a * F.gelu(b))
        return x + self.out(y.transpose(1, 2).unflatten(2, x.shape[2:]))


class DiffusionBlock(nn.Module):
    """A stage of a latent diffusion U-net: residual and attention blocks, twice, then the step down."""

    def __init__(self, cin=320, cout=320, time=1280, text=768):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([Residual(cin if i == 0 else cout, cout, time), CrossBlock(cout, text)]) for i in range(2))
        self.down = nn.Conv2d(cout, cout, 3, 2, 1)

    def forward(self, x, time, text):
        for residual, block in self.layers:
            x = block(residual(x, time), text)
        return self.down(x)


class Decoder(nn.Module):
    """Latents to an image, as the decoder of a variational auto-encoder of diffusion models has it."""

    def __init__(self, widths=(128, 96, 64, 32)):
        super().__init__()
        self.first, c = nn.Conv2d(4, widths[0], 3, padding=1), widths[0]
        self.mid = nn.ModuleList([Residual(c, c), Residual(c, c)])
        self.norm, self.qkv, self.out = nn.GroupNorm(32, c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.stages = nn.ModuleList()
        for i, w in enumerate(widths):
            self.stages.append(nn.ModuleList([Residual(c, w), Residual(w, w), *([nn.Conv2d(w, w, 3, padding=1)] if i < 3 else [])]))
            c = w
        self.last = nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, z):
        x = self.mid[0](self.first(z))
        q, k, v = self.qkv(self.norm(x).flatten(2).transpose(1, 2)).chunk(3, 2)
        x = x + self.out(attend(q, k, v, 1)).transpose(1, 2).unflatten(2, x.shape[2:])
        x = self.mid[1](x)
        for stage in self.stages:
            x = stage[1](stage[0](x))
            if len(stage) == 3:
                x = stage[2](F.interpolate(x, scale_factor=2.0))
        return self.last(x)


# ---- Volumes and video --------------------------------------------------------------------------


class Video(nn.Module):
    """A residual network of 3-d convolutions; `split`: one over space, then one over time."""

    def __init__(self, width=32, split=False):
        super().__init__()
        def step(cin, cout, stride):
            if not split:
                return nn.Sequential(nn.Conv3d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm3d(cout))
            return nn.Sequential(nn.Conv3d(cin, cout, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False), nn.BatchNorm3d(cout), nn.ReLU(),
                                 nn.Conv3d(cout, cout, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False), nn.BatchNorm3d(cout))
        self.first = nn.Sequential(nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(width), nn.ReLU())
        self.blocks, c = nn.ModuleList(), width
        for i in range(4):
            w = width * 2 ** i
            for j in range(2):
                stride = 2 if i and not j else 1
                self.blocks.append(nn.ModuleList([
                    nn.Sequential(step(c, w, stride), nn.ReLU(), step(w, w, 1)),
                    nn.Sequential(nn.Conv3d(c, w, 1, stride, bias=False), nn.BatchNorm3d(w)) if c != w or stride > 1 else nn.Identity()]))
                c = w
        self.head = nn.Linear(c, 400)

    def forward(self, x):  # [N, 3, frames, height, width]
        x = self.first(x)
        for body, short in self.blocks:
            x = F.relu(body(x) + short(x))
        return self.head(x.mean((2, 3, 4)))


# ---- Tables and graphs --------------------------------------------------------------------------


class TableMlp(nn.Module):
    """Embeddings of categories beside numbers, then residual layers."""

    def __init__(self, numbers=32, categories=16, values=1000, width=256, layers=4):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(values, 16) for _ in range(categories))
        self.first = nn.Linear(numbers + 16 * categories, width)
        self.body = nn.ModuleList(nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
                                  for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, categories):
        y = self.first(torch.cat([numbers] + [e(categories[:, i]) for i, e in enumerate(self.embed)], 1))
        for layer in self.body:
            y = y + layer(y)
        return torch.sigmoid(self.head(y))


class TableTransformer(nn.Module):
    """A token for each column, then a small transformer over the columns of each row."""

    def __init__(self, numbers=40, width=64, layers=3, heads=8):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(numbers, width)), nn.Parameter(torch.randn(numbers, width))
        self.token, self.heads = nn.Parameter(torch.randn(1, 1, width)), heads
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width),
                                                   nn.Linear(width, 4 * width), nn.Linear(2 * width, width)]) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):  # [rows, numbers]
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), x[:, :, None] * self.weight + self.bias], 1)
        for norm1, qkv, out, norm2, up, down in self.layers:
            y = y + out(attend(*qkv(norm1(y)).chunk(3, 2), self.heads))
            a, b = up(norm2(y)).chunk(2, 2)
            y = y + down(a * F.relu(b))
        return self.head(y[:, 0])


class GraphConv(nn.Module):
    """Sums of messages over the edges of a graph by scatter, each divided by degrees."""

    def __init__(self, width=128, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x, edges):  # [nodes, width], [2, edges]
        begin, end = edges[0], edges[1]
        degree = torch.zeros_like(x[:, :1]).scatter_add(0, end[:, None], torch.ones_like(end[:, None], dtype=x.dtype)) + 1
        scale = degree.rsqrt()
        for layer in self.layers:
            y = layer(x) * scale
            y = torch.zeros_like(y).scatter_add(0, end[:, None].expand(-1, y.shape[1]), y[begin]) + y
            x = F.relu(y * scale)
        return x


class GraphAttention(nn.Module):
    """Messages weighted by a softmax over the edges that reach a node: gathers, and scatters of sums."""

    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(width, width), nn.Linear(width, heads), nn.Linear(width, heads)])
                                    for _ in range(layers))

    def forward(self, x, edges):
        begin, end = edges[0], edges[1]
        for value, left, right in self.layers:
            h = value(x)
            scores = F.leaky_relu(left(h)[begin] + right(h)[end], 0.2)
            at = end[:, None].expand(-1, self.heads)
            weights = torch.exp(scores - scores.amax(0, keepdim=True))
            sums = torch.zeros(x.shape[0], self.heads).scatter_add(0, at, weights)
            weights = weights / (sums[end] + 1e-9)
            messages = (h[begin].unflatten(1, (self.heads, -1)) * weights[:, :, None]).flatten(1)
            x = F.elu(torch.zeros_like(h).scatter_add(0, end[:, None].expand(-1, h.shape[1]), messages))
        return x


def trees(path, count, depth, features, classes=0, seed=3):
    """An ensemble of full binary trees as ai.onnx.ml has them: sums of leaves, or votes for classes."""
    from onnx import TensorProto, helper, save
    rng = np.random.default_rng(seed)
    inner, nodes = 2 ** depth - 1, 2 ** (depth + 1) - 1
    tree, node = np.repeat(np.arange(count), nodes), np.tile(np.arange(nodes), count)
    leaf = node >= inner
    kind = "class" if classes else "target"
    attributes = dict(
        nodes_treeids=tree.tolist(), nodes_nodeids=node.tolist(), nodes_modes=["LEAF" if last else "BRANCH_LEQ" for last in leaf],
        nodes_featureids=np.where(leaf, 0, rng.integers(0, features, len(node))).tolist(),
        nodes_values=np.where(leaf, 0, rng.normal(size=len(node)) * 0.5).tolist(),
        nodes_truenodeids=np.where(leaf, 0, 2 * node + 1).tolist(), nodes_falsenodeids=np.where(leaf, 0, 2 * node + 2).tolist())
    attributes |= {f"{kind}_treeids": tree[leaf].tolist(), f"{kind}_nodeids": node[leaf].tolist(),
                   f"{kind}_ids": (rng.integers(0, classes, leaf.sum()) if classes else np.zeros(leaf.sum(), int)).tolist(),
                   f"{kind}_weights": (rng.uniform(size=leaf.sum()) / count).tolist()}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, features])
    if classes:
        op = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", classlabels_int64s=list(range(classes)), **attributes)
        outputs = [helper.make_tensor_value_info("label", TensorProto.INT64, [None]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, classes])]
    else:
        op = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes)
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])]
    save(helper.make_model(helper.make_graph([op], "trees", [x], outputs), ir_version=8,
                           opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]), path)
