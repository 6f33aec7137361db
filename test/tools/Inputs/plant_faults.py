# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants a fault in each kernel of a model; compare must name it first: plant_faults.py LATHE MODEL"""
import re
import subprocess
import sys

lathe, model = sys.argv[1:3]
plan = subprocess.run([lathe, "compile", model, "--stop-after=plan"], check=True,
                      capture_output=True, text=True).stdout
kernels = re.findall(r"exec\.kernel @(\w+)", plan)
found = 0
for kernel in kernels[:20]:
    done = subprocess.run([lathe, "compare", model, f"--inject-fault={kernel}"],
                          capture_output=True, text=True)
    first = re.search(r"first wrong: launch \d+, kernel (\w+) .*ONNX nodes (\S+)", done.stdout)
    if done.returncode == 1 and first and first[1] == kernel and first[2] != "-":
        found += 1
    else:
        print(f"{kernel}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
print(f"found {found} of {len(kernels[:20])}")
print("found all" if kernels and found == len(kernels[:20]) else "missed some")
