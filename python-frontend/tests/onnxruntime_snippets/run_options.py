# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of one run."""
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
options = ort.RunOptions()
options.log_severity_level = 3
options.logid = "one run"
options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
outputs = session.run(["y"], {"x": np.ones((1, 8), np.float32)}, options)
results = {"outputs": outputs, "logid": options.logid}
