# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of torch: lathe.compile on modules and ExportedPrograms."""
import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


@pytest.fixture
def net():
    torch.manual_seed(3)
    return Net().eval()


def outputs(engine, *inputs):
    return [tensor.numpy() for tensor in engine.run(inputs).values()]


def test_module(net):
    x = torch.randn(4, 6)
    engine = lathe.compile(net, args=(x,))
    np.testing.assert_allclose(outputs(engine, x)[0], net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_through_onnx_kernels_name_their_modules(net):
    x = torch.randn(4, 6)
    context = lathe.compile(net, args=(x,), importer="onnx").context()
    with context.profile() as profile:
        context.run([x])
    modules = {name.split("/")[0] for row in profile.rows for name in row.nodes.split(", ")}
    assert {"first", "second"} <= modules, modules


def test_module_of_any_batch(net):
    batch = torch.export.Dim("batch", min=1, max=64)
    engine = lathe.compile(net, args=(torch.randn(4, 6),), dynamic_shapes=({0: batch},))
    for rows in (1, 5, 64):
        x = torch.randn(rows, 6)
        np.testing.assert_allclose(outputs(engine, x)[0], net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_exported_program(net):
    x = torch.randn(2, 6)
    engine = lathe.compile(torch.export.export(net, (x,)))
    np.testing.assert_allclose(outputs(engine, x)[0], net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_mistakes(net):
    x = torch.randn(2, 6)
    for call in (lambda: lathe.compile(net), lambda: lathe.compile(torch.nn.functional.gelu),
                 lambda: lathe.compile(torch.export.export(net, (x,)), args=(x,)),
                 lambda: lathe.compile(b"", args=(x,))):
        with pytest.raises(lathe.Error) as raised:
            call()
        assert raised.value.code == lathe.Code.USAGE, raised.value


def test_what_torch_does_not_export():
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(lathe.Error, match="Branches") as raised:
        lathe.compile(Branches(), args=(torch.ones(2),))
    assert raised.value.code == lathe.Code.UNSUPPORTED


def test_errors_name_the_line_of_python():
    class Foreign(torch.nn.Module):
        def forward(self, x):
            return torch.onnx.ops.symbolic("nobody::Knows", (x,), dtype=x.dtype, shape=x.shape)  # THE LINE

    with pytest.raises(lathe.Error) as raised:
        lathe.compile(Foreign(), args=(torch.ones(3, 2),))
    assert raised.value.code == lathe.Code.UNSUPPORTED
    assert raised.value.node and "nobody::Knows" in raised.value.source
    assert "nobody::Knows" in str(raised.value)
