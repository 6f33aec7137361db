# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How times of the CPU race are taken: bursts of runs, each runtime in a process of its own.

    race_measure.py ort|ov MODEL.onnx INPUTS.npz THREADS     (what a rival's process does)

Rivals load a model once and are stopped (SIGSTOP) while another has its turn, so that no idle
thread of theirs spins. In each round every runtime runs for a burst, the first one rotating; the
burst's figure is the median of its runs. A ratio is taken within a round, whose bursts are
seconds apart, and the row's ratio is the median of these. While the middle half of the ratios
spreads by more than SPREAD, rounds are added, up to MORE times as many: for all rows alike.
"""
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))

SPREAD, MORE = 0.05, 3
LONG_MS = 1000.0  # runs longer than this get three rounds to begin with
RULE = (f"A row gets more rounds, up to {MORE} times as many, while the middle half of its rounds' "
        f"ratios spreads by more than {100 * SPREAD:.0f} % (as `lathe bench`, a burst has five runs "
        "or more, unless they take thrice its time)")


def median_ms(run, seconds):
    """As `lathe bench` measures: warm-up, then runs; both shorter where a run is long."""
    begin = time.perf_counter()
    for i in range(10**6):
        spent = time.perf_counter() - begin
        if (i >= 3 and spent >= 0.1 * seconds) or (i and spent >= seconds):
            break
        run()
    times, begin = [], time.perf_counter()
    while not times or not (spent >= 3 * seconds or (len(times) >= 5 and spent >= seconds)):
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        times.append(end - start)
        spent = end - begin
    return 1e3 * float(np.median(times))


def ort_session(path, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ort_run(path, inputs, threads):
    session = ort_session(path, threads)
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_cpu_input(name, array)
    for output in session.get_outputs():
        bound.bind_output(output.name)
    return lambda: session.run_with_iobinding(bound)


def ov_run(path, inputs, threads):
    import openvino
    core = openvino.Core()
    model = core.read_model(path)
    names = {i.any_name for i in model.inputs}
    sizes = {n: list(a.shape) for n, a in inputs.items() if n in names}
    model.reshape({n: openvino.PartialShape(size) for n, size in sizes.items()})
    request = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for name, array in inputs.items():
        if name in names:
            request.set_tensor(name, openvino.Tensor(array, shared_memory=array.ndim > 0))
    return request.infer


class Rival:
    """A process with one model in one runtime; `usable` is false if it did not take the file."""

    def __init__(self, peer, file, inputs, threads):
        self.command = [sys.executable, os.path.abspath(__file__), peer, file, inputs, str(threads)]
        self.starts = 0
        self.start()

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.usable = self.answer() is not None
        if self.usable:
            self.process.send_signal(signal.SIGSTOP)

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("race "):
                return line.split()[1]
        return None

    def burst(self, seconds):
        if not self.usable and self.starts < 3:
            self.close()
            self.start()
        if not self.usable:
            return math.nan
        self.process.send_signal(signal.SIGCONT)
        try:
            print(seconds, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        ms = self.answer()
        if ms is None:  # it died: the round is lost, the next one has a new process
            self.close()
            self.start()
            return math.nan
        self.process.send_signal(signal.SIGSTOP)
        return float(ms)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def bench(folder, threads, seconds, *options):
    """The report of `lathe bench` for an engine and inputs that race.py left in a folder."""
    import lathe_cli
    inputs = np.load(os.path.join(folder, "ours.npz")).files
    report = os.path.join(folder, "bench.json")
    lathe_cli.lathe("bench", os.path.join(folder, "model.lathe"), f"--threads={threads}",
                    f"--seconds={seconds}", "--json", report, *options,
                    *(f"--input={n}={folder}/outputs/input_{i}.npy" for i, n in enumerate(inputs)))
    with open(report) as f:
        return json.load(f)


def lathe_ms(folder, threads, seconds):
    return bench(folder, threads, seconds)["median_ms"]


def measure(bursts, rounds, seconds):
    """Runs alternating rounds of `bursts`, {peer: function of seconds giving ms}, whose first peer
    is compared with the best of the others. {"ms": medians by peer, "ratio", "best", "rounds",
    "spread": of the middle half of the rounds' ratios}."""
    peers = list(bursts)
    found = {peer: [] for peer in peers}
    while True:
        done = len(found[peers[0]])
        for i in range(len(peers)):
            peer = peers[(i + done) % len(peers)]
            found[peer].append(bursts[peer](seconds))
        ms = {peer: float(np.median([v for v in values if not math.isnan(v)] or [math.nan]))
              for peer, values in found.items()}
        rivals = [p for p in peers[1:] if not math.isnan(ms[p])]
        if not rivals:
            if done + 1 >= rounds:
                raise RuntimeError("no rival runs this file")
            continue
        best = min(rivals, key=ms.get)
        ratios = np.array(found[peers[0]]) / np.array(found[best])
        low, ratio, high = np.nanpercentile(ratios, (25, 50, 75))
        spread = float((high - low) / ratio)
        wanted = min(rounds, 3) if max(ms[p] for p in (peers[0], best)) > LONG_MS else rounds
        if done + 1 >= wanted and (spread <= SPREAD or done + 1 >= MORE * wanted):
            return {"ms": ms, "ratio": float(ratio), "best": best, "rounds": done + 1,
                    "spread": spread}


def race(folder, file, inputs, threads, peers, rounds, seconds):
    """lathe's engine in a folder against rivals on a file; see measure()."""
    rivals = {peer: Rival(peer, file, inputs, threads) for peer in peers}
    try:
        bursts = {"lathe": lambda s: lathe_ms(folder, threads, s)}
        bursts.update({peer: rival.burst for peer, rival in rivals.items()})
        return measure(bursts, rounds, seconds)
    finally:
        for rival in rivals.values():
            rival.close()


def main():
    _, peer, file, inputs, threads = sys.argv
    arrays = dict(np.load(inputs))  # the runtimes read them where they lie
    run = {"ort": ort_run, "ov": ov_run}[peer](file, arrays, int(threads))
    print("race ready", flush=True)
    for line in sys.stdin:
        print("race", median_ms(run, float(line)), flush=True)


if __name__ == "__main__":
    main()
