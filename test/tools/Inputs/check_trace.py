# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Says what a trace holds: check_trace.py FILE"""
import json
import sys

with open(sys.argv[1]) as f:
    events = json.load(f)["traceEvents"]
names = {(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M"}
timed = [e for e in events if e["ph"] == "X"]
runs, kernels = ([e for e in timed if e["tid"] == tid] for tid in (1, 2))
inside = [sum(r["ts"] <= k["ts"] and k["ts"] + k["dur"] <= r["ts"] + r["dur"] for k in kernels) for r in runs]
print("processes:", *(name for kind, name in names if kind == "process_name"))
print("tracks:", ", ".join(sorted(name for kind, name in names if kind == "thread_name")))
print("runs:", *(r["name"] for r in runs))
print("kernels:", *dict.fromkeys(k["name"] for k in kernels))
for name, args in {k["name"]: k["args"] for k in kernels}.items():
    print(f"nodes of {name}: {args['nodes']}")
print("each run holds as many kernels:", "yes" if min(inside) == max(inside) > 0 and sum(inside) == len(kernels) else inside)
