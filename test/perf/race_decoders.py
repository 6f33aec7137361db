# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races lathe's paged decoder against other runtimes on the CPU: prompts, one stream, many streams.

    race_decoders.py [--model small|qwen3-0.6b] [--runtimes NAME,...] [--threads N] [--rounds N] [--report FILE]
    race_decoders.py --drawn FOLDER ...    on a machine that cannot export, each runtime with weights that are drawn there

The model has the shapes of Qwen3 and seeded weights in f32, so that all compute in one precision: transformers makes it
(build/models/race/NAME), torch exports it for lathe, the builder of onnxruntime-genai for that, the package gguf writes
it for llama.cpp. A runtime
is a process of its own and is stopped while others have their turn. In a round each does the whole of a task, the
first one rotating; a ratio is taken within a round, and a row's is the median over the rounds, whose number is fixed
before the first. Greedy tokens are compared with those of transformers before anything is timed: who has others up to
the first that is not sure takes no part. Runtimes that are not installed are named, and left out.
`onnxruntime` runs the graph of onnxruntime-genai's builder by itself. With --drawn that graph, if it is to take part, lies
in FOLDER/MODEL/genai, weights differ, and no tokens are compared.
"""
import argparse
import collections
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "test", "models"), os.path.join(ROOT, "python-frontend"), os.path.join(HERE, "gpu")]

MODELS = {
    "small": dict(vocab_size=2048, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=8,
                  num_key_value_heads=4, head_dim=32),
    "qwen3-0.6b": dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                       num_attention_heads=16, num_key_value_heads=8, head_dim=128),
}
# name: streams, tokens of a prompt, tokens of an answer
TASKS = {"prefill": (1, 512, 1), "one stream": (1, 32, 64), "16 streams": (16, 32, 64)}
RUNTIMES = {"lathe": "", "transformers": "transformers", "onnxruntime-genai": "onnxruntime_genai",
            "onnxruntime": "onnxruntime", "llama-cpp-python": "llama_cpp"}
MOST, GAP, CHECKED = 1024, 3e-3, 12
LLAMA_BATCH = 512  # tokens of a call
# Of a layer and of the whole, as llama.cpp names what transformers does.
GGUF_LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
              "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GGUF_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def prompts_of(vocabulary, streams, length, seed):
    return np.random.default_rng(seed).integers(0, vocabulary, (streams, length)).tolist()


class Lathe:
    def __init__(self, folder, threads):
        import lathe
        sizes = MODELS[os.path.basename(folder)]
        token = 2 * 4 * sizes["num_hidden_layers"] * sizes["num_key_value_heads"] * sizes["head_dim"]  # bytes
        self.llm = lathe.load(f"{folder}/model.lathe").llm(
            threads=threads, kv_bytes=2 * MOST * token, max_sequence_tokens=MOST, max_step_tokens=512, max_requests=16,
            prefix_cache=False)

    def generate(self, prompts, count):
        answers = [self.llm.submit(prompt, count)[0] for prompt in prompts]
        self.llm.run()
        return [answer.tokens for answer in answers]


class Transformers:
    def __init__(self, folder, threads):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(threads)
        self.torch = torch
        if os.path.exists(f"{folder}/hf"):
            self.model = AutoModelForCausalLM.from_pretrained(f"{folder}/hf", dtype=torch.float32).eval()
        else:
            self.model = AutoModelForCausalLM.from_config(config_of(os.path.basename(folder)), dtype=torch.float32).eval()

    def generate(self, prompts, count):
        ids = self.torch.tensor(prompts)
        with self.torch.no_grad():
            found = self.model.generate(ids, attention_mask=self.torch.ones_like(ids), do_sample=False,
                                        min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
        return found[:, ids.shape[1]:].tolist()


class OnnxruntimeGenai:
    def __init__(self, folder, threads):
        import onnxruntime_genai
        self.og = onnxruntime_genai
        with open(f"{folder}/genai/genai_config.json") as f:
            config = json.load(f)
        config["model"]["decoder"].setdefault("session_options", {})["intra_op_num_threads"] = threads
        with open(f"{folder}/genai/genai_config.json", "w") as f:
            json.dump(config, f)
        self.model = self.og.Model(f"{folder}/genai")

    def generate(self, prompts, count):
        length = len(prompts[0]) + count
        params = self.og.GeneratorParams(self.model)
        params.set_search_options(batch_size=len(prompts), max_length=length, min_length=length, do_sample=False)
        generator = self.og.Generator(self.model, params)
        generator.append_tokens(np.asarray(prompts, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        return [list(map(int, generator.get_sequence(i)))[len(prompts[0]):] for i in range(len(prompts))]


class Onnxruntime:
    """What onnxruntime-genai does with its graph: caches of the greatest length, written in place."""

    def __init__(self, folder, threads):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.ort, self.sizes = ort, MODELS[os.path.basename(folder)]
        self.session = ort.InferenceSession(f"{folder}/genai/model.onnx", options, providers=["CPUExecutionProvider"])
        self.names = {i.name for i in self.session.get_inputs()}
        self.all_logits = self.session.get_outputs()[0].shape[1] != 1  # without the builder's prune_lm_head

    def generate(self, prompts, count):
        value, s, rows, length = self.ort.OrtValue.ortvalue_from_numpy, self.sizes, len(prompts), len(prompts[0]) + count
        binding = self.session.io_binding()
        for i in range(s["num_hidden_layers"]):
            for part in ("key", "value"):
                cache = value(np.zeros((rows, s["num_key_value_heads"], length, s["head_dim"]), np.float32))
                binding.bind_ortvalue_input(f"past_key_values.{i}.{part}", cache)
                binding.bind_ortvalue_output(f"present.{i}.{part}", cache)
        ids, past, found = np.asarray(prompts, np.int64), 0, []
        for _ in range(count):
            total = past + ids.shape[1]
            given = {"input_ids": ids, "attention_mask": np.ones((rows, total), np.int64),
                     "position_ids": np.broadcast_to(np.arange(past, total), ids.shape).copy()}
            for name in self.names & set(given):
                binding.bind_cpu_input(name, given[name])
            logits = np.empty((rows, ids.shape[1] if self.all_logits else 1, s["vocab_size"]), np.float32)
            binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
            self.session.run_with_iobinding(binding)
            ids = logits[:, -1].argmax(-1)[:, None].astype(np.int64)
            found.append(ids[:, 0])
            past = total
        return np.stack(found, 1).tolist()


class LlamaCpp:
    """The functions of llama.h: the class above them wants a tokenizer."""

    def __init__(self, folder, threads):
        import llama_cpp
        self.llama, self.words = llama_cpp, MODELS[os.path.basename(folder)]["vocab_size"]
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(f"{folder}/model.gguf".encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError("llama_model_load_from_file gives no model")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = 2 * MOST, LLAMA_BATCH, LLAMA_BATCH, 16
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        options.kv_unified = True  # sequences have no fixed share of the context
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama_init_from_model gives no context")
        self.batch = llama_cpp.llama_batch_init(LLAMA_BATCH, 0, 1)

    def decode(self, tokens):
        """(token, position, sequence, whether the next is asked for) each; the next tokens, in their order."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, asked) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, asked
            batch.seq_id[i][0] = sequence
        if code := self.llama.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode gives {code}")
        return [int(np.ctypeslib.as_array(self.llama.llama_get_logits_ith(self.context, i), (self.words,)).argmax())
                for i, token in enumerate(tokens) if token[3]]

    def generate(self, prompts, count):
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), False)
        length = len(prompts[0])
        given = [(token, i, s, i == length - 1) for s, prompt in enumerate(prompts) for i, token in enumerate(prompt)]
        rows = [[token] for first in range(0, len(given), LLAMA_BATCH) for token in self.decode(given[first:first + LLAMA_BATCH])]
        for step in range(count - 1):
            for row, token in zip(rows, self.decode([(row[-1], length + step, s, True) for s, row in enumerate(rows)])):
                row.append(token)
        return rows


