# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the model says of itself."""
import onnxruntime as ort

meta = ort.InferenceSession("affine.onnx").get_modelmeta()
results = {
    "producer": meta.producer_name, "graph": meta.graph_name, "domain": meta.domain,
    "description": meta.description, "graph description": meta.graph_description,
    "version": meta.version, "map": meta.custom_metadata_map,
}
