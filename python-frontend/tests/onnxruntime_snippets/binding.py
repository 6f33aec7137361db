# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and outputs bound once, then run."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
binding = session.io_binding()
binding.bind_cpu_input("x", np.full((4, 8), -0.5, np.float32))
binding.bind_output("y")
binding.bind_output("s", "cpu")
session.run_with_iobinding(binding)
results = {"outputs": binding.copy_outputs_to_cpu()}
