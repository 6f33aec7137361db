# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe")."""
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


def test_one_engine_for_all_sizes(compiled):
    net, fast, made = compiled
    with torch.no_grad():
        for rows in (2, 5, 17, 3, 64):
            x = torch.randn(rows, 6)
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
    assert len(made) == 1


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


def test_by_name_and_mutation():
    torch._dynamo.reset()
    assert "lathe" in torch._dynamo.list_backends()
    double = torch.compile(lambda x: x * 2, backend="lathe")
    assert double(torch.ones(3)).tolist() == [2, 2, 2]

    def writes(x):
        x.add_(1)
        return x * 2

    with pytest.raises(Exception, match="writes into its arguments"):
        torch.compile(writes, backend="lathe")(torch.ones(3))


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
