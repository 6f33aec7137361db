# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lathe.torch.export: models of transformers as engines in one call."""
import warnings

import pytest

import lathe

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import lathe.torch  # noqa: E402
from lathe.torch._pretrained import _axes, _worst  # noqa: E402

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", lathe.torch.FixedSizes)
        yield


def tokens(*shape):
    return torch.randint(3, 99, shape)


def test_names_and_any_sizes():
    model = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    engine = lathe.torch.export(model, inputs={"input_ids": tokens(2, 7), "attention_mask": torch.ones(2, 7).long()})
    assert [(p.name, p.dims) for p in engine.inputs()] == [("input_ids", ("batch", "length")),
                                                           ("attention_mask", ("batch", "length"))]
    assert [p.name for p in engine.outputs()] == ["last_hidden_state", "pooler_output"]
    for shape in ((1, 1), (3, 12)):
        given = {"input_ids": tokens(*shape), "attention_mask": torch.ones(shape).long()}
        with torch.no_grad():
            true = model(**given)
        for name, value in engine.run(given).items():
            torch.testing.assert_close(torch.from_numpy(value.numpy()), true[name], rtol=1e-3, atol=1e-4)


def test_an_encoder_and_a_decoder_have_lengths_of_their_own():
    axes = _axes({"input_ids": tokens(2, 5), "attention_mask": tokens(2, 5), "decoder_input_ids": tokens(2, 5),
                  "pixels": torch.ones(2, 3, 8, 8), "scale": torch.tensor(1.0), "other": tokens(2, 6)})
    batch, length = {0: "batch"}, {0: "batch", 1: "length"}
    assert axes == [length, length, {0: "batch", 1: "decoder_length"}, batch, {}, {0: "batch", 1: "length_1"}]


def test_a_decoder_generates(tmp_path):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2)).eval()
    lathe.torch.export(model, tmp_path / "llama.lathe", paged=True)
    llm = lathe.load(tmp_path / "llama.lathe").llm()
    prompts = [[5, 6, 7], [8], list(range(10, 27))]
    answers = [llm.submit(prompt, 6)[0] for prompt in prompts]
    llm.run()
    for prompt, answer in zip(prompts, answers, strict=True):
        true = model.generate(torch.tensor([prompt]), max_new_tokens=6, min_new_tokens=6, do_sample=False,
                              pad_token_id=0, eos_token_id=[], bos_token_id=1)
        assert answer.tokens == true[0, len(prompt):].tolist()


class Squares(torch.nn.Module):
    """Takes lengths apart in a way that is a number for torch."""

    def forward(self, x):
        if int(x.shape[1] ** 0.5) ** 2 != x.shape[1]:
            raise ValueError("no square")
        side = int(x.shape[1] ** 0.5)
        return {"y": x.view(x.shape[0], side, side).transpose(1, 2)}


def test_sizes_that_cannot_vary_are_said():
    with pytest.warns(lathe.torch.FixedSizes, match="the example's length 9, because: what the model does"):
        engine = lathe.torch.export(Squares().eval(), inputs={"x": torch.randn(2, 9)})
    assert engine.inputs()[0].dims == ("batch", "9") and engine.outputs()[0].name == "y"


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


class OfData(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize(("model", "options", "code", "said"), [
    (Squares(), {"inputs": {"x": torch.ones(2, 9)}}, 2, "call model.eval"),
    (Squares().eval(), {}, 2, "traced with examples"),
    (Squares().eval(), {"inputs": {"x": [1.0]}}, 2, "traced with examples"),
    (Squares().eval(), {"inputs": {"x": torch.ones(2, 8)}}, 2, "does not run on the examples: no square"),
    (Squares().eval(), {"paged": True}, 4, "no keys and values by layer"),
    (Squares().eval(), {"paged": True, "inputs": {"x": torch.ones(2, 9)}}, 2, "no examples are taken"),
    (lambda x: x, {"inputs": {"x": torch.ones(2)}}, 2, "not function"),
    (Unknown().eval(), {"inputs": {"x": torch.ones(2, 3)}}, 4, "linalg"),
    (OfData().eval(), {"inputs": {"x": torch.ones(2, 3)}}, 4,
     "no way of exporting it is taken:\n  any sizes: torch.export"),
])
def test_mistakes(model, options, code, said):
    with pytest.raises(lathe.Error, match=said) as caught:
        lathe.torch.export(model, **options)
    assert caught.value.code == code


def test_results_are_held_against_the_model():
    with pytest.raises(lathe.Error, match="differ from the model's by"):
        lathe.torch.export(torch.nn.Linear(64, 8).eval(), inputs={"input": torch.randn(2, 9, 64)}, tolerance=0)


def test_nan_is_no_agreement():
    nan, inf = float("nan"), float("inf")
    true = {"y": torch.tensor([1.0, nan, inf, 4.0])}
    assert _worst({"y": torch.tensor([1.0, nan, inf, 4.0])}, true) == 0
    assert _worst({"y": torch.tensor([nan, nan, inf, 4.0])}, true) == inf
    assert _worst({"y": torch.tensor([1.0, nan, inf, 3.0])}, true) == 0.25
