"""The shipped list of public models, and the rule that chose them."""

from __future__ import annotations

import csv
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from harness.cases import Entry, Phase
from harness.plan import select
from model_lists import build, lists_for, load_list, tiers_within

FACTS = ("model_id", "library", "model_type", "architecture", "task", "params", "gated", "custom_code", "revision")
REGISTERED = (
    Entry("acme/base", "", "transformers", "bert", "BertModel", "text-encoder", "", None, "architectures"),
    Entry("BertForMaskedLM", "", "transformers", "bert", "BertForMaskedLM", "text-encoder", "", None, "heads"),
    Entry("Wrapper", "", "transformers", "timm_wrapper", "Wrapper", "vision", "", None, "architectures"),
)
ARCHITECTURES = (
    {"kind": "transformers", "name": "bert", "representative_id": "maker/bert"},
    {"kind": "diffusers-pipeline", "name": "FluxPipeline", "representative_id": ""},
)


def fact(model_id: str, source: str = "a+b", **given: str) -> dict[str, str]:
    known = {"library": "transformers", "model_type": "bert", "gated": "unknown", "custom_code": "unknown"}
    return dict.fromkeys(FACTS, "") | known | {"model_id": model_id, "source": source} | given


def chosen(*facts: dict[str, str], smoke: tuple[Entry, ...] = ()) -> tuple[tuple[Entry, ...], dict[str, str]]:
    return build.chosen(facts, ARCHITECTURES, REGISTERED, smoke)


def ids(*facts: dict[str, str]) -> list[str]:
    return [entry.model_id for entry in chosen(*facts)[0]]


def test_the_shipped_list_is_large_wide_and_small_on_disk():
    entries = load_list("hub")
    assert len(entries) >= 5_000
    assert len({entry.model_type for entry in entries if entry.library == "transformers"}) >= 500
    sizes = [entry.params for entry in entries if entry.params]
    assert min(sizes) < 1e6
    assert sum(size > 70e9 for size in sizes) > 100
    assert max(Counter(entry.model_type for entry in entries).values()) <= build.PER_TYPE
    assert {entry.gated for entry in entries} == {"yes", "no", "unknown"}
    needing_code = {entry.model_type for entry in entries if entry.custom_code == "yes"}
    assert not any(entry.custom_code != "yes" for entry in entries if entry.model_type in needing_code)
    assert Path(build.__file__).with_name("hub.csv").stat().st_size < 1_000_000


def test_tiers_are_nested_and_full_has_everything_that_ships():
    entries = [entry for path in lists_for("full") for entry in load_list(path)]
    tiers = [set(select(entries, tier=tier)) for tier in tiers_within("full")]
    for smaller, larger in pairwise(tiers):
        assert smaller < larger
    assert tiers[-1] == set(entries)
    assert [path.name for path in lists_for("smoke")] == ["smoke.csv"], "a quick run reads the small list alone"


def test_the_core_comes_first_and_what_is_old_only_fills_up():
    old = [fact(f"old/{n:02}", build.OLD_LISTING) for n in range(30)]
    assert len(ids(*old)) == build.PER_TYPE_OLD
    many = [fact(f"new/{n:02}", "a") for n in range(build.PER_TYPE_OLD)]
    assert ids(*old, *many, fact("z/core"))[0] == "z/core"
    assert not any(name.startswith("old/") for name in ids(*old, *many))
    assert len(ids(*(fact(f"new/{n:02}", "a") for n in range(99)))) == build.PER_TYPE


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (fact("z/a", gated="false"), fact("a/a", gated="true")),
        (fact("maker/a"), fact("a/a")),
        (fact("acme/a"), fact("a/a")),
        (fact("z/a"), fact("a/tiny-random-bert")),
        (fact("z/a", revision="0" * 40), fact("a/a")),
        (fact("z/a", "a+b+c"), fact("a/a")),
        (fact("a/a"), fact("z/a")),
    ],
)
def test_the_better_one_comes_first(better, worse):
    assert [entry.model_id for entry in chosen(worse, better)[0]] == [better["model_id"], worse["model_id"]]


def test_classes_and_sizes_take_turns():
    same = [fact(f"a/{n}", params="10") for n in range(3)]
    other = fact("z/class", params="10", task="fill-mask"), fact("z/size", params=str(80 * 10**9))
    assert set(ids(*same, *other)[:3]) == {"a/0", "z/class", "z/size"}


