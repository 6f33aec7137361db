# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants a fault in kernels of a model (20 at most, spread); compare must name each first.

    plant_faults.py LATHE MODEL [OPTION...]
"""
import re
import subprocess
import sys

lathe, model = sys.argv[1:3]
plan = subprocess.run([lathe, "compile", model, "--stop-after=plan"], check=True,
                      capture_output=True, text=True).stdout
kernels = re.findall(r"exec\.kernel @(\w+)", plan)
chosen = [kernels[i * len(kernels) // 20] for i in range(20)] if len(kernels) > 20 else kernels
found = 0
for kernel in chosen:
    done = subprocess.run([lathe, "compare", model, f"--inject-fault={kernel}", *sys.argv[3:]],
                          capture_output=True, text=True)
    first = re.search(r"first wrong: launch \d+, kernel (\w+) .*ONNX nodes (\S+)", done.stdout)
    if done.returncode == 1 and first and first[1] == kernel and first[2] != "-":
        found += 1
    else:
        print(f"{kernel}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
print(f"found {found} of {len(chosen)}")
print("found all" if chosen and found == len(chosen) else "missed some")
