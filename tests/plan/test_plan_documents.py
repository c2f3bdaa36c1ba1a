"""Plans as files that machines follow which share nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile
from harness.plan import PlanError
from harness.plan.document import dumps, loads, made
from harness.plan.sharding import Shard

ENTRIES = tuple(
    Entry(f"acme/{name}", "", "transformers", name, "Model", "", "", None, "smoke", config=f"/here/{name}.json")
    for name in ("alpha", "beta", "gamma", 'q"uo\\te')
)
TIMES = {
    Case(entry, Phase.FORWARD, mode, Dtype.FLOAT32, Profile.PADDED): 1000 * place + 17
    for place, entry in enumerate(ENTRIES)
    for mode in (Mode.EAGER, Mode.COMPILED)
}


def plan(times=TIMES, shards=3, **changes):
    return made(times, shards, target="cpu", lists=["smoke"], **changes)


def test_a_plan_comes_back_as_it_was_written():
    written = plan(left_out=[], planned_at="2026-11-30T00:00:00+00:00")
    assert loads(dumps(written), "plan.json") == written
    assert sorted(case.case_id for case in written.cases) == sorted(case.id for case in TIMES)
    assert sum(len(written.of(Shard(number, 3))) for number in (1, 2, 3)) == len(TIMES)


def test_the_id_depends_on_the_content_alone():
    assert plan().id == plan(dict(reversed(TIMES.items()))).id == plan(planned_at="2026-11-30T00:00:00+00:00").id
    elsewhere = {
        replace(case, entry=replace(case.entry, config=case.entry.config.replace("/here/", "/there/"))): time
        for case, time in TIMES.items()
    }
    assert plan(elsewhere).id == plan().id
    revised = {replace(case, entry=replace(case.entry, revision="1" * 40)): time for case, time in TIMES.items()}
    longer = {case: time + 1 for case, time in TIMES.items()}
    others = {plan(revised).id, plan(longer).id, plan(shards=2).id, plan(dict(list(TIMES.items())[1:])).id}
    assert len(others | {plan().id}) == 5


def test_a_shard_of_another_number_of_shards():
    with pytest.raises(PlanError, match="3 shards: there is no 2/16"):
        plan().of(Shard(2, 16))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], r"plan.json:\d+: not a plan"),
        (lambda text: "[]", "not a plan"),
        (lambda text: "{}", "not a plan"),
        (lambda text: text.replace('"shard": 1', '"shard": 2', 1), "does not match its plan id"),
        (lambda text: text.replace('"shard": 1', '"shard": 9', 1), "shard 9 of 3"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "newer version"),
        (lambda text: json.dumps(json.loads(text) | {"shards": True}), "True shards"),
        (lambda text: json.dumps(json.loads(text) | {"cases": [{"case": "x", "shard": 1, "seconds": 1e999}]}), "plan"),
    ],
)
def test_what_is_no_plan(change, said):
    with pytest.raises(PlanError, match=said) as caught:
        loads(change(dumps(plan())), "plan.json")
    assert "\n" not in str(caught.value)