def test_the_class_is_the_named_one_else_the_tasks_else_the_types():
    classes = {
        entry.model_id: entry.model_class
        for entry in chosen(
            fact("a/named", architecture="BertForMaskedLM"),
            fact("a/tasked", architecture="Strange", task="fill-mask"),
            fact("a/neither", task="strange"),
            fact("a/body", library="sentence-transformers"),
        )[0]
    }
    assert classes == {
        "a/named": "BertForMaskedLM",
        "a/tasked": "BertForMaskedLM",
        "a/neither": "BertModel",
        "a/body": "BertModel",
    }


def test_other_libraries_are_listed_as_theirs():
    entries, _ = chosen(
        fact("a/flux", library="diffusers", model_type="", architecture="FluxPipeline"),
        fact("a/unheard", library="diffusers", model_type="", architecture="UnheardPipeline"),
        fact("timm/net", library="timm", model_type="", architecture="net"),
    )
    assert [(e.library, e.model_type, e.model_class, e.phases) for e in entries] == [
        ("diffusers", "FluxPipeline", "FluxPipeline", (Phase.FORWARD,)),
        ("timm", "timm_wrapper", "Wrapper", (Phase.FORWARD,)),
    ]


def test_what_cannot_be_chosen_is_not():
    smoke = Entry("Acme/Smoke", "", "transformers", "bert", "BertModel", "text-encoder", "", None, "smoke")
    facts = (fact("a/type", model_type="unheard"), fact("acme/smoke"))
    assert chosen(*facts, smoke=(smoke,))[0] == ()


def test_code_of_its_own_is_taken_only_for_a_type_that_has_nothing_else():
    own = fact("a/code", custom_code="true")
    assert [(entry.model_id, entry.tier) for entry in chosen(own)[0]] == [("a/code", "full")]
    assert ids(own, fact("a/plain", "a")) == ["a/plain"]


def test_nightly_is_small_core_and_free_weekly_is_free():
    entries, _ = chosen(
        fact("a/large", params=str(11 * 10**9)),
        fact("a/gated", gated="true"),
        fact("a/rare", "a"),
        *(fact(f"b/{n}") for n in range(10)),
    )
    tiers = {entry.model_id: entry.tier for entry in entries}
    assert tiers["a/large"] == "weekly"
    assert tiers["a/gated"] == tiers["a/rare"] == "full"
    counts = Counter(tiers.values())
    assert (counts["nightly"], counts["nightly"] + counts["weekly"]) == (build.PER_NIGHT, build.PER_WEEK)


def test_facts_keep_what_is_unknown_unknown():
    (entry,), _ = chosen(fact("a/a", gated="true", params="12", revision="1" * 40, task="fill-mask"))
    assert (entry.gated, entry.custom_code, entry.params, entry.revision) == ("yes", "unknown", 12, "1" * 40)
    (entry,), _ = chosen(fact("a/a", custom_code="false"))
    assert (entry.gated, entry.custom_code, entry.params, entry.revision, entry.task) == ("unknown", "no", None, "", "")


def test_renamed_models_are_listed_once_under_their_new_id():
    entries, renamed = chosen(
        fact("google-bert/bert-base", f"a+{build.OLD_LISTING}"),
        fact("google-bert/later"),
        fact("THUDM/glm"),
        fact("zai-org/glm"),
        fact("THUDM/alone"),
    )
    assert sorted(entry.model_id for entry in entries) == [
        "THUDM/alone",
        "google-bert/bert-base",
        "google-bert/later",
        "zai-org/glm",
    ]
    assert renamed == {"bert-base": "google-bert/bert-base", "THUDM/glm": "zai-org/glm"}


def test_the_same_facts_make_the_same_bytes_in_any_order(tmp_path):
    rows = [fact(f"a/{n}", "a+b" if n % 2 else "a", params=str(n * 10**8)) for n in range(1, 60)]
    rows.append(fact("google-bert/bert-base", f"a+{build.OLD_LISTING}"))
    build.write_list(tmp_path / "registered.csv", REGISTERED)
    made = []
    for seed in (1, 2):
        random.Random(seed).shuffle(rows)
        for name, table in (("hub_models.csv", rows), ("architectures.csv", ARCHITECTURES)):
            with (tmp_path / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, table[0])
                writer.writeheader()
                writer.writerows(table)
        hub, aliases = tmp_path / f"hub{seed}.csv", tmp_path / f"aliases{seed}.csv"
        build.main(tmp_path, tmp_path / "registered.csv", hub, aliases)
        made.append((hub.read_bytes(), aliases.read_bytes()))
        assert len(load_list(hub)) == build.PER_TYPE
    assert made[0] == made[1]
    assert made[0][1] == b"old_id,new_id\nbert-base,google-bert/bert-base\n"
