# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of the transformers library with weights of their own, taken from torch as they are."""
import pytest

import lathe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import lathe.torch  # noqa: E402

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
AUTO = torch.export.Dim.AUTO


def check(model, examples, sizes, others):
    """The engine for any of its sizes against torch: of the example's and of others."""
    torch.manual_seed(2)
    model = model.eval()
    program = torch.export.export(model, (), examples, dynamic_shapes=sizes)
    engine = lathe.compile(program)
    for given in (examples, others):
        with torch.no_grad():
            true = model(**given)
        got = engine.run({k: v for k, v in given.items() if isinstance(v, torch.Tensor)})
        first = torch.from_numpy(next(iter(got.values())).numpy())
        torch.testing.assert_close(first, true[0], rtol=1e-3, atol=1e-4)


def tokens(*shape):
    return torch.randint(0, 99, shape)


def test_bert():
    sizes = {"input_ids": {0: AUTO, 1: AUTO}, "attention_mask": {0: AUTO, 1: AUTO}}
    given = [{"input_ids": tokens(*shape), "attention_mask": (torch.arange(shape[1]) < 9).long().expand(shape)}
             for shape in ((2, 16), (3, 11))]
    check(transformers.BertModel(transformers.BertConfig(**SMALL)), given[0], sizes, given[1])


def test_llama():
    model = transformers.LlamaModel(transformers.LlamaConfig(**SMALL, num_key_value_heads=2))
    sizes = {"input_ids": {0: AUTO, 1: AUTO}, "use_cache": None}
    check(model, {"input_ids": tokens(2, 16), "use_cache": False}, sizes,
          {"input_ids": tokens(3, 7), "use_cache": False})


def test_resnet():
    model = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2]))
    check(model, {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: AUTO}},
          {"pixel_values": torch.randn(5, 3, 32, 32)})


class Masked(torch.nn.Module):
    def __init__(self, first, mask):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=first, activation="gelu")
        self.mask = mask

    def forward(self, x):
        return self.layer(x, src_key_padding_mask=self.mask)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("mask", [None, torch.arange(6) > torch.tensor([[3], [5]])], ids=["whole", "masked"])
def test_transformer_of_torch(first, mask):
    """In inference torch.nn calls an operator of its own for a whole layer."""
    torch._dynamo.reset()
    torch.manual_seed(3)
    net, x = Masked(first, mask).eval(), torch.randn(2, 6, 16)
    with torch.no_grad():
        true = net(x)
        got = torch.compile(net, backend="lathe", fullgraph=True)(x)
    rows = torch.ones(2, 6, dtype=torch.bool) if mask is None else ~mask  # what stands for padding says nothing
    torch.testing.assert_close(got[rows], true[rows], rtol=1e-4, atol=1e-5)


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a graph is compiled once and runs fast slow not".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "vocab.txt"
    path.write_text("\n".join(WORDS))
    return transformers.BertTokenizer(str(path))


ONE_LAYER = {**SMALL, "num_hidden_layers": 1}
PIPELINES = {
    "text-classification": (
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**ONE_LAYER)),
        ["a graph is compiled once", "runs fast", "a graph is not slow and runs"], {}),
    "text-generation": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=len(WORDS), n_embd=32, n_layer=1, n_head=4, n_positions=64, bos_token_id=2, eos_token_id=3)),
        ["a graph is"], {"max_new_tokens": 5, "do_sample": False, "suppress_tokens": [0, 1, 2, 3, 4]})}


@pytest.mark.parametrize("task", PIPELINES)
def test_pipelines(tokenizer, task):
    """One line: the model's forward is compiled."""
    torch._dynamo.reset()
    torch.manual_seed(5)
    make, texts, options = PIPELINES[task]
    pipe = transformers.pipeline(task, model=make().eval(), tokenizer=tokenizer, device="cpu")
    true = pipe(texts, **options)
    graphs = []

    def counted(graph, examples):
        graphs.append(lathe.torch.backend(graph, examples))
        return graphs[-1]

    pipe.model.forward = torch.compile(pipe.model.forward, backend=counted, dynamic=True)
    got = pipe(texts, **options)
    # Of a model that generates: the prompt, and the steps of any length.
    assert [len(graph.contexts) for graph in graphs] == [1] * (2 if task == "text-generation" else 1)
    if task == "text-generation":
        assert got == true and len(got[0][0]["generated_text"]) > len(texts[0])
    else:
        for mine, other in zip(got, true, strict=True):
            assert mine["label"] == other["label"] and abs(mine["score"] - other["score"]) < 1e-5
