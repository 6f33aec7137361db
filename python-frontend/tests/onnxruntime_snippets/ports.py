# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names, shapes and types of inputs and outputs."""
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
results = {
    "inputs": [(i.name, i.shape, i.type) for i in session.get_inputs()],
    "outputs": [(o.name, o.shape, o.type) for o in session.get_outputs()],
    "types": [i.type for i in ort.InferenceSession("types.onnx").get_inputs()],
    "initializers": [i.name for i in session.get_overridable_initializers()],
}
