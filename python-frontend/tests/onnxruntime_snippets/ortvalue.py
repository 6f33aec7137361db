# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tensor of the library's own."""
import numpy as np
import onnxruntime as ort

x = np.arange(12, dtype=np.int64).reshape(3, 4)
value = ort.OrtValue.ortvalue_from_numpy(x)
results = {
    "device": value.device_name(), "shape": value.shape(), "type": value.data_type(),
    "tensor": value.is_tensor(), "has": value.has_value(), "sparse": value.is_sparse_tensor(),
    "element": value.element_type(), "numpy": value.numpy(),
}
