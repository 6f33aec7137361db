# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One session, several threads at once."""
import threading

import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("affine.onnx")
results = {}


def work(number):
    x = np.full((number + 1, 8), number / 7, np.float32)
    for _ in range(20):
        results[number] = session.run(["y"], {"x": x})[0]


threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
