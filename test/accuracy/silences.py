# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Silences: silero-vad on speech that espeak-ng synthesises, between silences of known lengths, in noise.

The model's LSTM, which sees one step a run, is written out as the two products that it is, so that they can be quantized.
"""
import os
import re
import subprocess
import wave

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from scipy.signal import resample_poly

import frame
import packages

RATE, CHUNK, CONTEXT, HIDDEN = 16000, 512, 64, 128
CLIPS, CHUNKS, CALIBRATED = 64, 125, 16  # of four seconds each
LIBRARIES = ("libespeak-ng1", "libpcaudio0", "libsonic0")
VOICES = ("en", "en-us", "de", "fr", "es", "it")


def spoken(text, voice, speed, path):
    """f32 samples of a voice, without the silence around them."""
    if not os.path.exists(path):
        folders = [os.path.join(packages.package(n), "usr", "lib", "x86_64-linux-gnu") for n in (*LIBRARIES, "espeak-ng-data")]
        subprocess.run([os.path.join(packages.package("espeak-ng"), "usr", "bin", "espeak-ng"), "--path", os.path.join(folders[-1], "espeak-ng-data"),
                        "-v", voice, "-s", str(speed), "-w", path + ".part", text], check=True, capture_output=True,
                       env={**os.environ, "LD_LIBRARY_PATH": ":".join(folders)})
        os.replace(path + ".part", path)
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
        samples = resample_poly(samples, RATE, file.getframerate())
    loud = np.flatnonzero(np.abs(samples) > 0.02)
    return samples[loud[0]:loud[-1] + 1].astype(np.float32)


def clips(package, count, seed):
    """(samples f32 [count, CHUNKS * CHUNK], truth bool [count, CHUNKS]): sentences of a package's text between silences."""
    sentences = re.findall(r"(?<=[.] )[A-Z][a-z ,]{20,60}[.]", " ".join(" ".join(packages.texts(package)).split()))
    random = np.random.default_rng(seed)
    folder = os.path.join(packages.OUT, "speech", package)
    os.makedirs(folder, exist_ok=True)
    total = CHUNKS * CHUNK
    samples, speaks = np.zeros((count, total), np.float32), np.zeros((count, total), bool)
    for i in range(count):
        at, number = int(random.integers(RATE // 4, RATE)), 0
        while at < total - RATE // 2:
            text, voice = sentences[random.integers(len(sentences))], VOICES[i % len(VOICES)]
            part = spoken(text, voice, int(random.integers(130, 200)), os.path.join(folder, f"{i}_{number}.wav"))[:total - at]
            samples[i, at:at + len(part)] = part * random.uniform(0.3, 1)
            speaks[i, at:at + len(part)] = True
            at, number = at + len(part) + int(random.integers(RATE // 2, 3 * RATE // 2)), number + 1
        samples[i] += random.normal(0, 10 ** random.uniform(-3.5, -2.2), total)
    return samples.clip(-1, 1), speaks.reshape(count, CHUNKS, CHUNK).mean(2) > 0.5


def model():
    """input f32 [B, 576], h, c f32 [B, 128] -> speech [B, 1, 1], hn, cn: silero's network for a batch of clips, a step of each."""
    path = os.path.join(packages.OUT, "silero_step.onnx")
    if os.path.exists(path):
        return path
    frame.exported("silero_vad")
    source = onnx.load(os.path.join(packages.ROOT, "build", "models", "perf", "silero_vad_16k_sequence.onnx"))
    graph = source.graph
    lstm = next(n for n in graph.node if n.op_type == "LSTM")
    encoded, = (n for n in graph.node if n.output[0] == lstm.input[0])
    decoder = next(n for n in graph.node if n.op_type == "Conv" and n.input[1] == "output.weight")
    values = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    # ONNX's gates are in the order i, o, f, c.
    weights = {"w": values[lstm.input[1]][0].T, "r": values[lstm.input[2]][0].T, "b": values[lstm.input[3]][0].reshape(2, -1).sum(0),
               "row": np.array([-1, HIDDEN], np.int64), "column": np.array([-1, HIDDEN, 1], np.int64)}
    made, node = [], helper.make_node
    made += [node("Reshape", [encoded.input[0], "row"], ["x"]), node("MatMul", ["x", "w"], ["xw"], name="lstm_input"),
             node("MatMul", ["h", "r"], ["hr"], name="lstm_state"), node("Add", ["xw", "hr"], ["sum"]), node("Add", ["sum", "b"], ["gates"]),
             node("Split", ["gates"], ["gi", "go", "gf", "gc"], axis=1), node("Sigmoid", ["gi"], ["i"]), node("Sigmoid", ["go"], ["o"]),
             node("Sigmoid", ["gf"], ["f"]), node("Tanh", ["gc"], ["g"]), node("Mul", ["f", "c"], ["kept"]), node("Mul", ["i", "g"], ["new"]),
             node("Add", ["kept", "new"], ["cn"]), node("Tanh", ["cn"], ["t"]), node("Mul", ["o", "t"], ["hn"]),
             node("Relu", ["hn"], ["relu"]), node("Reshape", ["relu", "column"], ["out"]),
             node("Conv", ["out", *decoder.input[1:]], ["logit"], name="decoder"), node("Sigmoid", ["logit"], ["speech"])]
    nodes = list(graph.node)
    ahead = nodes[:nodes.index(encoded)]
    tensor = helper.make_tensor_value_info
    used = {v for n in ahead + made for v in n.input}
    sizes = {"input": ["B", CHUNK + CONTEXT], "speech": ["B", 1, 1]}
    inputs, outputs = ([tensor(n, TensorProto.FLOAT, sizes.get(n, ["B", HIDDEN])) for n in names]
                       for names in (("input", "h", "c"), ("speech", "hn", "cn")))
    result = helper.make_graph(ahead + made, "silero_step", inputs, outputs,
                               [*(i for i in graph.initializer if i.name in used),
                                *(numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in weights.items())])
    proto = helper.make_model(result, opset_imports=list(source.opset_import), ir_version=source.ir_version)
    onnx.checker.check_model(proto, full_check=True)
    check_steps(proto, source)
    onnx.save(proto, path)
    return path


def check_steps(made, source):
    """The network of steps says what the one of a sequence says."""
    chunks = np.random.default_rng(7).normal(0, 0.1, (5, CHUNK + CONTEXT)).astype(np.float32)
    sequence, step = (onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]) for m in (source, made))
    want, = sequence.run(["speech_probs"], {"input": chunks, **{n: np.zeros((1, 1, HIDDEN), np.float32) for n in ("h", "c")}})
    state = {n: np.zeros((1, HIDDEN), np.float32) for n in ("h", "c")}
    for t in range(len(chunks)):
        speech, h, c = step.run(["speech", "hn", "cn"], {"input": chunks[t:t + 1], **state})
        state = {"h": h, "c": c}
        if not np.allclose(speech.ravel(), want.ravel()[t], atol=1e-5):
            raise ValueError(f"step {t} of silero says {speech.item()}, not {want.ravel()[t]}")


def steps(clip):
    """The inputs of step after step, each chunk behind the end of the one before: f32 [1, CONTEXT + CHUNK]."""
    padded = np.pad(clip, (CONTEXT, 0))
    return [np.ascontiguousarray(padded[None, t * CHUNK:(t + 1) * CHUNK + CONTEXT]) for t in range(len(clip) // CHUNK)]


def listen(run, samples):
    """(inputs of each step, probability of speech [clips, chunks]), clip after clip as a microphone would be listened to."""
    seen, speech = [], np.zeros((len(samples), CHUNKS), np.float32)
    for clip, probabilities in zip(samples, speech):
        state = {n: np.zeros((1, HIDDEN), np.float32) for n in ("h", "c")}
        for t, chunk in enumerate(steps(clip)):
            seen.append({"input": chunk, **state})
            results = run(seen[-1])
            state = {"h": results["hn"].copy(), "c": results["cn"].copy()}
            probabilities[t] = results["speech"].item()
    return seen, speech


def task(limit):
    path, sizes = model(), {"B": 1}
    samples, truth = clips("git-doc", min(CLIPS, max(1, limit // CHUNKS)), 8)
    seen, _ = listen(frame.opened(path, sizes), clips("python3.11-doc", CALIBRATED, 9)[0])

    def score(run):
        return 100 * np.mean((listen(run, samples)[1] > 0.5) == truth)

    # Of speech few samples are loud. kl and what it keeps were best on other clips of the package that it is calibrated by.
    int8 = frame.Scheme("int8", [*frame.INT8.options, "--range=kl"], frame.INT8.bar, keeps=0.05)
    return frame.Task("silences", "chunks right", path, seen[::7], score, truth.size, sizes, [int8, frame.FP8])
