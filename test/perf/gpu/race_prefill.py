# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A prompt of a decoder of Llama-3-8B's sizes, from tokens to its first one: an engine over pages against torch.

`race_prefill.py FOLDER [LENGTH...] [ENGINE...]` needs a GPU, torch, python-frontend with the runtime library, and llama8b.lathe.gz
in the folder that `check_paged.py prepare` wrote, or NAME.lathe.gz of other builds, which take turns with it. Lengths are 512 and
2,048 tokens; the bar of 512 is 13 ms.

Both sides start with tokens on the host and end with the first token there; they take turns. Ours is a step of lathe_llm with
its schedule, blocks and upload; torch's is a CUDA graph of compiled layers (torch.compile), whose attention is
scaled_dot_product_attention and which write a static cache. Torch's layers share two sets of weights: a layer's are larger than
the cache, so that this makes no difference to its time.
"""
import statistics
import sys
import time

from profile_steps import load

BAR_MS = {512: 13.0}
WIDTH, INNER, LAYERS, HEADS, GROUPS, WORDS, HEAD = 4096, 14336, 32, 32, 8, 128256, 128


class Torch:
    """A prompt's first token by torch."""

    def __init__(self, length):
        import torch
        import torch.nn.functional as F
        torch.manual_seed(1)

        def weight(*dims):
            return torch.randn(*dims, device="cuda", dtype=torch.bfloat16) / dims[-1] ** 0.5
        sets = [{"qkv": weight((HEADS + 2 * GROUPS) * HEAD, WIDTH), "o": weight(WIDTH, HEADS * HEAD),
                 "gate": weight(INNER, WIDTH), "up": weight(INNER, WIDTH), "down": weight(WIDTH, INNER)} for _ in range(2)]
        ones, embed, head = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16), weight(WORDS, WIDTH), weight(WORDS, WIDTH)
        rates = 500000.0 ** (-torch.arange(HEAD // 2, device="cuda") / (HEAD // 2))
        angles = torch.arange(length, device="cuda")[:, None] * rates
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        cache = torch.zeros(2, LAYERS, GROUPS, length, HEAD, device="cuda", dtype=torch.bfloat16)

        def rotated(x):
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        def layer(x, qkv, o, gate, up, down, keys, values):
            y = F.rms_norm(x, (WIDTH,), ones, 1e-5)
            q, k, v = (y @ qkv.T).view(length, HEADS + 2 * GROUPS, HEAD).transpose(0, 1).split([HEADS, GROUPS, GROUPS])
            keys.copy_(rotated(k))
            values.copy_(v)
            a = F.scaled_dot_product_attention(rotated(q)[None], keys[None], values[None], is_causal=True, enable_gqa=True)
            x = x + a[0].transpose(0, 1).reshape(length, -1) @ o.T
            y = F.rms_norm(x, (WIDTH,), ones, 1e-5)
            return x + (F.silu(y @ gate.T) * (y @ up.T)) @ down.T

        fast = torch.compile(layer, dynamic=False)

        def run():
            x = embed[self.ids]
            for n in range(LAYERS):
                x = fast(x, *sets[n % 2].values(), cache[0, n], cache[1, n])
            return (F.rms_norm(x[-1:], (WIDTH,), ones, 1e-5) @ head.T).argmax(-1)

        self.ids, self.host = torch.zeros(length, dtype=torch.int64, device="cuda"), torch.arange(length).pin_memory()
        with torch.no_grad():
            for _ in range(2):
                run()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.best = run()

    def once(self):
        self.ids.copy_(self.host, non_blocking=True)
        self.graph.replay()
        return int(self.best)


class Ours:
    def __init__(self, engine, length):
        self.length, self.salt = length, 0
        self.llm = engine.llm("cuda:0", max_requests=2, kv_bytes=2 << 30, max_sequence_tokens=2 * length,
                              max_step_tokens=length, prefix_cache=False)

    def once(self):
        self.salt += 1
        answer = self.llm.submit([(n * 17 + self.salt * 7 + 3) % 500 for n in range(self.length)], 1)[0]
        begin = time.perf_counter()
        self.llm.step()
        took = time.perf_counter() - begin
        assert answer.finish == "length"
        return took


def main(folder, *arguments):
    import torch
    torch.cuda.init()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    lengths = [int(a) for a in arguments if a.isdigit()] or [512, 2048]
    engines = {name: load(folder, name) for name in [a for a in arguments if not a.isdigit()] or ["llama8b"]}
    bad = 0
    for length in lengths:
        ours, theirs = {name: Ours(engine, length) for name, engine in engines.items()}, Torch(length)
        times = {name: [] for name in [*ours, "torch"]}
        for i in range(16):
            for name, one in ours.items():
                times[name].append(one.once() * 1e3)
            begin = time.perf_counter()
            theirs.once()
            times["torch"].append((time.perf_counter() - begin) * 1e3)
        t = {name: statistics.median(v[4:]) for name, v in times.items()}
        for name in ours:
            above = t[name] > BAR_MS.get(length, 1e9)
            bad += above
            print(f"a prompt of {length:5} tokens: {name:12} {t[name]:8.3f} ms  torch {t['torch']:8.3f} ms  ({t['torch'] / t[name]:.3f} x)"
                  + (f"  bar {BAR_MS[length]:.1f}{'  ABOVE' if above else ''}" if length in BAR_MS else ""), flush=True)
        del ours, theirs, one
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
