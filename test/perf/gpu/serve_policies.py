# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedulers of a serving engine simulated on one cost model, and a drawing of their latencies; no GPU, no dependencies.

`Costs` gives the seconds of a step from its tokens and the keys that they read. `simulate` steps a policy over
requests that arrive: `lathe` takes decodes first, then prompts that have begun, and admits a request where its whole
prompt fits beside a block for each that runs; `vllm` is the default of vLLM's second engine: requests that run in
their order, each with all that is left of the budget, then those that wait as long as a block is free for their next
piece; who runs short of blocks preempts the youngest, which is computed again. `draw` makes an SVG of percentiles
against load.
"""

import bisect
from dataclasses import dataclass, field

BLOCK = 16


@dataclass
class Costs:
    """Seconds of a step: of so many tokens by interpolation between measured counts, plus those of the keys they read."""

    counts: list  # ascending
    seconds: list
    of_key: float

    def step(self, tokens, keys):
        i = min(max(bisect.bisect_left(self.counts, tokens), 1), len(self.counts) - 1)
        (a, b), (s, t) = self.counts[i - 1 : i + 1], self.seconds[i - 1 : i + 1]
        return s + (t - s) * max(tokens - a, 0) / (b - a) + keys * self.of_key


@dataclass
class Policy:
    name: str
    budget: int  # tokens of a step
    most: int  # requests at once
    blocks: int  # of the pool, of 16 tokens
    whole_prompts: bool  # admitted where all their blocks are free, beside one for each that runs and `watermark`
    watermark: float = 0.0


def lathe_policy(budget, most, blocks):
    return Policy("lathe", budget, most, blocks, True, 0.05)


def vllm_policy(budget, most, blocks):
    return Policy("vllm", budget, most, blocks, False)


@dataclass(eq=False)
class Request:
    arrival: float
    prompt: int
    answer: int
    computed: int = 0
    tokens: int = 0  # of the answer, so far
    times: list = field(default_factory=list)

    @property
    def pending(self):
        return self.prompt + self.tokens - self.computed

    def blocks(self, tokens):
        return -(-tokens // BLOCK)


def plan(policy, running, waiting):
    """[(request, tokens)] of the next step; changes both lists."""
    parts, budget = [], policy.budget
    free = policy.blocks - sum(r.blocks(r.computed) for r in running)

    def take(request):
        nonlocal budget, free
        count = min(request.pending, budget)
        while (need := request.blocks(request.computed + count) - request.blocks(request.computed)) > free:
            victim = running[-1] if running[-1] not in (p for p, _ in parts) else request
            free += victim.blocks(victim.computed)
            victim.computed = 0
            running.remove(victim)
            waiting.insert(0, victim)
            if victim is request:
                return False
        free -= need
        budget -= count
        parts.append((request, count))
        return True

    order = sorted(running, key=lambda r: r.pending != 1) if policy.whole_prompts else list(running)
    preempted = False
    for request in order:
        if budget and request in running:
            preempted |= not take(request)
    while budget and waiting and len(running) < policy.most and not preempted:
        first = waiting[0]
        need = (
            first.blocks(first.prompt + first.tokens + 1)
            if policy.whole_prompts
            else first.blocks(min(first.pending, budget))
        )
        spare = max(len(running), -(-policy.blocks * policy.watermark // 1)) if policy.whole_prompts and running else 0
        if need + spare > free:
            break
        running.append(waiting.pop(0))
        take(first)
    return parts


def simulate(policy, costs, arrivals):
    """[(seconds to the first token, seconds of each later token)] of requests [(arrival, prompt, answer)], in their order."""
    coming = [Request(*a) for a in arrivals]
    made, now, running, waiting = list(coming), 0.0, [], []
    while coming or running or waiting:
        if not running and not waiting:
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            waiting.append(coming.pop(0))
        parts = plan(policy, running, waiting)
        if not parts:
            raise ValueError(
                f"{policy.name}: a request of {waiting[0].prompt} tokens has no room in {policy.blocks} blocks"
            )
        # A piece of a prompt reads its keys once, however many tokens it has.
        now += costs.step(sum(count for _, count in parts), sum(r.computed + count for r, count in parts))
        for request, count in parts:
            request.computed += count
            if request.pending == 0:
                request.tokens += 1
                request.times.append(now)
                if request.tokens == request.answer:
                    running.remove(request)
    return [(r.times[0] - r.arrival, (r.times[-1] - r.times[0]) / max(len(r.times) - 1, 1)) for r in made]


def percentiles(values, which=(50, 95, 99)):
    ordered = sorted(values)
    return [ordered[min(int(p / 100 * len(ordered)), len(ordered) - 1)] for p in which]


# ---- Drawing ------------------------------------------------------------------------------------

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # apart for colour-blind readers
WIDE, HIGH, LEFT, TOP, GAP = 300, 200, 60, 70, 70


def panel(x0, title, rows, index):
    """Of (load in percent, side, TTFT percentiles, TPOT percentiles) those of one kind, in ms over a logarithmic axis."""
    import math

    sides = list(dict.fromkeys(row[1] for row in rows))
    values = [v * 1e3 for row in rows for v in row[index]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high += high == low
    loads = sorted({row[0] for row in rows})

    def at(load, ms):
        return (
            x0 + (load - loads[0]) / max(loads[-1] - loads[0], 1) * WIDE,
            TOP + HIGH * (1 - (math.log10(ms) - low) / (high - low)),
        )

    out = [
        f'<text x="{x0 + WIDE / 2:.1f}" y="{TOP - 10}" text-anchor="middle" font-size="13">{title}</text>',
        f'<rect x="{x0}" y="{TOP}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#888"/>',
    ]
    for power in range(low, high + 1):
        _, y = at(loads[0], 10.0**power)
        out += [
            f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + WIDE}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="11">{10.0**power:g} ms</text>',
        ]
    for load in loads:
        x, _ = at(load, 10.0**low)
        out.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 16}" text-anchor="middle" font-size="11">{load} %</text>')
    for s, side in enumerate(sides):
        for p, dash in enumerate(("", "6 3", "2 3")):
            points = " ".join(
                "{:.1f},{:.1f}".format(*at(row[0], row[index][p] * 1e3)) for row in rows if row[1] == side
            )
            out.append(
                f'<polyline points="{points}" fill="none" stroke="{COLOURS[s]}" stroke-width="1.8"'
                f' stroke-dasharray="{dash or "none"}"/>'
            )
    return out


def draw(rows):
    """SVG of [(load in percent, side, TTFT P50/95/99, TPOT P50/95/99 in seconds)]."""
    width, height = LEFT + 2 * WIDE + GAP + 20, TOP + HIGH + 40
    size = f'width="{width}" height="{height}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect {size} fill="#fff"/>',
        f'<text x="{LEFT}" y="40" font-size="11">P50, P95 (dashes), P99 (dots) at shares of the rate that all at once reach</text>',
    ]
    for s, side in enumerate(dict.fromkeys(row[1] for row in rows)):
        x = LEFT + 200 * s
        out += [
            f'<line x1="{x}" y1="18" x2="{x + 24}" y2="18" stroke="{COLOURS[s]}" stroke-width="2.4"/>',
            f'<text x="{x + 30}" y="22" font-size="12">{side}</text>',
        ]
    out += panel(LEFT, "to the first token", rows, 2) + panel(LEFT + WIDE + GAP, "each later token", rows, 3)
    return "\n".join(out + ["</svg>", ""])
