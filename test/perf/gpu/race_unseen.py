# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""transformers' own models, which nobody tuned for, in f16 in one graph against torch.compile in a graph.

`race_unseen.py [NAME...] [--autotune] [--rounds=N]` on a GPU with torch, transformers, onnx and a build of lathe (LATHE).
Weights come from a seed; each model is exported by TorchScript at fixed sizes. Results are checked against torch in
float32: lathe's error may be 1.5 times that of torch in float16. Replays alternate. Exit code 1 when a result is wrong.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings

import torch

import race_models
from race_models import DEFAULT, LATHE, TUNED, Ours, Rivals, error, race

lathe = race_models.lathe

# name: (configuration, class, changes, sizes of the input: images, sound, features or tokens)
CASES = {
    "t5_encoder": ("T5Config", "T5EncoderModel", dict(d_model=768, d_ff=3072, num_heads=12, num_layers=12), ("tokens", 4, 512)),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2Model", dict(mask_time_prob=0.0), ("real", 4, 48000)),
    "mobilenet_v2": ("MobileNetV2Config", "MobileNetV2Model", {}, ("real", 32, 3, 224, 224)),
    "swin": ("SwinConfig", "SwinModel", {}, ("real", 32, 3, 224, 224)),
    "convnext": ("ConvNextConfig", "ConvNextModel", {}, ("real", 32, 3, 224, 224)),
    "efficientnet": ("EfficientNetConfig", "EfficientNetModel",
                     dict(width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280), ("real", 32, 3, 224, 224)),
    "deberta_v2": ("DebertaV2Config", "DebertaV2Model",
                   dict(hidden_size=768, num_hidden_layers=6, num_attention_heads=12, intermediate_size=3072), ("tokens", 8, 128)),
    "whisper_encoder": ("WhisperConfig", "WhisperEncoder",
                        dict(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, num_mel_bins=80),
                        ("real", 4, 80, 3000)),
    "segformer": ("SegformerConfig", "SegformerModel", {}, ("real", 8, 3, 512, 512)),
}


class First(torch.nn.Module):
    """The first tensor of the answer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, return_dict=False)[0]


def network(name):
    import transformers
    config, kind, changes, _ = CASES[name]
    torch.manual_seed(3)
    of = transformers.models.whisper.modeling_whisper if kind == "WhisperEncoder" else transformers
    module = First(getattr(of, kind)(getattr(transformers, config)(**changes)).eval()).requires_grad_(False)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return module


def example(name):
    kind, *sizes = CASES[name][3]
    torch.manual_seed(4)
    return torch.randint(1, 1000, sizes, device="cuda") if kind == "tokens" else torch.randn(sizes, device="cuda").half()


def one(name, modes, rounds, folder):
    module, x = network(name).cuda(), example(name)
    want = module(x if x.dtype == torch.int64 else x.float())
    module = module.half()
    half = error(module(x), want)
    graph, engine = (os.path.join(folder, name + end) for end in (".onnx", ".lathe"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), graph, input_names=["x"], output_names=["y"], opset_version=18, dynamo=False)
    begin = time.time()
    done = subprocess.run([LATHE, "compile", graph, "-o", engine, "--target=sm_90a", f"--shape=x={'x'.join(map(str, x.shape))}"],
                          capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: REFUSED {done.stdout[-300:]}{done.stderr[-300:]}", flush=True)
        return True
    seconds = time.time() - begin
    ours = Ours(lathe.load(engine), [x])
    ours.once()
    mine = error(torch.from_dlpack(ours.result["y"]), want)
    bad = not mine <= 1.5 * half
    print(f"{name}: compiled in {seconds:.1f} s, {ours.context.counters['launches']} kernels, error {mine:.2e}, torch's {half:.2e}"
          f"{'  WRONG' if bad else ''}", flush=True)
    theirs = Rivals(module, lambda m: m(x))
    for mode in modes:
        theirs.add(mode)
    race(name, ours, theirs, rounds)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--autotune", action="store_true", help="max-autotune beside the default mode")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    bad = False
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name in options.names:
            try:
                bad |= one(name, [DEFAULT, *([TUNED] if options.autotune else [])], options.rounds, folder)
            except Exception as problem:  # the next model is independent of this one
                print(f"{name}: FAILED {type(problem).__name__}: {str(problem)[:300]}", flush=True)
                bad = True
            torch.cuda.empty_cache()
    return bad


if __name__ == "__main__":
    sys.exit(main())
