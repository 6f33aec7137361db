# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are processes: the bits of ranks that are threads, and what each is told when it cannot go on.

All of it on this machine, on ports that the system gives, and within bounded time.
"""
import os
import socket
import subprocess

import numpy as np
import pytest

import lathe_cli
import lost_ranks  # which makes `import lathe` that of this tree
import lathe

pytestmark = pytest.mark.skipif(lathe_cli.DEVICE != "cpu", reason="ranks are processes of the CPU")
FAMILIES = os.path.join(lathe_cli.MODELS, "families")


def free_port():
    return str(lost_ranks.free_port())


def launch(commands, **variables):
    """Runs a `lathe run` for each rank, as torchrun would; returns exit codes and what was said."""
    port = free_port()
    started = [subprocess.Popen([lathe_cli.LATHE, "run", *map(str, command)], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT,
                                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(commands)),
                                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables})
               for rank, command in enumerate(commands)]
    said = [process.communicate(timeout=100)[0] for process in started]
    return [process.returncode for process in started], said


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_have_the_bits_of_threads(engines, two_products, tmp_path, ranks):
    engine = engines(two_products, f"--mesh=tp={ranks}")
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(1).standard_normal((300, 64)).astype(np.float32))
    lathe_cli.lathe("run", engine, f"--ranks={ranks}", "--input", f"x={x}", "--save", tmp_path / "threads")
    codes, said = launch([[engine, "--input", f"x={x}", "--save", tmp_path / "world"]] * ranks)
    assert codes == [0] * ranks, said
    want = np.load(tmp_path / "threads" / "y.npy")
    for folder in ("", *(f"rank-{r}" for r in range(1, ranks))):
        assert np.load(tmp_path / "world" / folder / "y.npy").tobytes() == want.tobytes()
    assert "RAN" in said[0] and not any(said[1:])


def test_launchers(engines, two_products, monkeypatch):
    """mpirun and srun say the same in other words."""
    engine, port = engines(two_products, "--mesh=tp=2"), free_port()
    for rank_name, ranks_name in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                                  ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")):
        started = [subprocess.Popen([lathe_cli.LATHE, "run", engine], stdout=subprocess.PIPE, text=True,
                                    env={**os.environ, rank_name: str(rank), ranks_name: "2", "MASTER_PORT": port})
                   for rank in range(2)]
        assert "RAN" in started[0].communicate(timeout=60)[0]
        assert [p.wait(60) for p in started] == [0, 0]


def test_what_does_not_fit_is_told_to_all(engines, two_products, tmp_path):
    two, four, plain = engines(two_products, "--mesh=tp=2"), engines(two_products, "--mesh=tp=4"), engines(two_products)
    for rows in (3, 4):
        np.save(tmp_path / f"{rows}.npy", np.zeros((rows, 64), np.float32))
    other = tmp_path / "other.lathe"
    lathe_cli.compile_model(two_products, other, "--mesh=tp=2", "--dim=N=1:2:9")
    narrow = [[two, "--input", f"x={tmp_path / f'{rows}.npy'}"] for rows in (3, 4)]
    for commands, text in (([[two]] * 3, "for a mesh of 2 ranks, the world has 3"),
                           ([[plain]] * 2, "--ranks=1 runs it in each process alone"),
                           ([[two], [other]], "another engine"),
                           (narrow, "N = "),
                           ([[two], [four]], "mesh of 4 ranks")):
        codes, said = launch(commands) if text != "mesh of 4 ranks" else launch_late(commands)
        assert codes[-1] == 2 and text in said[-1], said
        assert all(code in (2, 7) for code in codes), said
    codes, said = launch([[two]] * 2, LATHE_COMM="/nowhere/liblathe_tcp.so")
    assert codes == [4, 4] and all("/nowhere/liblathe_tcp.so" in s for s in said), said
    codes, said = launch([[two]] * 2, WORLD_SIZE="two")
    assert codes == [2, 2] and all("environment variable WORLD_SIZE" in s for s in said), said


def test_another_entry_is_told_to_all(engines, two_products):
    """Each step has its entry and sizes compared before anything of it runs."""
    engine = engines(two_products, "--mesh=tp=2", "--entry=one:N=1", "--entry=two:N=2")
    codes, said = launch([[engine, "--entry=one", "--entry=two"], [engine, "--entry=one", "--entry=one"]])
    assert codes == [2, 2] and all("rank 1 runs 'entry one', rank 0 'entry two'" in s for s in said), said


# Rank 0 in one network, rank 1 in another, and a cable between them.
NETWORKS = """
set -eu
unshare -n sleep 100 & other=$!
trap 'kill $other' EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add here type veth peer name there netns $other
ip addr add 10.77.0.1/30 dev here
ip link set here up
nsenter -t $other -n sh -c 'ip addr add 10.77.0.2/30 dev there && ip link set there up'
RANK=1 nsenter -t $other -n "$@" --save "$OUT/other" & rank1=$!
code=0
RANK=0 "$@" --save "$OUT" || code=$?
wait $rank1
exit $code
"""


def test_ranks_in_two_networks(engines, two_products, tmp_path):
    if subprocess.run(["unshare", "-rn", "unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("this user may not make network namespaces")
    engine = engines(two_products, "--mesh=tp=2")
    x = tmp_path / "x.npy"
    np.save(x, np.random.default_rng(1).standard_normal((300, 64)).astype(np.float32))
    lathe_cli.lathe("run", engine, "--ranks=2", "--input", f"x={x}", "--save", tmp_path / "threads")
    ran = subprocess.run(["unshare", "-rn", "bash", "-c", NETWORKS, "networks", lathe_cli.LATHE, "run", engine,
                          "--input", f"x={x}", "--max-seconds=60"], capture_output=True, text=True, timeout=100,
                         env={**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500",
                              "OUT": str(tmp_path)})
    assert ran.returncode == 0 and "RAN" in ran.stdout, ran
    want = np.load(tmp_path / "threads" / "y.npy").tobytes()
    assert all(np.load(f).tobytes() == want for f in (tmp_path / "y.npy", tmp_path / "other" / "rank-1" / "y.npy"))


def launch_late(commands):
    """Where one rank does not come, the other waits for it as long as it is told to."""
    return launch([[*command, "--max-seconds=5"] for command in commands])


def test_a_missing_rank_and_a_taken_port(engines, two_products):
    engine = lathe.load(engines(two_products, "--mesh=tp=2"))
    with pytest.raises(lathe.Error, match="have not come in time: 1") as error:
        engine.rank(0, 2, port=int(free_port()), join=0.3)
    assert error.value.code == lathe.Code.DEADLINE
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for rank, code, text in ((0, lathe.Code.USAGE, "taken"), (1, lathe.Code.DEADLINE, "another program")):
            with pytest.raises(lathe.Error, match=text) as error:
                engine.rank(rank, 2, port=port, join=0.3)
            assert error.value.code == code
    with pytest.raises(lathe.Error, match="no rank 2 of 2"):
        engine.rank(2, 2)


def test_lost_ranks_are_named_and_replaced(engines):
    """Three killed, one stopped; lost_ranks.py alone does it a hundred times (results/lost-ranks.log)."""
    folder = os.path.join(FAMILIES, "qwen2")
    engine = engines(os.path.join(folder, "model.onnx"), f"--mesh=tp={lost_ranks.RANKS}")
    assert lost_ranks.rounds(str(engine), folder, kills=3, stops=1) == []
