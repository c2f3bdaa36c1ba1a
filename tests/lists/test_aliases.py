"""A model that was renamed keeps its history: old ids are taken for new ones wherever they come from."""

from __future__ import annotations

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

import results
from harness.cli import options
from model_lists import HUB_ID, ListError
from model_lists.aliases import aliases, current, read_aliases
from results import schema
from results.history import side
from results.learned import learned

NEW, OLD = "google-bert/bert-base-uncased", "bert-base-uncased"
CASE = "bert/BertForMaskedLM/{}/synthetic/forward/eager/float32/padded"


@pytest.mark.parametrize(
    ("given", "now"),
    [
        (OLD, NEW),
        (NEW, NEW),
        (f"bert/BertForMaskedLM/{OLD}/synthetic", f"bert/BertForMaskedLM/{NEW}/synthetic"),
        (CASE.format(OLD), CASE.format(NEW)),
        (CASE.format(NEW), CASE.format(NEW)),
        ("bert", "bert"),
        ("bert/*", "bert/*"),
        ("", ""),
    ],
)
def test_old_ids_are_replaced_in_words_and_ids(given, now):
    assert current(given) == now


def test_a_word_that_is_a_type_means_the_type():
    assert current("gpt2") != "gpt2", "a model was called so"
    assert [options.renamed(word) for word in ("gpt2", OLD, "bert/*")] == ["gpt2", NEW, "bert/*"]


def test_an_old_id_with_an_owner_is_replaced_as_well():
    old, new = next((old, new) for old, new in aliases().items() if "/" in old)
    assert current(CASE.format(old)) == CASE.format(new)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n", "1: the first line must be old_id,new_id"),
        (b"old_id,new_id\na\n", "2: 1 values"),
        (b"\xff", "1: can"),
    ],
)
def test_a_bad_table_is_one_line(tmp_path, content, said):
    (tmp_path / "aliases.csv").write_bytes(content)
    with pytest.raises(ListError, match=rf"aliases\.csv:{said}"):
        read_aliases(tmp_path / "aliases.csv")


def recorded(store, case_id: str, verdict: str, day: str) -> results.store.Run:
    row = dict.fromkeys(column.name for column in schema.COLUMNS)
    row |= {"schema_version": 1, "case_id": case_id, "target": "cpu", "recorded_at": day, "verdict": verdict}
    run = results.create_run(store, {"settings": {"target": "cpu"}, "emulated": False}, [case_id])
    with run.journal("gw0") as journal:
        journal.append(row | {"run_id": run.id, "stage": "compare", "wall_seconds": 3.0})
    results.seal(run)
    return run


def test_planning_and_comparing_follow_a_renamed_model(tmp_path):
    before = recorded(tmp_path, CASE.format(OLD), "RUN_ERROR", "2026-11-01")
    assert learned(tmp_path, "cpu")[CASE.format(NEW)].verdict == "RUN_ERROR"
    after = recorded(tmp_path, CASE.format(NEW), "PASS", "2026-11-02")
    past = learned(tmp_path, "cpu")
    assert {case_id: known.verdict for case_id, known in past.items()} == {CASE.format(NEW): "PASS"}
    assert side(before).planned == side(after).planned == set(side(before).ended) == {CASE.format(NEW)}


@pytest.mark.parametrize(
    "text",
    [
        *("gpt2", "a/b", "a", "a.b/c-d_e.1", "_a/b_", "a/" + "b" * 96),
        *("", "a b", "a@b", "/b", "a/", "a/b/c", "-a/b", "a-/b", "a/b-", "a/b.", ".a", "a--b", "a..b", "a/b.git"),
        "a/" + "b" * 97,
    ],
)
def test_an_id_is_what_the_hubs_own_client_takes_for_one(text):
    try:
        validate_repo_id(text)
        valid = True
    except HFValidationError:
        valid = False
    assert bool(HUB_ID.fullmatch(text)) is valid