CLASSES = {"lathe": Lathe, "transformers": Transformers, "onnxruntime-genai": OnnxruntimeGenai,
           "onnxruntime": Onnxruntime, "llama-cpp-python": LlamaCpp}


def work(name, folder, threads):
    """A runtime's process: a task a line, [prompts, count] in, [seconds, tokens] out. All have the same processors."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a runtime prints is no answer
    try:
        runtime = CLASSES[name](folder, threads)
    except Exception as problem:
        print(json.dumps({"problem": f"{type(problem).__name__}: {problem}"[:300]}), file=out, flush=True)
        return
    print("{}", file=out, flush=True)
    for line in sys.stdin:
        prompts, count = json.loads(line)
        begin = time.perf_counter()
        tokens = runtime.generate(prompts, count)
        print(json.dumps([time.perf_counter() - begin, tokens]), file=out, flush=True)


class Process:
    def __init__(self, name, folder, threads):
        self.child = subprocess.Popen([sys.executable, __file__, "--work", name, folder, str(threads)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.child.stdout.readline()
        self.problem = json.loads(line).get("problem") if line else "its process ended"
        self.stop()

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGSTOP)

    def do(self, prompts, count):
        """Seconds and tokens; none where its process ended."""
        if self.child.poll() is not None:
            return None
        self.child.send_signal(signal.SIGCONT)
        self.child.stdin.write(json.dumps([prompts, count]) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        self.stop()
        return json.loads(line) if line else None

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()


def config_of(name):
    from transformers import Qwen3Config
    return Qwen3Config(**MODELS[name], max_position_embeddings=MOST, tie_word_embeddings=False, bos_token_id=0,
                       eos_token_id=MODELS[name]["vocab_size"] - 1, pad_token_id=0)


def draw(name, folder, wanted, target):
    """A graph without weights for lathe, and weights for graphs that came without."""
    import onnx

    import check_paged
    import lathe_cli
    os.makedirs(folder, exist_ok=True)
    config, pool = config_of(name), np.random.default_rng(7).standard_normal(1 << 24, np.float32) / 32
    if "lathe" in wanted and not os.path.exists(f"{folder}/model.lathe"):
        check_paged.save_decoder(f"{folder}/model.onnx", dict(
            width=config.hidden_size, inner=config.intermediate_size, layers=config.num_hidden_layers, norms=True,
            heads=config.num_attention_heads, groups=config.num_key_value_heads, words=config.vocab_size,
            head=config.head_dim, element=onnx.TensorProto.FLOAT))
        lathe_cli.compile_model(f"{folder}/model.onnx", f"{folder}/model.lathe", "--paged", "--random-weights=7",
                                target=target)
    if "llama-cpp-python" in wanted and not os.path.exists(f"{folder}/model.gguf"):
        import torch
        from transformers import Qwen3ForCausalLM
        with torch.device("meta"):  # shapes alone
            weights = Qwen3ForCausalLM(config).state_dict()
        write_gguf(f"{folder}/model.gguf", config, ((key, np.resize(pool, weight.shape)) for key, weight in weights.items()))
    if "onnxruntime" in wanted or "onnxruntime-genai" in wanted:
        graph = onnx.load(f"{folder}/genai/model.onnx", load_external_data=False).graph
        ends = collections.Counter()
        for tensor in graph.initializer:
            at = {e.key: e.value for e in tensor.external_data}
            if at:
                ends[at["location"]] = max(ends[at["location"]], int(at.get("offset", 0)) + int(at["length"]))
        for location, end in ends.items():
            if not os.path.exists(f"{folder}/genai/{location}"):
                np.resize(pool, end // 4).tofile(f"{folder}/genai/{location}")


def export(name, folder, wanted):
    """What each runtime reads, once."""
    import torch
    from transformers import DynamicCache, Qwen3ForCausalLM

    import export_llama
    import lathe_cli

    os.makedirs(folder, exist_ok=True)
    config = config_of(name)
    with torch.no_grad():
        model = export_llama.draw_weights(Qwen3ForCausalLM(config).eval(), 7)
    if not os.path.exists(f"{folder}/hf/config.json"):
        model.save_pretrained(f"{folder}/hf")

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, *caches):
            cache = DynamicCache()
            for i in range(config.num_hidden_layers):
                cache.update(caches[2 * i], caches[2 * i + 1], i)
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            return (out.logits, *[x for layer in out.past_key_values.layers for x in (layer.keys, layer.values)])

    if not os.path.exists(f"{folder}/model.onnx"):
        caches = [torch.zeros(2, config.num_key_value_heads, 5, config.head_dim)] * (2 * config.num_hidden_layers)
        dim = torch.export.Dim
        b, s, p = dim("B", min=1, max=64), dim("S", min=1, max=MOST), dim("P", min=0, max=MOST)
        names = [f"{x}{i}" for i in range(config.num_hidden_layers) for x in "kv"]
        with torch.no_grad():
            torch.onnx.export(Step(), (torch.ones(2, 3, dtype=torch.int64), *[c.clone() for c in caches]), dynamo=True,
                              input_names=["ids", *names], output_names=["logits", *["p" + n for n in names]],
                              dynamic_shapes=({0: b, 1: s}, tuple([{0: b, 2: p}] * len(names))), opset_version=18,
                              verbose=False).save(f"{folder}/model.onnx", external_data=True)
    if "lathe" in wanted:  # anew: what is raced is this build
        lathe_cli.compile_model(f"{folder}/model.onnx", f"{folder}/model.lathe", "--paged", target="native")
    if {"onnxruntime-genai", "onnxruntime"} & set(wanted) and not os.path.exists(f"{folder}/genai/genai_config.json"):
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast
        words = {str(i): i for i in range(config.vocab_size)}  # the builder wants some tokenizer
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="0")),
                                unk_token="0").save_pretrained(f"{folder}/hf")
        builder = os.path.join(importlib.util.find_spec("onnxruntime_genai").submodule_search_locations[0], "models",
                               "builder.py")
        subprocess.run([sys.executable, builder, "-m", f"{folder}/hf", "-o", f"{folder}/genai", "-p", "fp32", "-e",
                        "cpu", "-c", f"{folder}/genai_cache"], check=True, stdout=subprocess.DEVNULL)
    if "llama-cpp-python" in wanted and not os.path.exists(f"{folder}/model.gguf"):
        write_gguf(f"{folder}/model.gguf", config, ((key, weight.numpy()) for key, weight in model.state_dict().items()))
    return model


def write_gguf(path, config, weights):
    """(transformers' name, array in f32) each, without a tokenizer, as llama.cpp reads Qwen3."""
    import gguf
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(MOST)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("none")
    for name, weight in weights:
        name = name.removesuffix(".weight")
        if layer := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name):
            name = f"blk.{layer[1]}.{GGUF_LAYER[layer[2]]}"
        else:
            name = GGUF_WHOLE[name]
        writer.add_tensor(f"{name}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sure_tokens(model, prompts, count):
    """Greedy tokens of transformers, each up to the first whose two best logits are close."""
    import torch
    from transformers import DynamicCache
    rows = []
    with torch.no_grad():
        for prompt in prompts:
            cache, ids, tokens = DynamicCache(), torch.tensor([prompt]), []
            for _ in range(count):
                best = torch.topk(model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1], 2)
                if best.values[0] - best.values[1] < GAP:
                    break
                tokens.append(int(best.indices[0]))
                ids = best.indices[None, :1]
            rows.append(tokens)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="qwen3-0.6b")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="names, with commas between")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", default=",".join(TASKS), help="names, with commas between")
    parser.add_argument("--drawn", metavar="FOLDER", help="race with the graphs there and weights that are drawn")
    parser.add_argument("--answer", type=int, help="tokens of an answer, where there are several")
    parser.add_argument("--target", default="native", help="of lathe")
    parser.add_argument("--report", help="write the table there, too")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work[0], options.work[1], int(options.work[2]))
    wanted = options.runtimes.split(",")
    for name in [n for n in wanted if RUNTIMES[n] and not importlib.util.find_spec(RUNTIMES[n])]:
        print(f"{name} is not installed, and left out")
        wanted.remove(name)
    folder = os.path.join(options.drawn or os.path.join(ROOT, "build", "models", "race"), options.model)
    vocabulary = MODELS[options.model]["vocab_size"]
    check = prompts_of(vocabulary, 3, 24, 1)
    if options.drawn:
        draw(options.model, folder, wanted, options.target)
        truth = [[]] * len(check)
    else:
        model = export(options.model, folder, wanted)
        truth = sure_tokens(model, check, CHECKED)
        assert sum(map(len, truth)) > len(truth) * CHECKED // 2, "few tokens are sure: the check says little"
        del model
    racers = {}
    for name in wanted:
        print(f"starts {name}", file=sys.stderr, flush=True)
        process = Process(name, folder, options.threads)
        done = process.problem is None and process.do(check, CHECKED)
        if not done or any(answer[:len(sure)] != sure for answer, sure in zip(done[1], truth)):
            print(f"{name} takes no part: {process.problem or 'it has other tokens than transformers'}")
            process.end()
            continue
        racers[name] = process
    lines = [f"{options.model} in f32, {options.threads} threads, median seconds of {options.rounds} rounds; in brackets "
             "how many times as fast lathe is, median of the rounds' ratios", "",
             "| task | " + " | ".join(racers) + " |", "|---|" + "---|" * len(racers)]
    for task in options.tasks.split(","):
        streams, length, count = TASKS[task]
        count = options.answer if options.answer and count > 1 else count
        times = {name: [] for name in racers}
        for turn in range(options.rounds + (not options.drawn)):
            order = list(racers)
            for name in order[turn % len(order):] + order[:turn % len(order)]:
                seconds, _ = racers[name].do(prompts_of(vocabulary, streams, length, 100 + turn), count)
                if turn or options.drawn:  # the first warms up; there the check did
                    times[name].append(seconds)
        cells = []
        for name, own in times.items():
            ratio = f" ({np.median(np.array(own) / np.array(times['lathe'])):.2f})" if "lathe" in times else ""
            cells.append(f"{np.median(own):.3f}{ratio}")
        lines.append(f"| {task}: {streams} x ({length} + {count}) | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    for process in racers.values():
        process.end()
    print("\n".join(lines))
    if options.report:
        with open(options.report, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
