# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Buffers that models of torch write into: states of the engine from an ExportedProgram, torch's own memory through
torch.compile."""
import copy

import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")
import lathe.torch  # noqa: E402


class Cache(torch.nn.Module):
    """Rows are put at places; an average of all."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.arange(32.0).view(8, 4))
        self.register_buffer("step", torch.tensor(3))

    def forward(self, x, places):
        old = self.rows.sum()
        self.rows.index_copy_(0, places, x)
        self.step += 1
        return self.rows.mean(0) * self.step, old


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Swap(torch.nn.Module):
    """One buffer becomes what the other was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([5.0, 6.0]), persistent=False)

    def forward(self, x):
        a = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(a)
        return x + self.a


def put(rows):
    return torch.randn(rows, 4), torch.randperm(8)[:rows]


CASES = {"cache": (Cache, lambda: put(3)), "batch norm": (Trained, lambda: (torch.randn(2, 3, 6, 6),)),
         "swap": (Swap, lambda: (torch.randn(2),))}


@pytest.mark.parametrize("case", CASES)
def test_exported(case):
    torch.manual_seed(2)
    make, inputs = CASES[case]
    module = make().train()
    engine = lathe.compile(torch.export.export(copy.deepcopy(module), inputs()))
    first = {name: value.clone() for name, value in module.named_buffers()}
    assert sorted(engine.states) == sorted(first)
    assert not {p.name for p in [*engine.inputs(), *engine.outputs()]} & {*first, *(f"{n}.next" for n in first)}
    one, other = engine.context(), engine.context()
    with torch.no_grad():
        for _ in range(3):
            x = inputs()
            true = module(*x)
            got = list(one.run(list(x)).values())
            for mine, expected in zip(got, true if isinstance(true, tuple) else (true,), strict=True):
                np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
            for name, value in module.named_buffers():
                np.testing.assert_allclose(one.read_state(name), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)
    for name, value in first.items():  # each context has states of its own, which begin as the module's
        np.testing.assert_array_equal(other.read_state(name), value.numpy())
    one.reset_state()
    for name, value in first.items():
        np.testing.assert_array_equal(one.read_state(name), value.numpy())


def test_states_are_written():
    engine = lathe.compile(Cache(), args=put(2))
    context = engine.context()
    context.write_state("rows", np.ones((4, 8), np.float32).T)
    context.write_state("step", torch.tensor(9))
    mean, old = context.run([torch.ones(2, 4), torch.tensor([0, 1])]).values()
    assert old.numpy() == 32 and mean.numpy().tolist() == [10] * 4
    for state, value, message in (("rows", np.ones(3, np.float32), "of another type or other sizes"),
                                  ("rows", np.ones((8, 4)), "of another type or other sizes"),
                                  ("nothing", np.ones(3), "nothing")):
        with pytest.raises(lathe.Error, match=message) as raised:
            context.write_state(state, value)
        assert raised.value.code == lathe.Code.USAGE


def test_sizes_of_the_run():
    """Inputs of any size, behind arguments that are no ports."""
    torch.manual_seed(2)
    module, rows = Trained().train(), torch.export.Dim("rows", min=1, max=16)
    engine = lathe.compile(copy.deepcopy(module), args=(torch.randn(2, 3, 6, 6),), dynamic_shapes=({0: rows},))
    with torch.no_grad():
        for count in (2, 5, 16):
            x = torch.randn(count, 3, 6, 6)
            got = list(engine.run([x]).values())[0].numpy()
            np.testing.assert_allclose(got, module(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_compiled(case):
    torch._dynamo.reset()
    torch.manual_seed(2)
    make, inputs = CASES[case]
    module = make().train()
    other = copy.deepcopy(module)
    fast = torch.compile(other, backend="lathe", fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x = inputs()
            true, got = module(*x), fast(*x)
            torch.testing.assert_close(got, true, rtol=1e-4, atol=1e-5)
            for (name, mine), value in zip(other.named_buffers(), module.buffers()):
                torch.testing.assert_close(mine, value, rtol=1e-5, atol=1e-6, msg=name)
        other.load_state_dict(make().state_dict())
        module.load_state_dict(other.state_dict())
        torch.testing.assert_close(fast(*x), module(*x), rtol=1e-4, atol=1e-5)


def test_compiled_with_what_is_left_to_torch():
    class Partly(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("sum", torch.zeros(4))

        def forward(self, x):
            self.sum.add_(x)
            return torch.fft.fft(x * 2).abs() + self.sum

    torch._dynamo.reset()
    module = Partly()
    fast = torch.compile(module, backend="lathe", options={"fallback": True})
    with torch.no_grad(), pytest.warns(lathe.torch.LeftToTorch):
        torch.testing.assert_close(fast(torch.ones(4)), torch.tensor([9.0, 1, 1, 1]))
    assert module.sum.tolist() == [1, 1, 1, 1]


def test_inputs_that_are_written():
    """Through torch.compile too; arguments of one memory are refused, because the graph does not know."""
    torch._dynamo.reset()

    def writes(x, y):
        x.add_(y)
        return x * 2

    fast = torch.compile(writes, backend="lathe", dynamic=True)
    x, y = torch.ones(3), torch.arange(3.0)
    assert fast(x, y).tolist() == [2, 4, 6] and x.tolist() == [1, 2, 3]
    both = torch.zeros(6)
    assert fast(both[:3], both[3:]).tolist() == [0, 0, 0]
    with pytest.raises(lathe.Error, match="arguments . and . share memory, and the graph writes into it") as raised:
        fast(both[:4], both[2:])
    assert raised.value.code == lathe.Code.UNSUPPORTED
