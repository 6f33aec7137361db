# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Many requests of tokens on one engine of a paged decoder."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, c_float, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from ._abi import LLM_COUNTERS, CLlmCounters, CLlmLogprobs, CLlmOptions, CLlmRequest, CLlmResult, CLlmTenant

if TYPE_CHECKING:
    from ._engine import Engine

FINISHES = ("", "length", "stop", "cancelled", "failed")


class TokenLogprobs(NamedTuple):
    """Natural logarithms of probabilities by the model's own logits: of the token that is there,
    how many tokens are likelier plus one, and {token: logprob} of the likeliest, in that order."""

    logprob: float
    rank: int
    top: dict[int, float]


class Answer:
    """One answer to a prompt; it grows with each step."""

    def __init__(self, llm: Llm, number: int, prompt_length: int) -> None:
        self.id = number
        self._llm, self._prompt_length = llm, prompt_length

    def __del__(self) -> None:
        if self._llm._handle:
            self._llm._library.lathe_llm_release(self._llm._handle, self.id)

    def _result(self) -> CLlmResult:
        result = CLlmResult()
        self._llm._library.lathe_llm_result_of(self._llm._handle, self.id, byref(result))
        return result

    @property
    def tokens(self) -> list[int]:
        result = self._result()
        return [result.tokens[i] for i in range(result.token_count)]

    @property
    def finish(self) -> str:
        """"length", "stop", "cancelled" or "failed"; "" while it is not finished."""
        return FINISHES[self._result().finish]

    def cancel(self) -> None:
        """Ends it; its tokens stay."""
        self._llm._library.lathe_llm_cancel(self._llm._handle, self.id)

    def _logprobs(self, of_prompt: int, index: int) -> TokenLogprobs:
        one = CLlmLogprobs()
        self._llm._library.lathe_llm_logprobs_of(self._llm._handle, self.id, of_prompt, index,
                                                 byref(one))
        top = {one.top[i].token: one.top[i].logprob for i in range(one.top_count)}
        return TokenLogprobs(one.logprob, one.rank, top)

    def logprobs(self) -> list[TokenLogprobs]:
        """Of each token of the answer, where `submit` was asked for them."""
        return [self._logprobs(0, i) for i in range(self._result().token_count)]

    def prompt_logprobs(self) -> list[TokenLogprobs]:
        """Of each token of the prompt but the first."""
        return [self._logprobs(1, i) for i in range(1, self._prompt_length)]


def _numbers(kind: Any, values: Sequence[Any]) -> Any:
    return (kind * len(values))(*values) if values else None


class Llm:
    """Requests on one device, with one pool of keys and values. One thread at a time may use it."""

    def __init__(self, engine: Engine, device: str, options: CLlmOptions) -> None:
        self._library, self._handle = engine._library, c_void_p()
        options.size = sizeof(CLlmOptions)
        self._library.lathe_llm_create(engine._handle, device.encode(), byref(options),
                                       byref(self._handle))

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.lathe_llm_destroy(handle)

    def submit(self, tokens: Sequence[int], max_tokens: int = 16, *, samples: int = 1,
               stop_tokens: Sequence[int] = (), min_tokens: int = 0, temperature: float = 0.0,
               top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, seed: int = 0,
               repetition_penalty: float = 1.0, presence_penalty: float = 0.0,
               frequency_penalty: float = 0.0, logit_bias: Mapping[int, float] | None = None,
               allowed_tokens: Sequence[int] | None = None, logprobs: int | None = None,
               prompt_logprobs: bool = False, priority: int = 0, tenant: int = 0) -> list[Answer]:
        """Queues a prompt; returns its `samples` answers. A request ends with its Answer.

        lathe_llm.h says what each argument means, and in which order they are applied. `logprobs`:
        of the answer's tokens and of so many likeliest ones, at most 20.
        """
        bias = dict(logit_bias or {})
        request = CLlmRequest(
            sizeof(CLlmRequest), max_tokens, _numbers(c_uint32, tokens), len(tokens),
            _numbers(c_uint32, stop_tokens), len(stop_tokens), temperature, top_p, top_k, seed,
            min_p, repetition_penalty, presence_penalty, frequency_penalty,
            _numbers(c_uint32, list(bias)), _numbers(c_float, list(bias.values())), len(bias))
        if allowed_tokens is not None:
            words = [0] * (max(allowed_tokens, default=0) // 32 + 1)
            for token in allowed_tokens:
                words[token // 32] |= 1 << token % 32
            request.allowed, request.allowed_words = _numbers(c_uint32, words), len(words)
        request.min_tokens, request.samples = min_tokens, samples
        request.logprobs, request.prompt_logprobs = logprobs is not None, prompt_logprobs
        request.top_logprobs, request.priority, request.tenant = logprobs or 0, priority, tenant
        number = c_uint64()
        self._library.lathe_llm_submit(self._handle, byref(request), byref(number))
        return [Answer(self, number.value + i, len(tokens)) for i in range(max(samples, 1))]

    def step(self) -> int:
        """The next token of each request that has one coming; returns how many are unfinished."""
        unfinished = c_size_t()
        self._library.lathe_llm_step(self._handle, byref(unfinished))
        return unfinished.value

    def run(self) -> None:
        """Steps until all requests are finished."""
        while self.step():
            pass

    def generate(self, tokens: Sequence[int], max_tokens: int = 16, **options: Any) -> list[int]:
        """The answer to one prompt; see submit."""
        answer = self.submit(tokens, max_tokens, **options)[0]
        while not answer.finish:
            self.step()
        return answer.tokens

    def set_tenant(self, tenant: int, *, weight: float = 1.0, max_requests: int = 0,
                   max_tokens: int = 0) -> None:
        """A share of the tokens beside other tenants, and what may run at once (0: no limit)."""
        options = CLlmTenant(sizeof(CLlmTenant), max_requests, max_tokens, weight)
        self._library.lathe_llm_set_tenant(self._handle, tenant, byref(options))

    def counters(self) -> dict[str, int]:
        """Sums since this Llm was made, and what waits, runs and is held now."""
        found = CLlmCounters(sizeof(CLlmCounters))
        self._library.lathe_llm_get_counters(self._handle, ctypes.byref(found))
        return {name: getattr(found, name) for name in LLM_COUNTERS}
