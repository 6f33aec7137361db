# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The policies of test/perf/gpu/serve_policies.py on a cost of a second a step."""

import os
import random
import sys
import xml.dom.minidom

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "perf", "gpu"))
import serve_policies

SECOND = serve_policies.Costs([1, 4096], [1.0, 1.0], 0.0)
POLICIES = [serve_policies.lathe_policy, serve_policies.vllm_policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_prompts_come_in_pieces(policy):
    (alone,) = serve_policies.simulate(policy(4, 8, 100), SECOND, [(0.0, 10, 5)])
    assert alone == (3.0, 1.0)


def test_decodes_go_first():
    """A prompt that began before another's answers leaves them their token, and takes the rest of the budget."""
    arrivals = [(0.0, 8, 2), (0.5, 2, 4)]
    ours = serve_policies.simulate(serve_policies.lathe_policy(4, 8, 100), SECOND, arrivals)
    assert ours[0] == (2.0, 1.0)
    assert ours[1] == (2.5, 1.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_come_to_their_end_in_few_blocks(policy):
    draw = random.Random(2)
    arrivals = [(0.1 * i, draw.randrange(1, 90), draw.randrange(1, 60)) for i in range(40)]
    crowded, alone = (
        serve_policies.simulate(policy(32, 16, blocks), SECOND, arrivals) for blocks in (12, 1000)
    )
    assert len(crowded) == 40 and all(first > 0 and later >= 0 for first, later in crowded)
    assert sum(first for first, _ in crowded) > sum(first for first, _ in alone)


def test_more_than_the_pool_is_refused():
    with pytest.raises(ValueError, match="90 tokens has no room in 5 blocks"):
        serve_policies.simulate(serve_policies.lathe_policy(128, 8, 5), SECOND, [(0.0, 90, 1)])


def test_percentiles_and_their_drawing():
    assert serve_policies.percentiles(range(100)) == [50, 95, 99]
    rows = [(load, side, [0.01, 0.02, 0.05], [0.004, 0.005, 0.006]) for load in (50, 95) for side in ("a", "b")]
    drawing = xml.dom.minidom.parseString(serve_policies.draw(rows))
    assert len(drawing.getElementsByTagName("polyline")) == 12
