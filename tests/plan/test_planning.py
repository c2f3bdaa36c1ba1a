"""What a run consists of, from users' words."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases import Case, Dtype, Entry, Mode, Phase, Profile, Shipped, Weights
from harness.plan import PlanError, digest, from_ids, lacking, plan, select, words_of


def entry(
    model_type: str,
    model_class: str,
    model_id: str,
    tier: str = "smoke",
    weights: Weights = Weights.SYNTHETIC,
    phases: tuple[Phase, ...] = (Phase.FORWARD,),
):
    return Entry(
        model_id,
        "",
        "transformers",
        model_type,
        model_class,
        "text-encoder",
        "",
        None,
        tier,
        weights,
        phases=phases,
    )


BERT = entry("bert", "BertModel", "google-bert/bert-base-uncased")
MINILM = entry("bert", "BertModel", "sentence-transformers/all-MiniLM-L6-v2", weights=Weights.HUB)
GPT2 = entry("gpt2", "GPT2LMHeadModel", "openai-community/gpt2", tier="nightly")
ZOO = (BERT, MINILM, GPT2)
GRID = ((Phase.FORWARD,), (Mode.STRICT_EAGER, Mode.COMPILED), (Dtype.FLOAT32,), (Profile.PADDED,))


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("bert", (BERT, MINILM)),
        ("GPT2LMHeadModel", (GPT2,)),
        ("openai-community/gpt2", (GPT2,)),
        ("google-bert/*", (BERT,)),
        ("*/hub", (MINILM,)),
        ("gpt*", (GPT2,)),
        (GPT2.id, (GPT2,)),
        (f"{BERT.id}/forward/compiled/float32/padded", (BERT,)),
        ("gpt2/*/compiled/*", (GPT2,)),
    ],
)
def test_every_kind_of_word(word, named):
    assert select(ZOO, words=[word]) == named


def test_tier_and_repetition():
    assert select((*ZOO, BERT), tier="smoke") == (BERT, MINILM)
    with pytest.raises(PlanError, match=r"unknown tier 'nigthly'; did you mean nightly\? \(valid: nightly, smoke\)"):
        select(ZOO, tier="nigthly")
    with pytest.raises(PlanError, match="no model matches 'gpt2'"):
        select(ZOO, tier="smoke", words=["gpt2"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("brt", "did you mean bert"),
        ("GPT2LMheadmodel", "did you mean GPT2LMHeadModel"),
        ("bert-base-uncase", "did you mean google-bert/bert-base-uncased"),
        ("compiled", "'compiled' is no model but a mode"),
        (f"{BERT.id}/forward/compild/float32/padded", "unknown mode 'compild'; did you mean compiled"),
        ("zzzz", "3 models here, such as bert, gpt2"),
        ("", "no model matches ''"),
        ("[", "no model matches '\\['"),
    ],
)
def test_what_is_said_of_a_word_that_names_nothing(word, said):
    with pytest.raises(PlanError, match=said) as caught:
        select(ZOO, words=[word])
    assert "\n" not in str(caught.value)


def test_cases_of_an_entry_are_consecutive_and_in_list_order():
    ids = [case.entry.id for case in plan(ZOO, *GRID[:2], (Dtype.FLOAT32, Dtype.BFLOAT16), GRID[3])]
    assert ids == [BERT.id] * 4 + [MINILM.id] * 4 + [GPT2.id] * 4


def test_a_model_may_be_run_in_the_dtype_that_it_comes_in():
    half, unknown = dataclasses.replace(GPT2, dtype="bfloat16"), BERT
    shipped = [case.dtype for case in plan((half, unknown), *GRID[:2], (Shipped.SHIPPED,), GRID[3])]
    assert shipped == [Dtype.BFLOAT16] * 2 + [Dtype.FLOAT32] * 2
    assert len(plan((half, unknown), *GRID[:2], (Dtype.FLOAT32, Shipped.SHIPPED), GRID[3])) == 6, "none of them twice"


def test_words_choose_cases_and_a_full_id_brings_its_own_coordinates():
    assert [case.mode for case in plan(ZOO, *GRID, words=["gpt2/*/compiled/*"])] == [Mode.COMPILED]
    foreign = f"{GPT2.id}/forward/eager/bfloat16/single"
    assert [case.id for case in plan(ZOO, *GRID, words=[foreign])] == [foreign]
    both = plan(ZOO, *GRID, words=["gpt2", foreign])
    assert len(both) == 3
    with pytest.raises(PlanError, match="outside the asked"):
        plan(ZOO, *GRID, words=["*/bfloat16/*"])


def test_an_entry_has_cases_only_in_its_phases():
    trained = entry("gpt2", "GPT2LMHeadModel", "gpt2", phases=tuple(Phase))
    cases = plan((BERT, trained), tuple(Phase), *GRID[1:])
    assert [case.phase for case in cases if case.entry is BERT] == [Phase.FORWARD] * 2
    assert [case.phase for case in cases if case.entry is trained] == [phase for phase in Phase for _ in range(2)]
    assert {case.phase for case in plan((trained,), tuple(Phase), *GRID[1:], words=["*/train/*"])} == {Phase.TRAIN}


def test_a_phase_that_an_entry_lacks_is_said():
    foreign = f"{BERT.id}/train/compiled/float32/padded"
    for ask in (lambda: plan(ZOO, *GRID, words=[foreign]), lambda: from_ids([foreign], ZOO)):
        with pytest.raises(PlanError, match=r"BertModel has no phase train \(it has: forward\)"):
            ask()
    trained = entry("gpt2", "GPT2LMHeadModel", "gpt2", phases=(Phase.FORWARD, Phase.TRAIN))
    assert lacking((BERT, MINILM, trained), (Phase.FORWARD, Phase.TRAIN)) == {Phase.TRAIN: 2}
    with pytest.raises(PlanError, match=r"none of the 3 chosen models has the phase generate \(they have: forward, tr"):
        lacking((BERT, MINILM, trained), (Phase.GENERATE,))


def test_vocabulary_words():
    assert words_of("mode", ["compiled", "compiled"], list(Mode)) == (Mode.COMPILED,)
    assert words_of("mode", [], (Mode.EAGER, Mode.COMPILED)) == (Mode.EAGER, Mode.COMPILED)
    with pytest.raises(PlanError, match=r"unknown dtype 'float23'; did you mean .*float32"):
        words_of("dtype", ["float23"], list(Dtype))


def test_digest_tells_plans_apart():
    cases = plan(ZOO, *GRID)
    assert digest(cases) == digest(plan(ZOO, *GRID))
    assert len({digest(cases), digest(cases[1:]), digest(tuple(reversed(cases)))}) == 3


names = st.from_regex(r"[a-zA-Z0-9][\w.\-]{0,12}", fullmatch=True)


@given(
    names,
    names,
    st.tuples(names, names).map("/".join) | names | st.just(""),
    st.sampled_from(Phase),
    st.sampled_from(Mode),
    st.sampled_from(Dtype),
    st.sampled_from(Profile),
)
def test_a_case_is_found_again_by_its_id(model_type, model_class, model_id, phase, mode, dtype, profile):
    case = Case(entry(model_type, model_class, model_id, phases=tuple(Phase)), phase, mode, dtype, profile)
    assert from_ids([case.id], [*ZOO, case.entry]) == (case,)


def test_ids_that_are_no_cases():
    for bad in ("", "bert", BERT.id, f"{BERT.id}/forward/compiled/float32", f"{BERT.id}/a/b/c/d"):
        with pytest.raises(PlanError, match="is not a case of the given model lists"):
            from_ids([bad], ZOO)
