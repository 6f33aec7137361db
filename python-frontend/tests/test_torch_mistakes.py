# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is wrong with models and tensors of torch is a typed error that says where, or torch's own of the kind; never
other values and never a crash."""
import re

import numpy as np
import pytest

import lathe

torch = pytest.importorskip("torch")
import lathe.torch  # noqa: E402

Code = lathe.Code


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Breaks(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        torch._dynamo.graph_break()  # HERE
        return y + 1


class Branches(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1  # HERE


class Reads(torch.nn.Module):
    def forward(self, x):
        return x * x.sum().item()  # HERE


@pytest.fixture(scope="module")
def context():
    torch.manual_seed(1)
    return lathe.compile(Linear().eval(), args=(torch.ones(2, 4),)).context()


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("module", [Breaks, Branches, Reads])
def test_what_no_graph_has(module):
    """Dynamo breaks there: torch runs what is between two engines. As one graph it is an error at the line."""
    x = torch.arange(3.0)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module(), backend="lathe")(x), module()(x))
        torch._dynamo.reset()
        with pytest.raises((lathe.Error, torch._dynamo.exc.Unsupported)) as raised:
            torch.compile(module(), backend="lathe", fullgraph=True)(x)
    assert "test_torch_mistakes.py" in str(raised.value) and "# HERE" in str(raised.value)


@pytest.mark.parametrize("module", [Branches, Reads])
def test_what_torch_cannot_export(module):
    with pytest.raises(lathe.Error) as raised:
        lathe.compile(module(), args=(torch.ones(3),))
    assert raised.value.code == Code.UNSUPPORTED and raised.value.location
    assert "test_torch_mistakes.py" in str(raised.value)


def emptied(*shape):
    """A tensor whose memory has been given back."""
    tensor = torch.ones(shape)
    tensor.untyped_storage().resize_(0)
    return tensor


WRONG = {
    "meta": (lambda: torch.ones(2, 4, device="meta"), Code.USAGE, "meta"),
    "dtype": (lambda: torch.ones(2, 4, dtype=torch.float64), Code.USAGE, "element type is f64, expected f32"),
    "rank": (lambda: torch.ones(4), Code.USAGE, "rank is 1, expected 2"),
    "size": (lambda: torch.ones(3, 4), Code.RUNTIME_FAILURE, "axis 0 has size 3, expected 2"),
    "freed": (lambda: emptied(2, 4), Code.USAGE, "there is no data"),
    "gradient": (lambda: torch.ones(2, 4, requires_grad=True), Code.USAGE, "detach"),
    "sparse": (lambda: torch.eye(4)[:2].to_sparse(), Code.USAGE, "layout"),
    "conjugate": (lambda: torch.ones(2, 4, dtype=torch.complex64).conj(), Code.USAGE, "conjugate"),
    "none": (lambda: None, Code.USAGE, "there is no value"),
    "text": (lambda: "x", Code.USAGE, "it is no array of f32"),
    "ragged": (lambda: [[1.0], [1.0, 2.0]], Code.USAGE, "it is no array of f32"),
}


@pytest.mark.parametrize("case", WRONG)
def test_inputs(context, case):
    make, code, message = WRONG[case]
    with pytest.raises(lathe.Error, match=re.escape(message)) as raised:
        context.run([make()])
    assert raised.value.code == code and raised.value.location == "input 'x'"
    assert list(context.run([torch.ones(2, 4)]).values())[0].numpy().shape == (2, 4)  # it is as good as before


VIEWS = {"transposed": lambda: torch.randn(4, 2).t(), "expanded": lambda: torch.randn(1, 4).expand(2, 4),
         "inner": lambda: torch.randn(5, 9)[1:5:2, 2:6], "negative": lambda: torch._neg_view(torch.randn(2, 4))}


@pytest.mark.parametrize("case", VIEWS)
def test_views_are_read_as_they_are(case):
    torch.manual_seed(1)
    module, x = Linear().eval(), VIEWS[case]()
    with torch.no_grad():
        true = module(x)
        got = list(lathe.compile(module, args=(torch.ones(2, 4),)).run([x]).values())[0]
        np.testing.assert_allclose(got.numpy(), true.numpy(), rtol=1e-5, atol=1e-6)
        fast = torch.compile(module, backend="lathe")
        torch.testing.assert_close(fast(torch.ones(2, 4)), module(torch.ones(2, 4)), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(fast(x), true, rtol=1e-5, atol=1e-6)


def test_other_types_are_compiled_anew():
    fast = torch.compile(torch.nn.ReLU(), backend="lathe")
    for dtype in (torch.float32, torch.float64, torch.int32):
        assert fast(torch.tensor([-1, 2], dtype=dtype)).tolist() == [0, 2]


def test_arguments_of_compiled_modules():
    module = Linear().eval()
    fast = torch.compile(module, backend="lathe")
    with torch.no_grad():
        fast(torch.ones(2, 4))
        with pytest.raises(lathe.Error, match="input '.*x.*': there is no data") as raised:
            fast(emptied(2, 4))
        assert raised.value.code == Code.USAGE
        for call, message in ((lambda: torch.compile(Linear().to("meta"), backend="lathe")(
                                   torch.ones(2, 4, device="meta")), "an argument is on meta"),
                              (lambda: torch.compile(lambda x, y: x.sum() + y.sum(), backend="lathe")(
                                   torch.ones(2, 3), torch.ones(2, 3, device="meta")), "several devices: cpu, meta"),
                              (lambda: torch.compile(lambda x: x * 2, backend="lathe")(
                                   torch.ones(2, dtype=torch.complex64)), "tensors of complex64")):
            with pytest.raises(lathe.Error, match=message) as raised:
                call()
            assert raised.value.code == Code.UNSUPPORTED and raised.value.location


def test_weights():
    freed = Linear()
    freed.inner.weight.data.untyped_storage().resize_(0)
    short = Linear()
    short.inner.weight.data.untyped_storage().resize_(8)
    with torch.device("meta"):
        meta = Linear()
    for module, device, message in ((freed, "cpu", "its memory has been freed"),
                                    (short, "cpu", "its memory has been freed"),
                                    (meta, "meta", "it is on the device meta, without values")):
        with pytest.raises(lathe.Error, match=f"weight 'inner.weight': {message}") as raised:
            lathe.compile(module, args=(torch.ones(2, 4, device=device),))
        assert raised.value.code == Code.USAGE
