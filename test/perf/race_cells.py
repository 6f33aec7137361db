# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LSTM and GRU by themselves, against the rivals: 100 steps, inputs as wide as the state."""
import os

import numpy as np

import race_measure

STEPS = 100
CELLS = [("LSTM", 256, 1), ("LSTM", 512, 1), ("GRU", 256, 1), ("LSTM", 256, 16)]


def names():
    return [f"{kind} {width}, {rows} row{'s' * (rows > 1)}" for kind, width, rows in CELLS]


def case(name, args, workplace):
    """The engine, and what measures it: what race_measure.race gives, by threads; "error" is from
    onnxruntime."""
    import lathe_cli
    import onnx
    import test_recurrent
    kind, width, batch = CELLS[names().index(name)]
    folder = workplace(f"{kind}_{width}_{batch}")
    file, inputs = os.path.join(folder, "model.onnx"), os.path.join(folder, "ours.npz")
    model = test_recurrent.cell(kind, width, width, "forward", 0, 1, 0, 0)
    for tensor in model.graph.initializer:
        # Weights so small that steps forget: rounding would grow from step to step otherwise.
        values = onnx.numpy_helper.to_array(tensor) / np.float32(np.sqrt(width))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, file)
    x = np.random.default_rng(0).standard_normal((STEPS, batch, width)).astype(np.float32)
    np.savez(inputs, x=x)
    engine = os.path.join(folder, "model.lathe")
    lathe_cli.lathe("compile", file, "-o", engine, f"--target={args.target}",
                    f"--dim=S=1:{STEPS}:1000", f"--dim=B=1:{batch}:64")

    def measure():
        got = lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs={"x": x})
        session = race_measure.ort_session(file, 1)
        want = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x})))
        row = {"threads": {}, "error": max(lathe_cli.relative_error(got[n], w)
                                           for n, w in want.items())}
        for t in map(int, args.threads.split(",")):
            row["threads"][str(t)] = race_measure.race(
                folder, file, inputs, t, args.peers.split(","), args)
        return row
    return [engine], measure
