"""Dealing cases out to shards: evenly, together, and the same everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile
from harness.plan import PlanError
from harness.plan.sharding import Shard, longest_first, lower_bound, makespan, parse_shard, sharded, split

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = st.lists(st.integers(0, 10_000_000), max_size=60).map(lambda all_: {f"{n:03}": w for n, w in enumerate(all_)})
COUNTS = st.integers(1, 20)


def cases_of(model: str, modes=(Mode.STRICT_EAGER, Mode.COMPILED), phases=(Phase.FORWARD,), dtypes=(Dtype.FLOAT32,)):
    entry = Entry(f"acme/{model}", "", "transformers", model, "Model", "", "", None, "smoke", phases=tuple(Phase))
    return [Case(entry, *words, Profile.PADDED) for words in product(phases, modes, dtypes)]


@given(WEIGHTS, COUNTS)
def test_never_worse_than_longest_first_and_nothing_is_lost(weights, count):
    parts = split(weights, count)
    assert len(parts) == count
    assert sorted(name for part in parts for name in part) == sorted(weights)
    assert makespan(longest_first(weights, count), weights) >= makespan(parts, weights) >= lower_bound(weights, count)


def test_better_than_longest_first_where_that_is_possible():
    weights = dict(zip("abcde", (3, 3, 2, 2, 2), strict=True))
    assert makespan(longest_first(weights, 2), weights) == 7
    assert makespan(split(weights, 2), weights) == 6


@given(WEIGHTS, COUNTS, st.randoms(use_true_random=False))
def test_the_order_in_which_the_weights_come_does_not_matter(weights, count, random):
    shuffled = list(weights.items())
    random.shuffle(shuffled)
    assert split(dict(shuffled), count) == split(weights, count)


def test_a_model_stays_together_and_the_longest_comes_first():
    milliseconds = {case: 1000 * (number + 1) for number in range(6) for case in cases_of(f"model{number}")}
    shards = sharded(milliseconds, 3)
    homes = {case.entry.id: number for number, shard in enumerate(shards) for case in shard}
    assert sum(len({case.entry.id for case in shard}) for shard in shards) == len(homes) == 6
    for shard in shards:
        times = [milliseconds[case] for case in shard]
        assert times == sorted(times, reverse=True)
    assert [sum(milliseconds[case] for case in shard) for shard in shards] == [14_000] * 3


def test_only_what_exceeds_the_fair_share_is_taken_apart_and_cases_with_one_reference_last():
    large = cases_of("large", phases=(Phase.FORWARD, Phase.GENERATE))
    milliseconds = dict.fromkeys(large, 10_000) | {case: 2_000 for n in range(5) for case in cases_of(f"small{n}")}
    first, second = sharded(milliseconds, 2)
    apart = [{case.phase for case in shard if case.entry.model_type == "large"} for shard in (first, second)]
    assert sorted(map(sorted, apart)) == [["forward"], ["generate"]]
    assert [len(shard) for shard in sharded(dict.fromkeys(large, 10_000), 4)] == [1, 1, 1, 1]


def test_the_seed_of_hashes_does_not_matter():
    program = """
import json
from test_sharding import cases_of
from harness.plan.sharding import sharded
times = {case: 100 + len(case.id) * n % 700 for n in range(40) for case in cases_of(f"model{n}")}
print(json.dumps([[case.id for case in shard] for shard in sharded(dict.fromkeys(set(times), 5) | times, 7)]))
"""
    dealt = []
    for seed in ("0", "1", "4242"):
        env = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent))),
        }
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        dealt.append(json.loads(done.stdout))
    assert dealt[0] == dealt[1] == dealt[2]
    assert sum(map(len, dealt[0])) == 80


@pytest.mark.parametrize("text", ["17/16", "0/4", "1/0", "3", "a/b", "-1/4", "1/4/2", "", "1/99999999"])
def test_what_is_no_shard(text):
    with pytest.raises(PlanError, match="shard"):
        parse_shard(text)


def test_what_is_a_shard():
    assert parse_shard("3/16") == Shard(3, 16)
    assert str(Shard(3, 16)) == "3/16"
