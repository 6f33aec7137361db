# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe")."""
import gc
import os
import pathlib
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")
import lathe.torch  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x))) * x.shape[0]


@pytest.fixture
def compiled(monkeypatch):
    """(module, compiled module, list of the graphs that were compiled)"""
    torch._dynamo.reset()
    torch.manual_seed(3)
    net, made = Net().eval(), []

    def counted(module, example_inputs):
        made.append(lathe.torch.backend(module, example_inputs))
        return made[-1]

    return net, torch.compile(net, backend=counted, dynamic=True), made


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_cycles_waits_for_torch_export(monkeypatch, enabled, fails):
    """And is then as it was, also where torch.export fails."""
    export, seen = torch.export.export, []

    def watched(*args, **kwargs):
        seen.append(gc.isenabled())
        if fails:
            raise ValueError("planted")
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", watched)
    torch._dynamo.reset()
    (gc.enable if enabled else gc.disable)()
    try:
        call = torch.compile(lambda x: x + 1, backend="lathe")
        if fails:
            with pytest.raises(Exception, match="planted"):
                call(torch.ones(3))
        else:
            assert call(torch.ones(3)).sum() == 6
        assert seen == [False]
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_one_engine_for_all_sizes(compiled):
    net, fast, made = compiled
    with torch.no_grad():
        for rows in (2, 5, 17, 3, 64):
            x = torch.randn(rows, 6)
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
    assert len(made) == 1


class Step(torch.nn.Module):
    """A step of a decoder: the new keys and values go behind those that are there."""

    def forward(self, q, k, v, keys, values):
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values), keys, values


