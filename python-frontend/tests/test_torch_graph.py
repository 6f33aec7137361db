# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ExportedPrograms taken as they are: names, locations, sizes, writes, errors, passes, what is left to torch."""
import ctypes
import re

import numpy as np
import pytest

import lathe
from lathe import _compiler

torch = pytest.importorskip("torch")
import lathe.torch  # noqa: E402
from lathe.torch import _graph, _inplace  # noqa: E402

F = torch.nn.functional


class Block(torch.nn.Module):
    """Attention of two heads and a feed-forward layer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(8, 8) for _ in range(3))
        self.norm, self.dense = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        heads = [f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return x + F.gelu(self.dense(self.norm(y)))


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(1)
    return torch.nn.Sequential(Block(), Block()).eval()


def agrees(engine, module, *args, rtol=1e-4, atol=1e-5):
    with torch.no_grad():
        true = module(*args)
    got = [torch.from_numpy(v.numpy().copy()) for v in engine.run(list(args)).values()]
    for mine, expected in zip(got, true if isinstance(true, tuple) else (true,), strict=True):
        torch.testing.assert_close(mine, expected, rtol=rtol, atol=atol)


def test_names_and_sizes(block):
    rows, tokens = torch.export.Dim("rows", min=1, max=8), torch.export.Dim("tokens", min=2, max=32)
    engine = lathe.compile(block, args=(torch.randn(2, 5, 8),), dynamic_shapes=({0: rows, 1: tokens},), remarks=True)
    known = {symbol.name: (symbol.min, symbol.max, symbol.opt) for symbol in engine.symbols()}
    assert known == {"rows": (1, 8, 2), "tokens": (2, 32, 5)}
    for shape in ((1, 2, 8), (3, 7, 8)):
        agrees(engine, block, torch.randn(shape))
    # The path of a module is in the name of each node, and so with each kernel.
    context = engine.context()
    with context.profile() as profile:
        context.run([torch.randn(2, 5, 8)])
    names = " ".join(row.nodes for row in profile.rows)
    assert all(f"{at}.{part}/" in names for at in (0, 1) for part in ("query", "dense")), names


def test_nothing_is_decomposed(block):
    graph = lathe.torch.to_graph(block, (torch.randn(2, 5, 8),))
    for op, count in (("aten.linear", 8), ("aten.scaled_dot_product_attention", 2), ("aten.layer_norm", 2),
                      ("aten.gelu", 2)):
        assert graph.text.count(f'"{op}"') == count, op
    assert 'loc("0.query/linear"("torch/nn/modules/linear.py"' in graph.text
    assert list(graph.weights)[0] == "0.query.weight"
    assert graph.weights["0.query.weight"].data_ptr() == block[0].query.weight.data_ptr()


def test_through_onnx_it_is_the_same(block):
    x = torch.randn(2, 5, 8)
    agrees(lathe.compile(block, args=(x,), importer="onnx"), block, x)


def test_writes():
    class Plain(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            y.add_(1).mul_(3)
            return y + 1, F.relu(x - 1, inplace=True)

    class Through(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            y[:, 1:3] = 5
            F.dropout(y, 0.5, False).add_(1)  # which is y itself
            return y.clone()

    x = torch.randn(3, 4)
    for module, plain in ((Plain(), True), (Through(), False)):
        program = torch.export.export(module, (x,))
        assert _inplace.plain(program.graph) == plain
        agrees(lathe.compile(program), module, x)


def test_writes_into_inputs_are_refused():
    class Changes(torch.nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    with pytest.raises(lathe.Error, match="writes into its arguments: x") as raised:
        lathe.compile(Changes(), args=(torch.ones(2),))
    assert raised.value.code == lathe.Code.UNSUPPORTED


def test_all_that_is_unsupported_at_once():
    class Two(torch.nn.Module):
        def forward(self, x):
            a = torch.nonzero(x)  # FIRST
            b = torch.fft.fft(x).abs()  # SECOND
            return a, b

    with pytest.raises(lathe.Error) as raised:
        lathe.compile(Two(), args=(torch.ones(3, 2),))
    assert raised.value.code == lathe.Code.UNSUPPORTED
    assert "# FIRST" in raised.value.source and "# SECOND" in raised.value.source, raised.value


def test_what_torch_can_decompose():
    """An operator without a handler comes as torch's decomposition, and the others stay whole."""
    class Net(torch.nn.Module):
        def forward(self, x):
            return F.linear(torch.special.entr(x.abs() + 0.1), x)

    x = torch.randn(4, 4)
    graph = lathe.torch.to_graph(Net(), (x,))
    assert '"aten.linear"' in graph.text and '"aten.special_entr"' not in graph.text
    agrees(lathe.compile(Net(), args=(x,)), Net(), x)


def test_shared_constants_and_outputs():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4).t())  # not contiguous
            self.small = torch.nn.Buffer(torch.randn(4).bfloat16(), persistent=False)

        def forward(self, x):
            y = x @ self.weight + self.small.float() + torch.tensor([1.0, 2.0, 3.0, 4.0])
            return y, y, x, self.weight

    net, x = Net(), torch.randn(2, 4)
    agrees(lathe.compile(net, args=(x,)), net, x)


