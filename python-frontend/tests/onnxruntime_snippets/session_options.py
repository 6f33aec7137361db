# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of a session: threads, optimization level, order of execution."""
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
options.log_severity_level = 3
options.add_session_config_entry("session.load_model_format", "ONNX")
session = ort.InferenceSession("affine.onnx", sess_options=options)
results = {
    "threads": session.get_session_options().intra_op_num_threads,
    "entry": options.get_session_config_entry("session.load_model_format"),
    "outputs": session.run(None, {"x": np.ones((1, 8), np.float32)}),
}
