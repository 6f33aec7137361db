# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values bound as input and output."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
x = ort.OrtValue.ortvalue_from_numpy(np.full((3, 8), 0.5, np.float32))
y = ort.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32)
binding = session.io_binding()
binding.bind_ortvalue_input("x", x)
binding.bind_ortvalue_output("y", y)
binding.bind_output("s")
session.run_with_iobinding(binding)
values = binding.get_outputs()
results = {"y": y.numpy(), "s": values[1].numpy(), "count": len(values)}
binding.clear_binding_inputs()
binding.clear_binding_outputs()