def test_equal_sizes_are_one_size():
    """Lengths of keys and values are equal, which dynamo guards and no operator says."""
    made, step = [], Step()

    def counted(module, example_inputs):
        made.append(lathe.torch.backend(module, example_inputs))
        return made[-1]

    fast = torch.compile(step, backend=counted, dynamic=True, fullgraph=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", lathe.torch.FixedSizes)
        for length in (5, 4, 3, 9, 6, 7, 20, 11, 12, 33):
            given = [torch.randn(1, 2, rows, 8) for rows in (1, 1, 1, length, length)]
            for mine, true in zip(fast(*given), step(*given), strict=True):
                torch.testing.assert_close(mine, true, rtol=1e-5, atol=1e-5)
    assert len(made) == 1 and len(made[0].contexts) == 1


def test_parameters_are_never_stale(compiled):
    net, fast, made = compiled
    x = torch.randn(4, 6)
    with torch.no_grad():
        before = fast(x)
        net.first.weight.mul_(2)
        np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
        net.load_state_dict(Net().state_dict())
        np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
        assert not torch.allclose(fast(x), before)
    assert len(made) == 1


def test_gradients_are_left_to_torch(compiled):
    net, fast, _ = compiled
    x = torch.randn(4, 6)
    with pytest.warns(lathe.torch.LeftToTorch):
        fast(x).sum().backward()
    assert net.first.weight.grad is not None


def test_module_paths_are_in_the_kernels(compiled):
    """What dynamo found the module as is no part of the path."""
    net, fast, made = compiled
    with torch.no_grad():
        fast(torch.randn(2, 6))
        context = made[0].contexts[0]
        with context.profile() as profile:
            fast(torch.randn(3, 6))
    names = [name for row in profile.rows for name in row.nodes.split(", ")]
    assert {"first/linear", "second/linear_1"} <= set(names), names
    assert all(row.nodes for row in profile.rows) and not any("L[" in name for name in names), names


def test_by_name():
    torch._dynamo.reset()
    assert "lathe" in torch._dynamo.list_backends()
    double = torch.compile(lambda x: x * 2, backend="lathe")
    assert double(torch.ones(3)).tolist() == [2, 2, 2]


class Scaled(torch.nn.Module):
    """Numbers of Python, which dynamo gives to a backend as tensors where sizes are dynamic."""

    def __init__(self):
        super().__init__()
        self.norm, self.scale = torch.nn.LayerNorm(6, eps=1e-3), 0.5

    def forward(self, x):
        return self.norm(x) * self.scale


def test_numbers_of_modules():
    torch._dynamo.reset()
    net = Scaled().eval()
    fast = torch.compile(net, backend="lathe", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows, net.scale in ((2, 0.5), (5, 0.25), (3, 0.5)):
            x = torch.randn(rows, 6)
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
        with pytest.warns(lathe.torch.LeftToTorch, match="more than 8 values"):
            for at in range(9):
                net.scale = 1.0 + at / 8
                np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)


def test_integers_as_arguments():
    """Those that are no sizes have an engine for each value, as other numbers have."""
    torch._dynamo.reset()

    def scaled(x, times):
        return x.sum(0) * times

    fast, x = torch.compile(scaled, backend="lathe", dynamic=True, fullgraph=True), torch.ones(3, 2)
    for times in (5, 7, 5):
        assert fast(x, times).tolist() == [3 * times] * 2


class Patches(torch.nn.Module):
    """Attention over the patches of an image, with an embedding for each of 16 or, without, for any number of them."""

    def __init__(self, embedded):
        super().__init__()
        self.cut = torch.nn.Conv2d(3, 16, 4, stride=4)
        self.places = torch.nn.Parameter(torch.randn(1, 16, 16)) if embedded else None

    def forward(self, image):
        x = self.cut(image).flatten(2).transpose(1, 2)
        if self.places is not None:
            x = x + self.places
        heads = x.view(*x.shape[:-1], -1, 4).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("embedded", [True, False])
def test_heights_and_widths_have_engines_of_their_own(embedded):
    torch._dynamo.reset()
    torch.manual_seed(4)
    net = Patches(embedded).eval()
    fast = torch.compile(net, backend="lathe", dynamic=True, fullgraph=True)
    shapes = [(2, 16, 16), (5, 16, 16), (3, 8, 32)] if embedded else [(2, 16, 16), (5, 16, 16), (3, 24, 24), (2, 8, 16)]
    with torch.no_grad():
        for rows, height, width in shapes:
            image = torch.randn(rows, 3, height, width)
            np.testing.assert_allclose(fast(image).numpy(), net(image).numpy(), rtol=1e-4, atol=1e-5)


def test_memory_of_arguments_is_read_in_place(compiled):
    """Results lie in new memory, and arguments that are views are read where they lie."""
    net, fast, made = compiled
    with torch.no_grad():
        x = torch.randn(6, 9).t()[:, :6]  # neither row-major nor at the start of its memory
        kept = fast(x)
        expected = net(x)
        fast(torch.randn(9, 6))
        np.testing.assert_allclose(kept.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
        assert fast(torch.randn(0, 6)).shape == (0, 3)
    assert all(len(one.contexts) == 1 for one in made)


def test_threads_share_a_compiled_module(compiled):
    net, fast, made = compiled
    with torch.no_grad():
        fast(torch.randn(2, 6))
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for rows in range(2, 7):
                x = torch.randn(rows, 6, generator=generator)
                if not torch.allclose(fast(x), net(x), rtol=1e-5, atol=1e-5):
                    wrong.append((seed, rows))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(made) == 1


def test_sizes_that_data_decide():
    torch._dynamo.reset()

    def chosen(x):
        return torch.nonzero(x > 0)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), torch.no_grad():
        x = torch.tensor([1.0, -1.0, 2.0])
        with pytest.raises(Exception, match="known only when data are"):
            torch.compile(chosen, backend="lathe", fullgraph=True)(x)


SECOND = """
import sys, time
sys.path.insert(0, {folder!r})
import torch, lathe, lathe.torch
from lathe import _compiler
torch.manual_seed(3)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    def forward(self, x):
        return self.layer(x)
net = Net().eval()
warm = torch.compile(lambda x: x + 1, backend="lathe", dynamic=True)
x = torch.randn(2, 7, 64)
with torch.no_grad():
    warm(torch.ones(3))
    true = net(x)
    fast = torch.compile(net, backend="lathe", dynamic=True, fullgraph=True)
    made, inner = [], _compiler._engine
    def timed(*args):
        begin = time.perf_counter()
        engine = inner(*args)
        made.append(time.perf_counter() - begin)
        return engine
    _compiler._engine = timed
    got = fast(x)
assert torch.allclose(got, true, rtol=1e-4, atol=1e-5)
print(sum(made))
"""


def test_a_second_process_starts_from_the_cache(tmp_path):
    """The engine of the same graph is not compiled again; what is left of the start is torch's tracing."""
    program = SECOND.format(folder=str(pathlib.Path(lathe.__file__).parents[1]))
    environment = {**os.environ, "LATHE_CACHE_DIR": str(tmp_path)}
    environment.pop("LATHE_NO_CACHE", None)
    seconds = [float(subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True,
                                    text=True).stdout) for _ in range(2)]
    print(f"{seconds[0]:.2f} s, then {seconds[1]:.3f} s")
    assert seconds[1] <= 1 and seconds[1] < seconds[0] / 2
