# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LSTM and GRU by themselves, against the rivals: 100 steps, inputs as wide as the state."""
import os
import subprocess
import sys

import numpy as np

STEPS = 100
CELLS = [("LSTM", 256, 1), ("LSTM", 512, 1), ("GRU", 256, 1), ("LSTM", 256, 16)]


def table(args, say, workplace, lathe_ms):
    """One row a cell; `workplace` and `lathe_ms` are race.py's. Returns the rows."""
    import lathe_cli
    import onnx
    import test_recurrent
    race = os.path.join(os.path.dirname(os.path.abspath(__file__)), "race.py")
    threads = [int(t) for t in args.threads.split(",")]
    say("| cell, width, rows | " + " | ".join(f"{t} thread{'s' * (t > 1)}: lathe / ort / ov ms | ratio"
                                            for t in threads) + " |")
    say("|---|" + "---|---|" * len(threads))
    rows = []
    for kind, width, batch in CELLS:
        folder = workplace(f"{kind}_{width}_{batch}")
        file, inputs = os.path.join(folder, "model.onnx"), os.path.join(folder, "ours.npz")
        onnx.save(test_recurrent.cell(kind, width, width, "forward", 0, 1, 0, 0), file)
        x = np.random.default_rng(0).standard_normal((STEPS, batch, width)).astype(np.float32)
        np.savez(inputs, x=x)
        engine = os.path.join(folder, "model.lathe")
        lathe_cli.lathe("compile", file, "-o", engine, f"--target={args.target}",
                        f"--dim=S=1:{STEPS}:1000", f"--dim=B=1:{batch}:64")
        lathe_cli.run(engine, os.path.join(folder, "outputs"), inputs={"x": x})
        row, cells = {"cell": f"{kind} {width} {batch}"}, []
        for t in threads:
            ms = {peer: [] for peer in ("lathe", "ort", "ov")}
            for _ in range(args.rounds):
                ms["lathe"].append(lathe_ms(folder, t, args.seconds))
                for peer in ("ort", "ov"):
                    done = subprocess.run(
                        [sys.executable, race, "--rival", peer, "--inputs", inputs, "--threads", str(t),
                         "--seconds", str(args.seconds), file],
                        check=True, capture_output=True, text=True, timeout=300)
                    ms[peer].append(float(done.stdout.split()[-1]))
            median = {peer: float(np.median(v)) for peer, v in ms.items()}
            row[str(t)] = median
            cells.append(" / ".join(f"{median[p]:.3f}" for p in ms)
                         + f" | {median['lathe'] / min(median['ort'], median['ov']):.3f}")
        rows.append(row)
        say(f"| {kind} {width} {batch} | " + " | ".join(cells) + " |")
    return rows