def test_weights_that_do_not_fit():
    """The C interface: a weight of another size, one that is missing, one twice, text that does not parse."""
    compiler = _compiler.library()
    text = ('func.func @main() -> (tensor<2xf32> {lathe.name = "y"}) attributes {lathe.entry} {\n'
            '  %0 = "aten.weight"() {name = "w"} : () -> tensor<2xf32>\n  return %0 : tensor<2xf32>\n}')
    data = np.ones(4, np.float32)

    def compiled(source, names, count):
        rows = (_compiler._Weight * max(len(names), 1))()
        for row, name in zip(rows, names):
            row.name, row.data, row.bytes = name, data.ctypes.data, count
        out, size = ctypes.c_void_p(), ctypes.c_size_t()
        compiler.lathe_compile_graph_to_memory(source.encode(), len(source), ctypes.cast(rows, ctypes.c_void_p),
                                               len(names), None, ctypes.byref(out), ctypes.byref(size))
        compiler.lathe_compile_free(out)

    compiled(text, [b"w"], 8)
    for source, names, count, message in ((text, [b"w"], 12, "has 12 bytes; its type needs 8"),
                                          (text, [b"v"], 8, "weight 'w': is not given"),
                                          (text, [b"w", b"w"], 8, "weight 'w': is given twice"),
                                          (text[:-1], [b"w"], 8, "graph"),
                                          (text.replace("main", "f"), [b"w"], 8, "'main'")):
        with pytest.raises(lathe.Error, match=re.escape(message)) as raised:
            compiled(source, names, count)
        assert raised.value.code == lathe.Code.INVALID
    with pytest.raises(lathe.Error, match="null"):
        compiler.lathe_compile_graph_to_memory(None, 0, None, 0, None, None, None)


def test_passes(block):
    x = torch.randn(2, 5, 8)
    merged = _graph.write(torch.export.export(block, (x,)), passes=[lathe.torch.merge_linears])
    assert merged.text.count('"aten.linear"') == 4 and merged.text.count('"aten.cat"') == 4
    agrees(lathe.compile(block, args=(x,), fx_passes=[lathe.torch.merge_linears]), block, x)
    near = lathe.compile(block, args=(x,), fx_passes=[lathe.torch.tanh_gelu])
    agrees(near, block, x, atol=2e-3)
    assert not np.array_equal(near.run([x])["add_1"].numpy(), lathe.compile(block, args=(x,)).run([x])["add_1"].numpy())
    agrees(lathe.compile(block, args=(x,), fx_passes=[lathe.torch.bfloat16_products]), block, x, rtol=0.1, atol=0.1)

    def fails(module):
        raise KeyError("something")

    with pytest.raises(lathe.Error, match="FX pass 'fails'.*something") as raised:
        lathe.compile(block, args=(x,), fx_passes=[fails])
    assert raised.value.code == lathe.Code.USAGE
    with pytest.raises(lathe.Error, match="fx_passes are for models of torch"):
        lathe.compile(b"", fx_passes=[fails])


class Partly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        y = F.relu(self.first(x))
        return self.second(torch.fft.fft(y).abs()) * 2


def test_fallback():
    torch._dynamo.reset()
    module, x = Partly().eval(), torch.randn(4, 6)
    with torch.no_grad():
        with pytest.raises(Exception, match="complex"):
            torch.compile(module, backend="lathe")(x)
        torch._dynamo.reset()
        fast = torch.compile(module, backend="lathe", options={"fallback": True})
        with pytest.warns(lathe.torch.LeftToTorch, match="complex") as caught:
            y = fast(x)
        assert any("between 2 engines" in str(w.message) for w in caught)
        torch.testing.assert_close(y, module(x), rtol=1e-4, atol=1e-4)
        module.second.weight.mul_(2)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-4)
        with pytest.raises(Exception, match="there is no option fast"):
            torch.compile(module, backend="lathe", options={"fast": True})(x)


def test_explain(block):
    told = lathe.torch.explain(block, (torch.randn(2, 5, 8),), seconds=0.05)
    assert told.operators > 20 and 0 < told.kernels <= told.operators and told.difference < 1e-4
    assert min(told.export_seconds, told.compile_seconds, told.eager_seconds, told.engine_seconds) > 0
    assert "breaks even" in str(told) and "breaks even" in told._repr_html_()
    refused = lathe.torch.explain(Partly(), (torch.randn(4, 6),))
    assert any("complex" in why for why in refused.refused.values()) and refused.break_even is None


class LayerDrop(torch.nn.Module):
    """As wav2vec2: a number is drawn in inference, too, where no layer is left out."""

    def forward(self, x):
        drawn = torch.rand([])
        return torch.zeros_like(x) if self.training and drawn < 0.5 else x + 1


def test_what_nobody_reads_is_left_out():
    program = torch.export.export(LayerDrop().eval(), (torch.ones(2),))
    # Some versions of torch leave it out themselves.
    draws = [node for node in program.graph.nodes if "rand" in str(node.target)]
    if not draws:
        with program.graph.inserting_before(program.graph.find_nodes(op="output")[0]):
            program.graph.call_function(torch.ops.aten.rand.default, ([],)).meta["val"] = torch.ones(())
    agrees(lathe.compile(program), LayerDrop().eval(), torch.ones(2))
