# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch.compile(backend="lathe"): what engines keep of parameters follows every change of them."""
import threading

import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")
import lathe.torch  # noqa: E402


class Net(torch.nn.Module):
    """Weights that kernels read packed (a product, Winograd's filters), computed (the norm's scale) and as they lie."""

    def __init__(self):
        super().__init__()
        self.filters = torch.nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(32)
        self.head = torch.nn.Linear(32, 10)
        self.shift = torch.nn.Parameter(torch.randn(10))
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = torch.relu(self.norm(self.filters(x)))
        return self.head(x.mean((2, 3))) + self.shift


class Case:
    def __init__(self, **options):
        torch._dynamo.reset()
        torch.manual_seed(5)
        self.net, self.made = Net().eval(), []
        self.fast = torch.compile(self.net, backend=self._backend, dynamic=True)
        self._options = options
        self.x = torch.randn(2, 16, 12, 12)
        self.check()

    def _backend(self, module, examples):
        self.made.append(lathe.torch.backend(module, examples, self._options))
        return self.made[-1]

    def check(self):
        with torch.no_grad():
            expected, got = self.net(self.x), self.fast(self.x)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)

    @property
    def changes(self):
        return sum(p.changes for graph in self.made for p in graph._made())


@pytest.fixture(scope="module")
def case():
    """One for all tests: each leaves it with parameters of its own."""
    return Case()


def test_packed_once(case):
    before = case.changes
    for rows in (2, 5, 3):
        case.x = torch.randn(rows, 16, 12, 12)
        case.check()
    assert case.changes - before <= 1 and len(case.made) == 1
    # The filters transformed (16 points for 9 taps), and the linear's weights in panels, at least.
    assert case.made[0].prepared_bytes >= 4 * (16 * 16 * 32 + 32 * 10)


def counted(net):
    with torch.no_grad():
        net.filters.weight.mul_(1.5)
        net.head.bias.add_(1)


def load(net):
    net.load_state_dict(Net().state_dict())


def optimizer(net):
    step = torch.optim.SGD(net.parameters(), lr=0.1)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    step.step()
    step.zero_grad()


def adam_foreach(net):
    step = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=True)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    step.step()
    step.zero_grad()


def assign_data(net):
    for p in net.parameters():
        p.data = torch.randn_like(p)


def write_data(net):
    for p in net.parameters():
        p.data.mul_(0.5)


def swap(net):
    net.filters.weight = torch.nn.Parameter(torch.randn(32, 16, 3, 3))
    net.head.weight = torch.nn.Parameter(torch.randn(10, 32))


def swap_sharing(net):
    """Another parameter over the same memory, with a count of versions of its own."""
    net.head.weight = torch.nn.Parameter(net.head.weight.data)
    with torch.no_grad():
        net.head.weight.mul_(3)


def buffers(net):
    net.norm.running_var.mul_(4)
    net.norm.running_mean = torch.randn(32)


def numpy_view(net):
    net.head.weight.detach().numpy()[:] *= 2


def detached(net):
    net.filters.weight.detach().mul_(2)
    net.filters.weight.detach().view(-1)[5] = 40


CHANGES = [counted, load, optimizer, adam_foreach, assign_data, write_data, swap, swap_sharing, buffers, numpy_view,
           detached]


@pytest.mark.parametrize("change", CHANGES)
def test_never_stale(case, change):
    with torch.no_grad():
        before = case.fast(case.x)
    for _ in range(2):
        changes = case.changes
        change(case.net)
        case.check()
        case.check()
        assert case.changes == changes + 1
    with torch.no_grad():
        assert not torch.allclose(case.fast(case.x), before)
    load(case.net)


def test_memory_that_is_given_out_again(case):
    """Nothing else can get the memory of a parameter that is held, so that an equal address means equal memory."""
    for _ in range(10):
        case.net.head.weight.data = torch.randn(10, 32)
        case.net.head.weight.data = torch.randn(10, 32)
        case.check()


def test_one_element_behind_torchs_back(case):
    """What the class says goes unseen, and what it says to do."""
    case.net.filters.weight.data.view(-1)[1234] = 50
    lathe.torch.refresh()
    case.check()
    case.net.filters.weight.data.view(-1)[2345] = -50
    case.made[0].refresh()
    case.check()


def test_filters_that_lie_another_way():
    torch._dynamo.reset()
    net = Net().eval().to(memory_format=torch.channels_last)
    fast = torch.compile(net, backend="lathe", dynamic=True)
    x = torch.randn(2, 16, 8, 8)
    with torch.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)
            net.filters.weight.data.mul_(2)
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)
            net.filters.weight.add_(1)


def test_parameters_without_a_count():
    """Tensors made in inference_mode have no count of versions: nothing is kept of them."""
    torch._dynamo.reset()
    with torch.inference_mode():
        net = Net().eval()
    fast, x = torch.compile(net, backend="lathe", dynamic=True), torch.randn(2, 16, 8, 8)
    with torch.inference_mode():
        for _ in range(3):
            np.testing.assert_allclose(fast(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)
            net.filters.weight.view(-1)[77] += 1
            net.head.weight.view(-1)[7] += 1


def test_without_preparing():
    case = Case(prepare=False)
    case.check()
    assert case.made[0].prepared_bytes == 0 and case.changes == 0
    case.net.filters.weight.data.view(-1)[1234] = 50
    case.check()


def test_threads(case):
    """Calls of several threads behind a change all see it, and one of them makes it."""
    case.check()
    changes = case.changes
    case.net.filters.weight.data.mul_(2)
    with torch.no_grad():
        expected = case.net(case.x)
    wrong = []

    def run():
        with torch.no_grad():
            for _ in range(20):
                if not torch.allclose(case.fast(case.x), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and case.changes == changes + 1


def test_other_sizes_are_an_error(case):
    case.check()
    parameters = case.made[0]._made()[0]
    given = list(parameters._held)
    at = next(i for i, p in enumerate(given) if p is case.net.filters.weight)
    given[at] = torch.randn(32, 16, 3, 4)
    with pytest.raises(lathe.Error, match=r"(?s)filters.*of \(32, 16, 3, 4\) now"):
        parameters.changed(tuple(given))
    case.check()  # nothing is kept of the failure
