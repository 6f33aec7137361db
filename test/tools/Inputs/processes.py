# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a command as so many ranks, as torchrun would: processes.py RANKS COMMAND...

What each says is printed, of rank 0 first; the exit code is the largest.
"""
import os
import socket
import subprocess
import sys

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = str(probe.getsockname()[1])
ranks = int(sys.argv[1])
started = [subprocess.Popen(sys.argv[2:], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                                 "MASTER_PORT": port})
           for rank in range(ranks)]
for rank, process in enumerate(started):
    print(f"rank {rank}:", process.communicate(timeout=100)[0], flush=True)
sys.exit(max(process.returncode for process in started))
