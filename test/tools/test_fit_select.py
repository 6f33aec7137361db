# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model that constants of the GPU's choice are fitted with is the compiler's, and what judges it is held out."""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GPU = os.path.join(ROOT, "test", "perf", "gpu")


def script(name, *arguments):
    return subprocess.run([sys.executable, os.path.join(GPU, name), *arguments], capture_output=True, text=True,
                          timeout=600, cwd=os.path.join(GPU, "results"))


def test_the_mirror_of_the_choice_is_the_compilers():
    done = script("fit_select.py", "mirror")  # a fresh seed, which a failure shows
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ of \d+ choices are the compiler's", done.stdout, re.M), done.stdout


def test_held_out_figures_come_first():
    done = script("fit_select.py", "show", "sample-fit-more-h200.log", "sample-h200.log")
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("held out: sample-h200.log") and second.startswith("fitted to: sample-fit-more"), done


def test_sizes_that_were_fitted_to_judge_nothing(tmp_path):
    done = script("sample_gemm.py", "prepare", str(tmp_path), "20261123")
    assert done.returncode == 1 and "fitted to sizes of seed 20261123" in done.stderr
    assert os.listdir(tmp_path) == []


def test_every_log_that_was_fitted_to_is_known():
    sys.path.insert(0, GPU)
    import fit_select
    import sample_gemm
    with open(os.path.join(GPU, "results", "README.md")) as f:
        text = f.read()
    command = re.search(r"`fit_select\.py fit ([^`]*)`", text)[1].split()
    assert set(command) == fit_select.FITTED
    seeds = [int(s) for line in text.splitlines() if line.startswith("| `sample-fit") for s in
             re.findall(r"\b2026\d{4}\b", line)]
    assert set(seeds) == sample_gemm.FITTED
