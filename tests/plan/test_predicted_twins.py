"""Entries that are built alike are one job, counted once and kept in one shard; what nothing here runs is said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Weights
from harness.plan import PlanError, attempted, not_attempted, select
from harness.plan.durations import totals
from harness.plan.sharding import sharded
from harness.plan.twins import TWIN_MILLISECONDS, collapsed, originals

BERT = Entry("acme/b", "", "transformers", "bert", "BertModel", "text-encoder", "", None, "smoke")
TWIN = replace(BERT, model_id="acme/a", params=7, tier="weekly")
FLUX = replace(BERT, model_id="acme/flux", library="diffusers", model_type="Flux", model_class="Flux", tier="full")


def cases(*entries: Entry) -> list[Case]:
    grid = product((Phase.FORWARD,), (Mode.EAGER, Mode.COMPILED), (Dtype.FLOAT32,), (Profile.PADDED,))
    return [Case(entry, *rest) for rest in grid for entry in entries]


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (TWIN, True),
        (replace(TWIN, model_class="BertForMaskedLM"), False),
        (replace(TWIN, model_type="roberta"), False),
        (replace(TWIN, config="/configs/a.json"), False),
        (replace(TWIN, weights=Weights.HUB), False),
    ],
)
def test_synthetic_models_of_one_type_class_and_config_are_one_job(other, alike):
    first = originals(cases(BERT, other))
    assert len(set(first.values())) == (2 if alike else 4)
    assert all(original.mode == case.mode for case, original in first.items())


def test_configs_that_say_the_same_are_one_job(tmp_path):
    said = {"model_type": "bert", "hidden_size": 768, "text_config": {"num_layers": 2}}
    named = {"_name_or_path": "b", "transformers_version": "4.1", "architectures": ["B"]}
    configs = {
        "a": said,
        "b": said | named | {"text_config": {"num_layers": 2, "id2label": {"0": "no"}}},
        "c": said | {"text_config": {"num_layers": 3}},
        "d": None,
        "e": None,
    }
    entries = []
    for name, config in configs.items():
        path = tmp_path / f"{name}.json"
        if config is not None:
            path.write_text(json.dumps(config))
        entries.append(replace(BERT, model_id=f"acme/{name}", weights=Weights.CONFIG, config=str(path)))
    firsts = {case.entry.model_id: first.entry.model_id for case, first in originals(cases(*entries)).items()}
    assert firsts == {f"acme/{name}": f"acme/{first}" for name, first in zip("abcde", "aacde", strict=True)}
    default = replace(BERT, model_id="acme/0")
    assert len(set(originals(cases(default, entries[0])).values())) == 4, "its own config is not the defaults"


def test_real_weights_are_no_twins():
    assert len(set(originals(cases(*(replace(one, weights=Weights.HUB) for one in (BERT, TWIN)))).values())) == 4


def test_the_first_by_id_counts_in_full_whatever_the_order():
    for entries in ((BERT, TWIN), (TWIN, BERT)):
        time = collapsed(dict.fromkeys(cases(*entries), 9_000))
        assert {case.entry.model_id: spent for case, spent in time.items()} == {
            "acme/a": 9_000,
            "acme/b": TWIN_MILLISECONDS,
        }
    assert set(collapsed(dict.fromkeys(cases(BERT, TWIN), 50)).values()) == {50}, "a lookup is never the longer"


def test_twins_share_a_shard():
    alone = [replace(BERT, model_type=f"type{n}", model_id=f"acme/{n}") for n in range(20)]
    alike = [replace(BERT, model_id=f"acme/alike{n}") for n in range(20)]
    shards = sharded(collapsed(dict.fromkeys(cases(*alone, *alike), 9_000)), 4)
    assert sum(any(case.entry in alike for case in shard) for shard in shards) == 1


def test_totals_count_jobs_and_leave_out_the_time_of_what_is_unknown():
    own, twin = cases(BERT, TWIN)[:2]
    (total,) = totals([own, twin], {own: 9_000, twin: 100}, {own}, {own}).values()
    assert (total.cases, total.jobs, total.unknown, total.milliseconds) == (2, 1, 1, 100)


def test_a_tier_has_those_nested_in_it():
    zoo = [replace(BERT, model_id=f"acme/{tier}", tier=tier) for tier in ("full", "smoke", "weekly", "architectures")]
    assert [entry.tier for entry in select(zoo, tier="weekly")] == ["smoke", "weekly"]
    assert [entry.tier for entry in select(zoo, tier="full")] == ["full", "smoke", "weekly"]
    assert [entry.tier for entry in select(zoo, tier="architectures")] == ["architectures"]


def test_models_of_other_libraries_are_counted_and_not_attempted():
    assert not_attempted([BERT, FLUX, FLUX]) == {"diffusers": 2}
    assert attempted([BERT, FLUX]) == (BERT,)
    assert attempted([BERT, FLUX], ["acme/*"]) == (BERT,)
    assert attempted([]) == ()


@pytest.mark.parametrize(("entries", "words"), [([FLUX], []), ([BERT, FLUX], ["bert", "acme/flux"])])
def test_to_ask_for_nothing_else_is_an_error(entries, words):
    with pytest.raises(PlanError, match=r"nothing here runs .* diffusers models are listed, and not attempted"):
        attempted(entries, words)
