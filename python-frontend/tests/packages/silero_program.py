# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""silero-vad: where a signal made of tones and noise has speech, and the probability of each window."""
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

torch.set_num_threads(1)
generator = torch.Generator().manual_seed(4)
rate = 16000
time = torch.arange(3 * rate) / rate
# Harmonics of a voice, switched by syllables, and noise between.
voice = sum(torch.sin(2 * torch.pi * 120 * k * time + torch.sin(9 * time)) / k for k in range(1, 25))
signal = 0.15 * voice * (torch.sin(2 * torch.pi * 3 * time) > 0) * ((time > 0.8) & (time < 2.2))
signal += 0.002 * torch.randn(len(time), generator=generator)
model = load_silero_vad(onnx=True)
probabilities = []
for at in range(0, len(signal) - 512, 512):
    probabilities.append(float(model(signal[at:at + 512], rate)))
model.reset_states()
spans = get_speech_timestamps(signal, model, sampling_rate=rate, threshold=0.1, min_speech_duration_ms=0)
results = {"probabilities": probabilities, "spans": [(span["start"], span["end"]) for span in spans]}
