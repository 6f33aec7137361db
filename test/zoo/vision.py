# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torchvision and timm for the zoo, with seeded weights; a family each, named after its library.

They are in FAMILIES where the library is installed (tools/setup installs neither, because their packages bring torch
builds of their own; `pip install --no-deps torchvision timm` beside the CPU's torch is enough).
"""
import functools
import importlib
import importlib.util
import sys

import torch

from families import FAMILIES, real, seeded


class Outputs(torch.nn.Module):
    """The floats of the answer by position: of a tensor, of lists, of dicts in the order of their keys."""

    def __init__(self, model, lists):
        super().__init__()
        self.model, self.lists = model, lists
        self.eval()  # as in families.py

    def forward(self, *inputs):
        found = []

        def collect(value):
            if isinstance(value, torch.Tensor):
                if value.is_floating_point():
                    found.append(value)
            else:
                for part in (value.values() if isinstance(value, dict) else value):
                    collect(part)

        # Detectors take a list of images of their own sizes.
        collect(self.model([image for image in inputs[0]]) if self.lists else self.model(*inputs))
        return tuple(found)


DEFINED = []  # what goes away takes its schemas along


def load_torchvision():
    """Imports it; where its own library does not load beside this torch, after defining the schemas that it names."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        DEFINED.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            DEFINED[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")


def made(library, model, inputs, dynamic, lists, options):
    """(module, inputs, dynamic) as families.FAMILIES gives them."""
    if library == "timm":
        import timm
        module = seeded(lambda: timm.create_model(model, pretrained=False, num_classes=10, **options))
    else:
        import torchvision
        module = seeded(lambda: torchvision.models.get_model(model, weights=None, **options))
    return Outputs(module, lists), {name: value() for name, value in inputs.items()}, dynamic


if importlib.util.find_spec("torchvision"):
    load_torchvision()  # transformers imports it, too


def add(library, model, shape=(2, 3, 64, 64), images=("pixels",), lists=False, **options):
    if importlib.util.find_spec(library):
        FAMILIES[f"{library} {model}"] = functools.partial(
            made, library, model, {name: functools.partial(real, *shape) for name in images},
            {} if lists else {name: {0: "batch"} for name in images}, lists, options)


LARGE = (2, 3, 224, 224)  # what a model is made for that takes no other

# ---- torchvision ---------------------------------------------------------------------------------

for _name in ("alexnet", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "mnasnet0_5", "resnet18",
              "regnet_x_400mf", "regnet_y_400mf", "efficientnet_b0", "convnext_tiny", "swin_t", "swin_v2_t", "vgg11", "vgg11_bn",
              "densenet121", "resnext50_32x4d"):
    add("torchvision", _name)
for _name in ("googlenet", "inception_v3"):
    add("torchvision", _name, (2, 3, 96, 96), init_weights=False, aux_logits=False)
add("torchvision", "vit_b_32", image_size=64)
add("torchvision", "maxvit_t", LARGE)
for _name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    add("torchvision", _name, weights_backbone=None)
for _name in ("r3d_18", "mc3_18", "r2plus1d_18"):
    add("torchvision", _name, (2, 3, 4, 32, 32))
add("torchvision", "s3d", (2, 3, 16, 64, 64))
for _name in ("ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn"):
    add("torchvision", _name, (1, 3, 320, 320), lists=True, weights_backbone=None)

# ---- timm ----------------------------------------------------------------------------------------

for _name in ("resnet10t", "mobilenetv3_small_050", "mobilenetv4_conv_small", "efficientnet_lite0", "tf_efficientnetv2_b0",
              "ghostnet_050", "lcnet_035", "tinynet_e", "mnasnet_small", "regnetz_005", "repvgg_a0", "repvit_m0_9", "fastvit_t8",
              "mobileone_s0", "edgenext_xx_small", "mobilevit_xxs", "mobilevitv2_050", "convnext_atto", "convnextv2_atto",
              "inception_next_atto", "poolformer_s12", "poolformerv2_s12", "hardcorenas_a", "hrnet_w18_small", "dla46_c",
              "darknet17", "dpn48b", "selecsls42", "skresnet18", "resnest14d", "nf_regnet_b0", "ese_vovnet19b_slim_dw", "starnet_s1",
              "efficientvit_b0", "mambaout_femto", "hgnetv2_b0", "pvt_v2_b0", "repghostnet_050", "fasternet_t0", "shvit_s1",
              "seresnext26t_32x4d", "rexnet_100", "efficientformerv2_s0"):
    add("timm", _name)
for _name in ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "deit3_small_patch16_224", "mixer_s32_224", "resmlp_12_224",
              "gmlp_s16_224", "beit_base_patch16_224", "vit_relpos_small_patch16_224", "xcit_nano_12_p16_224", "cait_xxs24_224"):
    add("timm", _name, img_size=64)
for _name in ("pit_ti_224", "levit_128s", "twins_svt_small", "swinv2_cr_tiny_ns_224", "gcvit_xxtiny", "tiny_vit_5m_224",
              "efficientvit_m0", "efficientformer_l1", "swiftformer_xs", "visformer_tiny", "convit_tiny", "hiera_tiny_224", "tnt_s_patch16_224",
              "crossvit_tiny_240", "coatnet_pico_rw_224"):
    add("timm", _name, (2, 3, 240, 240) if "240" in _name else LARGE)
