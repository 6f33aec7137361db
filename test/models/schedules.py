# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random schedules of requests on an engine of --batch-invariant, each compared with the request alone.

A schedule is drawn: how many tokens and requests a step takes, how large pool and swap space are, whether prompts are
cached, whether steps overlap, when each request comes, and which are cancelled. Compared are all tokens and the logprobs of the answer and of the prompt,
each of which is a sum over all logits. Vocabularies have at least 512 tokens.
"""
import random

LONGEST, ANSWER = 60, 30


def draw_requests():
    """Prompts with common beginnings, so that the prefix cache has something to find."""
    draw = random.Random(11)
    trunks = [[draw.randrange(512) for _ in range(LONGEST)] for _ in range(3)]
    rows = []
    for i in range(12):
        shared, own = draw.randrange(0, 48), draw.randrange(1, 12)
        rows.append(dict(tokens=trunks[i % 3][:shared] + [draw.randrange(512) for _ in range(own)], max_tokens=ANSWER,
                         temperature=draw.choice([0.0, 1.5]), seed=i, logprobs=3, prompt_logprobs=i % 4 == 0))
    return rows


def outcome(row, answer):
    return answer.tokens, answer.logprobs(), answer.prompt_logprobs() if row["prompt_logprobs"] else None


def run_schedule(engine, rows, alone, draw, totals, block_bytes, device="cpu", **options):
    """Adds what the llm counts to `totals`."""
    most = draw.choice([1, 2, 3, 5, 8, 13, 24, 64, 100])
    least = -(-(LONGEST + ANSWER) // 16) + 1
    llm = engine.llm(device, threads=draw.choice([1, 2]), kv_bytes=block_bytes * draw.randrange(least, 3 * least),
                     max_sequence_tokens=LONGEST + ANSWER, max_step_tokens=most,
                     max_requests=min(most, draw.choice([1, 4, 8, 12])), prefix_cache=draw.random() < 0.7,
                     swap_bytes=draw.choice([0, 2 * least * block_bytes]), overlap=draw.random() < 0.5, **options)
    coming = draw.sample(range(len(rows)), draw.randrange(6, len(rows) + 1))
    running, finished = {}, {}
    while coming or running:
        for _ in range(draw.choice([1, 1, 3, 12])):
            if coming:
                which = coming.pop()
                running[which] = llm.submit(**rows[which], priority=draw.choice([0, 0, 1]))[0]
        if running and draw.random() < 0.005:
            running.pop(draw.choice(sorted(running))).cancel()
        llm.step()
        for which in [w for w, answer in running.items() if answer.finish]:
            finished[which] = running.pop(which)
    for which, answer in finished.items():
        assert outcome(rows[which], answer) == alone[which], f"request {which}"
    for name, value in llm.counters().items():
        totals[name] = totals.get(name, 0) + value
    totals["finished"] = totals.get("finished", 0) + len(finished)


def alone_of(engine, rows, device="cpu", **options):
    outcomes = []
    for row in rows:
        llm = engine.llm(device, prefix_cache=False, **options)
        answer = llm.submit(**row)[0]
        llm.run()
        outcomes.append(outcome(row, answer))
    return outcomes
